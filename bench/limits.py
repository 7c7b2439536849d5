"""The suite `device`: what a device does at most. Every other row is a share of these, measured, with no data sheet.

Copy and triad (BabelStream's, McCalpin 1995) larger than caches, multiply-adds in registers, products of matrices where
the device may have units for them, transfers, and what a launch takes that computes next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

import weftgrad as wg

from .cases import Case, Pairs, Work, pieces, rotated
from .sites import Site

__all__ = ["cases", "roofs"]

Array = np.ndarray[Any, Any]
_MILLION = 1 << 20
_DEPTH, _CHAINS = 16, 8  # multiply-adds that wait for each other, and chains side by side: both of a core's units work
_LOOKED_AT = 6144  # elements of a vector that are compared
_WIDTH = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
_SHORT = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16"}
_TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "float16": 2**-10, "bfloat16": 2**-8}


def cases(gpu: bool, scale: int = 1) -> Iterator[Case]:
    """All rows; `scale` divides lengths by its square and sides."""
    yield from roofs(gpu, scale)
    yield from _transfers(max(8, 16 * _MILLION // scale**2))
    yield Case("launch", "one element, each waited for", partial(_one, True), clock="wall", tolerance=0)
    yield Case("launch", "one element, queued", partial(_one, False), clock="wall", tolerance=0)


def roofs(gpu: bool, scale: int = 1) -> Iterator[Case]:
    """The rows that other suites need too, for their share of the roof."""
    for label, million in (("16M", 16), ("64M", 64)):
        n = max(8, million * _MILLION // scale**2)
        yield Case("roofline", f"copy fp32 {label}", partial(_copy, n), bytes=8 * n, tolerance=0, dtype="float32")
        yield Case("roofline", f"triad fp32 {label}", partial(_triad, n), bytes=12 * n, tolerance=1e-6,
                   dtype="float32")  # fmt: skip
    n = max(8, (64 if gpu else 1) * _MILLION // scale**2)
    for dtype in ("float32", "float64"):
        yield Case("peak", f"multiply-add {_SHORT[dtype]}", partial(_multiply_add, n, dtype), dtype=dtype,
                   flops=n * (_CHAINS * (2 * _DEPTH + 1) + _CHAINS - 1), tolerance=_TOLERANCE[dtype])  # fmt: skip
    n = max(8, (8192 if gpu else 1024) // scale)
    for dtype, precision in (("float32", "highest"), ("float32", "high"), ("bfloat16", "highest"),
                             ("float16", "highest")) if gpu else (("float32", "highest"),):  # fmt: skip
        name = f"matrix product {_SHORT[dtype]}{' high' * (precision == 'high')}"
        # tf32 keeps 10 bits of each operand.
        tolerance = 2e-3 if precision == "high" else _TOLERANCE[dtype] * 2
        yield Case("peak", f"{name} {n}", partial(_product, n, dtype), flops=2 * n**3, bytes=3 * _WIDTH[dtype] * n**2,
                   tolerance=tolerance, precision=precision, dtype=dtype)  # fmt: skip


def _copy(n: int, site: Site) -> Work | None:
    if not site.modules:
        return None
    first, call = rotated(site, lambda: [site.normal(n), site.normal(n)], lambda x, y: y.copy_(x))
    source, target = first

    def pairs() -> Pairs:
        target.copy_(source)
        return [(site.host(target[s]), site.host(source[s])) for s in pieces(n, _LOOKED_AT)]

    return Work(call, pairs)


def _triad(n: int, site: Site) -> Work | None:
    """x + 3 y"""
    if site.arrays:
        return None
    run = site.ready(lambda f, x, y: f.add(x, y, alpha=3.0)) if site.modules else site.ready(lambda _, x, y: x + 3 * y)
    (x, y), call = rotated(site, lambda: [site.normal(n), site.normal(n)], run)

    def pairs() -> Pairs:
        out = run(x, y)
        return [(site.host(out[s]), site.host(x[s]) + 3 * site.host(y[s])) for s in pieces(n, _LOOKED_AT)]

    return Work(call, pairs)


def _polynomials(x: Any) -> Any:
    """What `_multiply_adds` computes, by Horner's rule."""
    total = 0
    for k in range(_CHAINS):
        value = x * _first(k)
        for _ in range(_DEPTH):
            value = value * x + _next(k)
        total = total + value
    return total


def _first(chain: int) -> float:
    return 0.5 + chain / 16


def _next(chain: int) -> float:
    return 0.25 + chain / 32


@cache
def _multiply_adds() -> Callable[[Any], Any]:
    """An op of this package's own making: a sum of polynomials of equal degree, one expression a chain."""
    chains = []
    for k in range(_CHAINS):
        text = f"(input * {_first(k)})"
        for _ in range(_DEPTH):
            text = f"({text} * input + {_next(k)})"
        chains.append(text)
    entry = {"op": "bench_multiply_adds(input)", "kind": "pointwise", "doc": "The benchmark's multiply-adds.",
             "dtypes": "float", "grad": "none", "out": " + ".join(chains)}  # fmt: skip
    spec = "- " + "\n  ".join(f'{key}: "{value}"' for key, value in entry.items()) + "\n"
    return wg.ops.load(spec).bench_multiply_adds  # type: ignore[no-any-return]


def _multiply_add(n: int, dtype: str, site: Site) -> Work | None:
    if not site.ours or (dtype == "float64" and not site.device.driver.capabilities.fp64):
        return None
    run, x = _multiply_adds(), site.uniform(n).to(getattr(site.library, dtype))

    def pairs() -> Pairs:
        out = run(x)
        return [(site.host(out[s]), _polynomials(site.host(x[s]))) for s in pieces(n, _LOOKED_AT)]

    return Work(lambda: run(x), pairs)


def _product(n: int, dtype: str, site: Site) -> Work | None:
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
def _array(n: int) -> Array:
    return np.random.default_rng(0).standard_normal(n, dtype=np.float32)


def _to_device(n: int, site: Site) -> Work | None:
    """Into memory that is there already, as a training loop's next batch goes."""
    if not site.modules:
        return None
    source, target = site.library.from_numpy(_array(n)), site.tensor(np.zeros(n, np.float32))

    def pairs() -> Pairs:
        target.copy_(source)
        return [(site.host(target), _array(n).astype(np.float64))]

    return Work(lambda: target.copy_(source), pairs)


def _to_host(n: int, site: Site) -> Work | None:
    if not site.modules:
        return None
    source = site.tensor(_array(n))
    target = site.library.from_numpy(np.zeros(n, np.float32))

    def pairs() -> Pairs:
        target.copy_(source)
        return [(target.numpy().astype(np.float64), _array(n).astype(np.float64))]

    return Work(lambda: target.copy_(source), pairs)


def _one(waiting: bool, site: Site) -> Work | None:
    """The least there is to launch: one element, written over what it held."""
    if not site.modules:
        return None
    x = site.tensor(np.zeros(1, np.float32))

    def call() -> None:
        x.fill_(1.0)
        if waiting:
            site.wait()

    def pairs() -> Pairs:
        x.fill_(0.0)
        call()
        return [(site.host(x), np.ones(1))]

    return Work(call, pairs)
