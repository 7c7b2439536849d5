"""A rank of a job in which one rank fails at a random moment: `distributed_kills.py FOLDER SECONDS FAULT VICTIM SEED`.

The ranks train with `DistributedDataParallel`, reduce, send messages in a ring, and save checkpoints, until the victim
fails. A rank prints `REPORT rank seconds error` for the error that ends it, and `WRONG` if it has got a wrong result.
`test_distributed_kills` runs it, and loads the checkpoints that are left by `check_checkpoints`.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from types import FrameType

import numpy as np

import weftgrad as wg
import weftgrad.distributed as dist
from weftgrad import nn
from weftgrad.distributed import checkpoint
from weftgrad.nn.parallel import DistributedDataParallel

FOLDERS = 2  # checkpoints overwrite each other by turns
SHAPE = (300, 7)
_LONGEST_RUN = 60.0
_LATEST_FAULT = 0.4  # seconds after the first step
_has_failed = False


def check(is_right: bool, what: str) -> None:
    if not is_right:
        print(f"WRONG {what}\n", end="", flush=True)
        os._exit(9)


def fail(fault: str) -> None:
    if fault == "raise":
        raise ValueError("a bad batch")
    if fault == "exit":
        sys.exit(0)
    os._exit(5)


def arm(fault: str, delay: float) -> None:
    """Let this process fail after so many seconds, wherever it is then."""
    if fault.startswith("SIG"):  # by another process, so that no lock of the interpreter decides about the moment
        subprocess.Popen(["sh", "-c", f"sleep {delay:.3f}; kill -{fault[3:]} {os.getpid()}"])
        return

    def handle(number: int, frame: FrameType | None) -> None:
        global _has_failed
        _has_failed = True
        fail(fault)

    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, delay + 1e-3)


def reduce(step: int, rank: int, size: int) -> None:
    for numel, dtype in ((5, wg.float32), (3000, wg.bfloat16), (50_000, wg.float64), (1 << 20, wg.float32)):
        x = wg.full((numel,), float(rank + step % 10), dtype=dtype)
        expected = size * (size - 1) // 2 + size * (step % 10)
        if step % 2:
            work = dist.all_reduce(x, async_op=True)
            assert work is not None
            work.wait()
        else:
            dist.all_reduce(x)
        check(x.unique().tolist() == [expected], f"all_reduce of {numel} {dtype}: {x.unique().tolist()}")


def pass_on(step: int, rank: int, size: int) -> None:
    """Send a tensor around the ring."""
    received = wg.empty(1000)
    sending = dist.isend(wg.full((1000,), float(100 * rank + step % 100)), (rank + 1) % size)
    assert sending is not None
    source = dist.recv(received, (rank - 1) % size)
    sending.wait()
    check(received.unique().tolist() == [100 * source + step % 100], "recv")


def state_of(step: int, model: nn.Module) -> dict[str, object]:
    """Return a checkpoint whose tensors all tell the step."""
    markers = {str(number): wg.full(SHAPE, float(step)) for number in range(6)}
    return {"step": step, "markers": markers, "model": model.state_dict()}


def train(folder: Path, fault: str, victim: int, seed: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    wg.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 4)), bucket_cap_mb=0.002)
    optimizer = wg.optim.SGD(model.parameters(), lr=0.01)
    end = time.monotonic() + _LONGEST_RUN
    step = 0
    while time.monotonic() < end:
        optimizer.zero_grad()
        x = wg.tensor(np.random.default_rng(step * size + rank).standard_normal((8, 20)).astype(np.float32))
        model(x).square().mean().backward()
        optimizer.step()
        reduce(step, rank, size)
        pass_on(step, rank, size)
        if step % 3 == 0:
            checkpoint.save(state_of(step, model), checkpoint_id=folder / f"checkpoint{step // 3 % FOLDERS}")
        if step % 4 == 0:
            of_ranks: list[bytes] = [b""] * size
            dist.all_gather_object(of_ranks, b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
            check(len(set(of_ranks)) == 1, "parameters differ")
        if step == 0 and rank == victim:
            arm(fault, random.Random(seed).uniform(0.0, _LATEST_FAULT))
        if _has_failed:
            fail(fault)  # the first error was raised where Python prints errors and goes on
        step += 1


def check_checkpoints(folder: Path) -> int:
    """Load each complete checkpoint, in one process, and return how many there are."""
    complete = [
        f for f in (folder / f"checkpoint{number}" for number in range(FOLDERS)) if (f / "metadata.json").exists()
    ]
    model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 4))
    for path in complete:
        state = state_of(-1, DistributedDataParallel(model))
        checkpoint.load(state, checkpoint_id=path)
        markers = state["markers"]
        assert isinstance(markers, dict)
        found = {value for tensor in markers.values() for value in tensor.unique().tolist()}
        assert found == {float(str(state["step"]))}, found
    return len(complete)


def main() -> None:
    folder, seconds, fault, victim, seed = Path(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:]
    if fault == "none":
        dist.init_process_group()
        print(check_checkpoints(folder))
        return
    dist.init_process_group(timeout=timedelta(seconds=seconds))
    start = time.monotonic()
    try:
        train(folder, fault, int(victim), int(seed))
    except dist.DistError as error:
        elapsed = time.monotonic() - start
        print(f"REPORT {dist.get_rank()} {elapsed:.2f} {type(error).__name__}: {error}\n", end="", flush=True)
        raise


if __name__ == "__main__":
    main()
