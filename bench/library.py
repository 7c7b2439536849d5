"""The suite `ops`: convolution, pooling, indexing, scans, sorting, attention and shape ops, forward and backward.

Every row is checked against NumPy in float64. A gradient is checked as a directional derivative: its dot product with a
random direction has to equal the central difference of the reference along this direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Unpack

import numpy as np

from ..runtime.dtypes import Array
from . import library_references as references
from .cases import Case, CaseOptions, Pairs, Work, rotated
from .sites import Site

if TYPE_CHECKING:
    from .library_types import Operation, Reference, Tensor

__all__ = ["cases"]

_STEP = 1e-4  # step size of central differences
_MAX_JITTER = 0.02  # keeps values in a pooling window further apart than a finite-difference step


def cases() -> Iterator[Case]:
    """Yield all rows, in float32 unless the name says otherwise."""
    yield from _convolutions()
    yield from _pooling()
    yield from _indexing()
    yield from _scans()
    yield from _sorting()
    yield from _attention()
    yield from _shapes()


# name, image, weight, stride, padding, groups
_CONVOLUTIONS = [
    ("3x3 8x64x56x56 to 64", (8, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1),
    ("3x3 8x256x14x14 to 256", (8, 256, 14, 14), (256, 256, 3, 3), 1, 1, 1),
    ("3x3/2 8x64x56x56 to 128", (8, 64, 56, 56), (128, 64, 3, 3), 2, 1, 1),
    ("3x3 32x1x28x28 to 16", (32, 1, 28, 28), (16, 1, 3, 3), 1, 1, 1),
    ("7x7/2 4x3x112x112 to 64", (4, 3, 112, 112), (64, 3, 7, 7), 2, 3, 1),
    ("1x1 8x256x28x28 to 128", (8, 256, 28, 28), (128, 256, 1, 1), 1, 0, 1),
    ("depthwise 3x3 8x128x56x56", (8, 128, 56, 56), (128, 1, 3, 3), 1, 1, 128),
    ("5 8x64x1024 to 64", (8, 64, 1024), (64, 64, 5), 1, 2, 1),
    ("3x3x3 2x16x16x32x32 to 32", (2, 16, 16, 32, 32), (32, 16, 3, 3, 3), 1, 1, 1),
]


def _convolutions() -> Iterator[Case]:
    for name, image, weight, stride, padding, groups in _CONVOLUTIONS:
        rank = len(image) - 2
        out = [(n + 2 * padding - k) // stride + 1 for n, k in zip(image[2:], weight[2:], strict=True)]
        flops = 2 * image[0] * math.prod(weight) * math.prod(out)
        size = 4 * (math.prod(image) + math.prod(weight) + image[0] * weight[0] * math.prod(out))

        def convolved(f: ModuleType, x: Tensor, w: Tensor, r: int = rank, s: int = stride, p: int = padding,
                      g: int = groups) -> Tensor:  # fmt: skip
            result: Tensor = getattr(f.nn.functional, f"conv{r}d")(x, w, stride=s, padding=p, groups=g)
            return result

        def reference(x: Array, w: Array, s: int = stride, p: int = padding, g: int = groups) -> Array:
            return references.convolution(x, w, s, p, g)

        yield from _rows(
            "convolution", name, _normal(image, weight), convolved, reference, 0.8, (0, 1), 0.7, flops=flops, bytes=size
        )
    yield from _rows("convolution", "transposed 2x2/2 8x64x28x28 to 32", _normal((8, 64, 28, 28), (64, 32, 2, 2)),
                     lambda f, x, w: f.nn.functional.conv_transpose2d(x, w, stride=2), references.transposed, 0.8,
                     (0, 1), 0.7, flops=2 * 8 * 64 * 32 * 4 * 28 * 28)  # fmt: skip


def _pooling() -> Iterator[Case]:
    shape = (8, 64, 56, 56)
    images = _separated_values(shape)
    size = 4 * math.prod(shape)
    for name, call, reference in (
        ("max 2x2/2", lambda f, x: f.nn.functional.max_pool2d(x, 2),
         lambda x: references.windows(x, 2, 2, 0).max((-1, -2))),
        ("max 3x3/2", lambda f, x: f.nn.functional.max_pool2d(x, 3, 2, 1),
         lambda x: references.windows(x, 3, 2, 1, -np.inf).max((-1, -2))),
        ("average 2x2/2", lambda f, x: f.nn.functional.avg_pool2d(x, 2),
         lambda x: references.windows(x, 2, 2, 0).mean((-1, -2))),
        ("average 3x3/2", lambda f, x: f.nn.functional.avg_pool2d(x, 3, 2, 1),
         lambda x: references.windows(x, 3, 2, 1).mean((-1, -2))),
        ("adaptive average to 1", lambda f, x: f.nn.functional.adaptive_avg_pool2d(x, 1),
         lambda x: x.mean((2, 3), keepdims=True)),
    ):  # fmt: skip
        yield from _rows("pooling", f"{name} 8x64x56x56", images, call, reference, 0.8, (0,), bytes=size)


def _indexing() -> Iterator[Case]:
    table, rows, columns = (30000, 256), _integers(30000, (8192,)), _integers(1024, (4096, 1024))
    down = _integers(4096, (4096, 1024))
    yield from _rows("index", "embedding 8K of 30000x256", _normal(table, make_index=rows),
                     lambda f, w, i: f.nn.functional.embedding(i, w), lambda w, i: w[i], 0.8, (0,),
                     bytes=2 * 4 * 8192 * 256)  # fmt: skip
    for dim, index in ((1, columns), (0, down)):
        yield from _rows("index", f"gather 4096x1024 along {dim}", _normal((4096, 1024), make_index=index),
                         lambda f, x, i, d=dim: f.gather(x, d, i),
                         lambda x, i, d=dim: np.take_along_axis(x, i, d), 0.8, (0,), bytes=16 << 22)  # fmt: skip
        yield from _rows("index", f"scatter_add 4096x1024 along {dim}",
                         _normal((4096, 1024), (4096, 1024), make_index=index),
                         lambda f, x, s, i, d=dim: f.scatter_add(x, d, i, s),
                         lambda x, s, i, d=dim: references.scatter_add(x, d, i, s), 0.8, bytes=20 << 22)  # fmt: skip
    bins = _normal((1000,), (1 << 20,), make_index=_integers(1000, (1 << 20,)))
    yield from _rows("index", "scatter_add 1M into 1000", bins, lambda f, x, s, i: f.scatter_add(x, 0, i, s),
                     lambda x, s, i: references.scatter_add(x, 0, i, s), 0.8, tolerance=1e-3)  # fmt: skip
    yield from _rows("index", "masked_select 4M", _normal((1 << 22,)), lambda f, x: f.masked_select(x, x > 0),
                     lambda x: x[x > 0], None)  # fmt: skip


def _scans() -> Iterator[Case]:
    for label, shape, dim in (("4M", (1 << 22,), 0), ("rows 4096x1024", (4096, 1024), 1),
                              ("columns 4096x1024", (4096, 1024), 0)):  # fmt: skip
        yield from _rows("scan", f"cumsum {label}", _normal(shape), lambda f, x, d=dim: f.cumsum(x, d),
                         lambda x, d=dim: np.cumsum(x, d), 0.8, (0,), numpy=lambda x, d=dim: np.cumsum(x, d),
                         bytes=8 * math.prod(shape), tolerance=1e-3)  # fmt: skip
    yield from _rows("scan", "logcumsumexp rows 4096x1024", _normal((4096, 1024)), lambda f, x: f.logcumsumexp(x, 1),
                     lambda x: np.logaddexp.accumulate(x, 1), None)  # fmt: skip
    yield from _rows("scan", "cummax rows 4096x1024", _normal((4096, 1024)), lambda f, x: f.cummax(x, 1)[0],
                     lambda x: np.maximum.accumulate(x, 1), None)  # fmt: skip


def _sorting() -> Iterator[Case]:
    million = _normal((1 << 20,))
    yield from _rows("sort", "sort 1M", million, lambda f, x: f.sort(x)[0], np.sort, 0.5, numpy=np.sort)
    yield from _rows("sort", "topk 100 of 1M", million, lambda f, x: f.topk(x, 100)[0],
                     lambda x: -np.sort(-x)[:100], 0.5)  # fmt: skip
    yield from _rows("sort", "topk 5 of 4096x1024", _normal((4096, 1024)), lambda f, x: f.topk(x, 5, 1)[0],
                     lambda x: -np.sort(-x, 1)[:, :5], 0.5)  # fmt: skip
    yield from _rows("sort", "sort rows 1024x1024", _normal((1024, 1024)), lambda f, x: f.sort(x, 1)[0],
                     lambda x: np.sort(x, 1), 0.5, numpy=lambda x: np.sort(x, 1))  # fmt: skip
    yield from _rows("sort", "sort 1M int64", _as_list(_integers(1 << 40, (1 << 20,))), lambda f, x: f.sort(x)[0],
                     np.sort, 0.5, numpy=np.sort)  # fmt: skip
    yield from _rows("sort", "median 1M", million, lambda f, x: f.median(x),
                     lambda x: np.sort(x)[(x.size - 1) // 2], None)  # fmt: skip
    yield from _rows("sort", "unique 1M of 1000", _as_list(_integers(1000, (1 << 20,))), lambda f, x: f.unique(x),
                     np.unique, None)  # fmt: skip


def _attention() -> Iterator[Case]:
    for label, shape, causal, goal in (("1x8x512x64", (1, 8, 512, 64), False, 1.0),
                                       ("causal 1x8x2048x64", (1, 8, 2048, 64), True, None)):  # fmt: skip

        def attended(f: ModuleType, q: Tensor, k: Tensor, v: Tensor, c: bool = causal) -> Tensor:
            result: Tensor = f.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=c)
            return result

        def reference(q: Array, k: Array, v: Array, c: bool = causal) -> Array:
            return references.attention(q, k, v, c)

        yield from _rows("attention", label, _normal(shape, shape, shape), attended, reference, goal, (0, 1, 2), None,
                         flops=4 * 8 * shape[2] ** 2 * 64 // (2 if causal else 1), bytes=16 * math.prod(shape),
                         together=True)  # fmt: skip


def _shapes() -> Iterator[Case]:
    vector, matrix = (1 << 20,), (2048, 2048)
    yield from _rows("shape", "cat 4 of 1M", _normal(vector, vector, vector, vector), lambda f, *x: f.cat(x),
                     lambda *x: np.concatenate(x), None, bytes=32 << 20)  # fmt: skip
    for name, call, reference in (
        ("roll", lambda f, x: f.roll(x, (3, 5), (0, 1)), lambda x: np.roll(x, (3, 5), (0, 1))),
        ("flip", lambda f, x: f.flip(x, (0, 1)), lambda x: np.flip(x, (0, 1))),
        ("tril", lambda f, x: f.tril(x), np.tril),
        ("pad by reflection", lambda f, x: f.nn.functional.pad(x[None], (3, 3, 3, 3), mode="reflect")[0],
         lambda x: np.pad(x, 3, mode="reflect")),
    ):  # fmt: skip
        yield from _rows("shape", f"{name} 2048x2048", _normal(matrix), call, reference, None, bytes=8 << 22)
    yield from _rows("shape", "einsum bij,bkj->bik 16x256", _normal((16, 256, 256), (16, 256, 256)),
                     lambda f, x, y: f.einsum("bij,bkj->bik", x, y), lambda x, y: x @ y.transpose(0, 2, 1), None,
                     flops=2 * 16 * 256**3, bytes=12 * 16 * 256**2)  # fmt: skip
    for p in (2.0, 1.0):
        yield from _rows("shape", f"cdist p={p:.0f} 1000x1000x64", _normal((1000, 64), (1000, 64)),
                         lambda f, x, y, p=p: f.cdist(x, y, p), lambda x, y, p=p: references.distances(x, y, p),
                         None)  # fmt: skip


# Rows


def _rows(
    group: str, name: str, arrays: Callable[[], list[Array]], function: Operation, reference: Reference,
    goal: float | None, grad_operands: Sequence[int] = (), grad_goal: float | None = -1.0, *,
    numpy: Reference | None = None, together: bool = False, **options: Unpack[CaseOptions],
) -> Iterator[Case]:  # fmt: skip
    """Yield the forward row, then a gradient row for each operand of `grad_operands`, or one for all `together`.

    Goals are ratios to torch.
    """
    grad_goal = goal if grad_goal == -1.0 else grad_goal

    def forward(site: Site) -> Work | None:
        if site.arrays:
            if numpy is None or site.name != "numpy":
                return None
            return Work(rotated(site, lambda: [site.tensor(a) for a in arrays()], numpy)[1], list)
        run = site.ready(function)
        operands, call = rotated(site, lambda: [site.tensor(a) for a in arrays()], run)
        return Work(call, lambda: [(site.host(run(*operands)), np.asarray(reference(*_to_float64(arrays()))))])

    yield Case(group, name, forward, target=_target(goal), **options)
    grad_options: CaseOptions = {"tolerance": options["tolerance"]} if "tolerance" in options else {}
    for grad_indices in [tuple(grad_operands)] if together else [(i,) for i in grad_operands]:
        label = (
            "gradient" if together or len(grad_operands) == 1 else f"gradient by {('input', 'weight')[grad_indices[0]]}"
        )
        make = _gradient(arrays, function, reference, grad_indices)
        yield Case(group, f"{name}, {label}", make, target=_target(grad_goal), values=False, **grad_options)


def _target(goal: float | None) -> dict[str, float] | None:
    return None if goal is None else {"torch": goal}


def _gradient(
    arrays: Callable[[], list[Array]], function: Operation, reference: Reference,
    grad_indices: tuple[int, ...],
) -> Callable[[Site], Work | None]:  # fmt: skip
    """Return a case's `make` that times only the backward pass, on a retained graph."""

    def make(site: Site) -> Work | None:
        if site.arrays:
            return None
        operands = [site.tensor(a, grad=i in grad_indices) for i, a in enumerate(arrays())]
        seeds: list[Array] = []

        def seeded(shape: tuple[int, ...]) -> Array:
            seeds.append(np.random.default_rng(1).standard_normal(shape, dtype=np.float32))
            return seeds[0]

        call = site.backward_call(function, operands, grad_indices, seeded)
        seed = seeds[0]

        def pairs() -> Pairs:
            rng, arrays64 = np.random.default_rng(2), _to_float64(arrays())
            derivatives = []
            for i, grad in zip(grad_indices, call(), strict=True):
                direction = rng.standard_normal(arrays64[i].shape)
                ends = [np.sum(seed * reference(*(a + h * direction if k == i else a for k, a in enumerate(arrays64))))
                        for h in (_STEP, -_STEP)]  # fmt: skip
                # The gradient's norm joins the pair, so that the error is relative to it: the dot product itself may be
                # near 0 by chance.
                length = float(np.linalg.norm(site.host(grad)))
                derivatives.append((np.array([np.sum(site.host(grad) * direction), length]),
                              np.array([(ends[0] - ends[1]) / (2 * _STEP), length])))  # fmt: skip
            return derivatives

        return Work(call, pairs)

    return make


