"""Check that every schedule of every Triton template is launched, in forward and in derivatives, with correct results.

The interpreter has small blocks and few multiprocessors here, so that even small tensors need many programs, shares and
sweeps.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from triton_launch_names import SMALL, SMALL_DRIVER, flip, launched_traits, random_arrays
from triton_running import (
    RecordingInterpreter,
    convolve,
    index_add,
    index_put,
    index_tensor,
    interpreter,
    layer_norm,
    max_by_real_part,
    softmax,
)

import weftgrad as wg
from weftgrad._generated.records import NAMES
from weftgrad.nn import functional as F
from weftgrad.runtime.device import Device
from weftgrad.runtime.kinds import triton
from weftgrad.runtime.records import registry

pytest.importorskip("triton")
Array = Any


@pytest.fixture(scope="module")
def device_with_int64_offsets() -> Iterator[tuple[Device, RecordingInterpreter]]:
    """Yield a device like SMALL whose kernels all compute offsets in 64 bits."""
    device_and_driver = interpreter("block=64,cores=2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton, "_INT32", 0)
        yield device_and_driver


@dataclass(frozen=True)
class Call:
    """A function to test, its reference, and the launches that it must cause.

    Attributes:
        label: the id of the test.
        tensors: the function of tensors.
        arrays: the same function of NumPy arrays, real and complex.
        shapes: shapes of the inputs.
        forward: traits (see `traits`) that launches of the call must have.
        first: the same for first derivatives; they are not tested if it is empty.
        second: the same for second derivatives; they are not tested if it is empty.
        dtypes: dtypes in which values are checked.
    """

    label: str
    tensors: Callable[..., Any]
    arrays: Callable[..., Array]
    shapes: tuple[tuple[int, ...], ...]
    forward: tuple[str, ...]
    first: tuple[str, ...] = ()
    second: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("float64",)


_RNG = np.random.default_rng(11)
ROW_INDICES = _RNG.integers(0, 25, 40)  # with repeated rows
SOME_ROW_INDICES = ROW_INDICES[:12]
COLUMN_INDICES = _RNG.integers(0, 9, (90, 7))
DISTINCT_ROWS = _RNG.permutation(50)[:12]


def avg_pool_reference(x: Array, size: int, stride: int, padding: int) -> Array:
    """Return the mean of each window over the elements inside of the image."""
    counts = [(n + 2 * padding - size) // stride + 1 for n in x.shape[-2:]]
    windows = [[slice(max(0, i * stride - padding), i * stride - padding + size) for i in range(n)] for n in counts]
    rows = [[x[..., a, b].mean((-1, -2)) for b in windows[1]] for a in windows[0]]
    return np.stack([np.stack(row, -1) for row in rows], -2)


def covers(position: Array, n: int) -> Array:
    """Count the windows with elements -1, 1 and 3, moved by multiples of 2, that contain `position` of `n`."""
    starts = np.arange(0, n + 2 - 4, 2) - 1
    return sum(((position - s) % 2 == 0) & (position >= s) & (position <= s + 4) for s in starts)


def attention_reference(query: Array, key: Array, value: Array) -> Array:
    """Compute causal attention of several heads that share one key and value."""
    chances = np.exp(query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5) * np.tri(query.shape[-2], key.shape[-2])
    return np.asarray(chances / chances.sum(-1, keepdims=True) @ value)


CALLS = (
    Call(
        "flat", lambda x, y: x.exp() * y, lambda x, y: np.exp(x) * y, ((300,), (300,)),
        ("pointwise.flat many",), ("pointwise.flat many",), ("pointwise.flat many",), ("float64", "float32"),
    ),
    Call(
        "rows", lambda x, y: x.T.exp() * y, lambda x, y: np.exp(x.T) * y, ((9, 70), (9,)),
        ("pointwise.rows many",), ("pointwise.rows many", "reduction.tiles"), ("pointwise.rows many",),
    ),
    Call(
        "across", lambda x, y, z: (x[:, ::2] * y).sin() * z, lambda x, y, z: np.sin(x[:, ::2] * y) * z,
        ((3, 260), (3, 1), ()), ("pointwise.rows many", "pointwise.rows across"), ("pointwise.rows across",),
        ("pointwise.rows across",), ("float64", "float32"),
    ),
    Call(
        "backwards", lambda x, y: flip(x) * y.exp(), lambda x, y: x[::-1, ::-1] * np.exp(y), ((5, 30), (5, 30)),
        ("pointwise.rows many",), ("pointwise.rows many",), ("pointwise.rows many",),
    ),
    Call(
        "one repeated", lambda x, y: x.expand(70, 5).exp() * y, lambda x, y: np.exp(x) * y, ((), (70, 5)),
        ("pointwise.flat many",), ("pointwise.flat many",), ("pointwise.flat many",),
    ),
    Call(
        "sum of rows", lambda x: (x * x).sum(1), lambda x: (x * x).sum(1), ((9, 300),),
        ("reduction.tiles many",), ("pointwise.rows many",), ("reduction.tiles",), ("float64", "float32"),
    ),
    Call(
        "sum of columns", lambda x: (x * x).sum(0).exp(), lambda x: np.exp((x * x).sum(0)), ((5, 150),),
        ("reduction.tiles many",), ("pointwise.rows many",), ("reduction.tiles many",),
    ),
    Call(
        "sum of all", lambda x, y: (x * y).sum(), lambda x, y: (x * y).sum(), ((17000,), (17000,)),
        ("reduction.partial shares", "reduction.finish"), ("pointwise.flat many",),
        ("reduction.partial shares", "reduction.finish"), ("float64", "float32"),
    ),
    Call(
        "sum of planes", lambda x, y: (x * y).sum((0, 2, 3)), lambda x, y: (x * y).sum((0, 2, 3)),
        ((3, 2, 5, 33), (3, 2, 5, 33)), ("reduction.tiles lines",), (), (), ("float64", "float32"),
    ),
    Call(
        "shares of planes", lambda x: x[..., :500].sum((0, 2)), lambda x: x[..., :500].sum((0, 2)),
        ((34, 1, 501),), ("reduction.partial lines", "reduction.partial shares"),
    ),
    Call(
        "norm of strided shares", lambda x: wg.norm(x[..., 9:].transpose(0, 1), 2, (1, 2)),
        lambda x: np.sqrt((x[..., 9:] ** 2).sum((0, 2))), ((5, 1, 3300),),
        ("reduction.partial shares", "reduction.finish"), ("pointwise.rows many",), ("reduction.partial shares",),
    ),
    Call(
        "largest", lambda x: x.max(1).values ** 2, lambda x: max_by_real_part(x, 1) ** 2, ((3, 140),),
        ("reduction.tiles many",), ("pointwise.flat",), (),
    ),
    Call(
        "a number over all", lambda x, y: (x / y).sin(), lambda x, y: np.sin(x / y), ((9, 2000), ()),
        ("pointwise.flat many",), ("reduction.partial shares", "reduction.finish"), ("reduction.partial shares",),
    ),
    Call(
        "whole rows", lambda x: F.softmax(x, -1), softmax, ((15, 17),),
        ("rowwise.whole tall", "rowwise.whole many"), ("rowwise.whole many",), ("rowwise.whole many",),
        ("float64", "float32"),
    ),
    Call(
        "rows that lie apart", lambda x: F.log_softmax(x, 1), lambda x: np.log(softmax(x, 1)), ((3, 5, 20),),
        ("rowwise.whole tall", "rowwise.whole many"), ("rowwise.whole many",), ("rowwise.whole many",),
    ),
    Call(
        "long rows", lambda x: F.softmax(x, -1), softmax, ((3, 1100),),
        ("rowwise.swept many",), ("rowwise.swept many",), ("rowwise.swept many",), ("float64", "float32"),
    ),
    Call(
        "long rows that lie apart", lambda x: F.softmax(x, 0), lambda x: softmax(x, 0), ((1100, 3),),
        ("rowwise.swept many",), ("rowwise.swept many",), (),
    ),
    Call(
        "long rows to numbers", lambda x: wg.logsumexp(x, 1), lambda x: np.log(np.exp(x).sum(1)), ((3, 1100),),
        ("rowwise.swept many",), ("rowwise.swept many",), ("rowwise.swept many",),
    ),
    Call(
        "sums over rows", lambda x, w, b: F.layer_norm(x, (20,), w, b), layer_norm, ((40, 20), (20,), (20,)),
        ("rowwise.whole many",), ("rowwise.whole sums", "rowwise.finish"), ("rowwise.whole sums", "rowwise.finish"),
        ("float64", "float32"),
    ),
    Call(
        "sums over long rows", lambda x, w, b: F.layer_norm(x, (1100,), w, b), layer_norm,
        ((12, 1100), (1100,), (1100,)),
        ("rowwise.swept many",), ("rowwise.swept sums", "rowwise.finish many"),
        ("rowwise.swept sums", "rowwise.finish many"),
    ),
    Call(
        "tiles of a product", lambda x, y: x @ y, lambda x, y: x @ y, ((70, 33), (33, 130)),
        ("contraction.tile many",), ("contraction.tile",), ("contraction.tile",), ("float64", "float32"),
    ),
    Call(
        "long sums of products", lambda x, y: (x @ y) ** 2, lambda x, y: (x @ y) ** 2, ((5, 900), (900, 6)),
        ("contraction.tile", "contraction.finish"), ("contraction.tile",), ("contraction.tile", "contraction.finish"),
    ),
    Call(
        "a row by a matrix", lambda x, y: (x @ y) ** 2, lambda x, y: (x @ y) ** 2, ((300,), (300, 20)),
        ("contraction.dots",), ("contraction.dots", "contraction.multiply"), ("contraction.dots",),
    ),
    Call(
        "factors copied first", lambda x, y: x[::2, ::2] @ y[:, ::3], lambda x, y: x[::2, ::2] @ y[:, ::3],
        ((140, 40), (20, 210)), ("contraction.move", "contraction.tile"), ("contraction.tile",), (),
    ),
    Call(
        "elements of rows", lambda x: x.gather(1, index_tensor(COLUMN_INDICES, x)).exp(),
        lambda x: np.exp(np.take_along_axis(x, COLUMN_INDICES, 1)), ((90, 9),),
        ("index.read many",), ("index.write many",), ("index.read many", "index.write many"), ("float64", "float32"),
    ),
    Call(
        "rows by index", lambda x: x[index_tensor(SOME_ROW_INDICES, x)] ** 2,
        lambda x: x[SOME_ROW_INDICES] ** 2, ((40, 70),),
        ("index.read across",), ("index.write across", "index.write ranges"), ("index.read across",),
    ),
    Call(
        "lines", lambda x, y: wg.cumprod(x * y, 1), lambda x, y: np.cumprod(x * y, 1), ((5, 70), (5, 1)),
        ("scan.lines many",), ("scan.lines many",), ("scan.lines many",), ("float64", "float32"),
    ),
    Call(
        "a line in shares", lambda x: wg.cumsum(x, 0), lambda x: np.cumsum(x, 0), ((8200,),),
        ("scan.totals", "scan.carried"), ("scan.totals", "scan.carried"),
    ),
    Call(
        "rows added at", lambda x, y: x.index_add(0, index_tensor(ROW_INDICES, x), y).sin(),
        lambda x, y: np.sin(index_add(x, ROW_INDICES, y)), ((25, 3), (40, 3)),
        ("index.write ranges",), ("index.read many",), ("index.write ranges", "index.read many"),
        ("float64", "float32"),
    ),
    Call(
        "rows written", lambda x, y: x.index_put((index_tensor(DISTINCT_ROWS, x),), y) ** 2,
        lambda x, y: index_put(x, DISTINCT_ROWS, y) ** 2, ((50, 6), (12, 6)),
        ("index.write ranges",), ("index.read many",), (),
    ),
    Call(
        "convolution", lambda x, w, b: F.conv2d(x, w, b).sin(),
        lambda x, w, b: np.sin(convolve(x, w) + b[:, None, None]), ((2, 3, 33, 34), (3, 3, 2, 2), (3,)),
        ("convolution.forward many",), ("convolution.input many", "convolution.weight parts", "convolution.sum"),
        ("convolution.forward many", "convolution.input many", "convolution.weight parts"),
    ),
    Call(
        "convolution in groups", lambda x, w: F.conv2d(x, w, None, 2, 1, (1, 2), 2),
        lambda x, w: convolve(x, w, 2, 2, 1, (1, 2)), ((2, 4, 15, 17), (6, 2, 3, 2)),
        ("convolution.direct",), ("convolution.direct", "convolution.direct_weight"), ("convolution.direct",),
        ("float64", "float32"),
    ),
    Call(
        "windows", lambda x: F.avg_pool2d(x.exp(), 3, 2, 1, count_include_pad=False),
        lambda x: avg_pool_reference(np.exp(x), 3, 2, 1), ((2, 2, 11, 9),),
        ("window.tiles many",), ("window.tiles many",), ("window.tiles many",), ("float64", "float32"),
    ),
    Call(
        "windows of several sizes", lambda x: F.adaptive_avg_pool1d(x, 7) ** 2,
        lambda x: np.stack([x[:, i * 20 // 7 : -(-(i + 1) * 20 // 7)].mean(1) for i in range(7)], 1) ** 2, ((10, 20),),
        ("window.cells many",), ("window.cells many",), ("window.cells many",),
    ),
    Call(
        "largest of windows", lambda x: F.max_pool1d(x, 5, 3, 2).exp(),
        lambda x: np.exp(np.stack([max_by_real_part(x[:, max(0, 3 * i - 2) : 3 * i + 3], 1) for i in range(10)], 1)),
        ((7, 30),),
        ("window.tiles many",), ("window.tiles many",), ("index.read",),
    ),
    Call(
        "columns", lambda x: F.fold(F.unfold(x.exp(), 3, 2, 1, 2), (8, 9), 3, 2, 1, 2),
        lambda x: np.exp(x) * np.fromfunction(lambda y, z: (y % 2) * (z % 2) * covers(y, 8) * covers(z, 9), (8, 9)),
        ((2, 2, 8, 9),), ("window.cells many",), ("window.cells many",), ("window.cells many",),
    ),
    Call(
        "attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).sin(),
        lambda q, k, v: np.sin(attention_reference(q, k, v)), ((2, 70, 3), (1, 66, 3), (1, 66, 2)),
        ("attention.forward many",),
        ("attention.delta", "attention.query many", "attention.key_value many"), (), ("float64", "float32"),
    ),
)  # fmt: skip

# Schedules that other tests launch, and the names of these tests.
ELSEWHERE = {
    "index.count": "test_masks", "index.sum": "test_masks", "index.list": "test_masks",
    "index.count many": "test_masks", "index.list many": "test_masks",
    **dict.fromkeys(("index.keys", "index.segments", "index.runs", "index.joins"), "test_sorted_writes"),
    **dict.fromkeys(("batch_statistics.finish", "batch_statistics.move"), "test_launches_of_a_layer"),
    "contraction.tma": "test_the_copy_engine", "contraction.split": "test_split_products",
    "pointwise.many": "test_updates_of_many_tensors", "reduction.many": "test_norms_of_many_tensors",
    **dict.fromkeys(("convolution.pack", "convolution.channels", "convolution.channels_weight"), "test_channels"),
    **dict.fromkeys(("convolution.pack_pixels", "convolution.runs", "convolution.runs_weight"), "test_first_layers"),
    "convolution.pixels_weight": "test_weight_gradients",
    # The generated suite runs the cases of op_shapes.py, op_index.py, op_sort.py, op_ctc.py and
    # op_factorizations.py on the interpreter.
    "pad.copy": "test_values", "pad.fold": "test_values", "triangle.copy": "test_values", "join.4": "test_values",
    "join.16": "test_values", "pairs.dots": "test_values", "pairs.sums": "test_values", "index.bags": "test_values",
    "index.sums": "test_values", "sort.search": "test_values",
    "sort.sort_whole": "test_rows_in_one_program", "sort.sort_select": "test_selection",
    "sort.sort_count": "test_long_rows", "sort.sort_scatter": "test_long_rows",
    "resample.taps": "test_values", "ctc.alpha": "test_values", "ctc.beta": "test_values",
    "ctc.gradient": "test_values", "sampling.read": "test_values", "sampling.input": "test_values",
    "sampling.places": "test_values", "shuffle.clear": "test_values", "shuffle.link": "test_values",
    "shuffle.follow": "test_values",
    **dict.fromkeys([f"factorization.{k}" for k in ("lu", "cholesky", "determinant", "permutation")], "test_values"),
    "jacobi.rotate": "test_values", "qr.factorize": "test_values",
    "linear_solve.triangle": "test_values", "linear_solve.factored": "test_values",
}  # fmt: skip


def kernels() -> set[str]:
    """Return `template.schedule` of every generated kernel. A kernel is a function that no other function calls."""
    names = set()
    for name in NAMES:
        record = registry[name]
        text = record.texts.get("triton")
        tree = ast.parse(text.source if text else "")
        called = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name not in called:
                plan = str(record.detail.get("plan"))  # custom ops with the same plan share their kernels
                prefix = {"contraction": "contraction", "custom": plan}.get(record.kind, name)
                kind = {"random": "pointwise", "custom": plan}.get(record.kind, record.kind)
                names.add(f"{kind}.{node.name.removeprefix(prefix + '_')}")
    return names


def test_every_schedule_is_launched_by_a_test() -> None:
    claimed = {trait.partition(" ")[0] for call in CALLS for trait in (*call.forward, *call.first, *call.second)}
    assert kernels() == claimed | {trait.partition(" ")[0] for trait in ELSEWHERE}
    by_stage = {
        stage: {label.partition(" ")[0] for call in CALLS for label in getattr(call, stage)}
        for stage in ("forward", "first", "second")
    }
    for kind, schedules in (
        ("pointwise", ("flat", "rows")), ("reduction", ("tiles", "partial", "finish")),
        ("rowwise", ("whole", "swept", "finish")), ("contraction", ("tile", "finish", "dots")),
        ("index", ("read", "write")), ("scan", ("lines",)), ("convolution", ("forward", "input", "weight")),
    ):  # fmt: skip
        assert {f"{kind}.{name}" for name in schedules} <= by_stage["second"] | by_stage["first"], kind
        assert by_stage["second"] & {f"{kind}.{name}" for name in schedules}, kind


def slope(call: Call, arrays: list[Array], directions: list[Array], output_weights: Array) -> float:
    """Return d/dt sum(weights * f(x + t v)) at t = 0, for `output_weights` and v = `directions`, exact to rounding."""
    inputs = [x + 1e-30j * v for x, v in zip(arrays, directions, strict=True)]
    return float((output_weights * call.arrays(*inputs).imag).sum() / 1e-30)


def check_derivatives(call: Call, device: Device, driver: RecordingInterpreter, second: bool) -> None:
    """Check first and, if `second`, second derivatives in float64 along random directions."""
    rng = np.random.default_rng(5)
    arrays = random_arrays(call.shapes)
    inputs = [wg.tensor(x, device=device, requires_grad=True) for x in arrays]
    output = call.tensors(*inputs)
    weights = rng.standard_normal(output.shape)
    weight_tensor = wg.tensor(weights, device=device, requires_grad=True)
    start = len(driver.launched)
    grads = wg.autograd.grad(output, inputs, weight_tensor, create_graph=second)
    assert set(call.first) <= launched_traits(driver, start), launched_traits(driver, start)
    directions = [rng.standard_normal(x.shape) for x in arrays]
    for selected in (*range(len(arrays)), None):
        direction = [v if selected in (None, i) else np.zeros_like(v) for i, v in enumerate(directions)]
        terms = [v * g.detach().cpu().numpy() for v, g in zip(direction, grads, strict=True)]
        scale = sum(np.abs(t).sum() for t in terms)
        assert abs(sum(t.sum() for t in terms) - slope(call, arrays, direction, weights)) <= 1e-12 * scale, selected
    if not second:
        return
    # The slope along `directions` is itself a function of inputs and weights. Fourth-order differences give its
    # derivative along `other_directions`.
    start = len(driver.launched)
    traced = [(g, v) for g, v in zip(grads, directions, strict=True) if g.requires_grad]
    second_grads = wg.autograd.grad(
        [g for g, _ in traced],
        [*inputs, weight_tensor],
        [wg.tensor(v, device=device) for _, v in traced],
        allow_unused=True,
    )
    assert set(call.second) <= launched_traits(driver, start), launched_traits(driver, start)
    other_directions = [rng.standard_normal(x.shape) for x in (*arrays, weights)]

    def slope_at(t: float) -> float:
        return slope(
            call,
            [x + t * u for x, u in zip(arrays, other_directions, strict=False)],
            directions,
            weights + t * other_directions[-1],
        )

    step = 1e-3
    expected = (8 * (slope_at(step) - slope_at(-step)) - (slope_at(2 * step) - slope_at(-2 * step))) / (12 * step)
    terms = [u * g.cpu().numpy() for u, g in zip(other_directions, second_grads, strict=True) if g is not None]
    # The differences cancel more digits than these terms do, in proportion to the size of the slope.
    scale = sum(np.abs(t).sum() for t in terms) + abs(slope_at(0)) / step * 1e-3
    assert abs(sum(t.sum() for t in terms) - expected) <= 1e-8 * scale


def check_values(call: Call, device: Device, driver: RecordingInterpreter, dtype: str) -> None:
    arrays = random_arrays(call.shapes, dtype)
    start = len(driver.launched)
    result = call.tensors(*[wg.tensor(x, device=device) for x in arrays])
    assert set(call.forward) <= launched_traits(driver, start), launched_traits(driver, start)
    expected = call.arrays(*[x.astype(np.float64) for x in arrays])
    assert result.shape == expected.shape
    unit = {"float32": 2.0**-23, "float64": 2.0**-52}[dtype]
    # Elements are sums of up to thousands of terms of one sign; most of their rounding errors cancel.
    np.testing.assert_allclose(result.cpu().numpy(), expected, rtol=32 * unit, atol=32 * unit)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.label)
def test_schedules(call: Call) -> None:
    for dtype in call.dtypes:
        check_values(call, SMALL, SMALL_DRIVER, dtype)
    if call.first:
        check_derivatives(call, SMALL, SMALL_DRIVER, bool(call.second))


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.label)
def test_schedules_with_64_bit_offsets(
    call: Call, device_with_int64_offsets: tuple[Device, RecordingInterpreter]
) -> None:
    device, driver = device_with_int64_offsets
    start = len(driver.launched)
    check_values(call, device, driver, "float64")
    check_derivatives(call, device, driver, False)
    assert {dict(s.instance.defines).get("INDEX", "int64") for s in driver.launched[start:]} == {"int64"}
