"""The Triton kernels of all ops: there for every op, compiled for every target, and what their machine code holds."""

import pytest

import weftgrad  # noqa: F401
from weftgrad._generated.records import NAMES
from weftgrad.runtime import dtypes
from weftgrad.runtime.device import meta
from weftgrad.runtime.kinds import Request, planner
from weftgrad.runtime.records import registry

TEXTLESS = ("view", "composite")
"""Kinds that have no kernels of their own, for any target."""


@pytest.fixture(scope="module")
def rows():
    pytest.importorskip("triton")
    from weftgrad.cli.compile import TARGETS, compiled

    return list(compiled(list(TARGETS), jobs=2, in_turn=True))


def test_no_op_has_kernels_for_one_target_only():
    lacking = {n: sorted(registry[n].texts) for n in NAMES if registry[n].kind not in TEXTLESS}
    assert len(lacking) > 500
    assert not {n: targets for n, targets in lacking.items() if targets != ["opencl", "triton"]}


@pytest.mark.slow
def test_every_kernel_compiles(rows):
    """Those that are planned for each target by itself, for all; the others for some, in turn."""
    assert not [(r.kernel, r.target, r.error) for r in rows if r.error]
    assert len({r.kernel for r in rows}) > 500
    for target in ("sm_80", "sm_90", "sm_100", "gfx942"):
        found = {r.kernel for r in rows if r.target == target}
        assert len(found) > 150, target
        assert {"convolution_forward", "contraction_multiply"} <= found, target


@pytest.mark.slow
def test_no_kernel_spills_registers_or_wants_more_shared_memory_than_there_is(rows):
    assert not [(r.kernel, r.target, r.registers, r.spills) for r in rows if r.spills]
    assert not [(r.kernel, r.target, r.shared) for r in rows if r.shared > r.limit]


@pytest.mark.slow
def test_machine_code_divides_and_takes_roots_exactly(rows):
    assert not [(r.kernel, r.target, r.approximate) for r in rows if r.approximate]


BIG, MATRIX, ROW = ((1 << 20,), "float32"), ((4096, 1024), "float32"), ((1024,), "float32")


@pytest.mark.parametrize(
    ("op", "operands", "statics", "kernel"),
    [
        ("add", (BIG, BIG), (), "add_flat"),
        ("add", (MATRIX, ROW), (), "add_rows"),
        ("exp", (((1 << 20,), "bfloat16"),), (), "exp_flat"),
        ("softmax", (MATRIX,), (-1,), "softmax_whole"),
        ("softmax", (((64, 32768), "float32"),), (-1,), "softmax_swept"),
        ("layer_norm", (MATRIX, ROW, ROW, float), ((1024,),), "layer_norm_whole"),
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
    from weftgrad.cli.compile import measured, place_like

    place = place_like(target)
    metas = tuple(meta(getattr(dtypes, o[1]), o[0], None, place) if isinstance(o, tuple) else o for o in operands)
    planned = planner(registry[op].kind)(Request(registry[op], metas, statics, place))
    assert planned.steps[0].instance.entry == kernel
    assert measured(target, planned.steps[0]).load == 16


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_rows_added_at_an_index_move_sixteen_bytes_at_a_time(target):
    """A lookup's gradient: what is added to is as wide as what is added."""
    pytest.importorskip("triton")
    from weftgrad.cli.compile import place_like
    from weftgrad.runtime.triton.compile import Target, compile_for

    place = place_like(target)
    metas = (meta(dtypes.float32, (8192, 1024), None, place), meta(dtypes.int64, (8192,), None, place))
    statics = {"shape": (50257, 1024), "dim": 0, "count": 1}
    planned = planner("index")(Request(registry["spread_at"], metas, tuple(statics.values()), place))
    ptx = compile_for(planned.steps[-1], True, Target.named(target)).asm["ptx"]
    assert ptx.count("ld.global.v4.b32") == 2 * ptx.count("st.global.v4.b32") > 0


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_transposing_moves_sixteen_bytes_at_a_time(target):
    """Both what is read down its columns and what is written along its rows."""
    pytest.importorskip("triton")
    from weftgrad.cli.compile import place_like
    from weftgrad.runtime.triton.compile import Target, compile_for

    place = place_like(target)
    given = (meta(dtypes.float32, (4096, 4096), (1, 4096), place),)
    (step,) = planner("pointwise")(Request(registry["contiguous_copy"], given, (), place)).steps
    ptx = compile_for(step, True, Target.named(target)).asm["ptx"]
    assert ptx.count("ld.global.v4.b32") == ptx.count("st.global.v4.b32") > 0
    assert "ld.global.b32" not in ptx


def test_the_table_says_what_is_wrong():
    from weftgrad.cli.compile import Row, table

    rows = [Row("f", "sm_90", 30, 0, 2048, 4096), Row("g", "sm_90", 255, 8), Row("h", "sm_90", error="no")]
    assert [r.good for r in rows] == [True, False, False]
    text = table(rows, ["sm_90", "gfx942"])
    assert "30 regs, 2 KiB" in text
    assert "8 SPILLED" in text
    assert "FAILED" in text


def test_prebuild_compiles_into_the_cache(tmp_path, monkeypatch, capsys):
    pytest.importorskip("triton")
    from weftgrad.cli.compile import place_like
    from weftgrad.cli.prebuild import compile_ahead

    monkeypatch.setenv("WEFTGRAD_CACHE", str(tmp_path))
    place = place_like("sm_90")
    assert compile_ahead(place, ["trunc"], [dtypes.float32], 1) == 0
    assert "0 of them built already" in capsys.readouterr().out
    assert compile_ahead(place, ["trunc"], [dtypes.float32], 1) == 0
    assert "built 0 kernels for sm_90" in capsys.readouterr().out
