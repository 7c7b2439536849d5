"""`weftgrad.distributed` on 2 and 4 ranks of this machine, more than there may be cores, and what needs no ranks."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from distributed_ranks import find_launcher, launch, run_ranks

import weftgrad as wg
import weftgrad.distributed as dist
from weftgrad.cli.launch import add_options, launch_command, run
from weftgrad.distributed import progress
from weftgrad.distributed.headers import describe, find_mismatch, pack
from weftgrad.distributed.launchers import Place, read_environment
from weftgrad.distributed.rank_program import share_of_cores
from weftgrad.distributed.works import Work

ROOT = Path(os.environ.get("WEFTGRAD_CHECKOUT") or Path(__file__).resolve().parent.parent)


@pytest.mark.parametrize(
    ("checks", "count"),
    [
        ("reductions,half_sums,layouts,gathers,host_copies,messages", 2),
        ("objects,groups,asynchronous,derivatives", 2),
        ("half_sums,gathers,messages,objects,groups,asynchronous,derivatives", 4),
    ],
)
def test_ranks(checks: str, count: int) -> None:
    run_ranks("distributed_checks.py", checks, count)


@pytest.mark.skipif(all(d.type != "opencl" for d in wg.devices()), reason="no OpenCL device")
def test_tensors_of_an_opencl_device() -> None:
    run_ranks("distributed_checks.py", "devices", 2)
    run_ranks("distributed_gpu.py", ["mpi", "opencl:0"], 2)


def test_nccl_on_stand_ins() -> None:
    run_ranks("distributed_nccl.py", "all", 2)


def test_one_process_without_a_launcher() -> None:
    find_launcher()
    program = """
import weftgrad as wg, weftgrad.distributed as dist
assert not dist.is_initialized()
try:
    dist.get_rank()
except dist.DistBackendError as error:
    assert "call init_process_group first" in str(error)
dist.init_process_group("gloo", rank=0, world_size=1)
x = wg.ones(3)
dist.all_reduce(x)
print(dist.get_rank(), dist.get_world_size(), x.tolist())

def interrupted_steps():
    yield [Pending()]
    raise KeyboardInterrupt

class Pending:
    def Test(self):
        return True

world = dist.world.current_world()
work = dist.works.Work(world, (0,), 9.0, dist.headers.pack(0, "all_reduce"), None, interrupted_steps())
for _ in range(2):
    try:
        print(work.wait())
    except KeyboardInterrupt:
        print("interrupted")
    except dist.DistBackendError as error:
        print(error)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    first, *others = ended.stdout.splitlines()
    assert first == "0 1 [1.0, 1.0, 1.0]", ended.stderr
    assert others[0] == "interrupted", ended.stderr
    assert others[1].endswith("interrupted by KeyboardInterrupt")


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, Place()),
        (
            {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
            Place("torchrun", 3, 8, 1, 2),
        ),
        (
            {"SLURM_PROCID": "5", "SLURM_NTASKS": "6", "SLURM_LOCALID": "2", "SLURM_NTASKS_PER_NODE": "x"},
            Place("Slurm", 5, 6, 2, -1),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, Place("MPICH", 1, 2, -1, -1)),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, Place("Open MPI", 0, 4, -1, -1)),
        ({"RANK": "0"}, Place()),
    ],
)
def test_places_by_the_launchers_variables(variables: dict[str, str], place: Place) -> None:
    assert read_environment(variables) == place


def test_cores_are_divided_among_the_ranks_of_a_machine() -> None:
    cores = [0, 2, 4, 6, 8]
    shares = [share_of_cores(Place("MPICH", rank, 2, rank, 2), cores) for rank in range(2)]
    assert shares == [[0, 2], [4, 6]]
    assert [share_of_cores(Place("MPICH", r, 4, r, 4), [3, 5]) for r in range(4)] == [[3], [5], [3], [5]]


@pytest.mark.parametrize(
    ("flavour", "options", "expected"),
    [
        ("hydra", ["--hosts", "a,b"], ["-n", "2", "-disable-auto-cleanup", "-hosts", "a,b"]),
        ("openmpi", ["--hosts", "a,b"], ["-n", "2", "--oversubscribe", "--host", "a,b"]),
        ("", [], ["-n", "2"]),
    ],
)
def test_command_lines(flavour: str, options: list[str], expected: list[str]) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    parsed = parser.parse_args([*options, "-m", "package.train", "--epochs", "3", "-n", "9"])
    command = launch_command("/opt/mpiexec", flavour, parsed)
    program = [sys.executable, "-m", "weftgrad.distributed.rank_program", "--bind", "-m", "package.train"]
    assert command == ["/opt/mpiexec", *expected, *program, "--epochs", "3", "-n", "9"]


