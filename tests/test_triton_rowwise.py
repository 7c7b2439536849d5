"""Offsets of rowwise Triton kernels into large tensors: 32 bits where each operand allows it, 64 bits beyond.

For these tests, 32 bits end at 2^16 elements, not at 2^31, so that the tensors need little memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import weftgrad as wg
from weftgrad.cli.compile import planning_device
from weftgrad.cli.samples import capture_steps
from weftgrad.runtime.context import forget_plans
from weftgrad.runtime.kinds import triton

pytest.importorskip("triton")

DEVICE = planning_device("sm_90")
FIRST_64_BIT_EXTENT = 1 << 16


@pytest.fixture(autouse=True)
def fewer_32_bit_offsets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let offsets of 32 bits end early. Kernels reserve a block of 2^20 elements."""
    monkeypatch.setattr(triton, "_INT32", FIRST_64_BIT_EXTENT + (1 << 20))
    forget_plans()
    yield
    forget_plans()


def offset_types(call: Callable[[], object]) -> set[Any]:
    """Return the types of offsets of the kernels that a call plans."""
    with capture_steps(DEVICE) as steps:
        call()
    return {dict(step.instance.defines)["INDEX"] for step in steps}


@pytest.mark.parametrize(
    ("rows", "columns", "offset_type"),
    [
        (64, 500, "int32"),
        (64, 1000, "int32"),  # operand and result are too large together, but neither is alone
        (64, 1024, "int64"),
        (3, FIRST_64_BIT_EXTENT // 2, "int64"),
        (FIRST_64_BIT_EXTENT // 2, 3, "int64"),
    ],
)
def test_offsets_follow_the_largest_operand(rows: int, columns: int, offset_type: str) -> None:
    x = wg.empty(rows, columns, device=DEVICE)
    assert offset_types(lambda: wg.softmax(x, 1)) == {offset_type}
    assert offset_types(lambda: wg.layer_norm(x, (columns,))) == {offset_type}


@pytest.mark.parametrize(
    ("strides", "offset_type"),
    [
        ((FIRST_64_BIT_EXTENT // 4, 1), "int32"), ((FIRST_64_BIT_EXTENT // 3, 1), "int64"),
        ((1, FIRST_64_BIT_EXTENT // 5), "int64"),
        ((FIRST_64_BIT_EXTENT // 8, FIRST_64_BIT_EXTENT // 8), "int64"),  # neither dimension alone is too long
    ],
)  # fmt: skip
def test_offsets_follow_strides(strides: tuple[int, int], offset_type: str) -> None:
    """An operand of 4 rows of 6 elements. Its last offset is the sum of those of the last row and column."""
    x = wg.empty(2 * FIRST_64_BIT_EXTENT, device=DEVICE).as_strided((4, 6), strides)
    assert offset_types(lambda: wg.softmax(x, 1)) == {offset_type}
