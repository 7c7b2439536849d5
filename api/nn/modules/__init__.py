"""The layers under PyTorch's module paths: `nn.modules.Linear` is `nn.Linear`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from . import module

if TYPE_CHECKING:  # `__getattr__` finds these at run time
    from ..activations import *
    from ..adaptive import *
    from ..adaptive_pooling_layers import *
    from ..batch_normalization import *
    from ..classification_losses import *
    from ..containers import *
    from ..convolutions import *
    from ..dropouts import *
    from ..embeddings import *
    from ..folding import *
    from ..fractional import *
    from ..layers import *
    from ..lazy import *
    from ..lazy_convolutions import *
    from ..lazy_normalization import *
    from ..losses import *
    from ..multihead_attention import *
    from ..normalization import *
    from ..padding import *
    from ..parameter_containers import *
    from ..pooling_layers import *
    from ..rectified_units import *
    from ..recurrent import *
    from ..recurrent_cells import *
    from ..shuffling import *
    from ..transformer_layers import *
    from ..transformers import *
    from ..upsampling import *
    from . import (  # noqa: F401
        activation,
        batchnorm,
        container,
        conv,
        dropout,
        instancenorm,
        linear,
        loss,
        normalization,
        pooling,
        rnn,
        sparse,
        transformer,
        utils,
    )  # fmt: skip

__all__ = ["module"]

_SUBMODULES = (
    "activation", "batchnorm", "container", "conv", "dropout", "instancenorm", "linear", "loss", "normalization",
    "pooling", "rnn", "sparse", "transformer", "utils",
)  # fmt: skip


def __getattr__(name: str) -> object:
    from ... import nn  # lazy: nn imports this package

    if name in _SUBMODULES:
        return import_module(f".{name}", __name__)
    try:
        return getattr(nn, name)
    except AttributeError:
        raise AttributeError(f"module 'weftgrad.nn.modules' has no attribute {name!r}") from None
