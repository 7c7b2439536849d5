"""Check sorting and top-k of Triton's devices, in the interpreter: every kernel, dtype, layout, and sizes beside tiles.

The schedule's tiles are the smallest ones, so that short rows are long enough for several tiles, parts and levels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

from op_references_sort import sort_along, top_along
from op_running import tensor
from triton_running import interpreter

import weftgrad as wg
from weftgrad.runtime import schedules

Array = Any
DEVICE, DRIVER = interpreter("block=64,cores=2")
SMALL = {"triton/sort": {"whole": 1024, "select": 4096, "block": 1024, "parts": 1}}
SPECIAL = (np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0)
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def values(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    """Draw values with ties; a quarter of the floats are NaN, infinite, or signed zeros."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) > 0.5
    if dtype.startswith(("int", "uint")):
        limits = np.iinfo(dtype)
        return rng.choice(np.array([limits.min, limits.max, *range(100)]).astype(dtype), shape)
    drawn = np.round(rng.standard_normal(shape) * 20) / 4  # exact in bfloat16
    drawn = np.where(rng.random(shape) < 0.25, rng.choice(SPECIAL, shape), drawn)
    return drawn.astype("float32" if dtype == "bfloat16" else dtype)


def host(result: wg.Tensor) -> Array:
    return (result.float() if result.dtype is wg.bfloat16 else result).cpu().numpy()


def check(array: Array, x: wg.Tensor, dim: int, descending: bool, k: int | None = None) -> list[str]:
    """Compare values, with the signs of zeros, and indices exactly; return the names of the kernels."""
    start = len(DRIVER.launched)
    if k is None:
        actual, indices = wg.sort(x, dim, descending)
        expected, order = sort_along(array, dim, descending)
    else:
        actual, indices = wg.topk(x, k, dim, largest=descending)
        expected, order = top_along(array, k, dim, descending)
    launched = [step.instance.entry for step in DRIVER.launched[start:]]
    np.testing.assert_array_equal(host(indices), order)
    np.testing.assert_array_equal(host(actual), expected)
    if array.dtype.kind == "f":
        is_zero = expected == 0
        np.testing.assert_array_equal(np.signbit(host(actual)[is_zero]), np.signbit(expected[is_zero]))
    return launched


@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_in_one_program(dtype: str, descending: bool) -> None:
    for shape in ((1, 1), (3, 2), (70, 33), (2, 128)):
        array = values(shape, dtype)
        assert check(array, tensor(array, dtype, DEVICE), 1, descending) == ["sort_whole"]


@pytest.mark.parametrize("n", [1023, 1024, 1025])
def test_rows_beside_the_longest_that_one_program_sorts(n: int) -> None:
    array = values((2, n), "int8")
    with schedules.planning(SMALL):
        launched = check(array, tensor(array, "int8", DEVICE), 1, False)
    assert launched == (["sort_whole"] if n <= 1024 else ["sort_count", "sort_scatter"])


@pytest.mark.parametrize(
    ("dtype", "descending"),
    [("bool", True), ("uint8", False), ("int8", True), ("float16", False), ("bfloat16", True), ("float32", True)],
)
def test_long_rows(dtype: str, descending: bool) -> None:
    array = values((1, 2050), dtype)
    x = tensor(array, dtype, DEVICE)
    with schedules.planning(SMALL):
        assert check(array, x, 1, descending) == ["sort_count", "sort_scatter"] * x.element_size()
    assert {step.global_size for step in DRIVER.launched if step.instance.entry == "sort_scatter"} == {(2,)}


def test_passes_whose_digits_are_equal_move_nothing() -> None:
    array = np.random.default_rng(0).integers(0, 1 << 16, (2, 1025)) << 16
    array[1] = array[1] >> 16 & 0xFF00FF  # rows differ in the digits that are equal
    with schedules.planning(SMALL):
        assert len(check(array, tensor(array, "int64", DEVICE), 1, True)) == 16


@pytest.mark.parametrize("largest", [False, True], ids=["smallest", "largest"])
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bool"])
def test_selection(dtype: str, largest: bool) -> None:
    for shape, k in (((2, 1025), 1), ((1, 1030), 20)):
        array = values(shape, dtype)
        assert check(array, tensor(array, dtype, DEVICE), 1, largest, k) == ["sort_select", "sort_whole"]


def test_selection_in_levels() -> None:
    """Parts of 2048 elements leave candidates for another selection; the last part has fewer than k elements."""
    array = values((1, 4096 * 3 + 10), "float16")
    with schedules.planning(SMALL):
        launched = check(array, tensor(array, "float16", DEVICE), 1, True, 500)
    assert launched == ["sort_select", "sort_select", "sort_whole"]


@pytest.mark.parametrize("fill", [0.0, np.nan, np.inf, -np.inf])
def test_selection_among_equal_elements(fill: float) -> None:
    """Equal elements are selected in their order, also if they are equal to the empty slots of a tile."""
    array = np.full((2, 1100), fill, np.float32)
    array[1, 1090:] = 1
    for largest in (False, True):
        check(array, tensor(array, "float32", DEVICE), 1, largest, 30)


def test_k_beyond_half_of_a_row() -> None:
    array = values((1, 1500), "float16")
    x = tensor(array, "float16", DEVICE)
    assert check(array, x, 1, True, 1499) == ["sort_whole"]
    with schedules.planning(SMALL):
        assert len(check(array, x, 1, True, 1400)) == 4
        assert check(array, x, 1, True, 1000) == ["sort_select", "sort_whole"]


def test_layouts_and_dimensions() -> None:
    array = values((3, 4, 9), "float32")
    x = tensor(array, "float32", DEVICE)
    views = {
        "contiguous": (array, x), "transposed": (array.transpose(2, 0, 1), x.permute(2, 0, 1)),
        "flipped": (array[:, :, ::-1], x.flip(2)), "sliced": (array[:, ::2, 1::3], x[:, ::2, 1::3]),
        "expanded": (np.broadcast_to(array[:1], array.shape), x[:1].expand(3, 4, 9)),
    }  # fmt: skip
    for view, (host_view, device_view) in views.items():
        for dim in range(3):
            assert check(host_view, device_view, dim, dim == 1) == ["sort_whole"], view
            assert check(host_view, device_view, dim, dim == 1, 2) == ["sort_whole"], view
    long = values((1100, 2), "float16")
    strided = tensor(long, "float16", DEVICE)
    assert check(long, strided, 0, True, 9) == ["sort_select", "sort_whole"]
    with schedules.planning(SMALL):
        assert len(check(long, strided, 0, True)) == 4


def test_no_elements() -> None:
    x = wg.zeros(3, 0, device=DEVICE)
    assert wg.sort(x, 1).values.shape == (3, 0)
    assert wg.sort(x, 0).values.shape == (3, 0)
    assert wg.topk(wg.zeros(3, 4, device=DEVICE), 0).values.shape == (3, 0)


def test_order_statistics() -> None:
    array = values((1, 1100), "float32")
    finite = np.nan_to_num(array, nan=7)
    x = tensor(finite, "float32", DEVICE)
    np.testing.assert_array_equal(host(wg.kthvalue(x, 100, 1).values), np.sort(finite, 1)[:, 99])
    np.testing.assert_array_equal(host(wg.median(x, 1).values), np.sort(finite, 1)[:, 549])
