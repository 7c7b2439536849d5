"""The terms of the audit's estimates beside examples computed by hand: accesses and time of a warp, a launch."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from weftgrad.bench.audit import auditing, bank_conflicts, estimate, gpu_timing, launch_time
from weftgrad.bench.audit.bank_conflicts import conflict_passes, parameter_words, warp_accesses
from weftgrad.bench.audit.execution import Counts
from weftgrad.bench.audit.launch_time import CALIBRATION
from weftgrad.bench.audit.machine_code import Instruction, MachineCode
from weftgrad.bench.audit.machines import MACHINES
from weftgrad.bench.audit.program_code import execute
from weftgrad.bench.audit.warp_time import block_cycles, product_cycles
from weftgrad.runtime.errors import ArgumentError

H200 = MACHINES["H200"]
LANES = range(32)


def code(text: str) -> list[Instruction]:
    """Return the instructions of lines such as `@P0 STS [R1], R2`."""
    instructions = []
    for line in text.strip().splitlines():
        words = line.split()
        guard = words.pop(0) if words[0].startswith("@") else ""
        instructions.append(Instruction(words[0], 0, " ".join(words[1:]), guard))
    return instructions


def counts(*executions: float) -> Counts:
    return Counts(executions, {}, {}, None)


@pytest.mark.parametrize(
    ("stride", "nbytes", "passes"),
    [(4, 4, 1), (0, 4, 1), (8, 4, 2), (64, 4, 16), (128, 4, 32), (132, 4, 1), (8, 8, 2), (16, 16, 4), (2, 2, 1),
     (64, 8, 16)],
)  # fmt: skip
def test_lanes_that_meet_in_a_bank_wait_for_one_another(stride: int, nbytes: int, passes: int) -> None:
    """Lanes 64 bytes apart use banks 0 and 16 only, so 16 lanes share each; 8 bytes go in two halves of the warp."""
    assert conflict_passes([stride * lane for lane in LANES], nbytes) == passes


def test_addresses_come_from_the_lanes_own_arithmetic() -> None:
    accesses = warp_accesses(
        code("""
            S2R R0, SR_TID.X
            IMAD.SHL.U32 R1, R0, 0x40, RZ
            STS [R1+0x10], R5
            LOP3.LUT R2, R0, 0x1f, RZ, 0xc0, !PT
            LEA R3, R2, UR4, 0x2
            LDS R6, [R3]
            LDG.E R7, desc[UR4][R8.64]
            LDS R9, [R7]
            SHFL.BFLY PT, R6, R6, 0x1, 0x1f
            FADD R6, R6, R6
        """),
        {},
    )
    # What memory gives is unknown, and so are registers that were never written: no conflicts are assumed.
    assert [access.passes for access in accesses] == [0, 0, 16, 0, 0, 1, 1, 1, 1, 0]


def test_addresses_of_device_memory_use_the_arguments() -> None:
    """A stride of 9 elements of 4 bytes: 32 lanes lie in 1120 bytes, 9 lines of 128, each in a sector of its own."""
    header = "tt.func public @k(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32, %stride: i64) {"
    words = parameter_words(header, [None, 5, 9], "sm_90")
    assert words == {0x210: 0, 0x214: 0, 0x218: 5, 0x220: 9, 0x224: 0}
    load, store = code("LDG.E R7, desc[UR4][R2.64]\nSTG.E desc[UR4][R2.64], R7")
    address = code("S2R R0, SR_TID.X\nLDC R1, c[0x0][0x220]\nIMAD R1, R0, R1, RZ\nIMAD.SHL.U32 R2, R1, 0x4, RZ")
    loaded, stored = warp_accesses([*address, load, store], words)[-2:]
    assert (loaded.passes, loaded.lane_bytes, loaded.sector_bytes) == (9, 128, 32 * 32)
    assert (stored.passes, stored.lane_bytes, stored.sector_bytes) == (16, 128, 32 * 32)  # two sectors a cycle
    assert parameter_words(header, [None, 5, 9], "gfx942") == {}
    assert parameter_words(header.replace("!tt.ptr", "!tt.tensordesc"), [None, 5, 9], "sm_90") == {}


def test_loads_of_one_word_ask_once_and_scattered_stores_send_sectors() -> None:
    instructions = code("""
        LDG.E R7, desc[UR4][UR6]
        LDG.E.128 R8, desc[UR4][R2.64]
        STG.E desc[UR4][R2.64], R7
    """)
    accesses = [bank_conflicts.WarpAccess(1, 128, 32), bank_conflicts.WarpAccess(4, 512, 512),
                bank_conflicts.WarpAccess(16, 128, 1024)]  # fmt: skip
    kernel = MachineCode(tuple(instructions), (), 0)
    assert launch_time.exchange_shares(kernel, accesses, counts(1, 1, 1)) == pytest.approx(((32 + 512) / 640, 8))
    blocks = MachineCode((*instructions, Instruction("UTMALDG.2D", 0)), (), 0)
    assert launch_time.exchange_shares(blocks, [*accesses, accesses[0]], counts(1, 1, 1, 1)) == (1, 1)


def test_a_warp_waits_for_its_operands() -> None:
    # Issued at 0, 4 and 8; the last result is there at 12.
    chain = code("FADD R1, R0, R0\nFADD R2, R1, R1\nFADD R3, R2, R2")
    assert block_cycles(chain, 4, H200, repeats=False) == 12
    independent = code("FADD R1, R0, R0\nFADD R2, R0, R0\nFADD R3, R0, R0")
    assert block_cycles(independent, 4, H200, repeats=False) == 6
    load = code("LDG.E.64 R2, desc[UR4][R4.64]\nFADD R6, R3, R3")
    assert block_cycles(load, 4, H200, repeats=False) == H200.latency + 4
    # A sum through a loop: an iteration is as long as an addition, and its jump.
    assert block_cycles(code("FADD R1, R1, R2\n@P0 BRA `(.L_x_0)"), 4, H200, repeats=True) == 4


def test_loads_into_shared_memory_run_ahead() -> None:
    """The wait for all but the last two groups lets three iterations pass for each latency."""
    text = "DEPBAR.LE SB0, {}\nLDGSTS.E.128 [R1], desc[UR4][R2.64]\nLDGDEPBAR"
    ahead = block_cycles(code(text.format("0x2")), 4, H200, repeats=True)
    assert ahead == pytest.approx(H200.latency / 3, rel=0.03)
    at_once = block_cycles(code(text.format("0x0")), 4, H200, repeats=True)
    assert at_once == pytest.approx(H200.latency, rel=0.02)


def test_products_of_warp_groups_wait_for_their_operands_in_shared_memory() -> None:
    wide, narrow, from_registers = code("""
        HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24, gsb0
        HGMMA.64x32x16.F32.BF16 R24, gdesc[UR8], R24, gsb0
        HGMMA.64x32x16.F32.BF16 R24, R4, gdesc[UR8], R24, gsb0
    """)
    # A core multiplies 2048 pairs a cycle (1 % more by the published peak), and reads 128 bytes.
    assert product_cycles(wide, H200) == pytest.approx(64 * 256 * 16 / 2048, rel=0.01)
    assert product_cycles(narrow, H200) == (64 + 32) * 16 * 2 / 128
    assert product_cycles(from_registers, H200) == pytest.approx(64 * 32 * 16 / 2048, rel=0.01)
    # Two groups of 4 warps share the tensor cores, and the wait ends 33 cycles after the last product.
    waiting = [wide, *code("WARPGROUP.DEPBAR.LE gsb0, 0x0")]
    assert block_cycles(waiting, 4, H200, repeats=False) == pytest.approx(128 + 33 + 1, rel=0.01)
    assert block_cycles(waiting, 8, H200, repeats=False) == pytest.approx(256 + 33 + 1, rel=0.01)


def test_times_of_a_core() -> None:
    kernel = MachineCode(tuple(code("MUFU.EX2 R1, R0\nFADD R2, R1, R1\nFADD R3, R1, R1")), (), 0)
    # 4 warps of 10 programs, on 4 schedulers: the special function takes 8 cycles, more than the 3 instructions.
    seconds = launch_time.issue_seconds(kernel, counts(1, 1, 1), 4, 10, H200)
    assert seconds == pytest.approx(8 * 4 * 10 / 4 / H200.clock / CALIBRATION.issue_share)
    accesses = [bank_conflicts.WarpAccess(16), bank_conflicts.WarpAccess(0), bank_conflicts.WarpAccess(1)]
    seconds = launch_time.exchange_seconds(accesses, counts(2, 5, 3), 4, 10, H200)
    assert seconds == pytest.approx((2 * 16 + 3) * 4 * 10 / H200.clock)
    # 512 programs on 132 cores: 4 on the busiest, 2 at a time.
    seconds = launch_time.latency_seconds(1000, 512, 4, 2, H200)
    assert seconds == pytest.approx(2 * (1000 + CALIBRATION.start_cycles) / H200.clock)
    # One program a core, the busiest 1.5 times as long as the average.
    seconds = launch_time.latency_seconds(1000, 132, 1.5, 1, H200)
    assert seconds == pytest.approx(1.5 * (1000 + CALIBRATION.start_cycles) / H200.clock)


def test_overlapping_times_are_longer_than_the_longest() -> None:
    p = CALIBRATION.overlap
    assert launch_time.overlapped_seconds({"issue": 3.0, "memory": 4.0}) == pytest.approx((3**p + 4**p) ** (1 / p))
    assert launch_time.overlapped_seconds({"memory": 4.0, "issue": 0.0}) == pytest.approx(4)
    # A warp's latency includes its products.
    assert launch_time.overlapped_seconds({"tensor": 5.0, "latency": 4.0}) == pytest.approx(5)


def test_a_launch_takes_its_start_besides() -> None:
    figures = estimate.LaunchFigures(
        kernel="k", programs=1, tile="", warps=4, registers=32, spills=0, shared=0, resident=16, occupancy=1.0,
        tensor="", widths=(16,), narrow_loads=0, hot_instructions=10, hot_barriers=0, calls=0, instructions=1.0,
        moved=1, requested=1, issue=0.0, tensor_time=0.0, memory=30e-6, cache=0.0, exchange=0.0, latency=0.0,
        depends_on_data=False, tensor_share=0.0,
    )  # fmt: skip
    assert figures.seconds == pytest.approx(30e-6 + CALIBRATION.launch_seconds)
    assert figures.bound == "memory"


def test_copies_of_a_line_under_conditions_count_with_their_mean() -> None:
    """A line unrolled twice in a loop of 8 iterations: one copy runs in all, the other in the first two."""
    text = """
