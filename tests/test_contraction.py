"""Contractions against NumPy in float64 (integers: in NumPy's own wrapping arithmetic), over all schedules.

Shapes cross every boundary of a schedule: one, a vector, a register tile, a panel, a block of k and their neighbours.
"""

from __future__ import annotations

import itertools
import os
import struct
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.codegen.kinds import contraction as kind
from weftgrad.codegen.model import Op, Param, SpecError
from weftgrad.runtime import dispatch, dtypes
from weftgrad.runtime.backends.protocol import Capabilities
from weftgrad.runtime.device import device, meta
from weftgrad.runtime.errors import DTypeError, ShapeError
from weftgrad.runtime.kinds import contraction_plan
from weftgrad.runtime.records import Operand, OpRecord, Text, registry
from weftgrad.runtime.tensor import Tensor

MATMUL = "...mk,...kn->...mn"
LINEAR = "...k,nk->...n"


def op(equation: Any, *names: str, grad: Any = None) -> Op:
    """An op of this equation, as the loader would make it."""
    params = tuple(Param(n, "tensor", "Tensor") for n in names or ("input", "other"))
    outputs = equation if isinstance(equation, dict) else {"out": equation}
    return Op("mix", "contraction", params, outputs=outputs, grad=grad, file="mix.yaml", line=3)


def record(equation: str) -> OpRecord:
    from importlib import resources

    import jinja2

    import weftgrad.templates

    folder = Path(str(resources.files(weftgrad.templates)))
    rendered = kind.render(op(equation), jinja2.Environment(loader=jinja2.FileSystemLoader(folder)))
    text = Text(rendered.sources["opencl"].text, rendered.sources["opencl"].functions)
    return OpRecord(
        "mix", "contraction", (Operand("input"), Operand("other")), texts={"opencl": text}, detail=rendered.detail
    )


