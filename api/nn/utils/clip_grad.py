"""Gradient clipping, by the norm of all gradients together (Pascanu et al. 2013, arXiv 1211.5063) or by element.

Nothing here waits for the device, except with `error_if_nonfinite`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from math import inf

from ... import distributed as dist
from ..._generated import ops
from ...autograd import no_grad
from ...creation.factories import zeros
from ...distributed.shards import ShardGroup, find_shard_group, is_shard
from ...runtime.errors import GradientError, NotSupported
from ...runtime.tensor import Tensor
from ...shape.joining import stack
from ...tensor_methods import multi_tensor

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]


def _list_parameters(parameters: Tensor | Iterable[Tensor], caller: str) -> list[Tensor]:
    """Return the parameters as a list. Warn if they are an iterator without items, such as one that was used up."""
    if isinstance(parameters, Tensor):
        return [parameters]
    params = list(parameters)
    if not params and isinstance(parameters, Iterator):
        warnings.warn(f"{caller}: the iterator of parameters is empty, so nothing is clipped", stacklevel=3)
    return params


def _list_grads(parameters: list[Tensor]) -> list[Tensor]:
    """Return the gradients of those parameters that have one."""
    return [grad for p in parameters if (grad := p.grad) is not None]


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Return the norm of the vector of all elements of the tensors.

    Args:
        tensors: Floating-point tensors of any shapes and devices, usually gradients.
        norm_type: Order of the norm: 2, 1, inf, -inf, 0 or any number.
        error_if_nonfinite: Whether to wait for the norm, and raise if it is NaN or infinite.
        foreach: Accepted for compatibility.

    Returns:
        A 0-d tensor on the first tensor's device; 0 if there are no tensors.

    Raises:
        GradientError: The norm is not finite, and `error_if_nonfinite` is set.

    Example:
        >>> wg.nn.utils.get_total_norm([wg.tensor([3.0]), wg.tensor([4.0])])
        tensor(5.)
    """
    tensor_list = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    order = float(norm_type)
    if not tensor_list:
        return zeros(())
    layout = tensor_list[0].meta
    with no_grad():
        norms = multi_tensor.norms(tensor_list, order)
        if not norms:
            return zeros((), dtype=layout.dtype, device=layout.device)
        total = norms[0]
        if len(norms) > 1 or total.meta.device is not layout.device:
            total = stack([n if n.meta.device is layout.device else n.to(layout.device) for n in norms]).norm(order)
    if error_if_nonfinite and not bool(total.isfinite()):
        raise GradientError(
            f"get_total_norm: the norm of order {norm_type} of {len(tensor_list)} tensors is {total.item()}; "
            "pass error_if_nonfinite=False to clip all the same"
        )
    return total


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Multiply the gradients by `min(1, max_norm / (total_norm + 1e-6))`, in place.

    Args:
        parameters: Parameters whose gradients are scaled.
        max_norm: Largest norm.
        total_norm: Norm of the gradients, a tensor of shape `()`; see `get_total_norm`.
        foreach: Accepted for compatibility.

    Example:
        >>> weight = wg.ones(2, requires_grad=True)
        >>> weight.grad = wg.tensor([3.0, 4.0])
        >>> wg.nn.utils.clip_grads_with_norm_(weight, 1.0, wg.tensor(5.0))
        >>> weight.grad
        tensor([0.6000, 0.8000])
    """
    _scale_grads(_list_grads(_list_parameters(parameters, "clip_grads_with_norm_")), max_norm, total_norm)


def _scale_grads(grads: list[Tensor], max_norm: float, total_norm: Tensor) -> None:
    """Multiply gradients by `min(1, max_norm / (total_norm + 1e-6))`, in place, on any number of devices."""
    if not grads:
        return
    with no_grad():
        factor = ops.clip_factor(total_norm, float(max_norm), out=multi_tensor.factor_slot(total_norm))
        device = factor.meta.device
        if all(grad.meta.device is device for grad in grads):
            multi_tensor.scale(grads, factor)
            return
        for device in dict.fromkeys(grad.meta.device for grad in grads):
            multi_tensor.scale([grad for grad in grads if grad.meta.device is device], factor.to(device))


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients in place so that the norm of all their elements is at most `max_norm`.

    If the parameters are sharded (`fully_shard`, `parallelize_module`), the norm is that of all ranks' parts, and all
    ranks have to call the function.

    Args:
        parameters: Parameters whose gradients are clipped.
        max_norm: Largest norm.
        norm_type: Order of the norm.
        error_if_nonfinite: Whether to wait for the norm, and raise if it is NaN or infinite.
        foreach: Accepted for compatibility.

    Returns:
        The norm before clipping, a 0-d tensor.

    Raises:
        GradientError: The norm is not finite, and `error_if_nonfinite` is set.

    Example:
        >>> weight = wg.ones(2, requires_grad=True)
        >>> weight.grad = wg.tensor([3.0, 4.0])
        >>> wg.nn.utils.clip_grad_norm_([weight], max_norm=1.0)
        tensor(5.)
        >>> weight.grad
        tensor([0.6000, 0.8000])
    """
    params = _list_parameters(parameters, "clip_grad_norm_")
    grads = _list_grads(params)
    group = find_shard_group(params)
    if group is None:
        total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    else:
        total = _total_norm_of_shards(params, float(norm_type), group)
        if error_if_nonfinite and not bool(total.isfinite()):
            raise GradientError(f"clip_grad_norm_: the norm of order {norm_type} of all ranks' parts is {total.item()}")
    _scale_grads(grads, max_norm, total)
    return total


