"""Predict a data-parallel training step on the ranks of this machine, and measure it beside the prediction.

    mpiexec -n 2 python -m weftgrad.bench.predicted_ranks --model mlp

Rank 0 records the step alone. All-reduces give latency and bandwidth of the links, and all ranks that compute at once
give the slowdown by what they share. The predictions follow from these. Then all ranks train together, with a blocking
all-reduce for each bucket of gradients, which is what was predicted. Needs the extra `distributed`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import weftgrad as wg
from weftgrad import distributed, nn, optim

from ..distributed.simulate import (
    Link,
    Machine,
    Plan,
    fit_all_reduce,
    fit_link,
    measure_all_reduce,
    measure_messages,
    predict,
    record_timeline,
)
from ..runtime.tensor import Tensor

_SIZES = [1 << exponent for exponent in range(12, 24, 2)]  # bytes of messages and vectors that are measured
_T = TypeVar("_T")


def _build_mlp() -> tuple[nn.Module, Tensor]:
    """Return a network of four matrices of 4 MB, and a batch of 32."""
    layers = [layer for _ in range(4) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    return nn.Sequential(*layers), wg.randn(32, 1024)


def _build_cnn() -> tuple[nn.Module, Tensor]:
    """Return a convolutional network of 1.6 MB, and a batch of 16 images."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (64, 128, 256):
        layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 100)]
    return nn.Sequential(*layers), wg.randn(16, 3, 64, 64)


_MODELS = {"mlp": _build_mlp, "cnn": _build_cnn}


class _BucketedGradients:
    """Gradients as views of flat buckets, in the order in which they arrive."""

    def __init__(self, model: nn.Module, names: Sequence[str], bucket_bytes: int):
        parameters = dict(model.named_parameters())
        self.buckets: list[Tensor] = []
        group: list[Tensor] = []
        for name in names:
            group.append(parameters[name])
            if sum(4 * parameter.numel() for parameter in group) >= bucket_bytes or name == names[-1]:
                self._add(group)
                group = []

    def _add(self, group: Sequence[Tensor]) -> None:
        bucket = wg.zeros(sum(parameter.numel() for parameter in group))
        start = 0
        for parameter in group:
            parameter.grad = bucket[start : start + parameter.numel()].view(parameter.shape)
            start += parameter.numel()
        self.buckets.append(bucket)

    def zero(self) -> None:
        """Fill all gradients with zeros."""
        for bucket in self.buckets:
            bucket.zero_()

    def all_reduce(self) -> None:
        """Add the ranks' gradients, a bucket at a time."""
        for bucket in self.buckets:
            distributed.all_reduce(bucket)


def _wait_quietly() -> None:
    """Wait for all ranks without using a core, which ranks that compute need."""
    work = distributed.barrier(async_op=True)
    assert work is not None
    while not work.is_completed():
        time.sleep(0.003)
    work.wait()


def _from_each_rank(value: _T) -> list[_T]:
    values = [value] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values


def _slowest_seconds(step: Callable[[], object]) -> float:
    """Run a step on all ranks at once, and return the seconds of the slowest one."""
    distributed.barrier()
    begin = time.perf_counter()
    step()
    return max(_from_each_rank(time.perf_counter() - begin))


def _seconds_alone(step: Callable[[], object]) -> float:
    """Run a step on rank 0 while the others sleep, and return its seconds."""
    _wait_quietly()
    begin = time.perf_counter()
    if distributed.get_rank() == 0:
        step()
    seconds = time.perf_counter() - begin
    _wait_quietly()
    return _from_each_rank(seconds)[0]


def main() -> None:
    """Predict, measure and print on every rank."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", choices=_MODELS, default="mlp")
    parser.add_argument("--bucket-kb", type=int, default=1024, help="size of a bucket (default: 1024)")
    parser.add_argument("--rounds", type=int, default=30, help="steps of each kind; the fastest counts (default: 30)")
    options = parser.parse_args()
    distributed.init_process_group()
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    wg.set_num_threads(1)
    wg.manual_seed(0)
    bucket_bytes = options.bucket_kb << 10
    model, batch = _MODELS[options.model]()
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def compute() -> None:
        model(batch).square().mean().backward()

    def first_step() -> None:
        compute()
        optimizer.step()

    # The order of arrival is the same on every rank; a first recording has it.
    names: list[str] = []
    if rank == 0:
        names = [gradient.name for gradient in record_timeline(first_step, model, repeats=1).gradients]
    _wait_quietly()
    gradients = _BucketedGradients(model, _from_each_rank(names)[0], bucket_bytes)

    def step_alone() -> None:
        gradients.zero()
        compute()
        optimizer.step()

    def step_together() -> None:
        gradients.zero()
        compute()
        gradients.all_reduce()
        optimizer.step()

    recorded = record_timeline(step_alone, model, name=options.model) if rank == 0 else None
    _wait_quietly()
    timeline = _from_each_rank(recorded)[0]
    assert timeline is not None
    step_together()

    # All measurements of a round are of the same moment, so that other programs disturb all of them alike.
    alone = together = trained = float("inf")
    message_seconds, reduction_seconds = [float("inf")] * len(_SIZES), [float("inf")] * len(_SIZES)
    for _ in range(options.rounds):
        alone = min(alone, _seconds_alone(step_alone))
        together = min(together, _slowest_seconds(step_alone))
        trained = min(trained, _slowest_seconds(step_together))
        message_seconds = list(map(min, message_seconds, measure_messages(_SIZES, repeats=3)))
        reduction_seconds = list(map(min, reduction_seconds, measure_all_reduce(_SIZES, repeats=3)))

    timeline = timeline.with_step_seconds(alone)
    messages, reductions = fit_link(_SIZES, message_seconds), fit_all_reduce(ranks, _SIZES, reduction_seconds)
    plan = Plan(overlap=False, bucket_bytes=bucket_bytes, first_bucket_bytes=bucket_bytes)
    cores, network = len(os.sched_getaffinity(0)), Link(0.0, float("inf"))
    machines = {
        # An idle machine: ranks share its cores, and MPICH's keep theirs busy while they wait.
        "the step alone and the cores": Machine(
            "idle", ranks, reductions.link, network, cores_per_node=cores, waits_spin=True
        ),
        # The machine as it is: cores, caches and memory are shared with the other ranks and with other programs.
        "all ranks computing at once": Machine(
            "shared", ranks, reductions.link, network, slowdown=max(1.0, together / alone)
        ),
    }
    if rank == 0:
        for text, fit in (("messages", messages), ("all-reduce", reductions)):
            print(
                f"{text}: {fit.link.latency * 1e6:.1f} us, {fit.link.bandwidth / 1e9:.2f} GB/s, "
                f"largest error of the fit {fit.largest_error:.0%}"
            )
        print(
            f"{options.model}, {len(gradients.buckets)} buckets, {ranks} ranks on {cores} cores: alone "
            f"{alone * 1e3:.2f} ms, all at once {together * 1e3:.2f} ms"
        )
        for source, machine in machines.items():
            prediction = predict(timeline, machine, plan, ranks, algorithm="ring")
            seconds, communication = prediction.step_seconds, prediction.communication_seconds
            print(
                f"predicted from {source}: {seconds * 1e3:.2f} ms, of which {communication * 1e3:.2f} ms communicate: "
                f"{seconds / trained - 1:+.0%}"
            )
        print(f"measured: {trained * 1e3:.2f} ms")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