def tensor(array: np.ndarray[Any, Any], dtype: str | None = None) -> Tensor:
    """A tensor of the array's strides, over a copy of the memory that it is a view of."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    kept = dtypes.parse(dtype or array.dtype)
    whole = dispatch.empty(meta(kept, (base.size,), None, device("cpu")))
    driver = whole.storage.device.driver
    if base.size:
        driver.write(whole.storage, 0, np.ndarray((base.size,), base.dtype, base), driver.default_stream)
    start = array.__array_interface__["data"][0] - base.__array_interface__["data"][0] if array.size else 0
    strides = tuple(s // array.itemsize for s in array.strides)
    return Tensor(whole.storage, meta(kept, array.shape, strides, device("cpu")), whole.start + start)


def fetch(result: Tensor) -> np.ndarray[Any, Any]:
    layout = result.meta
    extent = 1 + sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)) if layout.numel else 0
    flat = np.empty(extent, layout.dtype.numpy)
    driver = result.storage.device.driver
    if extent:
        driver.read(result.storage, result.start - result.storage.start, flat, driver.default_stream)
    return np.lib.stride_tricks.as_strided(flat, layout.shape, [s * flat.itemsize for s in layout.strides])


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)


def compare(*cases: tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]], tolerance: float = 4e-6) -> None:
    for equation, a, b in cases:
        got = fetch(dispatch.call(record_of(equation), (tensor(a), tensor(b))))
        check_close(equation, a, b, got, tolerance)


def lettered(equation: str, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> str:
    """The equation with letters for `...`, which NumPy does not sum over."""
    operands, result = equation.split("->")
    terms = operands.split(",")
    counts = [x.ndim - len(t.removeprefix("...")) for t, x in zip(terms, (a, b), strict=True)]
    named = ["ABCDEFGH"[8 - n :] for n in (*counts, max(counts))]
    first, second, out = (t.replace("...", n) for t, n in zip((*terms, result), named, strict=True))
    return f"{first},{second}->{out}"


def check_close(
    equation: str, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], got: np.ndarray[Any, Any], tolerance: float
) -> None:
    equation = lettered(equation, a, b)
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        expected = np.einsum(equation, a, b)
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
        return
    expected = np.einsum(equation, a.astype(np.float64), b.astype(np.float64))
    scale = np.einsum(equation, np.abs(a).astype(np.float64), np.abs(b).astype(np.float64))
    assert got.shape == expected.shape
    error = np.abs(got - expected)
    assert not np.isnan(error).any()
    assert (error <= tolerance * scale + 1e-30).all(), (a.shape, a.strides, b.shape, b.strides, (error / scale).max())


_records: dict[str, OpRecord] = {}


def record_of(equation: str) -> OpRecord:
    if equation not in _records:
        _records[equation] = record(equation)
    return _records[equation]


def matrix(rng: np.random.Generator, m: int, n: int, turned: bool, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return draw(rng, (n, m), dtype).T if turned else draw(rng, (m, n), dtype)


# The spec


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("mk,kn", "no equation"),
        ("mk->m", "1 operands"),
        ("a,b,c->abc", "3 operands"),
        ("mm,mn->n", "stands twice"),
        ("mk,kn->mnx", "'x' of the result"),
        ("mkj,kn->mn", "'j' in .* is in one operand only"),
        ("...mk,kn->mn", r"'\.\.\.' in .* is in one operand only"),
        ("m...k,kn->mn", "in front of the letters"),
        ("mk,kn->...mn", r"'\.\.\.' of the result"),
        ("m1,1n->mn", "is no letter"),
    ],
)
def test_wrong_equations_are_named(equation: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        kind.check(op(equation))
    assert caught.value.field == "out"
    assert str(caught.value).startswith("mix.yaml:3: out: ")


def test_wrong_operands_are_named() -> None:
    with pytest.raises(SpecError, match=r"takes two tensors, not \(a\)"):
        kind.check(op(MATMUL, "a"))
    with pytest.raises(SpecError, match="follows from its equation"):
        kind.check(op(MATMUL, grad={"input": "grad"}))
    with pytest.raises(SpecError, match="one result, not 2"):
        kind.check(op({"a": MATMUL, "b": MATMUL}))


def test_gradients_are_contractions_to_any_order() -> None:
    derived = kind.derive(op(MATMUL))
    assert derived["input"].operands == ("grad", "other")
    assert derived["input"].spec is not None
    assert derived["input"].spec["op"] == "mix_grad_input(grad, other)"
    assert derived["input"].spec["out"] == "...mn,...kn->...mk"
    assert derived["other"].spec is not None
    assert derived["other"].spec["out"] == "...mn,...mk->...kn"
    second = op(derived["input"].spec["out"], "grad", "other")
    kind.check(second)
    again = kind.derive(second)
    assert again["grad"].operands == ("grad2", "other")
    assert again["other"].spec is not None
    assert again["other"].spec["out"] == "...mk,...mn->...kn"
    assert kind.derive(op(MATMUL, grad="none")) == {}


@pytest.mark.parametrize("equation", [MATMUL, LINEAR, "i,i->", "mk,k->m", "i,j->ij", "bi,bi->b"])
def test_derived_equations_give_the_gradient(equation: str) -> None:
    rng = np.random.default_rng(0)
    sizes = {"m": 3, "k": 4, "n": 5, "b": 2, "i": 6, "j": 7}
    first, second, _ = kind.terms(op(equation))
    shapes = [(2,) * t.startswith("...") + tuple(sizes[x] for x in t.removeprefix("...")) for t in (first, second)]
    a, b = (rng.standard_normal(s).astype(np.float32) for s in shapes)
    grad = np.asarray(rng.standard_normal(np.einsum(equation, a, b).shape), np.float32)
    values = {"input": a, "other": b, "grad": grad}
    for name, derived in kind.derive(op(equation)).items():
        assert derived.spec is not None
        got = fetch(dispatch.call(record_of(derived.spec["out"]), [tensor(values[x]) for x in derived.operands]))
        direction = rng.standard_normal(values[name].shape)
        moved = {**values, name: direction}
        slope = float((np.einsum(equation, moved["input"], moved["other"]) * grad).sum())
        np.testing.assert_allclose((got * direction).sum(), slope, rtol=1e-4, atol=1e-4)


# The kernels

# Most are small enough for the calling thread, so that few kernels are built for both of PoCL's devices.
SHAPES = [
    (1, 1, 1), (1, 17, 1), (17, 1, 1), (1, 1, 17), (1, 130, 250), (4, 31, 97), (8, 257, 64), (9, 16, 15), (13, 15, 33),
    (14, 64, 16), (29, 33, 31), (33, 65, 63), (67, 256, 64), (64, 512, 10), (120, 258, 65), (150, 130, 129),
    (60, 513, 1), (270, 40, 110), (140, 321, 200), (2, 40000, 3),
]  # fmt: skip


ALL_TURNS = tuple(itertools.product((False, True), (False, True)))


def check_shapes(
    shapes: list[tuple[int, int, int]], dtype: Any = np.float32, tolerance: float = 4e-6, turns: Any = ALL_TURNS
) -> None:
    """Products of these shapes (m, k, n), with each operand as it is and transposed as `turns` say."""
    rng = np.random.default_rng(1)
    cases = []
    for (m, k, n), (ta, tb) in itertools.product(shapes, turns):
        cases.append(("mk,kn->mn", matrix(rng, m, k, ta, dtype), matrix(rng, k, n, tb, dtype)))
    compare(*cases, tolerance=tolerance)


def check_layouts() -> None:
    rng = np.random.default_rng(2)
    whole = draw(rng, (40, 3, 50), np.float32)
    other = draw(rng, (2, 60, 3, 4), np.float32)
    cases: list[Any] = []
    cases.append(("mk,kn->mn", whole[3:, 1, 2:22], other[1, ::3, 1:, 2].T[:1].repeat(20, 0)))  # offsets and gaps
    cases.append(("mk,kn->mn", whole[::2, 0, 1:41:2], other[0, 5:25, :, 1]))  # nothing contiguous
    cases.append(("mk,kn->mn", np.broadcast_to(whole[0, 0, :20], (30, 20)), other[0, 5:25, :, 1]))
    cases.append(("mk,kn->mn", whole[:, 0, :20], np.broadcast_to(other[0, 5:25, 0, :1], (20, 70))))
    for shapes in [
        ((3, 17, 20), (3, 20, 18)), ((5, 1, 17, 20), (3, 20, 18)), ((17, 20), (2, 3, 20, 18)), ((2, 3, 7, 20), (20, 8)),
        ((2, 1, 3, 4, 5), (1, 6, 3, 5, 4)), ((40, 2, 3), (40, 3, 2)), ((1, 1, 4), (7, 4, 1)),
    ]:  # fmt: skip
        cases.append((MATMUL, *(draw(rng, s, np.float32) for s in shapes)))
    permuted = draw(rng, (4, 9, 3, 2, 8), np.float32).transpose(2, 0, 3, 1, 4)
    cases.append((MATMUL, permuted, draw(rng, (4, 2, 8, 5), np.float32)))
    six = draw(rng, (2, 3, 2, 3, 2, 2, 4, 5), np.float32), draw(rng, (6, 5, 2, 2, 3, 2, 3, 2), np.float32).T
    cases.append((MATMUL, *six))  # more batch dimensions than kernels count
    for equation, *shapes in [
        (LINEAR, (3, 5, 33), (20, 33)), (LINEAR, (33,), (20, 33)), ("...n,nk->...k", (3, 5, 20), (20, 33)),
        ("...n,...k->nk", (3, 5, 20), (3, 5, 33)), ("i,i->", (1000,), (1000,)), (",i->i", (), (40,)),
        ("i,j->ij", (40,), (33,)), ("i,j->ji", (40,), (33,)), ("bmk,bmn->bkn", (3, 9, 8), (3, 9, 17)),
        ("bi,bi->b", (30, 21), (30, 21)), ("bi,bi->bi", (30, 21), (30, 21)), ("mkb,knb->mnb", (9, 8, 5), (8, 7, 5)),
        ("bhqd,bkhd->bhqk", (2, 3, 9, 8), (2, 10, 3, 8)), ("abk,ckd->dabc", (3, 4, 5), (6, 5, 7)),
        ("axbk,kycx->abyc", (3, 5, 4, 6), (6, 7, 8, 5)), ("abcd,dbe->aec", (3, 4, 5, 6), (6, 4, 7)),
    ]:  # fmt: skip
        cases.append((equation, *(draw(rng, s, np.float32) for s in shapes)))
    cases.append(("...n,...k->nk", draw(rng, (1, 5, 20), np.float32), draw(rng, (3, 5, 33), np.float32)))
    compare(*cases)


def check_dtypes(names: tuple[str, ...]) -> None:
    rng = np.random.default_rng(3)
    tolerances = {"float64": 1e-14, "float16": 1e-3}
    for name in names:
        shapes = [(70, 300, 66), (5, 30, 3)] if name == "float64" else [(40, 140, 66)]
        turns = [(False, False), (True, True)] if name == "float64" else [(True, True)]
        check_shapes(shapes, np.dtype(name), tolerances.get(name, 0.0), turns)
    if "int32" in names:
        compare(("mk,kn->mn", draw(rng, (9, 20), np.int8).astype(np.int32), draw(rng, (20, 40), np.float32)))


def test_every_edge_of_the_tiles() -> None:
    check_shapes(SHAPES)


def test_layouts_batches_and_equations() -> None:
    check_layouts()


def test_dtypes() -> None:
    check_dtypes(("float64", "int32", "int64", "int8"))


def halves(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Random bfloat16 numbers: their bits, and their values."""
    bits = (rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32)


