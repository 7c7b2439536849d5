"""Functions of `torch._C` that libraries call while they are imported, or to query the tracer."""

from __future__ import annotations

from typing import Any

from ...random import Generator
from ...runtime.device import Device
from ...runtime.dtypes import DType
from ...runtime.overriding import Disabled as DisableTorchFunctionSubclass
from ...runtime.overriding import disabled_torch_function as _disabled_torch_function_impl
from ...runtime.overriding import is_enabled
from ...tensor_methods.conversion_arguments import parse_conversion

__all__ = [
    "DisableTorchFunctionSubclass", "DispatchKeySet", "Generator", "_cuda_isInBadFork",
    "_disabled_torch_function_impl", "_get_tracing_state", "_is_torch_function_enabled", "_is_tracing",
    "_log_api_usage_once", "_nn",
]  # fmt: skip


def _log_api_usage_once(event: str) -> None:
    """Do nothing, as in PyTorch where no logger of its usage is installed."""


def _get_tracing_state() -> None:
    """Return None: nothing is traced."""


def _is_tracing() -> bool:
    """Return False: nothing is traced."""
    return False


def _cuda_isInBadFork() -> bool:  # noqa: N802  # PyTorch's name
    """Return False: a launch in a forked process raises `ForkError` itself."""
    return False


class DispatchKeySet:
    """A set of PyTorch's dispatch keys, which libraries build while they are imported; nothing reads it.

    Args:
        *keys: The keys.
    """

    def __init__(self, *keys: object):
        self.keys = keys

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self.keys, *other.keys)


def _is_torch_function_enabled() -> bool:
    """Return True unless this thread is inside of `DisableTorchFunctionSubclass`."""
    return is_enabled()


class _nn:  # noqa: N801  # PyTorch's name
    """The functions of `torch._C._nn` that libraries call."""

    @staticmethod
    def _parse_to(*args: object, **kwargs: Any) -> tuple[Device | None, DType | None, bool, str | None]:
        """Return the device, the dtype, `non_blocking` and the memory format that arguments of `to` mean."""
        memory_format = kwargs.pop("memory_format", None)
        non_blocking = bool(kwargs.pop("non_blocking", False))
        device, dtype, _ = parse_conversion("to", args, **kwargs)
        return device, dtype, non_blocking or True in args, memory_format
