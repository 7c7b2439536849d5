"""`weftgrad prebuild`: compile kernels ahead of time into the cache, in batches and in several processes.

To learn which kernels are needed, it calls the ops and their derivatives on representative layouts (`calls`), and
public functions that combine several ops (`function_calls`), while launches are only listed. A program of 32 kernels
builds in a quarter of the time of 32 programs, and the cache (`runtime.cache`) still finds each kernel by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ..runtime import dtypes
from ..runtime.backends.protocol import Instance, Step
from ..runtime.backends.targets import target_named
from ..runtime.cache import cache_folder
from ..runtime.device import Device
from ..runtime.device import device as to_device
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError, WeftgradError
from ..runtime.records import registry
from ..runtime.triton.signature import signature
from .calls import op_calls
from .function_calls import function_calls
from .samples import capture_steps
from .types import Call
from .workers import block_sigint, map_in_processes, restore_sigint

if TYPE_CHECKING:
    from ..runtime.triton.compile import Target

__all__ = ["add_options", "build", "collect_steps", "compile_ahead", "instances", "play"]

BATCH_KERNELS = 32  # kernels in one program


@runtime_checkable
class _CachingDriver(Protocol):
    """A driver whose kernels can be built ahead of time."""

    def is_cached(self, instance: Instance) -> bool: ...


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the command's description and options to its parser."""
    command.description = (
        "Compiles the kernels of ops and of their first derivatives for common layouts, so that first calls do not "
        "have to."
    )
    command.add_argument("--ops", nargs="*", metavar="OP", help="which ops (default: all)")
    command.add_argument(
        "--dtypes", nargs="*", default=["float32"], metavar="DTYPE", help="value types (default: float32)"
    )
    command.add_argument("--device", default=None, help="the device (default: the default one)")
    command.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="number of processes (default: one per core)"
    )
    command.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Collect the missing kernels, and build them in batches in child processes."""
    if options.worker:
        return _run_worker(options.worker)
    if cache_folder() is None:
        raise ArgumentError("prebuild: the cache is off (WEFTGRAD_CACHE), so there is no folder to build into")
    device = to_device(options.device)
    start = time.perf_counter()
    value_dtypes = [dtypes.parse(d) for d in options.dtypes]
    if device.type == "interpreter":
        raise ArgumentError("prebuild: the interpreter compiles nothing; `weftgrad compile` compiles for absent GPUs")
    if target_named(device.driver.target).compiles_geometry:
        return compile_ahead(device, options.ops, value_dtypes, options.jobs)
    kernels = instances(device, options.ops, value_dtypes)
    driver = device.driver
    if not isinstance(driver, _CachingDriver):
        raise ArgumentError(f"prebuild: the driver of {device} has no cache of compiled kernels")
    missing = [i for i in kernels if not driver.is_cached(i)]
    collecting_s = time.perf_counter() - start
    cached = len(kernels) - len(missing)
    print(
        f"{device}: {len(kernels)} kernels, {cached} of them built already (found in {collecting_s:.1f} s)",
        flush=True,
    )
    failed = build(device, missing, options.jobs)
    print(
        f"built {len(missing) - failed} kernels in {time.perf_counter() - start - collecting_s:.1f} s: {cache_folder()}"
    )
    return 1 if failed else 0


def instances(device: Device, ops: Sequence[str] | None, value_dtypes: Sequence[DType]) -> list[Instance]:
    """Return the kernels that `ops` (None: all) need, for small and large tensors."""
    return list(dict.fromkeys(step.instance for step in collect_steps(device, ops, value_dtypes)))


def collect_steps(device: Device, ops: Sequence[str] | None, value_dtypes: Sequence[DType]) -> list[Step]:
    """Return the launches of `ops` (None: all), of their first derivatives, and of public functions that use them."""
    for name in ops or ():
        registry[name]  # raises for an unknown name
    with capture_steps(device) as steps:
        for record in registry:
            # Without a selection, derived gradients are left out: the calls of their op run them.
            is_selected = record.name in ops if ops else "_grad_" not in record.name
            if is_selected and record.spec and record.kind not in ("view", "composite"):
                play(op_calls(record, device, value_dtypes))
        play(function_calls(device, value_dtypes, ops))
    return steps


def compile_ahead(device: Device, ops: Sequence[str] | None, value_dtypes: Sequence[DType], jobs: int) -> int:
    """Compile for a device with Triton kernels, into the cache. Return 1 if a kernel does not compile.

    Triton compiles one kernel per signature, and the signature depends on the geometry of the step. So this compiles
    steps, not instances.
    """
    from ..runtime.triton.compile import Target, is_cached  # lazy: start-up

    start = time.perf_counter()
    steps_by_key = {(s.instance.text, signature(s, True).key): s for s in collect_steps(device, ops, value_dtypes)}
    target = Target("cuda", device.driver.capabilities.sm)
    missing = [step for step in steps_by_key.values() if not is_cached(step, True, target)]
    collecting_s = time.perf_counter() - start
    cached = len(steps_by_key) - len(missing)
    print(f"{device}: {len(steps_by_key)} kernels, {cached} of them built already (found in {collecting_s:.1f} s)")
    failed = sum(map_in_processes(partial(_compile_step, target=target), missing, max(1, jobs), 4))
    print(f"built {len(missing) - failed} kernels for {target} in {time.perf_counter() - start - collecting_s:.1f} s")
    return 1 if failed else 0


def _compile_step(step: Step, target: Target) -> int:
    """Compile one step into the cache, in a child process. Return the number of failures: 0 or 1."""
    from ..runtime.triton.compile import binary  # lazy: start-up

    try:
        binary(step, True, target)
    except WeftgradError as error:
        print(f"{step.instance.entry}: {str(error).partition(chr(10))[0]}", file=sys.stderr)
        return 1
    return 0


def play(calls: Iterable[Call]) -> None:
    """Run all calls, and skip those that an op refuses, for example because of a dtype."""
    for call in calls:
        with contextlib.suppress(WeftgradError):
            call()


def build(device: Device, missing: list[Instance], jobs: int) -> int:
    """Build kernels in batches in `jobs` processes. Return the number of kernels that could not be built."""
    if not missing:
        return 0
    if device.type == "cpu":  # this driver uses all cores itself
        return _build_batch(device.driver.build, missing)
    batches = [missing[i : i + BATCH_KERNELS] for i in range(0, len(missing), BATCH_KERNELS)]
    with tempfile.TemporaryDirectory(prefix="weftgrad-prebuild-") as folder:
        shares = [batches[i::jobs] for i in range(min(jobs, len(batches)))]
        running: list[subprocess.Popen[bytes]] = []
        try:
            for number, share in enumerate(shares):
                path = Path(folder) / f"{number}.pickle"
                path.write_bytes(pickle.dumps((str(device), share)))
                command = [sys.executable, "-m", "weftgrad.cli", "prebuild", "--worker", str(path)]
                with block_sigint():
                    running.append(subprocess.Popen(command))
            statuses = [process.wait() for process in running]
        except BaseException:
            for process in running:
                process.terminate()
            for process in running:
                process.wait()
            raise
    return sum(sum(map(len, share)) for share, status in zip(shares, statuses, strict=True) if status)


def _run_worker(path: Path) -> int:
    """Build the batches that the parent pickled into a file, in a child process. Return the exit status."""
    restore_sigint()
    name, share = pickle.loads(path.read_bytes())
    device = to_device(name)
    device.driver.capabilities  # noqa: B018  (opens the device)
    return min(1, sum(_build_batch(device.driver.build, batch) for batch in share))


def _build_batch(build: Callable[[Sequence[Instance]], int], batch: Sequence[Instance]) -> int:
    """Build a batch, or its halves if it does not compile, to lose only faulty kernels. Return how many failed."""
    try:
        build(batch)
    except WeftgradError as error:
        if len(batch) == 1:
            print(f"{batch[0].name}: {str(error).partition(chr(10))[0]}", file=sys.stderr)
            return 1
        half = len(batch) // 2
        return _build_batch(build, batch[:half]) + _build_batch(build, batch[half:])
    return 0
