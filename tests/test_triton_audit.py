"""`weftgrad audit`: scalars of intermediate code, machine code, estimates, bars; and bars of a few calls, compiled."""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import weftgrad as wg
from weftgrad.bench.audit import auditing, bars, command, estimate, gpu_timing, table
from weftgrad.bench.audit.case import Case
from weftgrad.bench.audit.cases import cases
from weftgrad.bench.audit.execution import count_instructions
from weftgrad.bench.audit.launch_time import CALIBRATION
from weftgrad.bench.audit.machine_code import _read_amd, _read_nvidia, load_bytes, tensor_shape
from weftgrad.bench.audit.machines import MACHINES, machines_of
from weftgrad.bench.audit.operands import Operands
from weftgrad.bench.audit.program_code import _sample_programs, execute
from weftgrad.bench.measure import Timing
from weftgrad.bench.sites import OurSite
from weftgrad.runtime.errors import ArgumentError

needs_triton = pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="needs triton, to compile")
H100 = MACHINES["H100"]

# A loop over the tiles of a program, a loop over k inside, and a branch by the tile's position.
CODE = """
#loc = loc("kernel":1:0)
#loc1 = loc("kernel":10:4)
#loc2 = loc("kernel":11:8)
#loc3 = loc("kernel":12:8)
#loc4 = loc("helper":40:8)
#loc5 = loc(callsite(#loc4 at #loc3))
module {
  tt.func public @kernel(PARAMETERS) attributes {noinline = false} {
    %c0 = arith.constant 0 : i32 loc(#loc)
    %c1 = arith.constant 1 : i32 loc(#loc)
    %c2 = arith.constant 2 : i32 loc(#loc)
    %c64 = arith.constant 64 : i32 loc(#loc)
    %zero = arith.constant dense<0.000000e+00> : tensor<32x16xf32> loc(#loc)
    %first = tt.get_program_id x : i32 loc(#loc)
    %step = tt.get_num_programs x : i32 loc(#loc)
    scf.for %tile = %first to %n step %step  : i32 {
      %sum = scf.for %i = %c0 to %k step %c64 iter_args(%total = %zero) -> (tensor<32x16xf32>)  : i32 {
        %at = tt.splat %x : !tt.ptr<bf16> -> tensor<32x64x!tt.ptr<bf16>> loc(#loc5)
        %a = tt.load %at : tensor<32x64x!tt.ptr<bf16>> loc(#loc5)
        %b = tt.trans %a {order = array<i32: 1, 0>} : tensor<16x64xbf16> -> tensor<64x16xbf16> loc(#loc3)
        %dot = tt.dot %a, %b, %total, inputPrecision = tf32 : TYPES loc(#loc3)
        scf.yield %dot : tensor<32x16xf32> loc(#loc3)
      } loc(#loc2)
      %odd = arith.remsi %tile, %c2 : i32 loc(#loc1)
      %is_even = arith.cmpi eq, %odd, %c0 : i32 loc(#loc1)
      scf.if %is_even {
        %out = tt.splat %y : !tt.ptr<f32> -> tensor<32x16x!tt.ptr<f32>> loc(#loc1)
        tt.store %out, %sum : tensor<32x16x!tt.ptr<f32>> loc(#loc1)
      } loc(#loc1)
    } loc(#loc1)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
"""
PARAMETERS = ", ".join(
    f'%{name}: {type} {{tt.divisibility = 16 : i32}} loc("kernel":1:0)'
    for name, type in (("x", "!tt.ptr<bf16>"), ("y", "!tt.ptr<f32>"), ("n", "i32"), ("k", "i32"))
)
TYPES = "tensor<32x64xbf16> * tensor<64x16xbf16> -> tensor<32x16xf32>"
CODE = CODE.replace("PARAMETERS", PARAMETERS).replace("TYPES", TYPES)
READS_ITS_END = CODE.replace("%c0 to %k step", "%c0 to %end step").replace(
    "    scf.for %tile",
    "    %p = tt.addptr %y, %first : !tt.ptr<f32>, i32 loc(#loc1)\n"
    "    %end = tt.load %p : !tt.ptr<i32> loc(#loc1)\n    scf.for %tile",
)