def test_headers_tell_calls_apart() -> None:
    first = pack(3, "all_reduce", wg.float32, (4, 2), dist.ReduceOp.SUM)
    assert len(first) == 64
    assert describe(first) == "all_reduce #3 (SUM, float32, shape [4, 2], 32 bytes)"
    assert find_mismatch(first * 3, [0, 1, 2]) is None
    others = [
        pack(4, "all_reduce", wg.float32, (4, 2), dist.ReduceOp.SUM),
        pack(3, "reduce", wg.float32, (4, 2), dist.ReduceOp.SUM, 0),
        pack(3, "all_reduce", wg.int32, (4, 2), dist.ReduceOp.SUM),
        pack(3, "all_reduce", wg.float32, (2, 4), dist.ReduceOp.SUM),
        pack(3, "all_reduce", wg.float32, (8,), dist.ReduceOp.SUM),
        pack(3, "all_reduce", wg.float32, (4, 2), dist.ReduceOp.MAX),
        pack(3, "broadcast", wg.float32, (4, 2), None, 1),
    ]
    assert len({first, *others}) == 8
    text = find_mismatch(first + first + others[2], [0, 4, 7])
    assert text == (
        "ranks 0, 4 called all_reduce #3 (SUM, float32, shape [4, 2], 32 bytes); "
        "rank 7 called all_reduce #3 (SUM, int32, shape [4, 2], 32 bytes)"
    )
    many = pack(0, "all_gather", wg.uint8, (1, 2, 3, 4, 5, 6, 7, 8))
    assert "shape [1, 2, 3, 4, 5, 336]" in describe(many)


def test_futures() -> None:
    future = dist.Future()
    values: list[int] = []
    future.add_done_callback(lambda f: values.append(f.value()))
    failed = future.then(lambda f: f.value() / 0)
    with pytest.raises(dist.DistBackendError, match="no result yet"):
        future.value()
    future.set_result(4)
    assert (values, future.done(), future.wait()) == ([4], True, 4)
    with pytest.raises(ZeroDivisionError):
        failed.wait()


class CountingRequest:
    """A request that is complete when it has been tested `tests` times."""

    def __init__(self, tests: float):
        self.tests = tests

    def Test(self) -> bool:  # mpi4py's name
        self.tests -= 1
        return self.tests <= 0


def started_work(tests: float, seconds: float = 1e6) -> Work:
    """Return a work that seems to have started 1000 s ago, of a process without other ranks.

    It is complete after so many tests of its request; `seconds` is the timeout of its group.
    """
    world = SimpleNamespace(
        lock=threading.RLock(), failure=None, watcher=None, is_ending=False, fail=lambda text: None,
        explain_absence=lambda ranks, call: "rank 1 does not answer", mpi=SimpleNamespace(Exception=ArithmeticError),
    )  # fmt: skip
    work = Work(world, (0, 1), seconds, pack(0, "barrier"), None, iter([[CountingRequest(tests)]]))
    work._start_time -= 1000
    return work


@pytest.mark.parametrize("timeout", [0.3, timedelta(seconds=0.3)])
def test_a_timeout_of_wait_counts_from_its_call(timeout: float | timedelta) -> None:
    work, endless = started_work(10_000, 0.3), started_work(float("inf"), 0.3)
    assert work.wait(timeout * 300)
    begin = time.monotonic()
    with pytest.raises(
        dist.CollectiveTimeout, match=r"barrier #0: not completed within 0\.3 s; rank 1 does not answer"
    ):
        endless.wait(timeout)
    assert time.monotonic() - begin >= 0.3


def test_the_timeout_of_a_group_counts_from_the_start() -> None:
    work = started_work(float("inf"), 90.0)
    begin = time.monotonic()
    with pytest.raises(dist.CollectiveTimeout, match=r"not completed within 90"):
        work.wait()
    assert time.monotonic() - begin < 60


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A progress thread of the test's own, which is left asleep."""
    monkeypatch.setattr(progress, "_progress", None)
    yield
    if progress._progress is not None:
        progress._progress._works.clear()


