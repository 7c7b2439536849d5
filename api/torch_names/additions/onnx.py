"""Names of `torch.onnx` and `torch.onnx.symbolic_helper` that programs use to extend PyTorch's exporter."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from ..placeholders import PlaceholderModule
from ..tables import NAMES_ONLY

__all__ = [
    "OperatorExportTypes", "is_onnxrt_backend_supported", "parse_args", "register_custom_op_symbolic",
    "symbolic_helper", "symbolic_opset9", "symbolic_opset10", "symbolic_opset11", "symbolic_opset13",
]  # fmt: skip

symbolic_helper, symbolic_opset9, symbolic_opset10, symbolic_opset11, symbolic_opset13 = (
    PlaceholderModule(f"torch.onnx.symbolic_{name}", NAMES_ONLY["torch.onnx"])
    for name in ("helper", "opset9", "opset10", "opset11", "opset13")
)

_Function = TypeVar("_Function", bound=Callable[..., object])


class OperatorExportTypes(Enum):
    """Which operators a file may have. Files of `weftgrad.onnx.export` have ONNX's own."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


def is_onnxrt_backend_supported() -> bool:
    """Return False: there is no such backend."""
    return False


def parse_args(*descriptors: str) -> Callable[[_Function], _Function]:
    """Return a decorator that returns its function: only PyTorch's exporter calls it."""
    return lambda function: function


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable[..., object], opset_version: int) -> None:
    """Do nothing: only PyTorch's exporter calls the function. `weftgrad.onnx` exports ops by their specs."""
