"""`torch.utils.model_zoo`: an older name of `torch.hub`."""

from __future__ import annotations

from .hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]


def __getattr__(name: str) -> object:
    if name == "tqdm":  # torchvision imports it from here
        from tqdm import tqdm  # lazy: start-up

        return tqdm
    raise AttributeError(f"module 'torch.utils.model_zoo' has no attribute {name!r}")
