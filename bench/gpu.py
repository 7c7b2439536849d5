"""The core suite's rows for GPUs, in sizes that fill a GPU. Each row is written once for weftgrad and torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from . import references
from .cases import Case, Pairs, Work, pieces, rotated, sampled
from .sites import Site
from .training import training_cases

if TYPE_CHECKING:
    from .library_types import Grads, Operation, Reference, Tensor

__all__ = ["cases"]

_WIDTH = {"float32": 4, "bfloat16": 2, "float16": 2}
# For results that are rounded once: half an ulp is 2^-9 of a bfloat16 and 2^-12 of a float16.
_TOLERANCE = {"float32": 1e-5, "bfloat16": 2**-8, "float16": 2**-10}
_SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
_MILLION = 1 << 20


def cases(scale: int = 1) -> Iterator[Case]:
    """Yield all rows. For quick trials, `scale` divides every dimension, and vector lengths by its square."""

    def side(n: int) -> int:
        return max(8, n // scale)  # in shorter rows, a norm depends too much on rounding

    def length(n: int) -> int:
        return max(8, n // scale**2)

    # First, because profiling events slow OpenCL launches from then on, and these rows depend on launch latency.
    yield from training_cases(side)
    yield from _elementwise(length, side)
    yield from _reductions(length, side)
    yield from _rows(side)
    yield from _embedding(side)
    yield from _products(side)
    yield from _convolutions(side)


def _sampled_op(
    function: Operation, reference: Reference, shapes: list[tuple[int, ...]], dtype: str, *,
    max_size: int = 12, sampled_operands: tuple[int, ...] = (0,), numpy: bool = False,
) -> Callable[[Site], Work | None]:  # fmt: skip
    """Return a case's `make` for one op on random operands, checked at sampled positions of the first dimension."""

    def make(site: Site) -> Work | None:
        if site.arrays and not (numpy and dtype == "float32"):
            return None
        run = site.ready(function)
        operands, call = rotated(site, lambda: [site.normal(*s, dtype=dtype) for s in shapes], run)
        return Work(call, lambda: sampled(site, reference, operands, run(*operands), max_size, sampled_operands))

    return make


def _elementwise(length: Callable[[int], int], side: Callable[[int], int]) -> Iterator[Case]:
    for label, million in (("16M", 16), ("64M", 64), ("256M", 256)):
        n = length(million * _MILLION)
        yield Case("roofline", f"copy fp32 {label}", partial(_copy, n), bytes=8 * n, tolerance=0)
    for label, million in (("16M", 16), ("64M", 64), ("256M", 256)):
        n = length(million * _MILLION)
        for dtype in ("float32", "bfloat16"):
            for name, function, reference, operands, numpy in (
                ("add", lambda f, x, y: x + y, np.add, 2, True),
                ("exp", lambda f, x: f.exp(x), np.exp, 1, True),
                ("gelu", lambda f, x: f.nn.functional.gelu(x), references.gelu, 1, False),
            ):
                work = _sampled_op(
                    function, reference, [(n,)] * operands, dtype, max_size=6144, sampled_operands=(0, 1), numpy=numpy
                )  # fmt: skip
                yield Case("elementwise", f"{name} {_SHORT[dtype]} {label}", work,
                           bytes=(operands + 1) * _WIDTH[dtype] * n, target={"copy": 0.9},
                           tolerance=_TOLERANCE[dtype])  # fmt: skip
    rows, width = side(16384), side(4096)
    for name, other in (("row", (width,)), ("column", (rows, 1))):
        work = _sampled_op(lambda f, x, y: x + y, np.add, [(rows, width), other], "float32",
                       sampled_operands=(0, 1) if name == "column" else (0,), numpy=True)  # fmt: skip
        yield Case("elementwise", f"fp32 16384x4096 + {name}", work, bytes=8 * rows * width, target={"copy": 0.9})


def _copy(n: int, site: Site) -> Work | None:
    if not site.modules:
        return None
    source, target = site.normal(n), site.normal(n)

    def pairs() -> Pairs:
        target.copy_(source)
        return [(site.host(target[s]), site.host(source[s])) for s in pieces(n, 6144)]

    return Work(lambda: target.copy_(source), pairs)


