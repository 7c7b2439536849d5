"""Check contractions against NumPy under every schedule: floats in float64, integers in wrapping arithmetic.

Sizes lie at every boundary of a schedule and beside it: 1, a vector, a register tile, a panel and a block of k.
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
from contraction_records import LINEAR, MATMUL, compare, draw, fetch, record_for, tensor

import weftgrad as wg
from weftgrad.runtime import dispatch
from weftgrad.runtime.backends.protocol import Capabilities
from weftgrad.runtime.errors import DTypeError, ShapeError
from weftgrad.runtime.kinds import contraction_plan
from weftgrad.runtime.records import registry


def matrix(rng: np.random.Generator, m: int, n: int, transposed: bool, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return draw(rng, (n, m), dtype).T if transposed else draw(rng, (m, n), dtype)


# The kernels

# (m, k, n), at or beside the boundaries of vectors, register tiles and panels. Most are small, and so quick to check.
SHAPES = [
    (1, 1, 1), (1, 17, 1), (17, 1, 1), (1, 1, 17), (1, 130, 250), (4, 31, 97), (8, 257, 64), (9, 16, 15), (13, 15, 33),
    (14, 64, 16), (29, 33, 31), (33, 65, 63), (67, 256, 64), (64, 512, 10), (120, 258, 65), (150, 130, 129),
    (60, 513, 1), (270, 40, 110), (140, 321, 200), (2, 40000, 3),
]  # fmt: skip

ALL_TRANSPOSITIONS = tuple(itertools.product((False, True), (False, True)))


def check_shapes(
    shapes: list[tuple[int, int, int]],
    dtype: Any = np.float32,
    tolerance: float = 4e-6,
    transpositions: Any = ALL_TRANSPOSITIONS,
) -> None:
    """Check products of these shapes `(m, k, n)`; `transpositions` says which of the two operands are transposed."""
    rng = np.random.default_rng(1)
    cases = []
    for (m, k, n), (ta, tb) in itertools.product(shapes, transpositions):
        cases.append(("mk,kn->mn", matrix(rng, m, k, ta, dtype), matrix(rng, k, n, tb, dtype)))
    compare(*cases, tolerance=tolerance)


def check_layouts() -> None:
    rng = np.random.default_rng(2)
    base = draw(rng, (40, 3, 50), np.float32)
    stack = draw(rng, (2, 60, 3, 4), np.float32)
    cases: list[Any] = []
    cases.append(("mk,kn->mn", base[3:, 1, 2:22], base[::2, 2, 5:35]))  # offsets, and gaps between rows
    cases.append(("mk,kn->mn", base[::2, 0, 1:41:2], stack[0, 5:25, :, 1]))  # nothing contiguous
    cases.append(("mk,kn->mn", np.broadcast_to(base[0, 0, :20], (30, 20)), stack[0, 5:25, :, 1]))
    cases.append(("mk,kn->mn", base[:, 0, :20], np.broadcast_to(stack[0, 5:25, 0, :1], (20, 70))))
    for shapes in [
        ((3, 17, 20), (3, 20, 18)), ((5, 1, 17, 20), (3, 20, 18)), ((17, 20), (2, 3, 20, 18)), ((2, 3, 7, 20), (20, 8)),
        ((2, 1, 3, 4, 5), (1, 6, 3, 5, 4)), ((40, 2, 3), (40, 3, 2)), ((1, 1, 4), (7, 4, 1)),
    ]:  # fmt: skip
        cases.append((MATMUL, *(draw(rng, s, np.float32) for s in shapes)))
    permuted = draw(rng, (4, 9, 3, 2, 8), np.float32).transpose(2, 0, 3, 1, 4)
    cases.append((MATMUL, permuted, draw(rng, (4, 2, 8, 5), np.float32)))
    many_dimensions = draw(rng, (2, 3, 2, 3, 2, 2, 4, 5), np.float32), draw(rng, (6, 5, 2, 2, 3, 2, 3, 2), np.float32).T
    cases.append((MATMUL, *many_dimensions))  # more batch dimensions than kernels count
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
        transpositions = [(False, False), (True, True)] if name == "float64" else [(True, True)]
        check_shapes(shapes, np.dtype(name), tolerances.get(name, 0.0), transpositions)
    if "int32" in names:
        compare(("mk,kn->mn", draw(rng, (9, 20), np.int8).astype(np.int32), draw(rng, (20, 40), np.float32)))


def test_every_edge_of_the_tiles() -> None:
    check_shapes(SHAPES)


def test_layouts_batches_and_equations() -> None:
    check_layouts()


def test_dtypes() -> None:
    check_dtypes(("float64", "int32", "int64", "int8"))


def random_bfloat16(
    rng: np.random.Generator, shape: tuple[int, ...]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return random bfloat16 numbers twice: as uint16 bits and as float32 values."""
    bits = (rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32)


