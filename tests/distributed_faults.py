"""A rank of a program in which rank 1 fails: `distributed_faults.py FAULT SECONDS`, as `test_distributed_faults` asks.

The other ranks print `REPORT rank seconds error` for the error that ends their collective.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import weftgrad as wg
import weftgrad.distributed as dist


def fail(fault: str) -> None:
    """Do what rank 1 does in place of `all_reduce` of eight float32."""
    x = wg.ones(8)
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "slow":
        time.sleep(600)
    elif fault == "raising":
        raise ValueError("a bad batch")
    elif fault == "ended":
        sys.exit(0)
    elif fault == "shape":
        dist.all_reduce(wg.ones(9))
    elif fault == "size":
        dist.all_reduce(wg.ones(100_000))
    elif fault == "dtype":
        dist.all_reduce(x.int())
    elif fault == "reduction":
        dist.all_reduce(x, dist.ReduceOp.MAX)
    elif fault == "order":
        dist.broadcast(x, 0)
    elif fault == "message":
        dist.send(wg.ones(9), 0)
    elif fault == "asynchronous":
        dist.all_reduce(x.double(), async_op=True).wait()


def main(fault: str, seconds: float) -> None:
    dist.init_process_group(timeout=timedelta(seconds=seconds))
    rank = dist.get_rank()
    x = wg.ones(8)
    for _ in range(3):
        dist.all_reduce(x)
    start = time.monotonic()
    try:
        if rank == 1:
            fail(fault)
        if fault == "message" and rank == 0:
            dist.recv(x, 1)
        else:
            dist.all_reduce(x)
    except dist.DistError as error:
        print(f"REPORT {rank} {time.monotonic() - start:.2f} {type(error).__name__}: {error}\n", end="", flush=True)
        raise


def restart() -> None:
    """Fail in the first run; in the second, continue from the first one's file."""
    dist.init_process_group()
    progress = Path(sys.argv[2])
    x = wg.ones(1)
    dist.all_reduce(x)
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        if dist.get_rank() == 0:
            progress.write_text("7")
        dist.barrier()
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()
    print(
        f"resumed at {progress.read_text()} by {os.environ['RANK']} of {os.environ['WORLD_SIZE']}\n", end="", flush=True
    )


def end_one_after_the_other() -> None:
    """Rank 2 ends first; rank 1 still sends a message, and forks a child that ends; rank 0 leaves a work open."""
    dist.init_process_group()
    rank = dist.get_rank()
    x = wg.ones(2)
    dist.all_reduce(x)
    if rank == 0:
        unmatched = dist.irecv(wg.ones(3), 1, tag=5)
        print(f"received from {dist.recv(x)}, is complete: {unmatched.is_completed()}", flush=True)
    elif rank == 1:
        child = os.fork()
        if child == 0:
            sys.exit(0)
        os.waitpid(child, 0)
        time.sleep(2.0)  # longer than messages of a rank that has ended may take
        dist.send(x, 0)


def kill_rank_0_last() -> None:
    dist.init_process_group()
    x = wg.ones(2)
    dist.all_reduce(x)
    if dist.get_rank() == 0:
        time.sleep(1.5)
        os.kill(os.getpid(), signal.SIGKILL)


def reduce_until_cut(seconds: float, folder: Path) -> None:
    """Reduce until the network is cut, which happens once `begun` exists; write the error to a file."""
    dist.init_process_group(timeout=timedelta(seconds=seconds))
    rank = dist.get_rank()
    x = wg.ones(1000)
    try:
        for turn in range(10**9):
            start = time.monotonic()
            dist.all_reduce(x, dist.ReduceOp.AVG)
            if turn == 20:
                (folder / f"begun.{rank}").touch()
    except dist.DistError as error:
        text = f"{time.monotonic() - start:.2f} {type(error).__name__}: {error}"
        (folder / f"report.{rank}.tmp").write_text(text)
        (folder / f"report.{rank}.tmp").rename(folder / f"report.{rank}")
        raise


if __name__ == "__main__":
    if sys.argv[1] == "restart":
        restart()
    elif sys.argv[1] == "one_after_the_other":
        end_one_after_the_other()
    elif sys.argv[1] == "rank_0_last":
        kill_rank_0_last()
    elif sys.argv[1] == "cut":
        reduce_until_cut(float(sys.argv[2]), Path(sys.argv[3]))
    else:
        main(sys.argv[1], float(sys.argv[2]))
