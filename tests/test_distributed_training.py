"""Training over several processes: each test runs some checks of `distributed_training_checks.py` by mpiexec."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from distributed_ranks import find_launcher, run_ranks

import weftgrad as wg
from weftgrad.distributed import checkpoint
from weftgrad.distributed.fsdp import fully_shard
from weftgrad.distributed.optim import ZeroRedundancyOptimizer
from weftgrad.distributed.pipelining import Schedule1F1B
from weftgrad.distributed.tensor.parallel import parallelize_module
from weftgrad.runtime.errors import ArgumentError

PROGRAM = "distributed_training_checks.py"
DATA_PARALLEL = (
    "equals_one_process_with_the_whole_batch", "buckets_follow_the_order_of_gradients",
    "reduction_starts_during_backward", "no_sync_accumulates_on_each_rank", "unused_parameters_after_no_sync",
    "unused_parameters_with_unusual_graphs",
    "gradients_accumulate_over_backwards_as_in_one_process", "unused_parameters", "different_modules_are_refused",
    "buffers_are_those_of_rank_0", "gradients_are_those_of_the_rank_without_the_wrapper",
)  # fmt: skip
HOOKS_AND_INPUTS = (
    "communication_hooks", "power_sgd", "uneven_inputs", "uneven_inputs_with_divided_optimizer",
    "early_end_is_an_error_on_all_ranks", "synchronized_batch_norm", "sampler_resumes_in_the_middle_of_an_epoch",
)  # fmt: skip
SHARDING = (
    "divided_optimizer_state", "sharded_parameters", "sharded_gradients_accumulate",
    "norms_of_sharded_gradients", "sharded_checkpointed_layers", "sharded_gradients_of_unusual_graphs",
    "sharded_gradients_after_a_failed_backward", "sharded_modules_that_return_objects",
    "sharding_halves_memory", "tensor_parallel_layers", "pipeline_schedules",
)  # fmt: skip


def run_checks(folder: Path, names: tuple[str, ...], count: int) -> str:
    return run_ranks(PROGRAM, f"{folder}:{','.join(names)}", count)


@pytest.mark.parametrize("names", [DATA_PARALLEL, HOOKS_AND_INPUTS, SHARDING], ids=["ddp", "hooks", "sharding"])
def test_two_ranks(tmp_path, names):
    run_checks(tmp_path, names, 2)


def test_four_ranks_that_share_the_cores(tmp_path):
    names = (
        "equals_one_process_with_the_whole_batch", "unused_parameters", "uneven_inputs", "synchronized_batch_norm",
        "divided_optimizer_state", "sharded_parameters", "tensor_parallel_layers", "pipeline_schedules",
    )  # fmt: skip
    run_checks(tmp_path, names, 4)


def test_checkpoints_load_under_other_numbers_of_ranks(tmp_path):
    run_checks(tmp_path, ("save_checkpoint",), 2)
    run_checks(tmp_path, ("load_checkpoint_of_other_ranks", "incomplete_checkpoint"), 4)
    run_checks(tmp_path, ("load_checkpoint_of_other_ranks",), 1)


def test_an_error_in_backward_ends_all_ranks(tmp_path):
    """The rank that raises shows its error; the others name it. None hangs."""
    command = [
        find_launcher(), "-n", "3", sys.executable, str(Path(__file__).parent / PROGRAM),
        f"{tmp_path}:raise_in_backward",
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    text = ended.stdout + ended.stderr
    assert ended.returncode != 0
    assert "ValueError: out of luck" in text
    assert "rank 1" in text, text
    assert "RankFailure" in text, text
    assert "ok 0" not in text
    assert "ok 2" not in text


def test_extra_state_and_groups_of_a_state_dict():
    class Counter(wg.nn.Linear):
        steps = 3

        def get_extra_state(self):
            return self.steps

        def set_extra_state(self, state):
            self.steps = state

    model = wg.nn.Sequential(Counter(1, 1))
    optimizer = wg.optim.SGD(model.parameters(), lr=0.1)
    model_state, optimizer_state = checkpoint.get_state_dict(model, optimizer)
    assert model_state["0._extra_state"] == 3
    model_state["0._extra_state"] = 7
    model_state["0.bias"] = wg.tensor([4.0])
    checkpoint.set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
    assert (model[0].steps, model[0].bias.item()) == (7, 4.0)
    optimizer_state["param_groups"] *= 2
    with pytest.raises(ArgumentError, match="the optimizers have 1 groups, the state has 2"):
        checkpoint.set_optimizer_state_dict(model, optimizer, optimizer_state)


def test_names_exist_without_processes():
    """Programs import these names and ask; nothing starts MPI."""
    code = (
        "import sys, weftgrad as wg, weftgrad.nn, weftgrad.distributed as dist\n"
        "from weftgrad.distributed.fsdp import fully_shard\n"
        "from weftgrad.distributed.optim import ZeroRedundancyOptimizer\n"
        "from weftgrad.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook\n"
        "assert not dist.is_initialized() and 'mpi4py.MPI' not in sys.modules\n"
        "x = wg.nn.SyncBatchNorm(2)(wg.randn(4, 2))\n"
        "try:\n"
        "    wg.nn.parallel.DistributedDataParallel(wg.nn.Linear(2, 2))\n"
        "except RuntimeError as error:\n"
        "    assert 'init_process_group' in str(error), error\n"
        "else:\n"
        "    raise AssertionError('no error')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: wg.nn.parallel.DistributedDataParallel(wg.ones(2)), "DistributedDataParallel: expects a module"),
        (lambda: fully_shard([wg.nn.Linear(1, 1)]), "fully_shard: expects a module, not list"),
        (lambda: parallelize_module(wg.nn.Linear(1, 1), None, {"": "col"}), "has a str in place of a style"),
        (lambda: Schedule1F1B(wg.nn.Linear(1, 1), 2), "Schedule1F1B: expects a PipelineStage, not Linear"),
        (lambda: checkpoint.save([wg.ones(1)], checkpoint_id="x"), "checkpoint.save: expects a dict, not list"),
        (lambda: ZeroRedundancyOptimizer([wg.ones(1)], "sgd"), "optimizer_class must be an Optimizer, not 'sgd'"),
        (lambda: ZeroRedundancyOptimizer([wg.ones(1)], int), "optimizer_class must be an Optimizer, not <class 'int'>"),
        (lambda: wg.distributed.init_process_group(timeout=3), "timeout must be a datetime.timedelta, not int"),
    ],
)
def test_arguments_of_other_types_are_refused(call, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        call()