def _reductions(length: Callable[[int], int], side: Callable[[int], int]) -> Iterator[Case]:
    n = length(64 * _MILLION)
    # Positive numbers: with random signs the sum may be near 0, and its relative error would mean nothing.
    yield Case("reduction", "sum fp32 64M", _full_reduction(lambda f, x: f.sum(x), lambda x: x.sum(),
               lambda site: site.uniform(n), "float32"), bytes=4 * n, tolerance=_TOLERANCE["float32"])  # fmt: skip
    rows, width = side(16384), side(4096)
    for dtype in ("float32", "bfloat16"):
        yield Case("reduction", f"row sums {_SHORT[dtype]} 16384x4096",
                   _sampled_op(lambda f, x: f.sum(x, 1), lambda x: x.sum(1), [(rows, width)], dtype, max_size=300,
                               numpy=True),
                   bytes=_WIDTH[dtype] * rows * width, tolerance=_TOLERANCE[dtype])  # fmt: skip
        yield Case("reduction", f"column sums {_SHORT[dtype]} 16384x4096",
                   _full_reduction(lambda f, x: f.sum(x, 0), lambda x: x.sum(0),
                          partial(_normal, rows, width, dtype), dtype),
                   bytes=_WIDTH[dtype] * rows * width, tolerance=_TOLERANCE[dtype])  # fmt: skip


def _full_reduction(
    function: Operation, reference: Reference, operand: Callable[[Site], Tensor], dtype: str
) -> Callable[[Site], Work | None]:
    """Like `_sampled_op`, for one operand whose every element contributes to every result: checked without sampling."""

    def make(site: Site) -> Work | None:
        if site.arrays and dtype != "float32":
            return None
        run = site.ready(function)
        operands, call = rotated(site, lambda: [operand(site)], run)

        def pairs() -> Pairs:
            result = site.host(run(*operands))
            return [(result, np.asarray(reference(site.host(operands[0]))))]

        return Work(call, pairs)

    return make


def _normal(rows: int, width: int, dtype: str, site: Site) -> Tensor:
    return site.normal(rows, width, dtype=dtype)


def _rows(side: Callable[[int], int]) -> Iterator[Case]:
    goal = {"torch": 1.0}
    for count, full_width in ((16384, 1024), (4096, 8192)):
        rows, width = side(count), side(full_width)
        n = rows * width
        for dtype in ("float32", "bfloat16"):
            label = f"{_SHORT[dtype]} {count}x{full_width}"
            tolerance = _TOLERANCE[dtype]
            size = _WIDTH[dtype] * n
            work = _sampled_op(lambda f, x: f.softmax(x, 1), references.softmax, [(rows, width)], dtype, max_size=48)
            yield Case("row", f"softmax {label}", work, bytes=2 * size, target=goal, tolerance=tolerance)
            yield Case("row", f"softmax backward {label}", partial(_softmax_backward, rows, width, dtype),
                       bytes=3 * size, target=goal, tolerance=2 * tolerance)  # fmt: skip
            work = _sampled_op(lambda f, x, w, b: f.nn.functional.layer_norm(x, (x.shape[1],), w, b),
                               references.layer_norm, [(rows, width), (width,), (width,)], dtype,
                               max_size=48)  # fmt: skip
            yield Case("row", f"layer_norm {label}", work, bytes=2 * size, target=goal, tolerance=tolerance)
            yield Case("row", f"layer_norm backward {label}", partial(_layer_norm_backward, rows, width, dtype),
                       bytes=3 * size, target=goal, tolerance=2 * tolerance)  # fmt: skip
    rows, width = side(4096), side(32768)
    for dtype in ("float32", "bfloat16"):
        for backward in (False, True):
            yield Case("row", f"cross_entropy{' backward' * backward} {_SHORT[dtype]} 4096x32768",
                       partial(_cross_entropy, rows, width, dtype, backward), target=goal,
                       bytes=_WIDTH[dtype] * rows * width * (1 + backward),
                       tolerance=2 * _TOLERANCE[dtype])  # fmt: skip


def _backward_call(site: Site, result: Tensor, leaves: list[Tensor], grad: Tensor | None = None) -> Grads:
    """Return a call that runs only the backward pass from `result`, which can be repeated."""
    return lambda: site.library.autograd.grad(result, leaves, grad, retain_graph=True)


def _softmax_backward(rows: int, width: int, dtype: str, site: Site) -> Work | None:
    if not site.modules:
        return None
    x, g = site.normal(rows, width, dtype=dtype, grad=True), site.normal(rows, width, dtype=dtype)
    call = _backward_call(site, site.library.softmax(x, 1), [x], g)
    return Work(call, lambda: sampled(site, references.softmax_grad, (x, g), call()[0], 48, (0, 1)))


def _layer_norm_backward(rows: int, width: int, dtype: str, site: Site) -> Work | None:
    if not site.modules:
        return None
    x, w, b = (site.normal(*shape, dtype=dtype, grad=True) for shape in ((rows, width), (width,), (width,)))
    g = site.normal(rows, width, dtype=dtype)
    call = _backward_call(site, site.library.nn.functional.layer_norm(x, (width,), w, b), [x, w, b], g)

    def pairs() -> Pairs:
        expected = references.layer_norm_grads(*map(site.host, (x, w, b, g)))
        return list(zip(map(site.host, call()), expected, strict=True))

    return Work(call, pairs)