def test_half_types_are_summed_in_float32() -> None:
    check_dtypes(("float16",))
    rng = np.random.default_rng(4)
    for m, k, n in [(70, 300, 40), (3, 600, 5), (150, 150, 70)]:
        (a, x), (b, y) = halves(rng, (m, k)), halves(rng, (k, n))
        got = fetch(dispatch.call(record_of("mk,kn->mn"), (tensor(a, "bfloat16"), tensor(b, "bfloat16"))))
        value = (got.astype(np.uint32) << 16).view(np.float32)
        exact = x.astype(np.float64) @ y
        assert (np.abs(value - exact) <= np.abs(exact) * 2.0**-8 + 1e-5 * (np.abs(x) @ np.abs(y))).all()


def test_empty_results_and_empty_sums() -> None:
    for shapes in [((0, 4), (4, 3)), ((2, 4), (4, 0)), ((0, 2, 4), (4, 3))]:
        assert fetch(dispatch.call(record_of(MATMUL), [tensor(np.ones(s, np.float32)) for s in shapes])).size == 0
    for shapes in [((5, 0), (0, 70)), ((3, 5, 0), (0, 7))]:
        got = fetch(dispatch.call(record_of(MATMUL), [tensor(np.ones(s, np.float32)) for s in shapes]))
        assert (got == 0).all()
        assert got.size


