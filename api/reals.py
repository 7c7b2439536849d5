"""What PyTorch's programs ask of numbers that may be complex, answered for tensors, which are all real."""

from __future__ import annotations

import math
from typing import Any

from . import functions
from ._checks import only_tensors
from ._generated import ops
from .runtime import dtypes
from .runtime.spelling import store
from .runtime.tensor import Tensor

__all__ = ["angle", "conj", "is_complex", "is_conj", "is_neg", "real", "resolve_conj", "resolve_neg"]


def is_complex(input: Any) -> bool:
    """False: there are no complex numbers."""
    only_tensors("is_complex", input)
    return False


def is_conj(input: Any) -> bool:
    """False, as `is_complex`."""
    return is_complex(input)


def is_neg(input: Any) -> bool:
    """False: a tensor's memory has its values as they are."""
    return is_complex(input)


def real(input: Any) -> Any:
    """`input` itself, which is real."""
    only_tensors("real", input)
    return input


def conj(input: Any) -> Any:
    """`input` itself: a real number is its own conjugate."""
    return real(input)


def resolve_conj(input: Any) -> Any:
    """`input` itself, as `conj`."""
    return real(input)


def resolve_neg(input: Any) -> Any:
    """`input` itself, as `is_neg`."""
    return real(input)


def angle(input: Any, *, out: Tensor | None = None) -> Any:
    """0 of numbers that are not negative, pi of negative ones, NaN of NaN."""
    only_tensors("angle", input)
    x = input if input.is_floating_point() else input.to(dtypes.default_dtype())
    found = functions.where(x.isnan(), x, functions.where(x < 0, math.pi, ops.zero_like(x)))
    return found if out is None else store(found, out, "angle")