SASS = """
	//## File "kernel", line 1
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
	//## File "kernel", line 10
        /*0010*/                   IADD3 R1, R1, 0x1, RZ ;
.L_x_0:
	//## File "helper", line 40
        /*0020*/                   LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
	//## File "kernel", line 12
        /*0030*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0040*/                   NOP ;
	//## File "kernel", line 11
        /*0050*/              @!P0 BRA `(.L_x_0) ;
	//## File "kernel", line 10
        /*0060*/               @P1 STG.E.128 desc[UR4][R2.64], R4 ;
        /*0070*/              @!P1 BRA `(.L_x_1) ;
        /*0080*/                   CALL.REL.NOINC `(.L_x_3) ;
        /*0090*/                   EXIT ;
.L_x_3:
        /*00a0*/                   MUFU.RCP R3, R4 ;
        /*00b0*/                   RET.REL.NODEC R2 `(kernel) ;
.L_x_4:
        /*00c0*/                   BRA `(.L_x_4) ;
"""

AMD = """
kernel:
	.loc	1 10 4
	s_load_dwordx2 s[0:1], s[4:5], 0x0
.LBB0_1:
	.loc	1 12 8
	buffer_load_dwordx4 v[0:3], v4, s[0:3], 0 offen
	v_mfma_f32_32x32x8_bf16_1k a[0:15], v[0:1], v[2:3], a[0:15]
	.loc	1 11 8
	s_cbranch_scc1 .LBB0_1
	s_endpgm
.Lfunc_end0:
	v_mov_b32_e32 v0, 0
"""


def test_loops_are_counted_by_running_their_scalars() -> None:
    execution = execute(CODE, [None, None, 12, 200], (4,))
    whole, tiles, products = execution.loops
    assert (whole.iterations, tiles.iterations, products.iterations) == pytest.approx((1, 3, 3 * 4))
    assert (tiles.line, products.line) == (10, 11)
    assert products.parent is tiles
    assert products.lines[40] == pytest.approx(12)  # a helper's line, where it was called
    load, store = execution.accesses
    assert (load.pointer, load.nbytes, load.nbytes_per_program) == pytest.approx((0, 4 * 12 * 32 * 64 * 2, 12 * 4096))
    # Programs 0 and 2 have tiles 0, 4, 8 and 2, 6, 10; the others have odd ones, whose branch is not taken.
    assert store.pointer == 1
    assert store.nbytes_per_program == 3 * 32 * 16 * 4
    (product,) = execution.products
    assert product.shape == (32, 16, 64)
    assert product.macs == pytest.approx(48 * 32 * 16 * 64)
    assert not execution.depends_on_data


def test_sampled_programs_have_the_mean_of_the_grid() -> None:
    """Causal attention: the work of 32 programs is 1 to 32 tiles."""
    samples = _sample_programs((32, 64))
    assert sum(first + 1 for first, _ in samples) / len(samples) == 16.5
    assert {0, 31} <= {first for first, _ in samples}
    assert all(0 <= first < 32 and 0 <= second < 64 for first, second in samples)
    assert _sample_programs((3,)) == [(0,), (1,), (2,)]
    assert _sample_programs((1, 1, 1)) == [(0, 0, 0)]


def test_what_depends_on_data_is_said_to() -> None:
    execution = execute(READS_ITS_END, [None, None, 4, 200], (4,))
    assert execution.depends_on_data
    assert execution.loops[2].iterations == pytest.approx(1)
    assert execution.loops[2].load_depth == 1


def test_of_two_ends_that_data_choose_the_larger_counts() -> None:
    """As a pass of a sort that moves nothing where all elements have one digit."""
    code = READS_ITS_END.replace(
        "    scf.for %tile",
        "    %skips = arith.cmpi eq, %end, %c0 : i32 loc(#loc1)\n"
        "    %last = arith.select %skips, %c0, %k : i32 loc(#loc1)\n    scf.for %tile",
    ).replace("%c0 to %end step", "%c0 to %last step")
    execution = execute(code, [None, None, 4, 200], (4,))
    assert execution.depends_on_data
    assert execution.loops[2].iterations == pytest.approx(4)