#loc = loc("kernel":1:0)
#loc1 = loc("kernel":10:4)
#loc2 = loc("kernel":20:8)
module {
  tt.func public @kernel(%x: !tt.ptr<f32> loc("kernel":1:0)) attributes {noinline = false} {
    %c0 = arith.constant 0 : i32 loc(#loc)
    %c1 = arith.constant 1 : i32 loc(#loc)
    %c2 = arith.constant 2 : i32 loc(#loc)
    %c8 = arith.constant 8 : i32 loc(#loc)
    scf.for %i = %c0 to %c8 step %c1  : i32 {
      %all = arith.addi %i, %c1 : i32 loc(#loc2)
      %is_early = arith.cmpi slt, %i, %c2 : i32 loc(#loc1)
      scf.if %is_early {
        %few = arith.addi %i, %c2 : i32 loc(#loc2)
      } loc(#loc1)
    } loc(#loc1)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
"""
    loop = execute(text, [None], (1,)).loops[1]
    assert loop.iterations == 8
    assert loop.lines[20] < 8  # 3 of 8 iterations are run, of which the first may be early


def test_measured_times_of_a_file_stand_beside_new_estimates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = estimate.CallFigures("H200", (), 100, 1e-6, "memory")
    monkeypatch.setattr(auditing, "_audit_case", lambda work: auditing.Row(work[0], "group", work[1], figures))
    records = [{"case": "a", "machine": "H200", "figures": {"measured": 3e-6, "peer": None}},
               {"case": "b", "machine": "H200", "figures": None}]  # fmt: skip
    file = tmp_path / "audit.json.gz"
    file.write_bytes(gzip.compress(json.dumps(records).encode()))
    times = gpu_timing.read(file)
    assert times == {("a", "H200"): (3e-6, None)}
    rows = list(auditing.audit(["a", "b"], [H200, MACHINES["H100"]], 1, times))
    assert [row.figures.measured for row in rows if row.figures] == [3e-6, None, None, None]
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(ArgumentError, match="no measured times"):
        gpu_timing.read(tmp_path / "other.json")
    (tmp_path / "text.json").write_text("text")
    with pytest.raises(ArgumentError, match="not a file of an audit"):
        gpu_timing.read(tmp_path / "text.json")
    with pytest.raises(ArgumentError, match="not a file of an audit"):
        gpu_timing.read(tmp_path / "missing.json")
