"""Data sets for loader workers. Workers import this module, so it imports nothing slow, such as pytest."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import time
from collections import namedtuple

import numpy as np

import weftgrad as wg
from weftgrad.utils.data import Dataset, IterableDataset, default_collate, get_worker_info

Pair = namedtuple("Pair", "left right")


class Images(Dataset):
    """Sample i is an image filled with i + 1, and i. faults: by index, the name in `FAULTS` of what happens first."""

    def __init__(self, count, faults=None, side=8):
        self.count, self.faults, self.side = count, faults or {}, side

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        fault = self.faults.get(index)
        if fault is not None:
            FAULTS[fault](index)
        return np.full((self.side, self.side), index + 1, np.float32), index


class Odd(Exception):
    """An error whose constructor takes more than a message."""

    def __init__(self, a, b):
        super().__init__(a, b)


def _raise(kind, *args):
    raise kind(*args)


FAULTS = {
    "raise": lambda i: _raise(ValueError, f"sample {i} is broken"),
    "key": lambda i: _raise(KeyError, f"no\nsuch key {i}"),
    "odd": lambda i: _raise(Odd, 1, 2),
    "stop": lambda i: _raise(StopIteration),
    "kill": lambda i: os.kill(os.getpid(), signal.SIGKILL),
    "segv": lambda i: os.kill(os.getpid(), signal.SIGSEGV),
    "exit": lambda i: sys.exit(7),
    "hang": lambda i: time.sleep(1000),
    "slow": lambda i: time.sleep(0.05),
}


class Kinds(Dataset):
    """Each sample has a value of every type that can be collated."""

    def __len__(self):
        return 8

    def __getitem__(self, i):
        info = get_worker_info()
        return {
            "array": np.array([i, -i], np.int16),
            "tensor": wg.tensor([i, i + 0.5]),
            "bfloat16": wg.tensor(float(i), dtype=wg.bfloat16),
            "number": i * 0.25,
            "flag": i % 2 == 0,
            "scalar": np.float32(i),
            "name": f"n{i}",
            "pair": Pair(i, [i, (i, b"x")]),
            "worker": -1 if info is None else info.id,
        }


class Numbers(IterableDataset):
    """0 to count - 1, split among the workers if `shared`."""

    def __init__(self, count, shared=True):
        self.count, self.shared = count, shared

    def __iter__(self):
        info = get_worker_info()
        if info is None or not self.shared:
            return iter(range(self.count))
        return iter(range(info.id, self.count, info.num_workers))

    def __len__(self):
        return self.count


class Report(Dataset):
    """Sample i describes the process that makes it."""

    def __len__(self):
        return 8

    def __getitem__(self, i):
        info = get_worker_info()
        driver = wg.device("cpu").driver
        return {
            "i": i,
            "pid": os.getpid(),
            "id": info.id,
            "seed": info.seed,
            "own": info.dataset is self,
            "workers": info.num_workers,
            "drawn": (wg.initial_seed(), random.random(), np.random.rand()),
            "opened": driver.opened or "pyopencl" in sys.modules,
            "device": str(wg.tensor(1).device),
            "marked": getattr(self, "marked", None),
        }


def mark(number):
    """worker_init_fn that records that it was called, after seeding."""
    info = get_worker_info()
    assert info.id == number
    assert wg.initial_seed() == info.seed
    info.dataset.marked = number


def no_init(number):
    """worker_init_fn that fails."""
    raise LookupError(f"worker {number} has no licence")


def small_files(number):
    """worker_init_fn that limits this process to segments of 1 MiB of shared memory."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


def as_list(batch):
    """collate_fn that returns the samples unchanged."""
    return batch


class CachingDataset(Dataset):
    """Keeps every batch that it collates, and returns them again in the second half."""

    def __init__(self):
        self.batches = []

    def __len__(self):
        return 32

    def __getitem__(self, i):
        if i < 16:
            self.batches.append(default_collate([np.full(1000, i, np.int64)]))
        return self.batches[i % 16]


class Locked(Dataset):
    """Counts its samples in a value that all workers share."""

    def __init__(self, value, count):
        self.value, self.count = value, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        with self.value.get_lock():
            self.value.value += 1
        return i


class Gated(Dataset):
    """Sample 0 waits for an event; the others do not."""

    def __init__(self, gate, count):
        self.gate, self.count = gate, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        assert i or self.gate.wait(100)
        return i


# Functions for processes of weftgrad.multiprocessing ------------------------------------------------------------------


def add_one(index, steps, weights):
    """Add 1 to shared weights, `steps` times."""
    for _ in range(steps):
        weights.add_(1.0)
    weights.tolist()  # waits


def hogwild(index, model, xs, ys, steps):
    """Train a shared model in place by gradient descent, each of two processes on half of the data."""
    half = slice(index * len(xs) // 2, (index + 1) * len(xs) // 2)
    for _ in range(steps):
        model.zero_grad()
        wg.nn.functional.mse_loss(model(xs[half]), ys[half]).backward()
        with wg.no_grad():
            model.weight.add_(model.weight.grad, alpha=-0.1)
    model.weight.tolist()  # waits


def fail(index, how, at):
    """Raise an error, or be killed, in process `at`."""
    if index == at:
        if how == "raise":
            raise ArithmeticError("one and one is three")
        if how == "raise at length":
            raise ArithmeticError("\N{SNOWMAN}" * 100_000)  # three bytes each
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1000)


def square(x):
    """Return the square of a tensor and its properties; runs in a pool."""
    return x * x, x.is_shared(), x.requires_grad


def echo(inbox, outbox):
    """Add 1 to each received tensor in place, and send it back, until None is received."""
    for value in iter(inbox.get, None):
        value.data.add_(1.0)
        value.tolist()  # waits
        outbox.put(value)
        if inbox.get() is not True:
            break
