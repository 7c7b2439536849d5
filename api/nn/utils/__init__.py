"""Parameters as a whole: limits of gradients, and all values in one vector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...autograd import no_grad
from ...runtime.errors import ArgumentError, GradientError
from ...runtime.tensor import Tensor

__all__ = ["clip_grad_norm_", "clip_grad_value_", "get_total_norm", "parameters_to_vector", "vector_to_parameters"]


def _grads(parameters: Tensor | Iterable[Tensor]) -> list[Any]:
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p.grad for p in given if p.grad is not None]  # type: ignore[attr-defined]


def get_total_norm(tensors: Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Any:
    """The norm of all `tensors` as one vector: a 0-d tensor."""
    from ...factories import zeros
    from ...joining import stack

    found: list[Any] = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not found:
        return zeros(())
    with no_grad():
        total = stack([t.norm(norm_type) for t in found]).norm(norm_type)
    if error_if_nonfinite and not total.isfinite().item():
        raise GradientError(f"the total norm of order {norm_type} is not finite")
    return total


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: Any = None,
) -> Any:
    """Scale all gradients, in place, so that their norm as one vector is at most `max_norm`. Returns what it was."""
    grads = _grads(parameters)
    total = get_total_norm(grads, norm_type, error_if_nonfinite)
    with no_grad():
        factor = (max_norm / (total + 1e-6)).clamp(max=1.0)
        for grad in grads:
            grad.mul_(factor)
    return total


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: Any = None) -> None:
    """Limit every element of the gradients, in place, to [-clip_value, clip_value]."""
    with no_grad():
        for grad in _grads(parameters):
            grad.clamp_(-clip_value, clip_value)


def parameters_to_vector(parameters: Iterable[Tensor]) -> Any:
    """All values in one vector."""
    from ...joining import cat

    return cat([p.reshape(-1) for p in parameters])  # type: ignore[attr-defined]


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """The values of a vector written to the parameters, in order. Raises `ArgumentError` if it has another length."""
    given: list[Any] = list(parameters)
    total = sum(p.meta.numel for p in given)
    if vec.meta.shape != (total,):
        raise ArgumentError(
            f"vector_to_parameters: {total} values are wanted, the vector has shape {list(vec.meta.shape)}"
        )
    at = 0
    with no_grad():
        for param in given:
            param.copy_(vec[at : at + param.meta.numel].reshape(param.meta.shape))  # type: ignore[index]
            at += param.meta.numel
