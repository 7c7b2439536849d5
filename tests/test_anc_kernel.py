"""Check the register machine's kernels (examples/anc/kernel) on `cpu` and with schedules for GPUs on OpenCL."""

import numpy as np
import pytest
from register_machine_running import CASES, check_case, draw, kernel, machine, tasks, train

import weftgrad as wg
from weftgrad import testing
from weftgrad.runtime.errors import ArgumentError, NotSupported, ShapeError, UnsupportedDType

GPU = "style=gpu,lanes=4,max_group=256,optimize=0"
SMALL = "style=gpu,lanes=4,fp64=0,fp16=0,max_group=64,local_memory=8192,optimize=0"


@pytest.mark.parametrize("exact_stop", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_kernels_on_cpu_equal_the_tensor_code(dtype, case, exact_stop):
    check_case(wg.device("cpu"), getattr(wg, dtype), case, exact_stop)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_runs_of_several_vectors_and_segments(dtype):
    """25 runs fill no whole number of vectors, and 20 steps several segments, in some of which only some runs go on."""
    case = (5, 5, 9, 3, 20, 3.0)
    check_case(wg.device("cpu"), getattr(wg, dtype), case, exact_stop=False)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernels_for_gpus_equal_the_tensor_code(case):
    check_case(testing.synthetic_device(950, GPU), wg.float32, case, exact_stop=False)


def test_some_runs_of_the_cases_halt_early():
    case = CASES[1]
    halting = kernel.run(*draw(case, "cpu", wg.float64), case[4]).halting
    ended = halting[..., -1] > 0.9
    assert ended.any()
    assert not ended.all()


def test_calls_without_a_gradient_save_no_states():
    operands = draw((64, 50, 21, 10, 75, 1.0), "cpu", wg.float32, requires_grad=False)
    wg.reset_peak_memory_stats("cpu")
    before = wg.memory_allocated("cpu")
    trace = kernel.run(*operands, 75)
    with wg.no_grad():
        again = kernel.run(operands[0].requires_grad_(), *operands[1:], 75)
    assert (trace.errors == again.errors).all()
    assert wg.max_memory_allocated("cpu") - before < 64 * 50 * 75 * 672 * 4 // 8  # an eighth of the states


def test_wrong_operands_are_named():
    logits, cells, targets, mask = draw(CASES[0], "cpu", wg.float32)
    with pytest.raises(ArgumentError, match="steps must be at least 1, not 0"):
        kernel.run(logits, cells, targets, mask, 0)
    with pytest.raises(ShapeError, match=r"cells must have shape \[3, 2, 7\]"):
        kernel.run(logits, cells[:, :1].contiguous(), targets, mask, 3)
    with pytest.raises(ShapeError, match="cells must be contiguous"):
        kernel.run(logits, cells.mT.contiguous().mT, targets, mask, 3)
    with pytest.raises(UnsupportedDType, match=r"not float16; use \.float"):
        kernel.run(logits.half(), cells, targets, mask, 3)


def test_too_little_local_memory_is_an_error():
    with pytest.raises(NotSupported, match="bytes of local memory, the device has 8192"):
        kernel.run(*draw(CASES[2], testing.synthetic_device(951, SMALL), wg.float32), 5)


def test_training_by_the_kernel_equals_training_by_tensor_code():
    task = tasks.TASKS["access"]
    kernels, plain = (train.train(task, seeds=4, updates=20, run=run) for run in (kernel.run, machine.run))
    np.testing.assert_allclose(kernels.final, plain.final, rtol=1e-4, atol=1e-4)
    assert np.abs(kernels.final - kernels.initial).max() > 0.01
