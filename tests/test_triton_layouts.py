"""Check Triton kernels on masks, huge strides, unaligned memory and operands of any layout, in the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from triton_launch_names import SMALL, SMALL_DRIVER, flip, launched_traits, random_arrays, schedule
from triton_running import (
    convolve,
    index_tensor,
    interpreter,
    softmax,
)

import weftgrad as wg
from weftgrad.nn import functional as F
from weftgrad.runtime.kinds import index_masks
from weftgrad.runtime.kinds.triton import index as triton_index

pytest.importorskip("triton")
Array = Any


# Masks, the copy engine, huge strides, alignment


def test_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    mask = np.random.default_rng(0).random(9000) > 0.7
    start = len(SMALL_DRIVER.launched)
    actual = wg.nonzero(wg.tensor(mask, device=SMALL))
    np.testing.assert_array_equal(actual.cpu().numpy(), np.argwhere(mask))
    assert {"index.count many", "index.sum", "index.list many"} <= launched_traits(SMALL_DRIVER, start)
    # Small chunks and blocks, so that the counts of chunks are summed in several blocks, as on large masks.
    monkeypatch.setattr(triton_index, "_MASK_BLOCK", 8)
    monkeypatch.setattr(index_masks, "_MIN_CHUNK", 20)
    device, driver = interpreter("block=64,cores=2")
    short_mask = mask[:409]
    np.testing.assert_array_equal(
        wg.nonzero(wg.tensor(short_mask, device=device)).cpu().numpy(), np.argwhere(short_mask)
    )
    steps = {schedule(step): step for step in driver.launched}
    assert steps["index.sum"].geometry[0] > 8
    assert steps["index.list"].geometry[1] > 8
    x = np.random.default_rng(1).standard_normal((3, 409))
    selected = wg.tensor(x, device=device)[:, wg.tensor(short_mask, device=device)]
    np.testing.assert_array_equal(selected.cpu().numpy(), x[:, short_mask])


def test_the_copy_engine() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((136, 264), (264, 144)))
    start = len(SMALL_DRIVER.launched)
    actual = wg.tensor(x, device=SMALL) @ wg.tensor(y, device=SMALL)
    assert "contraction.tma" in launched_traits(SMALL_DRIVER, start)
    # Integers below 2048 are exact in float16.
    np.testing.assert_array_equal(actual.cpu().numpy(), x.astype(np.float64) @ y)


def test_strides_of_more_than_31_bits() -> None:
    """Use two rows of bytes more than 2 GiB apart; the memory between them is never touched."""
    device, driver = interpreter("block=64,cores=2")
    row_stride = 2**31 + 48
    buffer = wg.empty(row_stride + 64, dtype=wg.uint8, device=device)
    rows = buffer.as_strided((2, 64), (row_stride, 1))
    values = np.arange(128, dtype=np.uint8).reshape(2, 64)
    rows.copy_(wg.tensor(values, device=device))
    start = len(driver.launched)
    np.testing.assert_array_equal((rows + 1).cpu().numpy(), values + 1)
    np.testing.assert_array_equal(rows.sum(0).cpu().numpy(), values.sum(0))
    np.testing.assert_array_equal(rows.sum(1).cpu().numpy(), values.sum(1))
    order = np.array([1, 0, 1])
    np.testing.assert_array_equal(rows[index_tensor(order, rows)].cpu().numpy(), values[order])
    product = rows.T @ wg.ones(2, 3, dtype=wg.uint8, device=device)
    np.testing.assert_array_equal(product.cpu().numpy(), np.repeat(values.sum(0)[:, None], 3, 1).astype(np.uint8))
    int64_steps = [step for step in driver.launched[start:] if dict(step.instance.defines).get("INDEX") == "int64"]
    assert {schedule(s) for s in int64_steps} >= {"pointwise.rows", "reduction.tiles", "index.read"}
    rows[index_tensor(np.array([1]), rows)] = wg.full((1, 64), 7, dtype=wg.uint8, device=device)
    np.testing.assert_array_equal(rows.cpu().numpy(), np.stack([values[0], np.full(64, 7)]))


def test_alignment_is_promised_only_for_aligned_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels assume that pointers are multiples of 16 only if those of all operands are."""
    from weftgrad.runtime.triton import interpret

    divisible_args: list[set[str]] = []
    original_launch = interpret.launch

    def launch(*args: Any, **kwargs: Any) -> None:
        divisible_args.append(set(kwargs["divisible"]))
        original_launch(*args, **kwargs)

    monkeypatch.setattr(interpret, "launch", launch)
    device, _ = interpreter("block=64,cores=2")
    x = np.random.default_rng(0).standard_normal(161).astype(np.float32)
    base = wg.tensor(x, device=device)
    divisible_args.clear()
    products = base[:160] * base[:160]
    assert divisible_args == [{"x0", "x1", "y0", "n"}]
    for start in (1, 2, 3):
        divisible_args.clear()
        actual = base[start : start + 100] * base[:100]
        assert divisible_args == [set()]
        np.testing.assert_array_equal(actual.cpu().numpy(), x[start : start + 100] * x[:100])
    np.testing.assert_array_equal(products.cpu().numpy(), x[:160] * x[:160])
    divisible_args.clear()
    np.testing.assert_allclose(F.softmax(base[1:], 0).cpu().numpy(), softmax(x[1:].astype(np.float64)), rtol=1e-5)
    assert not divisible_args[-1] & {"x0", "y1"}


