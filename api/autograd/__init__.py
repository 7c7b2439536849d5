"""Automatic differentiation under `torch.autograd`'s names.

`gradients` has `backward` and `grad`, `grad_mode` has `no_grad` and its relatives, `anomaly` the search for NaN,
`function` custom functions, `functional` Jacobians and Hessians. The engine that walks the graph is
`runtime/autograd/engine.py`.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from ..runtime.overriding import add_functions as _add_functions
from . import functional  # noqa: F401
from .anomaly import detect_anomaly, set_detect_anomaly
from .function import Function
from .grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .gradcheck import GradcheckError, gradcheck, gradgradcheck  # noqa: F401
from .gradients import backward, grad
from .variable import Variable

__all__ = [
    "Function", "Variable", "anomaly_mode", "backward", "detect_anomaly", "enable_grad", "grad", "gradcheck",
    "gradgradcheck", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled", "no_grad", "set_detect_anomaly",
    "set_grad_enabled",
]  # fmt: skip

anomaly_mode = detect_anomaly
_add_functions({"backward": backward, "grad": grad})

if TYPE_CHECKING:
    from . import profiler as profiler
else:
    # lazy: start-up (the profiler imports optimizers)
    def __getattr__(name: str) -> ModuleType:
        if name == "profiler":
            return import_module(".profiler", __name__)
        raise AttributeError(f"module 'weftgrad.autograd' has no attribute {name!r}")
