"""PyTorch on the measured GPU or on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from ...runtime.backends.processor import cores
from ..sites import ROTATED_GPU_BYTES, OurSite, Site

if TYPE_CHECKING:
    from torch import device as TorchDevice

    from ..library_types import Event

__all__ = ["TorchSite", "site"]


class TorchSite(Site):
    """torch on the CPU or on one GPU."""

    name = "torch"
    device: TorchDevice

    def __init__(self, torch: ModuleType, device: str, scale: int = 1):
        super().__init__(scale)
        self.library, self.device = torch, torch.device(device)
        self.gpu = self.graphs = self.device.type == "cuda"
        self.cache = ROTATED_GPU_BYTES if self.gpu and scale == 1 else 0
        if self.gpu:
            torch.cuda.set_device(self.device)
            self.memory = torch.cuda.get_device_properties(self.device).total_memory

    def wait(self) -> None:
        if self.gpu:
            self.library.cuda.synchronize(self.device)

    def _event(self) -> Event:
        event: Event = self.library.cuda.Event(enable_timing=True)
        return event

    def release(self) -> None:
        if self.gpu:
            self.library.cuda.empty_cache()

    @contextmanager
    def precision(self, name: str) -> Iterator[None]:
        """Set the precision of convolutions too: torch uses tf32 there whatever is set for matrix products."""
        cudnn = self.library.backends.cudnn
        allow_tf32 = cudnn.allow_tf32
        cudnn.allow_tf32 = name != "highest"
        try:
            with super().precision(name):
                yield
        finally:
            cudnn.allow_tf32 = allow_tf32


def site(our_sites: Sequence[OurSite], scale: int) -> Site:
    """Return a site with as many torch threads as cores."""
    import torch

    torch.set_num_threads(cores())
    return TorchSite(torch, _torch_device(torch, our_sites), scale)


def _torch_device(torch: ModuleType, our_sites: Sequence[OurSite]) -> str:
    """Return torch's name for our first GPU that torch also has, else `cpu`."""
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        for our_site in our_sites:
            index = our_site.device.index or 0
            if our_site.device.type == "cuda" and index < len(names):
                return f"cuda:{index}"
            if our_site.gpu and our_site.device.driver.name in names:
                return f"cuda:{names.index(our_site.device.driver.name)}"
    return "cpu"
