"""PyTorch with `torch.compile`: models are compiled by its default backend, at their first step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..sites import OurSite, Site
from .torch import TorchSite
from .torch import site as eager_site

if TYPE_CHECKING:
    from ..library_types import Model

__all__ = ["CompiledTorchSite", "site"]


class CompiledTorchSite(TorchSite):
    """torch on the CPU or on one GPU, which compiles models."""

    name = "torch.compile"

    def compile_model(self, model: Model) -> Model:
        compiled: Model = self.library.compile(model)
        return compiled


def site(our_sites: Sequence[OurSite], scale: int) -> Site:
    """Return a site with as many torch threads as cores."""
    eager = eager_site(our_sites, scale)
    return CompiledTorchSite(eager.library, str(eager.device), scale)