def _total_norm_of_shards(params: list[Tensor], order: float, group: ShardGroup) -> Tensor:
    """Return the norm of the whole gradients, of which each rank has parts of the sharded ones.

    Raises:
        NotSupported: The order is neither positive nor inf.
    """
    if order <= 0:
        raise NotSupported(f"clip_grad_norm_: norm_type of sharded parameters is positive, not {order}")
    with no_grad():
        sharded = get_total_norm(_list_grads([p for p in params if is_shard(p) and p.meta.numel]), order)
        whole = get_total_norm(_list_grads([p for p in params if not is_shard(p)]), order)
        if order == inf:
            dist.all_reduce(sharded, dist.ReduceOp.MAX, group.process_group)
            return sharded.maximum(whole.to(sharded))
        total = sharded.pow(order)
        dist.all_reduce(total, group=group.process_group)
        return (total + whole.to(total).pow(order)).pow(1.0 / order)


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Deprecated alias of `clip_grad_norm_`.

    Args:
        parameters: Parameters whose gradients are clipped.
        max_norm: Largest norm.
        norm_type: Order of the norm.
        error_if_nonfinite: Whether to wait for the norm, and raise if it is NaN or infinite.
        foreach: Accepted for compatibility.

    Returns:
        The norm before clipping, a 0-d tensor.

    Example:
        >>> import warnings
        >>> weight = wg.ones(2, requires_grad=True)
        >>> weight.grad = wg.tensor([3.0, 4.0])
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter('ignore')
        ...     wg.nn.utils.clip_grad_norm([weight], max_norm=1.0)
        ...
        tensor(5.)
    """
    warnings.warn("clip_grad_norm is deprecated: use clip_grad_norm_", FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamp every gradient element to [-clip_value, clip_value], in place.

    Args:
        parameters: Parameters whose gradients are clamped.
        clip_value: Largest absolute value of an element.
        foreach: Accepted for compatibility.

    Example:
        >>> weight = wg.ones(2, requires_grad=True)
        >>> weight.grad = wg.tensor([-3.0, 0.5])
        >>> wg.nn.utils.clip_grad_value_(weight, 1.0)
        >>> weight.grad
        tensor([-1.0000,  0.5000])
    """
    limit = float(clip_value)
    with no_grad():
        multi_tensor.clamp_elements(_list_grads(_list_parameters(parameters, "clip_grad_value_")), limit)