def test_half_types_are_summed_in_float32() -> None:
    check_dtypes(("float16",))
    rng = np.random.default_rng(4)
    for m, k, n in [(70, 300, 40), (3, 600, 5), (150, 150, 70)]:
        (a, x), (b, y) = random_bfloat16(rng, (m, k)), random_bfloat16(rng, (k, n))
        actual = fetch(dispatch.call(record_for("mk,kn->mn"), (tensor(a, "bfloat16"), tensor(b, "bfloat16"))))
        value = (actual.astype(np.uint32) << 16).view(np.float32)
        exact = x.astype(np.float64) @ y
        assert (np.abs(value - exact) <= np.abs(exact) * 2.0**-8 + 1e-5 * (np.abs(x) @ np.abs(y))).all()


def test_empty_results_and_empty_sums() -> None:
    for shapes in [((0, 4), (4, 3)), ((2, 4), (4, 0)), ((0, 2, 4), (4, 3))]:
        assert fetch(dispatch.call(record_for(MATMUL), [tensor(np.ones(s, np.float32)) for s in shapes])).size == 0
    for shapes in [((5, 0), (0, 70)), ((3, 5, 0), (0, 7))]:
        actual = fetch(dispatch.call(record_for(MATMUL), [tensor(np.ones(s, np.float32)) for s in shapes]))
        assert (actual == 0).all()
        assert actual.size


def check_into() -> None:
    rng = np.random.default_rng(5)
    a, b = draw(rng, (20, 30), np.float32), draw(rng, (30, 70), np.float32)
    plane = np.zeros((70, 140), np.float32)
    for layout in [plane[:, :20].T, plane[:20, ::2], plane[2:22, 1:71]]:
        out = tensor(layout)
        dispatch.call_into(record_for(MATMUL), (tensor(a), tensor(b)), (), (out,), in_place=False)
        np.testing.assert_allclose(fetch(out), a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)