def test_iterations_of_unknown_loops_can_be_told() -> None:
    assert execute(READS_ITS_END, [None, None, 4, 200], (4,), 7).loops[2].iterations == pytest.approx(7)


def test_arguments_and_parameters_must_agree() -> None:
    with pytest.raises(ValueError, match="4 parameters"):
        execute(CODE, [None, None, 4], (4,))


def test_loops_of_nvidia_machine_code_get_the_counts_of_their_source() -> None:
    code = _read_nvidia(SASS)
    assert [i.opcode for i in code.instructions][-2:] == ["CALL.REL.NOINC", "EXIT"]
    assert code.calls == 1
    counts = count_instructions(code, execute(CODE, [None, None, 12, 200], (4,)))
    by_opcode = {
        i.opcode.split(".")[0]: count for i, count in zip(code.instructions, counts.by_instruction, strict=True)
    }
    assert by_opcode["LDC"] == by_opcode["EXIT"] == 1
    assert by_opcode["IADD3"] == pytest.approx(3)
    assert by_opcode["LDG"] == by_opcode["HMMA"] == pytest.approx(12)
    assert counts.hot == min(code.loops, key=lambda loop: loop.last - loop.first)


def test_amd_assembly_is_read_up_to_the_end_of_the_kernel() -> None:
    code = _read_amd(AMD)
    assert len(code.instructions) == 5
    (loop,) = code.loops
    assert next(i.opcode for i in code.within(loop)) == "buffer_load_dwordx4"
    assert code.largest_innermost() == loop


@pytest.mark.parametrize(
    ("opcode", "nbytes"),
    [("LDG.E.128.CONSTANT", 16), ("LDG.E.U16", 2), ("LDG.E", 4), ("LDGSTS.E.BYPASS.LTC128B.128", 16),
     ("STG.E.128", None), ("LDGSTS.E.LTC128B", 4), ("UTMALDG.3D", 0), ("global_load_dwordx2", 8), ("LDS.128", None),
     ("buffer_load_ushort", 2), ("global_load_ubyte", 1), ("global_load_dword", 4)],
)  # fmt: skip
def test_widths_of_loads(opcode: str, nbytes: int | None) -> None:
    assert load_bytes(opcode) == nbytes


@pytest.mark.parametrize(
    ("opcode", "shape"),
    [("HGMMA.64x256x16.F32.BF16", (64, 256, 16)), ("HMMA.16816.F32.BF16", (16, 8, 16)),
     ("HMMA.1688.F32.TF32", (16, 8, 8)), ("v_mfma_f32_32x32x8_bf16_1k", (32, 32, 8)), ("UTCHMMA", (0, 0, 0)),
     ("FFMA", None)],
)  # fmt: skip
def test_shapes_of_matrix_instructions(opcode: str, shape: tuple[int, int, int] | None) -> None:
    assert tensor_shape(opcode) == shape


def test_published_peaks_agree_with_cores_and_clock() -> None:
    """Multiplications of a core in a cycle are a power of two: 1024 on A100, 2048 on H100, 4096 on B200."""
    for name, macs in (("A100", 1024), ("H100", 2048), ("H200", 2048), ("B200", 4096), ("MI300X", 1024)):
        machine = MACHINES[name]
        assert machine.half_flops == pytest.approx(2 * macs * machine.cores * machine.clock, rel=0.005), name
        assert machine.sources, name


