"""The suite `device`: measure a device's limits, which give the roofline for all other rows without a data sheet.

Rows: copy and triad (BabelStream; McCalpin 1995) larger than the caches, and of sizes that fit one, multiply-adds in
registers, matrix products (for tensor cores and the like), transfers between host and device, and the latency of a
launch of one element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

import weftgrad as wg

from ..runtime.dtypes import Array
from .cases import Case, Pairs, Work, pieces, rotated
from .sites import OurSite, Site

if TYPE_CHECKING:
    from .library_types import Tensor

__all__ = ["cases", "roofs"]

_MEBI = 1 << 20
_DEPTH, _CHAINS = 16, 8  # dependent FMAs per chain, and independent chains that hide the latency of a core's FMA units
_CHECKED_ELEMENTS = 6144  # of each vector, to keep the check short
_ITEMSIZE = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
_SHORT_NAMES = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16"}
_TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "float16": 2**-10, "bfloat16": 2**-8}


def cases(gpu: bool, scale: int = 1) -> Iterator[Case]:
    """Yield all rows. `scale` divides matrix sides, and vector lengths by its square."""
    yield from roofs(gpu, scale)
    yield from _transfers(max(8, 16 * _MEBI // scale**2))
    yield Case("launch", "one element, each waited for", partial(_one_element, True), clock="wall", tolerance=0)
    yield Case("launch", "one element, queued", partial(_one_element, False), clock="wall", tolerance=0)


def roofs(gpu: bool, scale: int = 1) -> Iterator[Case]:
    """Yield the rows that other suites need too, to compute their share of the roofline."""
    for label, mebi in (("16M", 16), ("64M", 64)):
        n = max(8, mebi * _MEBI // scale**2)
        yield Case("roofline", f"copy fp32 {label}", partial(_copy, n), bytes=8 * n, tolerance=0, dtype="float32")
        yield Case("roofline", f"triad fp32 {label}", partial(_triad, n), bytes=12 * n, tolerance=1e-6,
                   dtype="float32")  # fmt: skip
    for label, kibi in (("1M", 1024), ("4M", 4096)) if gpu else (("32K", 32), ("256K", 256), ("1M", 1024)):
        n = max(8, kibi * 1024 // scale**2)
        yield Case("cache", f"copy fp32 {label} in a cache", partial(_copy, n, rotates=False), bytes=8 * n, tolerance=0,
                   dtype="float32")  # fmt: skip
        yield Case("cache", f"triad fp32 {label} in a cache", partial(_triad, n, rotates=False), bytes=12 * n,
                   tolerance=1e-6, dtype="float32")  # fmt: skip
    n = max(8, (64 if gpu else 1) * _MEBI // scale**2)
    for dtype in ("float32", "float64"):
        yield Case("peak", f"multiply-add {_SHORT_NAMES[dtype]}", partial(_multiply_add, n, dtype), dtype=dtype,
                   flops=n * (_CHAINS * (2 * _DEPTH + 1) + _CHAINS - 1), tolerance=_TOLERANCE[dtype])  # fmt: skip
    n = max(8, (8192 if gpu else 1024) // scale)
    for dtype, precision in (("float32", "highest"), ("float32", "high"), ("bfloat16", "highest"),
                             ("float16", "highest")) if gpu else (("float32", "highest"),):  # fmt: skip
        name = f"matrix product {_SHORT_NAMES[dtype]}{' high' * (precision == 'high')}"
        # tf32 keeps 10 bits of each operand.
        tolerance = 2e-3 if precision == "high" else _TOLERANCE[dtype] * 2
        yield Case("peak", f"{name} {n}", partial(_matrix_product, n, dtype), flops=2 * n**3,
                   bytes=3 * _ITEMSIZE[dtype] * n**2, tolerance=tolerance, precision=precision,
                   dtype=dtype)  # fmt: skip


def _copy(n: int, site: Site, rotates: bool = True) -> Work | None:
    """Return the work of a copy. rotates: its operands rotate, so that no cache has them."""
    if not site.modules:
        return None
    if rotates:
        (source, target), call = rotated(site, lambda: [site.normal(n), site.normal(n)], lambda x, y: y.copy_(x))
    else:
        source, target = site.normal(n), site.normal(n)
        call = partial(target.copy_, source)

    def pairs() -> Pairs:
        target.copy_(source)
        return [(site.host(target[s]), site.host(source[s])) for s in pieces(n, _CHECKED_ELEMENTS)]

    return Work(call, pairs)


def _triad(n: int, site: Site, rotates: bool = True) -> Work | None:
    """Return the work of x + 3 y. rotates: as in `_copy`."""
    if site.arrays:
        return None
    run = site.ready(lambda f, x, y: f.add(x, y, alpha=3.0)) if site.modules else site.ready(lambda _, x, y: x + 3 * y)
    if rotates:
        (x, y), call = rotated(site, lambda: [site.normal(n), site.normal(n)], run)
    else:
        x, y = site.normal(n), site.normal(n)
        call = partial(run, x, y)

    def pairs() -> Pairs:
        out = run(x, y)
        return [(site.host(out[s]), site.host(x[s]) + 3 * site.host(y[s])) for s in pieces(n, _CHECKED_ELEMENTS)]

    return Work(call, pairs)


def _polynomials(x: Array) -> Array:
    """Return what `_multiply_adds` computes, by Horner's rule in NumPy."""
    total = np.zeros_like(x)
    for k in range(_CHAINS):
        value = x * _start_coefficient(k)
        for _ in range(_DEPTH):
            value = value * x + _step_coefficient(k)
        total = total + value
    return total


