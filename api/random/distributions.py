"""Sample from distributions whose parameters are tensors: `bernoulli` and `normal`.

`host_permutation` shuffles on the host, by the same random numbers (`philox`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..arguments.descriptions import OPTIONS, describe
from ..arguments.out import copy_to_out
from ..arguments.types import Layout
from ..creation.factories import empty_like
from ..creation.options import allocate_output, finalize_output
from ..indexing.bounds import check_interval
from ..runtime.device import DeviceLike
from ..runtime.dtypes import Array, DTypeLike
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from .drawing import draw, fill_random, require_floating, to_probability
from .generator import Generator, default_generator

__all__ = ["bernoulli", "host_permutation", "normal", "philox"]

_MASK32, _SHIFT32 = np.uint64(0xFFFFFFFF), np.uint64(32)
_PHILOX_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_PHILOX_KEY_INCREMENTS = 0x9E3779B9, 0xBB67AE85


@describe(OPTIONS)
def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None, out: Tensor | None = None
) -> Tensor:
    """Sample 1 with probability `p` (by default the element of `input`) and 0 otherwise, in the dtype of `input`.

    Args:
        input: Floating tensor of probabilities. If `p` is passed, only its shape, dtype and device matter.
        p: Probability of 1; None: the elements of `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        ArgumentError: `p`, or on `cpu` an element of `input`, is not between 0 and 1.

    Example:
        >>> wg.bernoulli(wg.tensor([0.0, 1.0]))
        tensor([0., 1.])
    """
    if p is not None:
        output = fill_random("bernoulli_fill", empty_like(input), (to_probability(p, "bernoulli"),), generator, False)
    else:
        check_interval(require_floating(input, "bernoulli"), 0, 1, "bernoulli", "input")
        output = draw("bernoulli_draw", (input,), generator)
    return output if out is None else copy_to_out(output, out, "bernoulli")


@describe(OPTIONS)
def normal(
    mean: Tensor | float = 0.0, std: Tensor | float = 1.0, size: Sequence[int] | None = None, *,
    generator: Generator | None = None, out: Tensor | None = None, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Sample from normal distributions.

    Args:
        mean: A number, or a tensor with the mean of each element.
        std: A number, or a tensor with the standard deviation of each element; shapes broadcast.
        size: Shape of the result if `mean` and `std` are numbers. With a tensor as `mean` or `std`, neither this nor an
            option other than `generator` and `out` is allowed.
        dtype: Dtype of the result for numbers `mean` and `std`; None: the default dtype.

    Returns:
        Tensor of shape `size`, or of the shape that `mean` and `std` broadcast to.

    Raises:
        ArgumentError: `std` is negative (elements are checked on `cpu`), `size` is missing, or an option is passed
            with a tensor as `mean` or `std`.

    Example:
        >>> wg.normal(wg.tensor([1.0, 2.0]), 0.0)
        tensor([1., 2.])
    """
    if not isinstance(std, Tensor) and std < 0:
        raise ArgumentError(f"normal: std must not be negative, got {std}")
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        options = {"size": size, "dtype": dtype, "layout": layout, "device": device}
        names = [name for name, value in options.items() if value is not None]
        names += [name for name, value in (("requires_grad", requires_grad), ("pin_memory", pin_memory)) if value]
        if names:
            raise ArgumentError(
                f"normal: with a tensor as mean or std, the result has its shape, dtype and device; leave out "
                f"{', '.join(names)}, or pass numbers"
            )
        if isinstance(std, Tensor):
            check_interval(std, 0, math.inf, "normal", "std")
        return finalize_output(draw("normal_around", (mean, std), generator), "normal", False, out)
    if size is None:
        raise ArgumentError("normal: numbers mean and std need size=")
    output = require_floating(allocate_output("normal", (tuple(size),), {}, dtype, device, out), "normal")
    fill_random("normal_fill", output, (float(mean), float(std)), generator, out is not None)
    return finalize_output(output, "normal", requires_grad, None, layout, pin_memory)


def philox(count: int, seed: int, offset: int) -> Array:
    """Return 64 random bits for each of the counters (0, offset) to (count - 1, offset), as kernels compute them.

    They are words 0 and 1 of Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").

    Args:
        count: Number of counters.
        seed: The key, 64 bits.
        offset: The upper half of the counters, 64 bits.

    Returns:
        uint64 of shape `(count,)`; all elements differ.
    """
    index = np.arange(count, dtype=np.uint64)
    x0, x1 = index & _MASK32, index >> _SHIFT32
    x2, x3 = np.full(count, offset & 0xFFFFFFFF, np.uint64), np.full(count, offset >> 32, np.uint64)
    key0, key1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        product0, product2 = x0 * _PHILOX_MULTIPLIERS[0], x2 * _PHILOX_MULTIPLIERS[1]
        x0, x1 = (product2 >> _SHIFT32) ^ x1 ^ np.uint64(key0), product2 & _MASK32
        x2, x3 = (product0 >> _SHIFT32) ^ x3 ^ np.uint64(key1), product0 & _MASK32
        key0 = (key0 + _PHILOX_KEY_INCREMENTS[0]) & 0xFFFFFFFF
        key1 = (key1 + _PHILOX_KEY_INCREMENTS[1]) & 0xFFFFFFFF
    return x0 << _SHIFT32 | x1


def host_permutation(count: int, generator: Generator | None) -> list[int]:
    """Return a random order of 0 to count - 1, drawn and sorted on the host: loading data needs no kernels."""
    seed, offset = (generator or default_generator).take(1)
    order: list[int] = np.argsort(philox(count, seed, offset)).tolist()
    return order