def _to_float64(arrays: Sequence[Array]) -> list[Array]:
    return [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]


def _normal(*shapes: tuple[int, ...], make_index: Callable[[], Array] | None = None) -> Callable[[], list[Array]]:
    """Return a function that gives the same random arrays at every call, then the array of `make_index`."""

    @cache
    def arrays() -> list[Array]:
        rng = np.random.default_rng(0)
        normals = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
        return normals if make_index is None else [*normals, make_index()]

    return arrays


def _separated_values(shape: tuple[int, ...]) -> Callable[[], list[Array]]:
    """Return an array whose values in a window are well separated: a maximum has no derivative at ties."""

    @cache
    def arrays() -> list[Array]:
        indices = np.indices(shape)[-2:]
        order = (indices[0] % 4 * 4 + indices[1] % 4) * 7 % 16
        noise = np.random.default_rng(0).uniform(-_MAX_JITTER, _MAX_JITTER, shape)
        return [(order / 4 + noise).astype(np.float32)]

    return arrays


def _integers(high: int, shape: tuple[int, ...]) -> Callable[[], Array]:
    @cache
    def array() -> Array:
        return np.random.default_rng(0).integers(0, high, shape)

    return array


def _as_list(array: Callable[[], Array]) -> Callable[[], list[Array]]:
    return lambda: [array()]
