"""A benchmark row: the call to time on each site (a library on a device), and its expected values."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypedDict

import numpy as np

from ..runtime.dtypes import Array
from .roofline import ROTATED_BYTES
from .sites import Site

if TYPE_CHECKING:
    from .library_types import Operation, Reference, Tensor

__all__ = ["Case", "CaseOptions", "MakeWork", "Pairs", "Work", "error_of", "pieces", "rotated", "sampled", "sampled_op"]

Pairs = Sequence[tuple[Array, Array]]
_WORDS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp64": "float64", "float16": "float16",
          "bfloat16": "bfloat16", "float64": "float64", "int64": "int64", "int32": "int32"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Work:
    """One contender of a case: the call to time, and (actual, expected) arrays in float64 that check it.

    moves: a call changes the next call's result, so `pairs` has to run before any other call.
    """

    call: Callable[[], object]
    pairs: Callable[[], Pairs]
    moves: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One row.

    make: prepares the work on a site, or returns None if the site cannot run the row.
    bytes, flops: per call, for GB/s and GFLOP/s.
    target: the project's minimum ratios by peer (peer's time / our time); for `copy`, our bandwidth / that of a
        device-to-device copy.
    tolerance: of the error relative to the largest value.
    precision: of float32 matrix products, as in `set_float32_matmul_precision`.
    clock: `device` or `wall`.
    dtype: the dtype of the computation, if it is not float32 and the name does not contain it (`bf16`, `float16`).
    against: the reference that results are checked with.
    values: whether `pairs` hold the results themselves, not numbers derived from them.
    items, unit: what a call processes, for a throughput: 64 and `images`.
    measures_compiling: whether the time to compile the call's kernels is measured. Kernels are compiled one after the
        other for that, which takes long for a whole model.
    single_calls: how many single calls, each waited for, are the samples of a round; 0: three batches of calls.
    obstacle: why the row cannot be measured on any device. It is listed with this reason.
    """

    group: str
    name: str
    make: Callable[[Site], Work | None]
    bytes: int = 0
    flops: int = 0
    target: dict[str, float] | None = None
    tolerance: float = 1e-4
    precision: str = "highest"
    clock: str = "device"
    dtype: str = ""
    against: str = "NumPy in float64"
    values: bool = True
    items: int = 0
    unit: str = ""
    measures_compiling: bool = True
    resident: Callable[[Site], int | None] | None = None
    single_calls: int = 0
    obstacle: str = ""

    @property
    def element(self) -> str:
        """The dtype of the computation, for example `float32`."""
        words = re.split(r"[\s,]+", self.name)
        return self.dtype or next((_WORDS[w] for w in words if w in _WORDS), "float32")

    def on(self, site: Site) -> Work | None:
        """Prepare the work on a site, with the same random numbers every time."""
        site.seed()
        return self.make(site)

    def matches(self, text: str) -> bool:
        """Return True if the row's group and name contain `text`."""
        return text in f"{self.group} {self.name}"


MakeWork: TypeAlias = Callable[[Site], Work | None]
"""The `make` of a case."""


class CaseOptions(TypedDict, total=False):
    """Arguments of `Case` that functions which write several rows pass on."""

    bytes: int
    flops: int
    tolerance: float


def error_of(pairs: Pairs) -> float:
    """Return the largest error of all pairs, each relative to the pair's largest expected value; NaN if one is NaN."""
    errors = [0.0]
    for actual, expected in pairs:
        if actual.shape != expected.shape:
            raise ValueError(f"a result of shape {actual.shape} was compared with one of shape {expected.shape}")
        if expected.dtype == bool:
            errors.append(float(np.any(actual != expected)))
        elif expected.size:
            errors.append(float(np.abs(actual - expected).max()) / (float(np.abs(expected).max()) or 1.0))
    return float(np.max(errors))


def pieces(n: int, max_size: int) -> list[slice]:
    """Return slices at the begin, middle and end of a dimension of `n`, `max_size` elements in all."""
    piece = max_size // 3
    if n <= max_size:
        return [slice(0, n)]
    middle = n // 2 - piece // 2
    return [slice(0, piece), slice(middle, middle + piece), slice(n - piece, n)]


def sampled(
    site: Site,
    reference: Reference,
    operands: Sequence[Tensor],
    result: Tensor,
    max_size: int,
    sampled_operands: Sequence[int],
) -> Pairs:
    """Return (result, reference in float64) at `max_size` positions of the first dimension.

    sampled_operands: indices of the operands that have this dimension; the others are passed whole.
    """

    def samples(tensor: Tensor) -> Array:
        return np.concatenate([site.host(tensor[s]) for s in pieces(len(result), max_size)])

    arrays = [samples(t) if i in sampled_operands else site.host(t) for i, t in enumerate(operands)]
    return [(samples(result), reference(*arrays))]


def rotated(
    site: Site, prepare: Callable[[], Sequence[Tensor]], function: Callable[..., object]
) -> tuple[Sequence[Tensor], Callable[[], object]]:
    """Return operands, and a call of `function` that rotates through up to 16 sets of them to defeat the caches.

    All sets but one exceed the cache, so a set has been evicted before it is used again. On the host only operands of
    8 MiB and more rotate: smaller ones are in a cache anyway when a program has just computed them.
    """
    operands = prepare()
    size = sum(math.prod(t.shape) * t.dtype.itemsize for t in operands if hasattr(t, "shape"))
    cache_size = site.cache or (site.host_cache if size >= ROTATED_BYTES and not site.gpu else 0)
    set_count = min(16, 1 - (-cache_size // max(size, 1)))
    operand_sets = [operands, *(prepare() for _ in range(set_count - 1))]
    operand_cycle = itertools.cycle(operand_sets)
    return operands, lambda: function(*next(operand_cycle))


def sampled_op(
    function: Operation, reference: Reference, shapes: list[tuple[int, ...]], dtype: str, *,
    max_size: int = 12, sampled_operands: tuple[int, ...] = (0,), exists_in_numpy: bool = False,
) -> MakeWork:  # fmt: skip
    """Return a case's `make` for one op on random operands, checked at sampled positions of the first dimension.

    Args:
        function: The op.
        reference: Computes its result with NumPy.
        shapes: Shapes of the operands.
        dtype: Dtype of the operands.
        max_size: Number of positions to check.
        sampled_operands: Indices of the operands that have the result's first dimension.
        exists_in_numpy: Whether libraries with NumPy's API have the op. They run it in float32 only.
    """

    def make(site: Site) -> Work | None:
        if site.arrays and (dtype != "float32" or not exists_in_numpy):
            return None
        run = site.ready(function)
        operands, call = rotated(site, lambda: [site.normal(*s, dtype=dtype) for s in shapes], run)
        return Work(call, lambda: sampled(site, reference, operands, run(*operands), max_size, sampled_operands))

    return make
