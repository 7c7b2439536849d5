"""The version, under the names of `torch.version`."""

from __future__ import annotations

__all__ = ["cuda", "debug", "git_version", "hip", "xpu"]

__version__ = "0.2.0"  # the only place: pyproject.toml reads it from here
cuda = hip = xpu = git_version = None  # versions of vendor toolkits, which weftgrad does not use
debug = False
