"""Limits of gradients: by their norm as one vector (Pascanu et al. 2013), or element by element.

Nothing here waits for the device, unless `error_if_nonfinite` asks for the norm's value.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from ... import _groups
from ..._generated import ops
from ...autograd import no_grad
from ...factories import zeros
from ...joining import stack
from ...runtime.errors import GradientError
from ...runtime.tensor import Tensor

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]


def _parameters(parameters: Any, where: str) -> list[Any]:
    if isinstance(parameters, Tensor):
        return [parameters]
    found = list(parameters)
    if not found and isinstance(parameters, Iterator):
        warnings.warn(f"{where}: the iterator of parameters is empty, so nothing is clipped", stacklevel=3)
    return found


def _grads(parameters: list[Any]) -> list[Any]:
    return [grad for p in parameters if (grad := p.grad) is not None]


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all `tensors` as one vector: a 0-d tensor on the first one's device.

    norm_type: 2, 1, inf, -inf, 0 or any number. Raises `GradientError` for a norm that is not finite, if asked to look.
    """
    found: list[Any] = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    order = float(norm_type)
    if not found:
        return zeros(())
    place = found[0].meta.device
    with no_grad():
        if order == 2.0 and all(t.meta.device is place and t.meta.dtype is found[0].meta.dtype for t in found):
            total: Any = _groups.norms(found).norm(2.0)  # type: ignore[attr-defined]
        else:
            norms = [t.norm(order) for t in found]
            total = stack([n if n.meta.device is place else n.to(place) for n in norms]).norm(order)  # type: ignore[attr-defined]
    if error_if_nonfinite and not bool(total.isfinite()):
        raise GradientError(
            f"get_total_norm: the norm of order {norm_type} of {len(found)} tensors is {total.item()}; "
            "pass error_if_nonfinite=False to clip all the same"
        )
    return total  # type: ignore[no-any-return]


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale the gradients, in place, by `max_norm / (total_norm + 1e-6)` where that is less than 1."""
    _scale(_grads(_parameters(parameters, "clip_grads_with_norm_")), max_norm, total_norm)


def _scale(grads: list[Any], max_norm: float, total_norm: Tensor) -> None:
    if not grads:
        return
    with no_grad():
        most = ops.mul(ops.reciprocal(ops.add(total_norm, 1e-6)), float(max_norm))
        factor: Any = ops.clamp_max(most, 1.0, out=_groups.place(most))
        places = {factor.meta.device: factor}
        for grad in grads:
            place = grad.meta.device
            if place not in places:
                places[place] = factor.to(place)
        _groups.scale(grads, [places[grad.meta.device] for grad in grads])


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients, in place, so that their norm as one vector is at most `max_norm`.

    Returns what the norm was, a 0-d tensor. Raises `GradientError` for one that is not finite if `error_if_nonfinite`.
    """
    grads = _grads(_parameters(parameters, "clip_grad_norm_"))
    total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    _scale(grads, max_norm, total)
    return total


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The old name of `clip_grad_norm_`."""
    warnings.warn("clip_grad_norm is deprecated: use clip_grad_norm_", FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Limit every element of the gradients, in place, to [-clip_value, clip_value]."""
    limit = float(clip_value)
    with no_grad():
        _groups.limit(_grads(_parameters(parameters, "clip_grad_value_")), limit)