# Layouts

LAYOUTS: dict[str, tuple[tuple[int, ...], Callable[[Any], Any], Callable[[Array], Array]]] = {
    "flipped": ((12, 9), flip, lambda x: x[::-1, ::-1]),
    "transposed": ((9, 12), lambda x: x.T, lambda x: x.T),
    "at an odd offset": ((13, 9), lambda x: x[1:], lambda x: x[1:]),
    "with gaps": ((24, 19), lambda x: x[::2, 1::2], lambda x: x[::2, 1::2]),
    "one row": ((1, 9), lambda x: x.expand(12, 9), lambda x: np.broadcast_to(x, (12, 9))),
    "one column": ((12, 1), lambda x: x.expand(12, 9), lambda x: np.broadcast_to(x, (12, 9))),
    "one element": ((), lambda x: x.expand(12, 9), lambda x: np.broadcast_to(x, (12, 9))),
    "empty": ((0, 9), lambda x: x, lambda x: x),
}  # fmt: skip

COLUMNS_READ = np.array([[3, 0, 8], [1, 1, 2]])

FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "pointwise": (lambda x: x * x - 2, lambda x: x * x - 2),
    "columns": (lambda x: x.sum(0), lambda x: x.sum(0)),
    "rows": (lambda x: x.mean(1), lambda x: x.mean(1)),
    "all": (lambda x: x.norm(), lambda x: np.sqrt((x * x).sum())),
    "softmax": (lambda x: F.softmax(x, 1), softmax),
    "softmax of columns": (lambda x: F.softmax(x, 0), lambda x: softmax(x, 0)),
    "product": (lambda x: x @ x.T, lambda x: x @ x.T),
    "read": (lambda x: x[:, index_tensor(COLUMNS_READ, x)], lambda x: x[:, COLUMNS_READ]),
    "written": (
        lambda x: wg.zeros(2, 9, device=x.device).index_add(0, index_tensor(np.arange(x.shape[0]) % 2, x), x),
        lambda x: np.stack([x[::2].sum(0), x[1::2].sum(0)]),
    ),
    "convolution": (
        lambda x: F.conv2d(x[None, None], x[None, None, :3, 2:4]),
        lambda x: convolve(x[None, None], x[None, None, :3, 2:4]),
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str) -> None:
    shape, view, of_array = LAYOUTS[layout]
    (base,) = random_arrays([shape], "float32")
    x, array = view(wg.tensor(base, device=SMALL)), of_array(base.astype(np.float64))
    for name, (function, reference) in FUNCTIONS.items():
        if layout == "empty" and name in ("convolution", "softmax of columns"):
            continue
        expected = reference(array)
        actual = function(x)
        assert actual.shape == expected.shape, name
        np.testing.assert_allclose(actual.cpu().numpy(), expected, rtol=3e-6, atol=1e-6, err_msg=name)