def test_limits_are_the_larger_of_memory_and_products() -> None:
    assert estimate.limit_seconds(3_350_000_000, 0, "float32", H100) == (pytest.approx(1e-3), "memory")
    seconds, name = estimate.limit_seconds(1, 2 * 4096.0**3, "bfloat16", H100)
    assert (seconds, name) == (pytest.approx(138.9e-6, rel=1e-3), "tensor")
    # float32 takes three products in tf32, which has half the rate.
    assert estimate.limit_seconds(1, 2 * 4096.0**3, "float32", H100)[0] == pytest.approx(6 * seconds)
    assert estimate.limit_seconds(1, 2 * 4096.0**3, "float32", MACHINES["MI300X"])[0] == pytest.approx(
        2 * 4096**3 / 163.4e12
    )


def test_a_cache_holds_what_was_touched_last() -> None:
    cache = estimate._Cache(100)
    cache.touch(1, 60)
    assert cache.holds(1)
    cache.touch(2, 40)
    assert cache.holds(1)
    cache.touch(3, 1)
    assert not cache.holds(1)
    assert cache.holds(2)
    assert not cache.holds(4)
    cache.touch(1, 60)
    assert cache.holds(1)
    assert not cache.holds(2)


def test_names_of_machines() -> None:
    assert [m.name for m in machines_of(["sm_90", "h200", "H100", "gfx942"])] == ["H100", "H200", "MI300X"]
    with pytest.raises(ArgumentError, match="H100, H200"):
        machines_of(["H300"])


def launch(**changes: object) -> estimate.LaunchFigures:
    values: dict[str, object] = {
        "kernel": "k", "programs": 1, "tile": "1024", "warps": 4, "registers": 32, "spills": 0, "shared": 0,
        "resident": 16, "occupancy": 1.0, "tensor": "", "widths": (16,), "narrow_loads": 0, "hot_instructions": 10,
        "hot_barriers": 0, "calls": 0, "instructions": 100.0, "moved": 200, "requested": 200, "issue": 0.0,
        "tensor_time": 0.0, "memory": 28e-6, "cache": 0.0, "exchange": 0.0, "latency": 0.0, "depends_on_data": False,
        "tensor_share": 0.0,
    }  # fmt: skip
    return estimate.LaunchFigures(**{**values, **changes})  # type: ignore[arg-type]


def figures(**changes: object) -> estimate.CallFigures:
    values: dict[str, object] = {
        "machine": "H100", "launches": (launch(), launch(memory=0.0)), "least": 100, "limit": 16e-6,
        "limit_name": "memory",
    }  # fmt: skip
    return estimate.CallFigures(**{**values, **changes})  # type: ignore[arg-type]


def test_a_call_takes_the_sum_of_its_launches() -> None:
    call = figures()
    assert call.seconds == pytest.approx(32e-6)  # a launch takes two microseconds besides
    assert call.share == pytest.approx(0.5)
    assert (call.bound, call.moved_ratio) == ("memory", 4)


def test_bars_name_what_is_missed() -> None:
    limits = {"case": {"share": 0.6, "launches": 1, "moved": 3.0}, "easy": {"share": 0.4, "launches": 2, "moved": 4.0}}
    assert bars.missed("easy", figures(), limits) == ()
    assert len(bars.missed("case", figures(), limits)) == 3
    assert "0.50 of its limit, and 0.60" in bars.missed("case", figures(), limits)[0]
    assert bars.missed("case", figures(machine="A100"), limits) == ()
    written = json.loads(bars.bars_text([("case", figures())]))
    assert bars.missed("case", figures(), written) == ()
    assert bars.missed("case", figures(limit=14e-6), written)


def test_every_case_has_a_bar() -> None:
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names) >= 120
    assert set(json.loads((Path(bars.__file__).parent / "bars.json").read_text())) == set(names)


