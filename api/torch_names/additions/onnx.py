"""Functions of `torch.onnx` that query or extend its exporter, which does not exist here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["is_in_onnx_export", "is_onnxrt_backend_supported", "parse_args", "register_custom_op_symbolic"]

_Function = TypeVar("_Function", bound=Callable[..., object])


def is_in_onnx_export() -> bool:
    """Return False: nothing is exported."""
    return False


def is_onnxrt_backend_supported() -> bool:
    """Return False: there is no such backend."""
    return False


def parse_args(*descriptors: str) -> Callable[[_Function], _Function]:
    """Return a decorator that returns its function: only an exporter calls it."""
    return lambda function: function


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable[..., object], opset_version: int) -> None:
    """Do nothing: only an exporter would read it, and `torch.onnx.export` raises."""
