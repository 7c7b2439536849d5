"""The Triton kernels of all ops: there for every op, compiled for every target, and what their machine code holds."""

import pytest

import weftgrad  # noqa: F401
from weftgrad._generated.records import NAMES
from weftgrad.runtime.records import registry

TEXTLESS = ("view", "composite")
"""Kinds that have no kernels of their own, for any target."""

STACK = {
    "cos": "the reduction of large angles indexes a table", "sin": "as cos", "tan": "as cos",
}  # fmt: skip
"""Ops whose kernels use stack that is no spilling, with the reason."""


@pytest.fixture(scope="module")
def rows():
    pytest.importorskip("triton")
    from weftgrad.cli.compile import TARGETS, compiled

    return list(compiled(list(TARGETS), jobs=2))


def test_no_op_has_kernels_for_one_target_only():
    lacking = {n: sorted(registry[n].texts) for n in NAMES if registry[n].kind not in TEXTLESS}
    assert len(lacking) > 500
    assert not {n: targets for n, targets in lacking.items() if targets != ["opencl", "triton"]}


@pytest.mark.slow
def test_every_kernel_compiles_for_every_target(rows):
    assert not [(r.kernel, r.target, r.error) for r in rows if r.error]
    for target in ("sm_80", "sm_90", "sm_100", "gfx942"):
        assert len({r.kernel for r in rows if r.target == target}) > 500, target


@pytest.mark.slow
def test_no_kernel_spills_registers_or_wants_more_shared_memory_than_there_is(rows):
    allowed = tuple(f"{op}_" for op in STACK)
    spilling = [r for r in rows if r.spills and not r.kernel.startswith(allowed)]
    assert not [(r.kernel, r.target, r.spills) for r in spilling]
    assert not [(r.kernel, r.target, r.shared) for r in rows if r.shared > r.limit]


@pytest.mark.slow
def test_machine_code_divides_and_takes_roots_exactly(rows):
    assert not [(r.kernel, r.target, r.approximate) for r in rows if r.approximate]


@pytest.mark.slow
def test_contiguous_kernels_load_sixteen_bytes_at_a_time(rows):
    flat = [r for r in rows if r.kernel in ("add_flat", "exp_flat", "softmax_whole", "layer_norm_whole", "sum_partial")]
    assert flat
    assert not [(r.kernel, r.target, r.load) for r in flat if r.target.startswith("sm_") and r.load < 16]


def test_the_table_says_what_is_wrong():
    from weftgrad.cli.compile import Row, table

    rows = [Row("f", "sm_90", 30, 0, 2048, 4096), Row("g", "sm_90", 255, 8), Row("h", "sm_90", error="no")]
    assert [r.good for r in rows] == [True, False, False]
    text = table(rows, ["sm_90", "gfx942"])
    assert "30 regs, 2 KiB" in text
    assert "8 SPILLED" in text
    assert "FAILED" in text
