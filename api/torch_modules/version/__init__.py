"""The version, under the names of `torch.version`."""

from __future__ import annotations

__all__ = ["cuda", "debug", "git_version", "hip", "xpu"]

__version__ = "0.1.0"
cuda = hip = xpu = git_version = None  # versions of vendor toolkits, which weftgrad does not use
debug = False