def check_into() -> None:
    rng = np.random.default_rng(5)
    a, b = draw(rng, (20, 30), np.float32), draw(rng, (30, 70), np.float32)
    plane = np.zeros((70, 140), np.float32)
    for layout in [plane[:, :20].T, plane[:20, ::2], plane[2:22, 1:71]]:
        out = tensor(layout)
        dispatch.call_into(record_of(MATMUL), (tensor(a), tensor(b)), (), (out,), in_place=False)
        np.testing.assert_allclose(fetch(out), a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)


def test_results_that_exist_already() -> None:
    check_into()
    out = tensor(np.zeros((3, 2), np.float32))
    operands = [tensor(np.zeros(s, np.float32)) for s in ((2, 4), (4, 3))]
    with pytest.raises(ShapeError, match=r"the result has shape \[2, 3\], out has \[3, 2\]"):
        dispatch.call_into(record_of(MATMUL), operands, (), (out,), in_place=False)


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        (MATMUL, ((2, 3), (4, 5)), r"mix\(input float32\[2, 3\], other .*\): 'k' is 3 in input and 4 in other"),
        (MATMUL, ((2, 2, 3), (3, 3, 5)), "batch sizes 2 and 3 meet in dimension -3; they must be equal or 1"),
        (MATMUL, ((3,), (3, 5)), r"input must have at least 2 dimensions \(\.\.\.mk\)"),
        ("mk,k->m", ((3, 4), (3, 4)), r"other must have 1 dimensions \(k\)"),
    ],
)
def test_shapes_that_do_not_fit(equation: str, shapes: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        dispatch.call(record_of(equation), [tensor(np.ones(s, np.float32)) for s in shapes])


def test_bool_is_refused() -> None:
    with pytest.raises(DTypeError, match=r"not bool"):
        dispatch.call(record_of(MATMUL), [tensor(np.ones((2, 2), np.bool_)) for _ in range(2)])


# Large matrices, both operands of which are packed: all at once, or by work-items


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32])
def test_large_products_with_ragged_rows_columns_and_blocks_of_k(dtype: Any) -> None:
    rng = np.random.default_rng(30)
    cases = []
    for (m, n, k), (ta, tb) in zip(
        ((601, 307, 901), (605, 1033, 897), (1400, 259, 500), (470, 520, 2000)),
        itertools.product((False, True), (False, True)),
        strict=True,
    ):
        half = dtype == np.float16
        product = contraction_plan.Product(m, n, k, 1, not ta, tb, half)
        chosen = contraction_plan.choose(product, Capabilities("cpu", 2, lanes=16), 16)
        assert bool(chosen.block) == half
        assert chosen.laid == (not half)
        cases.append((MATMUL, matrix(rng, m, k, ta, dtype), matrix(rng, k, n, tb, dtype)))
    compare(*cases, tolerance=1e-3 if dtype == np.float16 else 4e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_products_of_a_batch_pack_as_they_go(dtype: Any) -> None:
    rng, cases = np.random.default_rng(34), []
    for ta, tb in itertools.product((False, True), (False, True)):
        product = contraction_plan.Product(601, 270, 701, 2, not ta, tb)
        assert contraction_plan.choose(product, Capabilities("cpu", 2, lanes=16), 16).block
        a = draw(rng, (2, 701, 601) if ta else (2, 601, 701), dtype)
        b = draw(rng, (2, 270, 701) if tb else (2, 701, 270), dtype)
        cases.append((MATMUL, a.swapaxes(1, 2) if ta else a, b.swapaxes(1, 2) if tb else b))
    compare(*cases, tolerance=4e-6)


@pytest.mark.parametrize("k", [1024, 1040, 2049])
def test_rows_that_meet_in_one_cache_set_and_panels_of_several_blocks_of_k(k: int) -> None:
    rng = np.random.default_rng(35)
    for width in (64, 256, 290):  # a last panel of all, of half, of a few of its columns
        compare((MATMUL, draw(rng, (450, k), np.float32), draw(rng, (k, width), np.float32)), tolerance=4e-6)


@pytest.mark.parametrize("k", [1001, 1024])
def test_large_products_of_two_transposed_operands_transpose_their_result(k: int) -> None:
    rng, cpu = np.random.default_rng(36), Capabilities("cpu", 2, lanes=16)
    shipped = contraction_plan.spaces["opencl-cpu/contraction"].fallback
    pays = [contraction_plan.Product(700, n, k, 1, False, True) for n in (790, 400)]
    assert [contraction_plan.turns(p, cpu, 16, shipped) for p in pays] == [True, False]
    a, b = matrix(rng, 700, k, True, np.float32), matrix(rng, k, 790, True, np.float32)
    compare((MATMUL, a, b), tolerance=4e-6)
    bias = draw(rng, (790,), np.float32)
    added = wg.addmm(wg.tensor(bias), wg.tensor(a.T.copy()).T, wg.tensor(b.T.copy()).T).numpy()
    assert abs(added - (a.astype(np.float64) @ b + bias)).max() < 4e-7 * k


def test_large_products_of_operands_that_are_contiguous_neither_way() -> None:
    rng = np.random.default_rng(31)
    a, b = draw(rng, (1202, 1802), np.float32)[::2, ::2], draw(rng, (901, 614), np.float32)[:, ::2]
    compare((MATMUL, a, b), (MATMUL, a, np.ascontiguousarray(b)), ("...mk,kn->...nm", np.ascontiguousarray(a), b))


@pytest.mark.parametrize("equation", ["bmn,bmk->bkn", "bmk,bkn->bmn", "bmn,bkn->bmk", "bnm,bkm->bkn"])
def test_operands_that_repeat_are_no_worse_than_others(equation: str) -> None:
    """Gradients of sums and means repeat one number along dimensions, the result's own among them."""
    rng, sizes = np.random.default_rng(5), {"b": 5, "m": 24, "n": 40, "k": 36}
    first, second = (tuple(sizes[label] for label in term) for term in equation.split("->")[0].split(","))
    other = rng.standard_normal(second)
    for kept in itertools.product((0, 1), repeat=3):
        x = rng.standard_normal([n if keep else 1 for n, keep in zip(first, kept, strict=True)])
        found = wg.einsum(equation, wg.tensor(x).expand(*first), wg.tensor(other))
        expected = np.einsum(equation, np.broadcast_to(x, first), other)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-11, atol=1e-11, err_msg=f"{equation} {kept}")
    record = registry["matmul_batched_grad_other"]
    plan = dispatch.plan_for(record, (wg.ones(()).expand(5, 24, 40), wg.tensor(rng.standard_normal((5, 24, 36)))))
    assert plan.steps[-1].instance.entry == "contraction_gemm"
    assert struct.unpack_from("2q", plan.steps[-1].geometry) == (36, 40)  # a matrix, not a row for each k


