"""Conversion between parameters and one vector of all their values."""

from __future__ import annotations

from collections.abc import Iterable

from ...runtime.errors import ArgumentError, DeviceError
from ...runtime.tensor import Tensor
from ...shape.joining import cat

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Return all values in one vector, in order. Gradients flow back.

    Args:
        parameters: Tensors on one device.

    Returns:
        Vector as long as all parameters together.

    Raises:
        DeviceError: If the parameters are on several devices.

    Example:
        >>> wg.nn.utils.parameters_to_vector([wg.tensor([[1.0, 2.0]]), wg.tensor([3.0])])
        tensor([1., 2., 3.])
    """
    params = list(parameters)
    devices = {p.meta.device for p in params}
    if len(devices) > 1:
        raise DeviceError(f"parameters_to_vector: the parameters are on {', '.join(sorted(map(str, devices)))}")
    return cat([p.reshape(-1) for p in params])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Make slices of `vec` the parameters' data, in order. They share its memory.

    Args:
        vec: Vector as long as all parameters together.
        parameters: Tensors whose `data` is replaced.

    Raises:
        ArgumentError: If `vec` is not a tensor, or its length differs.

    Example:
        >>> weight = wg.zeros(1, 2)
        >>> wg.nn.utils.vector_to_parameters(wg.tensor([1.0, 2.0]), [weight])
        >>> weight
        tensor([[1., 2.]])
    """
    if not isinstance(vec, Tensor):
        raise ArgumentError(f"vector_to_parameters: takes a tensor, not {type(vec).__name__}")
    params = list(parameters)
    total = sum(p.meta.numel for p in params)
    if vec.meta.shape != (total,):
        raise ArgumentError(
            f"vector_to_parameters: the parameters have {total} values, the vector has shape {list(vec.meta.shape)}"
        )
    values = vec.detach()
    offset = 0
    for param in params:
        param.data = values[offset : offset + param.meta.numel].reshape(param.meta.shape)
        offset += param.meta.numel