def is_finished_within(work: Work, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not work.is_finished and time.monotonic() < deadline:
        time.sleep(0.01)
    return work.is_finished


@pytest.mark.usefixtures("background")
def test_works_move_on_while_nobody_waits() -> None:
    first, second = started_work(20), started_work(40)
    for work in (first, second):
        second._world = first._world
        progress.leave_in_background(work)
    assert is_finished_within(first, 30.0)
    assert is_finished_within(second, 30.0)
    third = started_work(5)
    third._world = first._world
    progress.leave_in_background(third)
    assert is_finished_within(third, 30.0)


@pytest.mark.usefixtures("background")
def test_a_thread_that_waits_moves_on_all_works() -> None:
    """The progress thread sleeps meanwhile, and goes on afterwards."""
    waited, other, later = started_work(3000), started_work(2), started_work(2)
    other._world = later._world = waited._world
    progress.leave_in_background(started_work(0))  # the thread starts
    progress.leave_in_background(other)
    with progress.paused_thread():
        progress.leave_in_background(later)
        assert not is_finished_within(later, 0.1)
        assert waited.wait(30.0)
        assert other.is_finished
        assert later.is_finished
        last = started_work(2)
        last._world = waited._world
        progress.leave_in_background(last)
    assert is_finished_within(last, 30.0)


def test_a_future_waits_for_its_callback_in_another_thread() -> None:
    future, may_end = dist.Future(), threading.Event()
    child = future.then(lambda f: may_end.wait(30) and f.value())
    thread = threading.Thread(target=future.set_result, args=(5,))
    thread.start()
    assert future.wait() == 5
    threading.Timer(0.05, may_end.set).start()
    assert child.wait() == 5
    thread.join()


def test_a_callback_that_raises_does_not_stop_the_next(capsys: pytest.CaptureFixture[str]) -> None:
    future = dist.Future()
    future.add_done_callback(lambda f: f.value() / 0)
    child = future.then(lambda f: f.value() + 1)
    future.set_result(1)
    assert child.wait() == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(wg.distributed.DistBackendError, match="call init_process_group first"):
        dist.all_reduce(wg.ones(2))
    with pytest.raises(ValueError, match="unknown backend 'ucc'"):
        dist.init_process_group("ucc")
    with pytest.raises(ValueError, match="init_method='tcp://localhost:1': no launcher has started this process"):
        dist.init_process_group("mpi", init_method="tcp://localhost:1")
    for address in ("tcp://localhost", "tcp://:1", "tcp://localhost:x", "tcp://localhost:1/a", "file:///tmp/a", 3):
        with pytest.raises(ValueError, match="pass 'env://', or an address and a port where the ranks meet"):
            dist.init_process_group("mpi", init_method=address, rank=0, world_size=1)
    with pytest.raises(ValueError, match="ranks of world_size=2 begin at 0"):
        dist.init_process_group("mpi", init_method="tcp://localhost:1", rank=2, world_size=2)
    with pytest.raises(ValueError, match="ranks meet without a store"):
        dist.init_process_group("mpi", store=object())
    with pytest.raises(ValueError, match="op must be isend or irecv"):
        dist.P2POp(dist.send, wg.ones(2), 1)
    assert issubclass(dist.CollectiveTimeout, TimeoutError)


def test_launch_says_what_is_missing() -> None:
    ended = launch("missing.py", [], 0)
    assert ended.status == 2
    assert "-n needs a number from 1" in ended.errors
    shown = launch("train.py", ["--epochs", "2"], 3, "--dry-run")
    assert "rank_program --bind" in shown.output
    assert shown.output.strip().endswith("train.py --epochs 2")


def test_sigterm_ends_a_launch_with_restarts(tmp_path: Path) -> None:
    program = tmp_path / "mpiexec"
    program.write_text(
        f"#!/bin/sh\n[ $1 = --version ] && exit\necho run >> {tmp_path}/runs\n"
        "while true; do kill -TERM $PPID; sleep 0.1; done\n"
    )
    program.chmod(0o755)
    parser = argparse.ArgumentParser()
    add_options(parser)
    previous = signal.signal(signal.SIGTERM, lambda *_: None)  # until the launch takes it
    try:
        assert run(parser.parse_args(["--restarts", "2", "--mpiexec", str(program), "train.py"])) == 143
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert (tmp_path / "runs").read_text() == "run\n"


def test_the_program_of_the_page_trains(tmp_path: Path) -> None:
    page = ROOT / "docs" / "distributed.md"
    if not page.is_file():
        pytest.skip("needs the checkout: set WEFTGRAD_CHECKOUT")
    (block,) = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    program = tmp_path / "train.py"
    program.write_text(block, encoding="utf-8")
    ended = launch(str(program), [], 2)
    assert ended.status == 0, ended.errors
    ranks, loss = re.fullmatch(r"(\d) ranks, loss ([\d.]+)", ended.output.strip()).groups()
    assert ranks == "2"
    assert float(loss) < 1e-2
