"""Check that every op has a Triton kernel, that it compiles for every target, and what its machine code contains."""

import pytest

import weftgrad  # noqa: F401
from weftgrad._generated.records import NAMES
from weftgrad.runtime import dtypes
from weftgrad.runtime.device import meta
from weftgrad.runtime.kinds import Request
from weftgrad.runtime.planners import planner
from weftgrad.runtime.records import registry

KINDS_WITHOUT_KERNELS = ("view", "composite")
"""Kinds of ops without kernels, on any target."""


@pytest.fixture(scope="module")
def rows():
    pytest.importorskip("triton")
    from weftgrad.cli.compile import TARGETS, compile_kernels

    return list(compile_kernels(list(TARGETS), jobs=2, alternate_targets=True))


def test_no_op_has_kernels_for_one_target_only():
    targets_by_op = {n: sorted(registry[n].texts) for n in NAMES if registry[n].kind not in KINDS_WITHOUT_KERNELS}
    assert len(targets_by_op) > 500
    assert not {n: targets for n, targets in targets_by_op.items() if targets != ["opencl", "triton"]}


@pytest.mark.slow
def test_every_kernel_compiles(rows):
    """Kernels whose plan depends on the target compile for all targets, the others for one target each, in turn."""
    assert not [(r.kernel, r.target, r.error) for r in rows if r.error]
    assert len({r.kernel for r in rows}) > 500
    for target in ("sm_80", "sm_90", "sm_100", "gfx942"):
        kernels = {r.kernel for r in rows if r.target == target}
        assert len(kernels) > 150, target
        assert {"convolution_channels", "contraction_tile", "attention_forward"} <= kernels, target


@pytest.mark.slow
def test_kernels_fit_the_registers_and_the_shared_memory(rows):
    assert not [(r.kernel, r.target, r.registers, r.spills) for r in rows if r.spills]
    assert not [(r.kernel, r.target, r.shared) for r in rows if r.shared > r.limit]


@pytest.mark.slow
def test_division_and_square_roots_are_exact(rows):
    assert not [(r.kernel, r.target, r.approximate) for r in rows if r.approximate]


LONG_VECTOR, MATRIX, VECTOR = ((1 << 20,), "float32"), ((4096, 1024), "float32"), ((1024,), "float32")


@pytest.mark.parametrize(
    ("op", "operands", "statics", "kernel"),
    [
        ("add", (LONG_VECTOR, LONG_VECTOR), (), "add_flat"),
        ("add", (MATRIX, VECTOR), (), "add_rows"),
        ("exp", (((1 << 20,), "bfloat16"),), (), "exp_flat"),
        ("softmax", (MATRIX,), (-1,), "softmax_whole"),
        ("softmax", (((64, 32768), "float32"),), (-1,), "softmax_swept"),
        ("layer_norm", (MATRIX, VECTOR, VECTOR, float), ((1024,),), "layer_norm_whole"),
        ("cumsum", (MATRIX,), (1, False, None), "cumsum_lines"),
        ("cumsum", (MATRIX,), (0, False, None), "cumsum_totals"),
        ("sum", (MATRIX,), (1, False, None), "sum_tiles"),
        ("sum", (MATRIX,), (0, False, None), "sum_partial"),
        ("sum", (((1 << 24,), "float32"),), (None, False, None), "sum_partial"),
    ],
)
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_aligned_kernels_load_sixteen_bytes_at_a_time(op, operands, statics, kernel, target):
    pytest.importorskip("triton")
    from weftgrad.cli.compile import compile_step, planning_device

    device = planning_device(target)
    metas = tuple(meta(getattr(dtypes, o[1]), o[0], None, device) if isinstance(o, tuple) else o for o in operands)
    plan = planner(registry[op].kind)(Request(registry[op], metas, statics, device))
    assert plan.steps[0].instance.entry == kernel
    assert compile_step(target, plan.steps[0]).load == 16


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_rows_added_at_an_index_move_sixteen_bytes_at_a_time(target):
    """In the gradient of an embedding, addends are read and sums written in vectors of 16 bytes."""
    pytest.importorskip("triton")
    from weftgrad.cli.compile import planning_device
    from weftgrad.runtime.triton.compile import Target, compile_for

    device = planning_device(target)
    metas = (meta(dtypes.float32, (8192, 1024), None, device), meta(dtypes.int64, (8192,), None, device))
    statics = {"shape": (50257, 1024), "dim": 0, "count": 1}
    plan = planner("index")(Request(registry["spread_at"], metas, tuple(statics.values()), device))
    (step,) = [s for s in plan.steps if s.instance.entry == "spread_at_runs"]
    ptx = compile_for(step, True, Target.named(target)).asm["ptx"]
    assert ptx.count("ld.global.v4.b32") >= dict(step.instance.defines)["ROWS"]
    assert ptx.count("st.global.v4.b32") > 0 == ptx.count("st.global.b32")


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_transposing_moves_sixteen_bytes_at_a_time(target):
    """Loads down the columns of the input and stores along the rows of the result both have 16 bytes."""
    pytest.importorskip("triton")
    from weftgrad.cli.compile import planning_device
    from weftgrad.runtime.triton.compile import Target, compile_for

    device = planning_device(target)
    operands = (meta(dtypes.float32, (4096, 4096), (1, 4096), device),)
    (step,) = planner("pointwise")(Request(registry["contiguous_copy"], operands, (), device)).steps
    ptx = compile_for(step, True, Target.named(target)).asm["ptx"]
    assert ptx.count("ld.global.v4.b32") == ptx.count("st.global.v4.b32") > 0
    assert "ld.global.b32" not in ptx


# Ops whose formulas loop until no element of the program needs a further step.
LOOPING = {"gcd": "int32", "hermite_polynomial_h": "float32", "hurwitz_zeta": "float32", "lcm": "int64"}


@pytest.mark.parametrize("name", LOOPING)
def test_loops_compile_for_one_element(name):
    """Operands of one element are scalars in a kernel, not blocks, and Triton reduces blocks alone."""
    pytest.importorskip("triton")
    from weftgrad.cli.compile import compile_step, planning_device

    device = planning_device("sm_90")
    operands = (meta(getattr(dtypes, LOOPING[name]), (1,), None, device),) * 2
    (step,) = planner("pointwise")(Request(registry[name], operands, (), device)).steps
    assert "scalar" not in compile_step("sm_90", step).error
    assert compile_step("sm_90", step).error == ""


def test_the_table_shows_problems():
    from weftgrad.cli.compile import Row, table

    rows = [Row("f", "sm_90", 30, 0, 2048, 4096), Row("g", "sm_90", 255, 8), Row("h", "sm_90", error="no")]
    assert [r.is_good for r in rows] == [True, False, False]
    text = table(rows, ["sm_90", "gfx942"])
    assert "30 regs, 2 KiB" in text
    assert "8 SPILLED" in text
    assert "FAILED" in text


def test_prebuild_compiles_into_the_cache(tmp_path, monkeypatch, capsys):
    pytest.importorskip("triton")
    from weftgrad.cli.compile import planning_device
    from weftgrad.cli.prebuild import compile_ahead

    monkeypatch.setenv("WEFTGRAD_CACHE", str(tmp_path))
    device = planning_device("sm_90")
    assert compile_ahead(device, ["trunc"], [dtypes.float32], 1) == 0
    assert "0 of them built already" in capsys.readouterr().out
    assert compile_ahead(device, ["trunc"], [dtypes.float32], 1) == 0
    assert "built 0 kernels for sm_90" in capsys.readouterr().out
