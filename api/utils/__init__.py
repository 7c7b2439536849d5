"""Data loading, checkpoints of activations, timing, tables and drawings of models, event files for TensorBoard."""

from importlib import import_module
from typing import TYPE_CHECKING

from . import data

__all__ = ["data"]

_MODULES = ("benchmark", "checkpoint", "graphviz", "model_summary", "tensorboard")

if TYPE_CHECKING:
    from . import benchmark as benchmark
    from . import checkpoint as checkpoint
    from . import graphviz as graphviz
    from . import model_summary as model_summary
    from . import tensorboard as tensorboard
    from .model_summary import summary as summary
else:

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return import_module(f".{name}", __name__)
        if name == "summary":
            return import_module(".model_summary", __name__).summary
        raise AttributeError(f"module 'weftgrad.utils' has no attribute {name!r}")