def test_tables_go_between_their_markers(tmp_path: Path) -> None:
    rows = [
        auditing.Row("add f32", "elementwise", "H100", figures()),
        auditing.Row("mul f32", "elementwise", "H100", None, ("fails",), "does not compile"),
        auditing.Row("add f32", "elementwise", "A100", figures(machine="A100", limit=8e-6)),
    ]
    file = tmp_path / "page.md"
    file.write_text(f"# Page\n\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.write_markdown(file, table.as_markdown(rows))
    text = file.read_text()
    assert text.startswith("# Page")
    assert text.endswith(f"{table.END}\nafter\n")
    assert "old" not in text
    assert "| add f32 | 0.50 | 0.25 |" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|") and "µs" in line}
    assert len(widths) == 1
    assert json.loads(table.as_json(rows))[0]["figures"]["share"] == pytest.approx(0.5)
    assert table.explanation(rows) == ["mul f32 on H100 fails"]


def test_measured_times_come_from_the_call_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of a GPU, on the processor: operands get values, and the call runs."""
    results = []

    def prepare(operands: Operands) -> Callable[[], object]:
        x, index = operands.tensor(64, 8), operands.index(64, 16)
        return lambda: results.append(x.index_select(0, index))

    case = Case("group", "index_select", "float32", prepare)
    monkeypatch.setattr(gpu_timing, "_site", lambda: OurSite("cpu"))
    monkeypatch.setattr(gpu_timing, "_torch_site", lambda: None)
    ours, peer = gpu_timing.time_case(case)
    assert ours.least > 0
    assert peer is None
    assert results[-1].isfinite().all()


@pytest.mark.parametrize(
    ("name", "cores", "machine"),
    [("NVIDIA H200", 132, "H200"), ("NVIDIA H100 80GB HBM3", 132, "H100"), ("NVIDIA H100 PCIe", 114, None),
     ("NVIDIA GH200 480GB", 132, None), ("NVIDIA RTX 4090", 128, None)],
)  # fmt: skip
def test_the_gpu_is_known_by_name_and_cores(
    name: str, cores: int, machine: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card for PCIe has other figures under the same name."""
    driver = SimpleNamespace(name=name, capabilities=SimpleNamespace(cores=cores))
    monkeypatch.setattr(gpu_timing, "_site", lambda: SimpleNamespace(device=SimpleNamespace(driver=driver)))
    present = gpu_timing.present_machine.__wrapped__()
    assert (present and present.name) == machine


def test_only_the_machine_that_is_present_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that fails on the GPU keeps its estimate, and its row says why it has no measured time."""
    monkeypatch.setattr(gpu_timing, "present_machine", lambda: H100)
    monkeypatch.setattr(gpu_timing, "_site", lambda: OurSite("cpu"))
    monkeypatch.setattr(gpu_timing, "_torch_site", lambda: None)
    monkeypatch.setattr(auditing, "_audit_case", lambda work: auditing.Row(work[0], "group", work[1], figures()))
    case = Case("group", "double", "float32", lambda operands: partial(wg.mul, operands.tensor(8), 2))
    failing = Case(
        "group", "mixed shapes", "float32", lambda operands: partial(wg.add, operands.tensor(2), operands.tensor(3))
    )
    monkeypatch.setattr(auditing, "_cases_by_name", lambda: {"double f32": case, "mixed shapes f32": failing})
    rows = list(auditing.audit(["double f32", "mixed shapes f32"], [H100, MACHINES["A100"]]))
    assert [row.figures.measured is not None for row in rows if row.figures] == [True, False, False, False]
    assert "not measured: add" in rows[2].error
    assert "; not measured: add" in table.line(rows[2])


def test_times_that_may_be_the_hosts_are_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the device waited for the host, an event's time is the host's."""
    timing = Timing(2e-6, 3e-6, 2e-6, 4e-6, 9)
    late_timing = replace(timing, late=4)
    row = auditing.Row("double f32", "group", "H100", figures())
    monkeypatch.setattr(auditing, "_cases_by_name", lambda: {"double f32": None})
    for ours, peer, doubt in (
        (timing, None, ""), (timing, timing, ""), (late_timing, timing, "host late in 4 of 9"),
        (late_timing, late_timing, "host late in 4 of 9; torch's host late in 4 of 9"),
    ):  # fmt: skip
        monkeypatch.setattr(gpu_timing, "time_case", lambda case, ours=ours, peer=peer: (ours, peer))
        measured_row = auditing._with_measured_time(row)
        assert measured_row.error == doubt
        assert measured_row.figures is not None
        assert (measured_row.figures.measured, measured_row.figures.peer) == (2e-6, 2e-6 if peer else None)


@needs_triton
def test_an_interrupted_audit_writes_what_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted_audit(*arguments: object) -> Iterator[auditing.Row]:
        yield auditing.Row("add f32", "elementwise", "H100", figures())
        raise KeyboardInterrupt

    monkeypatch.setattr(auditing, "audit", interrupted_audit)
    file = tmp_path / "audit.json"
    assert command.run(options("--case", "add", "--output", str(file))) == 130
    assert [row["case"] for row in json.loads(file.read_text())] == ["add f32"]
    assert "interrupted after 1 calls" in capsys.readouterr().err


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.register(parser.add_subparsers())
    return parser.parse_args(["audit", *arguments])


@pytest.mark.parametrize("arguments", [("--case", "no case has this"), ("--target", "H300"), ("--output", "x.txt")])
def test_wrong_options_are_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(ArgumentError):
        command.run(options(*arguments))


def test_a_missed_bar_is_exit_status_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def audit(names: object, machines: object, jobs: int, times: object) -> list[auditing.Row]:
        return [auditing.Row("add 16M f32", "elementwise", "H100", figures(), misses)]

    monkeypatch.setattr("weftgrad.runtime.triton.compile.compiler_installed", lambda: True)
    monkeypatch.setattr(auditing, "audit", audit)
    misses: tuple[str, ...] = ()
    assert command.run(options("--case", "add 16M")) == 0
    misses = ("is slow",)
    assert command.run(options("--case", "add 16M")) == 1
    assert "add 16M f32 on H100 is slow" in capsys.readouterr().err


SUBSET = ("add 16M bf16", "silu 16M bf16", "sum rows 8192x4096 bf16", "softmax 8192x50257 f32",
          "layer_norm 8192x4096 bf16", "matmul 4096^3 NN bf16", "matmul 8192x200 by 200x4096 bf16",
          "transpose copy 4096x4096 f32", "attention 4x16x4096x64 bf16", "embedding 8192 of 50257x1024 f32",
          "Adam 100 x 1M f32")  # fmt: skip
"""Cases that compile in a few seconds each. CI_AUDIT=1 checks all."""


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("name", SUBSET)
def test_calls_reach_their_bars(name: str) -> None:
    (row,) = auditing.audit([name], [H100])
    assert not row.missed, row.error


@needs_triton
@pytest.mark.slow
def test_a_matrix_product_is_counted_exactly() -> None:
    """A hand's count: 4096 = 32 tiles of 128 rows = 16 of 256 columns = 64 steps of 64."""
    (row,) = auditing.audit(["matmul 4096^3 NN bf16"], [H100])
    assert row.figures is not None
    (product,) = row.figures.launches
    assert row.figures.least == 3 * 2 * 4096**2 == row.figures.moved
    assert product.tensor == "HGMMA 64x256x16"
    assert product.widths == (0,)
    # 4 steps of 16 along k of an HGMMA for each of two groups of warps, and 538 instructions with the tile's end.
    assert product.tensor_share == pytest.approx(
        4 * 2 * 64 * 256 * 16 / 2048 * 4 / (8 * product.hot_instructions), rel=0.01
    )
    # 512 tiles on 132 cores: the busiest has 4.
    peak_seconds = 4 * 128 * 256 * 4096 / 2048 / H100.clock
    assert product.tensor_time == pytest.approx(peak_seconds / CALIBRATION.tensor_share, rel=0.02)


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("machine", ["A100", "B200", "MI300X"])
def test_other_machines_are_judged_too(machine: str) -> None:
    (row,) = auditing.audit(["add 16M f32"], [MACHINES[machine]])
    assert row.figures is not None
    assert row.figures.bound == "memory"
    (launch,) = row.figures.launches
    assert launch.memory == pytest.approx(row.figures.limit / CALIBRATION.memory_share)
    assert 0.6 < row.figures.share < CALIBRATION.memory_share
