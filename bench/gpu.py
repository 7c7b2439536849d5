"""The core suite's rows for GPUs, in sizes that fill a GPU. Each row is written once for weftgrad and torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..runtime.dtypes import Array
from . import references
from .cases import Case, MakeWork, Pairs, Work, pieces, rotated, sampled, sampled_op
from .sites import Site
from .training import training_cases

if TYPE_CHECKING:
    from .library_types import Grads, Operation, Reference, Tensor

__all__ = ["cases"]

_ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2}  # bytes
# For results that are rounded once: half an ulp is at most 2^-8 of a bfloat16 value and 2^-11 of a float16 value.
_TOLERANCE = {"float32": 1e-5, "bfloat16": 2**-8, "float16": 2**-10}
_LABELS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
_MEBI = 1 << 20
_VECTOR_MEBIS = (16, 64, 256)  # lengths of vectors, in `_MEBI` elements


def cases(scale: int = 1) -> Iterator[Case]:
    """Yield all rows.

    Args:
        scale: Divides every size of a matrix or an image, and the length of a vector twice; 1: full size. Labels do not
            change.
    """

    def side(n: int) -> int:
        return max(8, n // scale)  # in shorter rows, a norm depends too much on rounding

    def length(n: int) -> int:
        return max(8, n // scale**2)

    # First, because these rows depend on launch latency, and the profiling events of any row slow all later launches of
    # OpenCL.
    yield from training_cases(side)
    yield from _elementwise(length, side)
    yield from _reductions(length, side)
    yield from _rows(side)
    yield from _embedding(side)
    yield from _products(side)
    yield from _convolutions(side)


def _elementwise(length: Callable[[int], int], side: Callable[[int], int]) -> Iterator[Case]:
    # All copies first: the targets of later rows are fractions of their bandwidth.
    for mebis in _VECTOR_MEBIS:
        n = length(mebis * _MEBI)
        yield Case("roofline", f"copy fp32 {mebis}M", partial(_copy, n), bytes=8 * n, tolerance=0)
    for mebis in _VECTOR_MEBIS:
        n = length(mebis * _MEBI)
        for dtype in ("float32", "bfloat16"):
            for name, function, reference, operand_count, exists_in_numpy in (
                ("add", lambda f, x, y: x + y, np.add, 2, True),
                ("exp", lambda f, x: f.exp(x), np.exp, 1, True),
                ("gelu", lambda f, x: f.nn.functional.gelu(x), references.gelu, 1, False),
            ):
                make = sampled_op(function, reference, [(n,)] * operand_count, dtype, max_size=6144,
                                   sampled_operands=(0, 1), exists_in_numpy=exists_in_numpy)  # fmt: skip
                yield Case("elementwise", f"{name} {_LABELS[dtype]} {mebis}M", make,
                           bytes=(operand_count + 1) * _ITEMSIZE[dtype] * n, target={"copy": 0.9},
                           tolerance=_TOLERANCE[dtype])  # fmt: skip
    rows, width = side(16384), side(4096)
    for name, shape, sampled_operands in (("row", (width,), (0,)), ("column", (rows, 1), (0, 1))):
        make = sampled_op(lambda f, x, y: x + y, np.add, [(rows, width), shape], "float32",
                           sampled_operands=sampled_operands, exists_in_numpy=True)  # fmt: skip
        yield Case("elementwise", f"fp32 16384x4096 + {name}", make, bytes=8 * rows * width, target={"copy": 0.9})


def _copy(n: int, site: Site) -> Work | None:
    if not site.modules:
        return None
    source, target = site.normal(n), site.normal(n)

    def pairs() -> Pairs:
        target.copy_(source)
        return [(site.host(target[s]), site.host(source[s])) for s in pieces(n, 6144)]

    return Work(lambda: target.copy_(source), pairs)


def _reductions(length: Callable[[int], int], side: Callable[[int], int]) -> Iterator[Case]:
    n = length(64 * _MEBI)
    # Positive numbers: with random signs the sum may be near 0, and its relative error would mean nothing.
    make = _unsampled_op(lambda f, x: f.sum(x), lambda x: x.sum(), lambda site: site.uniform(n), "float32")
    yield Case("reduction", "sum fp32 64M", make, bytes=4 * n, tolerance=_TOLERANCE["float32"])
    rows, width = side(16384), side(4096)
    for dtype in ("float32", "bfloat16"):
        nbytes, tolerance = _ITEMSIZE[dtype] * rows * width, _TOLERANCE[dtype]
        label = f"{_LABELS[dtype]} 16384x4096"
        make = sampled_op(lambda f, x: f.sum(x, 1), lambda x: x.sum(1), [(rows, width)], dtype, max_size=300,
                           exists_in_numpy=True)  # fmt: skip
        yield Case("reduction", f"row sums {label}", make, bytes=nbytes, tolerance=tolerance)
        make_operand = partial(_normal, rows, width, dtype)
        make = _unsampled_op(lambda f, x: f.sum(x, 0), lambda x: x.sum(0), make_operand, dtype)
        yield Case("reduction", f"column sums {label}", make, bytes=nbytes, tolerance=tolerance)


def _unsampled_op(
    function: Operation, reference: Reference, make_operand: Callable[[Site], Tensor], dtype: str
) -> MakeWork:
    """Like `sampled_op`, for an op of one operand that sums over the first dimension: the whole result is checked."""

    def make(site: Site) -> Work | None:
        if site.arrays and dtype != "float32":
            return None
        run = site.ready(function)
        operands, call = rotated(site, lambda: [make_operand(site)], run)

        def pairs() -> Pairs:
            result = site.host(run(*operands))
            return [(result, np.asarray(reference(site.host(operands[0]))))]

        return Work(call, pairs)

    return make


def _normal(rows: int, width: int, dtype: str, site: Site) -> Tensor:
    return site.normal(rows, width, dtype=dtype)


def _rows(side: Callable[[int], int]) -> Iterator[Case]:
    target = {"torch": 1.0}
    for count, full_width in ((16384, 1024), (4096, 8192)):
        rows, width = side(count), side(full_width)
        for dtype in ("float32", "bfloat16"):
            label = f"{_LABELS[dtype]} {count}x{full_width}"
            tolerance = _TOLERANCE[dtype]
            nbytes = _ITEMSIZE[dtype] * rows * width
            make = sampled_op(lambda f, x: f.softmax(x, 1), references.softmax, [(rows, width)], dtype, max_size=48)
            yield Case("row", f"softmax {label}", make, bytes=2 * nbytes, target=target, tolerance=tolerance)
            yield Case("row", f"softmax backward {label}", partial(_softmax_backward, rows, width, dtype),
                       bytes=3 * nbytes, target=target, tolerance=2 * tolerance)  # fmt: skip
            make = sampled_op(lambda f, x, w, b: f.nn.functional.layer_norm(x, (x.shape[1],), w, b),
                               references.layer_norm, [(rows, width), (width,), (width,)], dtype,
                               max_size=48)  # fmt: skip
            yield Case("row", f"layer_norm {label}", make, bytes=2 * nbytes, target=target, tolerance=tolerance)
            yield Case("row", f"layer_norm backward {label}", partial(_layer_norm_backward, rows, width, dtype),
                       bytes=3 * nbytes, target=target, tolerance=2 * tolerance)  # fmt: skip
    rows, width = side(4096), side(32768)
    for dtype in ("float32", "bfloat16"):
        nbytes, tolerance = _ITEMSIZE[dtype] * rows * width, 2 * _TOLERANCE[dtype]
        for name, is_backward, passes in (("cross_entropy", False, 1), ("cross_entropy backward", True, 2)):
            yield Case("row", f"{name} {_LABELS[dtype]} 4096x32768",
                       partial(_cross_entropy, rows, width, dtype, is_backward), bytes=passes * nbytes, target=target,
                       tolerance=tolerance)  # fmt: skip


def _backward_call(site: Site, result: Tensor, leaves: list[Tensor], grad: Tensor | None = None) -> Grads:
    """Return a call that runs the backward pass from `result` to `leaves`. It can be repeated."""
    return lambda: site.library.autograd.grad(result, leaves, grad, retain_graph=True)


def _softmax_backward(rows: int, width: int, dtype: str, site: Site) -> Work | None:
    if not site.modules:
        return None
    x, g = site.normal(rows, width, dtype=dtype, grad=True), site.normal(rows, width, dtype=dtype)
    call = _backward_call(site, site.library.softmax(x, 1), [x], g)
    return Work(
        call, lambda: sampled(site, references.softmax_grad, (x, g), call()[0], max_size=48, sampled_operands=(0, 1))
    )


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


def _cross_entropy(rows: int, width: int, dtype: str, is_backward: bool, site: Site) -> Work | None:
    if not site.modules:
        return None
    x, target = site.normal(rows, width, dtype=dtype, grad=is_backward), site.integers(width, rows)
    function = site.library.nn.functional.cross_entropy
    if not is_backward:
        return Work(
            lambda: function(x, target),
            lambda: [(site.host(function(x, target)), references.cross_entropy(site.host(x), site.host(target)))],
        )
    call = _backward_call(site, function(x, target), [x])
    reference = partial(references.cross_entropy_grad, rows=rows)
    return Work(call, lambda: sampled(site, reference, (x, target), call()[0], max_size=12, sampled_operands=(0, 1)))


def _embedding(side: Callable[[int], int]) -> Iterator[Case]:
    count, width, lookups = side(32768), side(1024), side(32768)
    for dtype in ("float32", "bfloat16"):
        nbytes = _ITEMSIZE[dtype] * width * lookups
        for name, is_backward, tolerance in (
            ("embedding", False, 0.0), ("embedding backward", True, 4 * _TOLERANCE[dtype]),
        ):  # fmt: skip
            make = partial(_embedding_work, count, width, lookups, dtype, is_backward)
            yield Case("index", f"{name} {_LABELS[dtype]} 32768x1024", make, bytes=2 * nbytes, tolerance=tolerance)


def _embedding_work(count: int, width: int, lookups: int, dtype: str, is_backward: bool, site: Site) -> Work | None:
    if not site.modules:
        return None
    w, index = site.normal(count, width, dtype=dtype, grad=is_backward), site.integers(count, lookups)
    function = site.library.nn.functional.embedding
    if not is_backward:
        return Work(
            lambda: function(index, w),
            lambda: sampled(site, _lookup, (index, w), function(index, w), max_size=48, sampled_operands=(0,)),
        )
    g = site.normal(lookups, width, dtype=dtype)
    call = _backward_call(site, function(index, w), [w], g)
    reference = partial(references.embedding_grad, rows=count)
    return Work(call, lambda: [(site.host(call()[0]), reference(site.host(index), site.host(g)))])


def _lookup(index: Array, rows: Array) -> Array:
    return rows[index]


def _products(side: Callable[[int], int]) -> Iterator[Case]:
    # The precision "high" is tf32, which rounds both operands to 10 fraction bits. That changes elements by about 3e-4
    # of their standard deviation; the largest element is some 4 standard deviations.
    for label, dtype, precision, transposed, size, target, tolerance in (
        ("bf16", "bfloat16", "highest", False, 4096, {"torch": 0.9}, _TOLERANCE["bfloat16"]),
        ("bf16 NT", "bfloat16", "highest", True, 4096, {"torch": 0.9}, _TOLERANCE["bfloat16"]),
        ("bf16", "bfloat16", "highest", False, 8192, {"torch": 0.9}, _TOLERANCE["bfloat16"]),
        ("fp16", "float16", "highest", False, 4096, None, _TOLERANCE["float16"]),
        ("fp16", "float16", "highest", False, 8192, None, _TOLERANCE["float16"]),
        ("fp32 highest", "float32", "highest", False, 4096, {"torch": 1.3}, 2e-5),
        ("fp32 highest", "float32", "highest", False, 8192, {"torch": 1.3}, 2e-5),
        ("fp32 high", "float32", "high", False, 4096, None, 2e-3),
        ("fp32 high", "float32", "high", False, 8192, None, 2e-3),
    ):
        n = side(size)
        yield Case("matmul", f"matmul {label} {size}", partial(_product, n, dtype, transposed), flops=2 * n**3,
                   bytes=3 * _ITEMSIZE[dtype] * n**2, target=target, tolerance=tolerance,
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
        make = sampled_op(lambda f, x, w: f.nn.functional.conv2d(x, w, padding=1), references.conv2d,
                       [(images, channels, height, height), (channels, channels, 3, 3)], dtype, max_size=3)  # fmt: skip
        yield Case("convolution", f"conv2d {_LABELS[dtype]} 32x128x56x56 by 128x3x3", make,
                   flops=2 * images * height**2 * channels**2 * 9, tolerance=_TOLERANCE[dtype] * 2,
                   bytes=_ITEMSIZE[dtype] * channels * (2 * images * height**2 + 9 * channels))  # fmt: skip