def test_results_in_existing_memory() -> None:
    check_into()
    out = tensor(np.zeros((3, 2), np.float32))
    operands = [tensor(np.zeros(s, np.float32)) for s in ((2, 4), (4, 3))]
    with pytest.raises(ShapeError, match=r"the result has shape \[2, 3\], out has \[3, 2\]"):
        dispatch.call_into(record_for(MATMUL), operands, (), (out,), in_place=False)


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        (
            MATMUL,
            ((2, 3), (4, 5)),
            r"mix\(input float32\[2, 3\], other .*\): dimension -2 of other has size 4, but input needs 3",
        ),
        (MATMUL, ((2, 2, 3), (3, 3, 5)), "batch sizes 2 and 3 meet in dimension -3; they must be equal or 1"),
        (MATMUL, ((3,), (3, 5)), r"input must have at least 2 dimensions \(\.\.\.mk\)"),
        ("mk,k->m", ((3, 4), (3, 4)), r"other must have 1 dimensions \(k\)"),
    ],
)
def test_shapes_that_do_not_fit(equation: str, shapes: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        dispatch.call(record_for(equation), [tensor(np.ones(s, np.float32)) for s in shapes])


def test_bool_is_refused() -> None:
    with pytest.raises(DTypeError, match=r"not bool"):
        dispatch.call(record_for(MATMUL), [tensor(np.ones((2, 2), np.bool_)) for _ in range(2)])


# Large matrices, whose operands are both packed: ahead of the product, or by each work-item


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
        schedule = contraction_plan.choose(product, Capabilities("cpu", 2, lanes=16), 16)
        assert bool(schedule.block) == half
        assert schedule.packed_ahead == (not half)
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
def test_rows_that_share_a_cache_set_and_panels_of_several_blocks_of_k(k: int) -> None:
    rng = np.random.default_rng(35)
    # If vectors have 16 lanes, panels have 64 columns: one panel, four, and five of which the last has 34 columns.
    for width in (64, 256, 290):
        compare((MATMUL, draw(rng, (450, k), np.float32), draw(rng, (k, width), np.float32)), tolerance=4e-6)


@pytest.mark.parametrize("k", [1001, 1024])
def test_large_products_of_two_transposed_operands_transpose_their_result(k: int) -> None:
    rng, cpu = np.random.default_rng(36), Capabilities("cpu", 2, lanes=16)
    fallback = contraction_plan.spaces["opencl-cpu/contraction"].fallback
    products = [contraction_plan.Product(700, n, k, 1, False, True) for n in (790, 400)]
    assert [contraction_plan.should_transpose_result(p, cpu, 16, fallback) for p in products] == [True, False]
    a, b = matrix(rng, 700, k, True, np.float32), matrix(rng, k, 790, True, np.float32)
    compare((MATMUL, a, b), tolerance=4e-6)
    bias = draw(rng, (790,), np.float32)
    actual = wg.addmm(wg.tensor(bias), wg.tensor(a.T.copy()).T, wg.tensor(b.T.copy()).T).numpy()
    assert abs(actual - (a.astype(np.float64) @ b + bias)).max() < 4e-7 * k


def test_large_products_of_noncontiguous_operands() -> None:
    rng = np.random.default_rng(31)
    a, b = draw(rng, (1202, 1802), np.float32)[::2, ::2], draw(rng, (901, 614), np.float32)[:, ::2]
    compare((MATMUL, a, b), (MATMUL, a, np.ascontiguousarray(b)), ("...mk,kn->...nm", np.ascontiguousarray(a), b))


@pytest.mark.parametrize("equation", ["bmn,bmk->bkn", "bmk,bkn->bmn", "bmn,bkn->bmk", "bnm,bkm->bkn"])
def test_broadcast_operands(equation: str) -> None:
    """Operands with stride 0 give right results: gradients of sums and means repeat one number along dimensions."""
    rng, sizes = np.random.default_rng(5), {"b": 5, "m": 24, "n": 40, "k": 36}
    first, second = (tuple(sizes[label] for label in term) for term in equation.split("->")[0].split(","))
    operand = rng.standard_normal(second)
    for full_axes in itertools.product((0, 1), repeat=3):
        x = rng.standard_normal([n if is_full else 1 for n, is_full in zip(first, full_axes, strict=True)])
        actual = wg.einsum(equation, wg.tensor(x).expand(*first), wg.tensor(operand))
        expected = np.einsum(equation, np.broadcast_to(x, first), operand)
        np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-11, atol=1e-11, err_msg=f"{equation} {full_axes}")
    grad_record = registry["matmul_batched_grad_other"]
    plan = dispatch.plan_for(grad_record, (wg.ones(()).expand(5, 24, 40), wg.tensor(rng.standard_normal((5, 24, 36)))))
    assert plan.steps[-1].instance.entry == "contraction_gemm"
    # The result's (rows, columns): each batch entry is one 36 x 40 product, not 36 products of one row.
    assert struct.unpack_from("2q", plan.steps[-1].geometry) == (36, 40)


def test_few_results_of_long_sums_are_split_along_k() -> None:
    rng, cpu = np.random.default_rng(32), Capabilities("cpu", 2, lanes=16)
    for ta, tb in ((False, False), (True, True)):
        schedule = contraction_plan.choose(contraction_plan.Product(61, 64, 4099, 1, not ta, tb), cpu, 16)
        assert (schedule.name, schedule.parts, schedule.rows >= 61) == ("gemm", 2, True)
        compare((MATMUL, matrix(rng, 61, 4099, ta, np.float32), matrix(rng, 4099, 64, tb, np.float32)))


def test_a_large_operand_is_not_repacked_for_few_columns() -> None:
    rng, cpu = np.random.default_rng(33), Capabilities("cpu", 2, lanes=16)
    product = contraction_plan.Product(1001, 10, 1003, 1, False, True)
    assert contraction_plan.should_transpose_result(
        product, cpu, 16, contraction_plan.spaces["opencl-cpu/contraction"].fallback
    )
    compare((MATMUL, matrix(rng, 1001, 1003, True, np.float32), matrix(rng, 1003, 10, True, np.float32)))