def test_few_results_of_long_sums_are_cut_along_k() -> None:
    rng, cpu = np.random.default_rng(32), Capabilities("cpu", 2, lanes=16)
    for ta, tb in ((False, False), (True, True)):
        chosen = contraction_plan.choose(contraction_plan.Product(61, 64, 4099, 1, not ta, tb), cpu, 16)
        assert (chosen.name, chosen.parts, chosen.rows >= 61) == ("gemm", 2, True)
        compare((MATMUL, matrix(rng, 61, 4099, ta, np.float32), matrix(rng, 4099, 64, tb, np.float32)))


def test_few_columns_do_not_pay_for_laying_out_a_large_operand() -> None:
    rng, cpu = np.random.default_rng(33), Capabilities("cpu", 2, lanes=16)
    wide = contraction_plan.Product(1001, 10, 1003, 1, False, True)
    assert contraction_plan.turns(wide, cpu, 16, contraction_plan.spaces["opencl-cpu/contraction"].fallback)
    compare((MATMUL, matrix(rng, 1001, 1003, True, np.float32), matrix(rng, 1003, 10, True, np.float32)))


def test_columns_of_a_transposed_operand_are_dot_products_where_they_are_few_or_long() -> None:
    able = Capabilities("cpu", 2, lanes=16)
    for (m, n, k), name in {
        (4096, 16, 16): "gemm", (4096, 32, 64): "gemm", (512, 50, 300): "gemm", (1024, 32, 1024): "gemm",
        (4096, 4, 64): "dots", (1024, 8, 1024): "dots", (64, 10, 512): "dots", (32, 32, 4096): "dots",
    }.items():  # fmt: skip
        assert contraction_plan.choose(contraction_plan.Product(m, n, k, 1, True, True), able, 16).name == name


