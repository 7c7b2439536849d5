"""PyTorch, on the GPU that is measured or on the host's cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...runtime.backends.processor import cores
from ..sites import CACHES, OurSite, Site

__all__ = ["TorchSite", "site"]


class TorchSite(Site):
    """torch, on the host's cores or on a GPU."""

    name = "torch"

    def __init__(self, torch: Any, device: str, scale: int = 1):
        super().__init__(scale)
        self.library, self.device = torch, torch.device(device)
        self.gpu = self.graphs = self.device.type == "cuda"
        self.cache = CACHES if self.gpu and scale == 1 else 0
        if self.gpu:
            torch.cuda.set_device(self.device)
            self.memory = torch.cuda.get_device_properties(self.device).total_memory

    def wait(self) -> None:
        if self.gpu:
            self.library.cuda.synchronize(self.device)

    def _event(self) -> Any:
        return self.library.cuda.Event(enable_timing=True)

    def release(self) -> None:
        if self.gpu:
            self.library.cuda.empty_cache()

    @contextmanager
    def precision(self, name: str) -> Iterator[None]:
        """Also of convolutions, which torch would otherwise round to tf32 whatever is set for matrices."""
        cudnn = self.library.backends.cudnn
        before = cudnn.allow_tf32
        cudnn.allow_tf32 = name != "highest"
        try:
            with super().precision(name):
                yield
        finally:
            cudnn.allow_tf32 = before


def site(own: Sequence[OurSite], scale: int) -> Site:
    """torch with as many threads as cores."""
    import torch

    torch.set_num_threads(cores())
    return TorchSite(torch, _card(torch, own), scale)


def _card(torch: Any, own: Sequence[OurSite]) -> str:
    """torch's name for the first of the devices that is a GPU torch has too; else `cpu`."""
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        for each in own:
            if each.device.type == "cuda" and each.device.index < len(names):
                return f"cuda:{each.device.index}"
            if each.gpu and each.device.driver.name in names:
                return f"cuda:{names.index(each.device.driver.name)}"
    return "cpu"