def test_columns_of_a_transposed_operand_are_dot_products_where_they_are_few_or_long() -> None:
    caps = Capabilities("cpu", 2, lanes=16)
    for (m, n, k), name in {
        (4096, 16, 16): "gemm", (4096, 32, 64): "gemm", (512, 50, 300): "gemm", (1024, 32, 1024): "gemm",
        (4096, 4, 64): "dots", (1024, 8, 1024): "dots", (64, 10, 512): "dots", (32, 32, 4096): "dots",
    }.items():  # fmt: skip
        assert contraction_plan.choose(contraction_plan.Product(m, n, k, 1, True, True), caps, 16).name == name


def test_packing_work_items_are_balanced() -> None:
    for cores, converts in itertools.product((2, 3, 8), (False, True)):
        caps = Capabilities("cpu", cores, lanes=16)
        for m, n in itertools.product((256, 777, 1000, 2048), repeat=2):
            schedule = contraction_plan.choose(contraction_plan.Product(m, n, 2000, 1, True, False, converts), caps, 16)
            work_items = -(-m // schedule.rows) * -(-n // schedule.columns)
            assert schedule.packed_ahead != bool(schedule.block)
            assert schedule.packed_ahead == (not converts and m > 256)
            assert schedule.packed_ahead or schedule.block >= schedule.rows
            assert work_items >= cores
            assert -(-work_items // cores) * schedule.rows * schedule.columns * cores <= 1.5 * (m + 64) * (n + 128)


# The choice of schedules


def test_choices_cover_the_product_and_fit_the_device() -> None:
    sizes = (1, 7, 64, 65, 1000, 70000)
    cpu = Capabilities("cpu", 3)
    small_gpu = Capabilities("gpu", 4, lanes=4, fp64=False, max_group=64, local_memory=16 * 1024)
    for m, n, k, batch in itertools.product(sizes, sizes, sizes, (1, 50)):
        for a_along_k, b_along_k in itertools.product((False, True), (False, True)):
            product = contraction_plan.Product(m, n, k, batch, a_along_k, b_along_k)
            schedule = contraction_plan.choose(product, cpu, 16)
            assert schedule.depth * schedule.parts >= k
            assert schedule.parts == 1 or schedule.depth * (schedule.parts - 1) < k
            assert schedule.rows % schedule.mr == 0
            assert schedule.name == "gemm" or schedule.columns % schedule.nv == 0
            if schedule.block:
                assert schedule.rows <= schedule.block
                assert schedule.columns <= schedule.panels * schedule.nv * 16
                assert schedule.entries == schedule.parts == 1
                assert not schedule.transpose_a
            elif schedule.packed_ahead:
                assert batch == schedule.parts == 1
                assert schedule.columns % (schedule.nv * 16) == 0
            elif schedule.name == "gemm":
                assert schedule.columns == schedule.nv * 16
            tile = contraction_plan.choose_tile(product, small_gpu, 8)
            assert tile.gx * tile.gy <= 64
            assert tile.kc * (tile.gx * tile.tn + tile.gy * tile.tm + 2) * 8 <= 16 * 1024
            assert tile.depth * tile.parts >= k


# GPU schedules and small devices, run on the CPU: the same checks in a process with other capabilities

OTHER_SHAPES = [(1, 40, 33), (31, 15, 65), (130, 33, 70), (2, 5000, 3)]


@pytest.mark.parametrize(
    "capabilities",
    [
        "style=gpu,lanes=4,max_group=256",
        "style=gpu,fp64=0,max_group=64,local_memory=16384",
        "style=cpu,lanes=4",
        "style=cpu,lanes=8,registers=16",
    ],
)
def test_other_capabilities(capabilities: str) -> None:
    names = ("int8",) if "fp64=0" in capabilities else ("float64",) if "gpu" in capabilities else ()
    code = f"""
    import sys
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    import test_contraction as t
    t.check_shapes(t.OTHER_SHAPES, transpositions=[(False, False), (True, True)])
    t.check_into()
    if {"gpu" in capabilities}:
        t.check_layouts()
    t.check_dtypes({names!r})
    """
    environment = {**os.environ, "WEFTGRAD_CAPABILITIES": f"{capabilities},optimize=0"}
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr[-3000:]
