"""`torch.distributed.elastic.multiprocessing.errors`: the decorator of programs that `torchrun` starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["record"]

_Function = TypeVar("_Function", bound=Callable[..., object])


def record(fn: _Function, error_handler: object = None) -> _Function:
    """Return a function as it is. PyTorch's writes errors to a file; here every rank gets the text of another's error.

    Args:
        fn: The function.
        error_handler: Ignored.
    """
    return fn
