"""Check the register machine's Triton kernels (examples/anc/kernel) in the interpreter, and compile them for GPUs."""

import pytest

pytest.importorskip("triton")
from register_machine_running import CASES, check_case, kernel

import weftgrad as wg
from weftgrad.cli.compile import planning_device
from weftgrad.runtime.device import meta
from weftgrad.runtime.kinds import Request
from weftgrad.runtime.records import registry
from weftgrad.runtime.triton.compile import Target, compile_for


@pytest.mark.parametrize("exact_stop", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_interpreted_kernels_equal_the_tensor_code(case, exact_stop):
    check_case(wg.device("interpreter"), wg.float64, case, exact_stop)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("part", ["run", "gradient"])
def test_the_triton_kernels_fit_into_registers(part, target):
    kernel.load_op()
    device, sizes = planning_device(target), (64, 5, 21)
    logits = meta(wg.float32, (64, 52, 21), None, device)
    integers, weights = meta(wg.int64, sizes, None, device), meta(wg.float32, sizes, None, device)
    record = registry["run_machine"]
    plan = kernel.planner.plan(Request(record, (logits, integers, integers, weights), (75, False), device))
    if part == "gradient":
        errors, halting, memory, states = plan.outputs
        record = registry[registry.gradients(record)["logits"].op]
        operands = (errors, halting, logits, integers, weights, halting, memory, states)
        plan = kernel.planner.plan(Request(record, operands, (75, False), device))
    compiled = compile_for(plan.steps[0], True, Target.named(target))
    assert compiled.spills <= 16  # bytes a thread