def _start_coefficient(chain: int) -> float:
    return 0.5 + chain / 16


def _step_coefficient(chain: int) -> float:
    return 0.25 + chain / 32


@cache
def _multiply_adds() -> Callable[[Tensor], Tensor]:
    """Load an op that is a sum of polynomials of equal degree, one expression per chain."""
    chains = []
    for k in range(_CHAINS):
        expression = f"(input * {_start_coefficient(k)})"
        for _ in range(_DEPTH):
            expression = f"({expression} * input + {_step_coefficient(k)})"
        chains.append(expression)
    entry = {"op": "bench_multiply_adds(input)", "kind": "pointwise", "doc": "The benchmark's multiply-adds.",
             "dtypes": "float", "grad": "none", "out": " + ".join(chains)}  # fmt: skip
    spec = "- " + "\n  ".join(f'{key}: "{value}"' for key, value in entry.items()) + "\n"
    function: Callable[[Tensor], Tensor] = wg.ops.load(spec).bench_multiply_adds
    return function


def _multiply_add(n: int, dtype: str, site: Site) -> Work | None:
    """Return the work of `_multiply_adds` on a vector of `n` elements."""
    if not isinstance(site, OurSite) or (dtype == "float64" and not site.device.driver.capabilities.fp64):
        return None
    run, x = _multiply_adds(), site.uniform(n).to(getattr(site.library, dtype))

    def pairs() -> Pairs:
        out = run(x)
        return [(site.host(out[s]), _polynomials(site.host(x[s]))) for s in pieces(n, _CHECKED_ELEMENTS)]

    return Work(lambda: run(x), pairs)


def _matrix_product(n: int, dtype: str, site: Site) -> Work | None:
    if site.arrays and dtype != "float32":
        return None
    run = site.ready(lambda _, x, y: x @ y)
    x, y = site.normal(n, n, dtype=dtype), site.normal(n, n, dtype=dtype)

    def pairs() -> Pairs:
        out = run(x, y)
        return [(site.host(out[rows]), site.host(x[rows]) @ site.host(y)) for rows in pieces(n, 12)]

    return Work(lambda: run(x, y), pairs)


def _transfers(n: int) -> Iterator[Case]:
    for name, make in (("host to device", _to_device), ("device to host", _to_host)):
        yield Case("transfer", f"{name} {4 * n >> 20} MiB", partial(make, n), bytes=4 * n, clock="wall", tolerance=0)


@cache
def _random_array(n: int) -> Array:
    return np.random.default_rng(0).standard_normal(n, dtype=np.float32)


def _to_device(n: int, site: Site) -> Work | None:
    """Copy into existing device memory, as a training loop copies its next batch."""
    if not site.modules:
        return None
    source, target = site.library.from_numpy(_random_array(n)), site.tensor(np.zeros(n, np.float32))

    def pairs() -> Pairs:
        target.copy_(source)
        return [(site.host(target), _random_array(n).astype(np.float64))]

    return Work(lambda: target.copy_(source), pairs)


def _to_host(n: int, site: Site) -> Work | None:
    if not site.modules:
        return None
    source = site.tensor(_random_array(n))
    target = site.library.from_numpy(np.zeros(n, np.float32))

    def pairs() -> Pairs:
        target.copy_(source)
        return [(target.numpy().astype(np.float64), _random_array(n).astype(np.float64))]

    return Work(lambda: target.copy_(source), pairs)


def _one_element(waits: bool, site: Site) -> Work | None:
    """Launch the smallest kernel: overwrite one element."""
    if not site.modules:
        return None
    x = site.tensor(np.zeros(1, np.float32))

    def call() -> None:
        x.fill_(1.0)
        if waits:
            site.wait()

    def pairs() -> Pairs:
        x.fill_(0.0)
        call()
        return [(site.host(x), np.ones(1))]

    return Work(call, pairs)
