"""Ranks that torchrun has started, or a scheduler with its variables, and no launcher of MPI."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from distributed_ranks import find_launcher

from weftgrad.cli.launch import flavour_of
from weftgrad.distributed import process_manager

TESTS = Path(__file__).parent
LAUNCHERS = ("PMI_RANK", "PMI_SIZE", "PMI_FD", "PMI_PORT", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS")
JOIN = "import datetime, weftgrad.distributed as d; d.init_process_group(timeout=datetime.timedelta(seconds={seconds}))"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def start_rank(rank: int, size: int, port: int, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name not in LAUNCHERS}
    environment |= {
        "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "7", **variables,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture(autouse=True)
def skip_without_mpich() -> None:
    if flavour_of(find_launcher()) != "hydra":
        pytest.skip("MPI must ask its process manager by PMI-1")


def run_rank_programs(programs: list[str], **variables: str) -> list[str]:
    """Run a program in each rank, without a launcher's variables, and return what each of them prints."""
    environment = {name: value for name, value in os.environ.items() if name not in LAUNCHERS}
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for program in programs
    ]
    outputs = []
    for process in ranks:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        outputs.append(output.strip())
    return outputs


SUM = """
import os, weftgrad as wg, weftgrad.distributed as dist
{before}
dist.init_process_group({arguments})
x = wg.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(x)
print(dist.get_rank(), dist.get_world_size(), x.tolist(), os.environ.get("RANK"))
dist.destroy_process_group()
"""


def test_ranks_that_are_arguments() -> None:
    """As in programs that start their processes themselves."""
    method = f"'gloo', init_method='tcp://localhost:{free_port()}', rank={{}}, world_size=2"
    programs = [SUM.format(before="", arguments=method.format(rank)) for rank in (1, 0)]
    assert run_rank_programs(programs) == [f"{rank} 2 [3.0, 3.0, 3.0] None" for rank in (1, 0)]


def test_ranks_that_are_arguments_beside_an_address_in_the_environment() -> None:
    programs = [SUM.format(before="", arguments=f"rank={rank}, world_size=2") for rank in (0, 1)]
    outputs = run_rank_programs(programs, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    assert outputs == [f"{rank} 2 [3.0, 3.0, 3.0] None" for rank in (0, 1)]


def test_slurm_without_its_mpi() -> None:
    """`srun --mpi=none` sets the variables of a step, and the job's script the address."""
    step = "os.environ.update(SLURM_PROCID='{0}', SLURM_NTASKS='2', SLURM_LOCALID='{0}', SLURM_JOB_ID='9')"
    programs = [SUM.format(before=step.format(rank), arguments="'gloo'") for rank in (0, 1)]
    outputs = run_rank_programs(programs, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    assert outputs == [f"{rank} 2 [3.0, 3.0, 3.0] None" for rank in (0, 1)]


SPAWNING = """
import os
import torch, torch.distributed as dist, torch.multiprocessing as mp

def run(rank, size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "{port}"
    dist.init_process_group("gloo", rank=rank, world_size=size)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    torch.manual_seed(rank)
    model(torch.rand(4, 3)).sum().backward()
    print(rank, model.module.weight.grad.tolist(), flush=True)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(run, args=(2,), nprocs=2)
"""


def test_spawned_ranks_of_a_program_written_for_pytorch(tmp_path: Path) -> None:
    program = tmp_path / "spawning.py"
    program.write_text(SPAWNING.format(port=free_port()))
    (output,) = run_rank_programs(
        [
            f"import runpy, sys; sys.argv = ['as_torch', {str(program)!r}]; "
            "runpy.run_module('weftgrad.as_torch', run_name='__main__')"
        ]
    )
    (first, second) = sorted(output.splitlines())
    assert (first[0], second[0]) == ("0", "1")
    assert first[1:] == second[1:]


def servers(port: int) -> list[str]:
    """Return the process managers that run for a port."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if any(word.endswith("process_manager.py") for word in command) and str(port) in command:
            lines.append(process.name)
    return lines


def test_ranks_find_each_other() -> None:
    """The second rank comes before rank 0, and torchrun's agent listens at the port that the variables name."""
    with socket.create_server(("", 0)) as agent:
        port = agent.getsockname()[1]
        arguments = str(TESTS / "distributed_checks.py"), "gathers,objects"
        ranks = [start_rank(1, 3, port, *arguments, TORCHELASTIC_USE_AGENT_STORE="True")]
        time.sleep(0.5)
        ranks += [start_rank(rank, 3, port, *arguments, TORCHELASTIC_USE_AGENT_STORE="True") for rank in (2, 0)]
        for process, rank in zip(ranks, (1, 2, 0), strict=True):
            output, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
            assert output == f"ok {rank}\n"
    assert not servers(port + 1)


def test_a_rank_that_is_killed() -> None:
    port = free_port()
    ranks = [start_rank(rank, 3, port, str(TESTS / "distributed_faults.py"), "killed", "60") for rank in range(3)]
    for rank, process in enumerate(ranks):
        output, errors = process.communicate(timeout=120)
        if rank == 1:
            assert process.returncode == -signal.SIGKILL
        else:
            assert process.returncode != 0
            assert re.search(rf"REPORT {rank} [\d.]+ RankFailure: all_reduce #3 .*: rank 1 was killed", output), errors
    deadline = time.monotonic() + 60.0
    while (left := servers(port)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def test_a_rank_that_does_not_come() -> None:
    port = free_port()
    ranks = [start_rank(rank, 3, port, "-c", JOIN.format(seconds=10)) for rank in (0, 2)]
    texts = []
    for process in ranks:
        _, errors = process.communicate(timeout=120)
        assert process.returncode != 0
        texts += re.findall(r"DistNetworkError: init_process_group: (.*)", errors)
    late = f"not all 3 ranks have come to localhost:{port} within 10 s"
    assert late in texts, texts
    assert len(texts) == 2  # the other one is as late, or hears that the first one has ended
    assert all(text == late or "another rank has ended" in text for text in texts), texts
    assert not servers(port)


def test_a_port_in_use() -> None:
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        process = start_rank(0, 2, port, "-c", JOIN.format(seconds=1))
        _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    assert re.search(rf"port {port} of rank 0's machine: Address .* in use.*; name a free port by", errors), errors


@pytest.mark.parametrize(
    ("variables", "point"),
    [
        ({}, ("node1", 29500)),
        ({"WEFTGRAD_MASTER_PORT": "5"}, ("node1", 5)),
        ({"TORCHELASTIC_USE_AGENT_STORE": "True"}, ("node1", 29501)),
        ({"TORCHELASTIC_USE_AGENT_STORE": "True", "WEFTGRAD_MASTER_PORT": "5"}, ("node1", 5)),
        ({"TORCHELASTIC_USE_AGENT_STORE": "False"}, ("node1", 29500)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, ("node1", 29500)),
        ({"WORLD_SIZE": "1"}, None),
        ({"MASTER_PORT": "x"}, None),
        ({"PMI_RANK": "0"}, None),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, None),
    ],
)
def test_meeting_points(variables: dict[str, str], point: tuple[str, int] | None) -> None:
    environment = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
    assert process_manager.find_meeting_point(environment | variables) == point
    assert process_manager.find_meeting_point({"WORLD_SIZE": "2"}) is None
    slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "5"}
    assert process_manager.find_meeting_point(slurm) == ("node1", 5)