def test_work_items_that_pack_share_out_evenly() -> None:
    for cores, converts in itertools.product((2, 3, 8), (False, True)):
        able = Capabilities("cpu", cores, lanes=16)
        for m, n in itertools.product((256, 777, 1000, 2048), repeat=2):
            chosen = contraction_plan.choose(contraction_plan.Product(m, n, 2000, 1, True, False, converts), able, 16)
            items = -(-m // chosen.rows) * -(-n // chosen.columns)
            assert chosen.laid != bool(chosen.block)
            assert chosen.laid == (not converts and m > 256)
            assert chosen.laid or chosen.block >= chosen.rows
            assert items >= cores
            assert -(-items // cores) * chosen.rows * chosen.columns * cores <= 1.5 * (m + 64) * (n + 128)


# The choice of schedules


def test_choices_cover_the_product_and_fit_the_device() -> None:
    sizes = (1, 7, 64, 65, 1000, 70000)
    cpu = Capabilities("cpu", 3)
    poor = Capabilities("gpu", 4, lanes=4, fp64=False, max_group=64, local_memory=16 * 1024)
    for m, n, k, batch in itertools.product(sizes, sizes, sizes, (1, 50)):
        for ta, tb in itertools.product((False, True), (False, True)):
            product = contraction_plan.Product(m, n, k, batch, ta, tb)
            chosen = contraction_plan.choose(product, cpu, 16)
            assert chosen.depth * chosen.parts >= k
            assert chosen.parts == 1 or chosen.depth * (chosen.parts - 1) < k
            assert chosen.rows % chosen.mr == 0
            assert chosen.name == "gemm" or chosen.columns % chosen.nv == 0
            if chosen.block:
                assert chosen.rows <= chosen.block
                assert chosen.columns <= chosen.panels * chosen.nv * 16
                assert chosen.entries == chosen.parts == 1
                assert not chosen.flip
            elif chosen.laid:
                assert batch == chosen.parts == 1
                assert chosen.columns % (chosen.nv * 16) == 0
            elif chosen.name == "gemm":
                assert chosen.columns == chosen.nv * 16
            tile = contraction_plan.choose_tile(product, poor, 8)
            assert tile.gx * tile.gy <= 64
            assert tile.kc * (tile.gx * tile.tn + tile.gy * tile.tm + 2) * 8 <= 16 * 1024
            assert tile.depth * tile.parts >= k


# GPU schedules and poor vendors, on the CPU's device: the same checks in a process that sees other capabilities

OTHER_SHAPES = [(1, 40, 33), (31, 15, 65), (130, 33, 70), (2, 5000, 3)]


@pytest.mark.parametrize(
    "capabilities",
    ["style=gpu,lanes=4,max_group=256", "style=gpu,fp64=0,max_group=64,local_memory=16384", "style=cpu,lanes=4",
     "style=cpu,lanes=8,registers=16"],
)
def test_other_capabilities(capabilities: str) -> None:
    names = ("int8",) if "fp64=0" in capabilities else ("float64",) if "gpu" in capabilities else ()
    code = f"""
    import sys
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    import test_contraction as t
    t.check_shapes(t.OTHER_SHAPES, turns=[(False, False), (True, True)])
    t.check_into()
    if {"gpu" in capabilities}:
        t.check_layouts()
    t.check_dtypes({names!r})
    """
    environment = {**os.environ, "WEFTGRAD_CAPABILITIES": f"{capabilities},optimize=0"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
