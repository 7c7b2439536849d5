"""What a row of the benchmark is: a call on every site that takes part, and the values it should give."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .sites import Site

__all__ = ["Case", "Pairs", "Work", "error_of", "pieces", "rotated", "sampled"]

Array = np.ndarray[Any, Any]
Pairs = Sequence[tuple[Array, Array]]
_LARGE = 8 << 20  # bytes
_WORDS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp64": "float64", "float16": "float16",
          "bfloat16": "bfloat16", "float64": "float64", "int64": "int64", "int32": "int32"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Work:
    """One contender of a case: what is timed, and pairs of arrays (ours, right in float64) that show that it works.

    moves: a call changes what the next one gives, so that pairs are right only where nothing was called before.
    """

    call: Callable[[], Any]
    pairs: Callable[[], Pairs]
    moves: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One row.

    make: prepares the work on a site; None where the site has no part in it. bytes and flops: of a call, for the
    derived columns. target: the least ratios that the project set itself, by peer: peer's time by ours, and for `copy`
    the bandwidth by that of a copy within the device. tolerance: of an error relative to the largest value.
    precision: how exactly float32 matrices are multiplied. clock: `device` or `wall`. dtype: of what is computed, where
    the name has no word for it (`bf16`, `float16`) and it is not float32. against: what results are checked with.
    values: pairs are of results' values, and not of numbers made of them.
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

    @property
    def element(self) -> str:
        """The dtype that is computed in: `float32`."""
        words = re.split(r"[\s,]+", self.name)
        return self.dtype or next((_WORDS[w] for w in words if w in _WORDS), "float32")

    def on(self, site: Site) -> Work | None:
        """The work on a site, with the same random numbers every time."""
        site.seed()
        return self.make(site)

    def matches(self, text: str) -> bool:
        """Whether the row's group and name contain `text`."""
        return text in f"{self.group} {self.name}"


def error_of(pairs: Pairs) -> float:
    """The largest error of all pairs, each relative to its largest expected value; not a number for NaN."""
    errors = [0.0]
    for found, expected in pairs:
        if found.shape != expected.shape:
            raise ValueError(f"a result of shape {found.shape} was compared with one of shape {expected.shape}")
        if expected.size:
            errors.append(float(np.abs(found - expected).max()) / (float(np.abs(expected).max()) or 1.0))
    return float(np.max(errors))


def pieces(n: int, most: int) -> list[slice]:
    """Where a dimension of `n` is looked at: its begin, middle and end, `most` in all; everything if that is less."""
    each = most // 3
    if n <= most:
        return [slice(0, n)]
    middle = n // 2 - each // 2
    return [slice(0, each), slice(middle, middle + each), slice(n - each, n)]


def sampled(
    site: Site, reference: Callable[..., Array], operands: Sequence[Any], result: Any, most: int, cut: Sequence[int]
) -> Pairs:
    """A result beside its reference in float64, for `most` positions of the first dimension.

    cut: which operands have that dimension; the others are taken whole.
    """

    def some(tensor: Any) -> Array:
        return np.concatenate([site.host(tensor[s]) for s in pieces(len(result), most)])

    arrays = [some(t) if i in cut else site.host(t) for i, t in enumerate(operands)]
    return [(some(result), reference(*arrays))]


def rotated(
    site: Site, prepare: Callable[[], Sequence[Any]], function: Callable[..., Any]
) -> tuple[Sequence[Any], Callable[[], Any]]:
    """Operands, and a call of `function` with those or others like them in turn, so that caches do not hold them: the
    others alone, up to fifteen of them, fill these before any come back.

    On the host those of 8 MiB and more take turns: smaller ones are in a cache when a program has just made them.
    """
    first = prepare()
    size = sum(math.prod(t.shape) * t.dtype.itemsize for t in first if hasattr(t, "shape"))
    wanted = site.cache or (site.host_cache if size >= _LARGE and not site.gpu else 0)
    count = min(16, 1 - (-wanted // max(size, 1)))
    others = [first, *(prepare() for _ in range(count - 1))]
    turns = itertools.cycle(others)
    return first, lambda: function(*next(turns))
