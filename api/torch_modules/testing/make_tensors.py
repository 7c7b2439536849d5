"""Random tensors for tests, as `torch.testing.make_tensor` creates them."""

from __future__ import annotations

from ..arguments.types import MemoryFormat, Sizes
from ..creation.factories import empty
from ..creation.from_data import tensor
from ..creation.options import shape_of
from ..pointwise.type_info import finfo
from ..runtime import dtypes
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor

__all__ = ["make_tensor"]

_DEFAULT_LIMIT = 9  # largest magnitude of elements


def make_tensor(
    *shape: Sizes, dtype: DTypeLike, device: DeviceLike | None, low: float | None = None, high: float | None = None,
    requires_grad: bool = False, noncontiguous: bool = False, exclude_zero: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:  # fmt: skip
    """Create a tensor of random elements, uniformly distributed over `[low, high)`.

    Args:
        *shape: The shape, as ints or as one sequence.
        dtype: Dtype of the result.
        device: Device of the result; None: the default device.
        low: Lower bound; None: -9, or 0 for bool and uint8.
        high: Upper bound, excluded; None: 9 for floating dtypes, 10 for integers, 2 for bool.
        requires_grad: Whether to record operations on the result.
        noncontiguous: Whether the result has gaps between its elements. It has no effect on fewer than two elements.
        exclude_zero: Whether zeros are replaced by the smallest normal number of the dtype, for integers by 1.
        memory_format: Order of dimensions in memory; not together with `noncontiguous`.

    Returns:
        Tensor of the shape, dtype and device.

    Raises:
        ArgumentError: The range is empty, or both `noncontiguous` and `memory_format` are passed.

    Example:
        >>> x = wg.testing.make_tensor(2, 3, dtype=wg.float32, device="cpu", low=0, high=1)
        >>> x.shape, bool(((x >= 0) & (x < 1)).all())
        (weftgrad.Size([2, 3]), True)
    """
    if noncontiguous and memory_format is not None:
        raise ArgumentError("make_tensor: noncontiguous and memory_format exclude each other; pass one of them")
    target = dtypes.parse(dtype)
    is_floating = target.kind == "f"
    default_low = -_DEFAULT_LIMIT if target.kind in "if" else 0
    default_high = {"f": _DEFAULT_LIMIT, "b": 2}.get(target.kind, _DEFAULT_LIMIT + 1)
    first, end = (default_low if low is None else low), (default_high if high is None else high)
    if not first < end:
        raise ArgumentError(f"make_tensor: low must be below high, got {first} and {end}")
    sizes = shape_of(shape)
    allocated = (*sizes[:-1], 2 * sizes[-1]) if noncontiguous and sizes else sizes
    output = empty(allocated, dtype=target, device=device, memory_format=memory_format)
    if is_floating:
        output.uniform_(float(first), float(end))
    elif target.kind == "b":
        output.bernoulli_(0.5)
    else:
        output.random_(int(first), int(end))
    if exclude_zero:
        smallest = finfo(target).tiny if is_floating else 1
        output.masked_fill_(output == 0, tensor(smallest, dtype=target, device=output.device))
    output = output[..., ::2] if noncontiguous and sizes else output
    return output.requires_grad_() if requires_grad else output