def _cross_entropy(rows: int, width: int, dtype: str, backward: bool, site: Site) -> Work | None:
    if not site.modules:
        return None
    x, target = site.normal(rows, width, dtype=dtype, grad=backward), site.integers(width, rows)
    function = site.library.nn.functional.cross_entropy
    if not backward:
        return Work(
            lambda: function(x, target),
            lambda: [(site.host(function(x, target)), references.cross_entropy(site.host(x), site.host(target)))],
        )
    call = _backward_call(site, function(x, target), [x])
    reference = partial(references.cross_entropy_grad, rows=rows)
    return Work(call, lambda: sampled(site, reference, (x, target), call()[0], 12, (0, 1)))


def _embedding(side: Callable[[int], int]) -> Iterator[Case]:
    count, width, lookups = side(32768), side(1024), side(32768)
    for dtype in ("float32", "bfloat16"):
        size = _WIDTH[dtype] * width * lookups
        for backward in (False, True):
            yield Case("index", f"embedding{' backward' * backward} {_SHORT[dtype]} 32768x1024",
                       partial(_embedding_work, count, width, lookups, dtype, backward), bytes=2 * size,
                       tolerance=4 * _TOLERANCE[dtype] if backward else 0)  # fmt: skip


def _embedding_work(count: int, width: int, lookups: int, dtype: str, backward: bool, site: Site) -> Work | None:
    if not site.modules:
        return None
    w, index = site.normal(count, width, dtype=dtype, grad=backward), site.integers(count, lookups)
    function = site.library.nn.functional.embedding
    if not backward:
        return Work(
            lambda: function(index, w),
            lambda: sampled(site, lambda i, rows: rows[i], (index, w), function(index, w), 48, (0,)),
        )
    g = site.normal(lookups, width, dtype=dtype)
    call = _backward_call(site, function(index, w), [w], g)
    reference = partial(references.embedding_grad, rows=count)
    return Work(call, lambda: [(site.host(call()[0]), reference(site.host(index), site.host(g)))])


def _products(side: Callable[[int], int]) -> Iterator[Case]:
    for dtype, precision, sizes, target in (
        ("bfloat16", "highest", (4096, 8192), {"torch": 0.9}), ("float16", "highest", (4096, 8192), None),
        ("float32", "highest", (4096, 8192), {"torch": 1.3}), ("float32", "high", (4096, 8192), None),
    ):  # fmt: skip
        for size in sizes:
            n = side(size)
            # tf32 has 10 fraction bits per operand: an error of 3e-4 of a typical value; the largest value is about 4.
            tolerance = _TOLERANCE[dtype] if dtype != "float32" else 2e-5 if precision == "highest" else 2e-3
            for transposed in (False, True) if dtype == "bfloat16" and size == 4096 else (False,):
                label = _SHORT[dtype] + (f" {precision}" if dtype == "float32" else "") + " NT" * transposed
                yield Case("matmul", f"matmul {label} {size}", partial(_product, n, dtype, transposed), flops=2 * n**3,
                           bytes=3 * _WIDTH[dtype] * n**2, target=target, tolerance=tolerance,
                           precision=precision)  # fmt: skip


def _product(n: int, dtype: str, transposed: bool, site: Site) -> Work | None:
    if site.arrays and dtype != "float32":
        return None

    function = site.ready(lambda _, x, y: x @ (y.T if transposed else y))
    operands, call = rotated(site, lambda: [site.normal(n, n, dtype=dtype) for _ in range(2)], function)
    x, y = operands

    def pairs() -> Pairs:
        result, checked = function(x, y), []
        for rows in pieces(n, 12):
            for columns in pieces(n, 96):
                right = site.host(y[columns]).T if transposed else site.host(y[:, columns])
                checked.append((site.host(result[rows, columns]), site.host(x[rows]) @ right))
        return checked

    return Work(call, pairs)


def _convolutions(side: Callable[[int], int]) -> Iterator[Case]:
    images, channels, height = side(32), side(128), max(4, side(56))
    for dtype in ("float32", "bfloat16"):
        work = _sampled_op(lambda f, x, w: f.nn.functional.conv2d(x, w, padding=1), references.conv2d,
                       [(images, channels, height, height), (channels, channels, 3, 3)], dtype, max_size=3)  # fmt: skip
        yield Case("convolution", f"conv2d {_SHORT[dtype]} 32x128x56x56 by 128x3x3", work,
                   flops=2 * images * height**2 * channels**2 * 9, tolerance=_TOLERANCE[dtype] * 2,
                   bytes=_WIDTH[dtype] * channels * (2 * images * height**2 + 9 * channels))  # fmt: skip
