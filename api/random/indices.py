"""Sample indices: random permutations, and draws with given weights. Kernels of the device draw, sort and search."""

from __future__ import annotations

from .._generated import ops
from ..arguments.descriptions import OPTIONS, describe
from ..arguments.out import copy_to_out
from ..arguments.types import Layout
from ..creation.options import finalize_output, resolve_dtype_and_device
from ..indexing.subscripts import get
from ..reductions.searching import searchsorted
from ..reductions.sorting import topk
from ..runtime import dtypes
from ..runtime.device import DeviceLike, meta
from ..runtime.dispatch import empty
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors, to_integer
from .drawing import draw, fill_random, uniform_levels
from .generator import Generator

__all__ = ["multinomial", "randperm"]

_MAX_NARROW = 1 << 20  # elements that are shuffled by 32 random bits each


@describe(OPTIONS)
def randperm(
    n: int, *, generator: Generator | None = None, out: Tensor | None = None, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return a random permutation of 0 to n - 1 by a Fisher-Yates shuffle (Knuth, algorithm 3.4.2P).

    Each exchange takes 32 random bits for up to 2**20 elements, and 64 bits beyond. Equal seeds give equal permutations
    on every device.

    Args:
        n: Number of elements.
        dtype: Dtype of the result; None: int64.

    Returns:
        Vector of `n` elements.

    Raises:
        ArgumentError: `n` is negative.

    Example:
        >>> wg.randperm(4).sort()[0]
        tensor([0, 1, 2, 3])
    """
    n = to_integer(n, "randperm", "n")
    result_dtype, result_device = resolve_dtype_and_device(dtype, device, out, dtypes.int64)
    if n < 0:
        raise ArgumentError(f"randperm: n must be at least 0, not {n}")
    is_narrow = n <= _MAX_NARROW
    partners = empty(meta(dtypes.int32 if is_narrow else dtypes.int64, (n,), None, result_device))
    fill_random("partner_fill" if is_narrow else "wide_partner_fill", partners, (), generator, False)
    output = ops.shuffle_order(partners)
    if result_dtype is not dtypes.int64:
        output = output.to(result_dtype)
    return finalize_output(output, "randperm", requires_grad, out, layout, pin_memory)


@describe(OPTIONS)
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Sample indices with probabilities proportional to the weights in `input`.

    With replacement, it searches the cumulative sums for uniform numbers. Without, it takes the largest quotients of
    the weights and exponentially distributed numbers (Efraimidis and Spirakis, "Weighted random sampling with a
    reservoir", 2006). It computes in float64, or in float32 on devices without float64.

    Args:
        input: Weights `(n,)` or `(rows, n)`, not negative, not all 0.
        num_samples: Number of samples for each row.
        replacement: Whether an index may be drawn again. Without it, indices of weight 0 come last.

    Returns:
        int64 indices, `(num_samples,)` or `(rows, num_samples)`.

    Raises:
        ArgumentError: Weights are invalid, or there are fewer than `num_samples` without replacement.

    Example:
        >>> wg.multinomial(wg.tensor([0.0, 1.0, 0.0]), 1)
        tensor([1])
    """
    only_tensors("multinomial", input)
    num_samples = to_integer(num_samples, "multinomial", "num_samples")
    layout = input.meta
    if layout.ndim not in (1, 2) or not layout.numel:
        raise ArgumentError(
            f"multinomial: takes weights of shape (n,) or (rows, n) with elements, not {list(layout.shape)}"
        )
    if num_samples < 1:
        raise ArgumentError(f"multinomial: num_samples must be positive, not {num_samples}")
    if not replacement and num_samples > layout.shape[-1]:
        raise ArgumentError(f"multinomial: {num_samples} samples without replacement of {layout.shape[-1]} weights")
    compute_dtype = dtypes.float64 if layout.device.driver.capabilities.fp64 else dtypes.float32
    weights = input.detach()
    cumulative = ops.cumsum(weights, -1, dtype=compute_dtype)
    totals = get(cumulative, (..., slice(-1, None)))
    least_total, largest_total = ops.amin(totals).item(), ops.amax(totals).item()
    # A NaN or an infinite weight shows in the total; comparisons with NaN are false.
    if not (ops.amin(weights).item() >= 0 and least_total > 0 and largest_total < float("inf")):
        raise ArgumentError("multinomial: weights must be finite, not negative, and not all 0")
    if replacement:
        samples = empty(meta(compute_dtype, (*layout.shape[:-1], num_samples), None, layout.device))
        # A sample is less than its total, also after rounding: at most 1 - 2**-24 (float32) or 1 - 2**-53 of it.
        fill_random("uniform_fill", samples, (0.0, 1.0, uniform_levels(compute_dtype)), generator, False)
        indices = searchsorted(cumulative, ops.mul(samples, totals), right=True)
    else:
        indices = topk(draw("weighted_key", (weights.to(compute_dtype),), generator), num_samples, -1)[1]
    return indices if out is None else copy_to_out(indices, out, "multinomial")
