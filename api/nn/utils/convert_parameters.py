"""All values of some parameters in one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...joining import cat
from ...runtime.errors import ArgumentError, DeviceError
from ...runtime.tensor import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All values in one vector, in order; gradients flow back. Raises `DeviceError` for parameters on many devices."""
    given = list(parameters)
    places = {p.meta.device for p in given}
    if len(places) > 1:
        raise DeviceError(f"parameters_to_vector: the parameters are on {', '.join(sorted(map(str, places)))}")
    return cat([p.reshape(-1) for p in given])  # type: ignore[attr-defined]


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Make slices of a vector the parameters' data, in order: they share its memory.

    Raises `ArgumentError` for what is no tensor, or a vector of another length.
    """
    if not isinstance(vec, Tensor):
        raise ArgumentError(f"vector_to_parameters: takes a tensor, not {type(vec).__name__}")
    given: list[Any] = list(parameters)
    total = sum(p.meta.numel for p in given)
    if vec.meta.shape != (total,):
        raise ArgumentError(
            f"vector_to_parameters: {total} values are wanted, the vector has shape {list(vec.meta.shape)}"
        )
    values: Any = vec.detach()
    at = 0
    for param in given:
        param.data = values[at : at + param.meta.numel].reshape(param.meta.shape)
        at += param.meta.numel
