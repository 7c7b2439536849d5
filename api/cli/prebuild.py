"""`weftgrad prebuild`: compiles the kernels of ops ahead, many a program and in several processes, into the cache.

Which kernels an op needs is found by calling it, and its derivatives, on tensors of representative layouts (`calls`),
and the public functions that are made of several ops (`scenes`), while launches are only listed. A batch of 32 kernels
builds in a quarter of the time of 32 programs, and a run that later asks for one of them alone finds it
(`runtime.cache`).
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
from typing import Any

from ..runtime import dtypes
from ..runtime.device import Device
from ..runtime.device import device as to_device
from ..runtime.errors import ArgumentError, WeftgradError
from .workers import interruptible, interrupts_held, spread

__all__ = ["build", "compile_ahead", "instances", "play", "register", "steps_of"]

BATCH = 32


def register(subparsers: Any) -> None:
    """Add the command."""
    made = subparsers.add_parser(
        "prebuild",
        help="compile kernels ahead, into the cache",
        description="Compiles the kernels of ops and of their first derivatives for common layouts, so that first "
        "calls need not.",
    )
    made.add_argument("--ops", nargs="*", metavar="OP", help="which ops (default: all)")
    made.add_argument(
        "--dtypes", nargs="*", default=["float32"], metavar="DTYPE", help="value types (default: float32)"
    )
    made.add_argument("--device", default=None, help="the device (default: the default one)")
    made.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    made.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    made.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Collect, split into batches, build in processes of their own."""
    from ..runtime.cache import cache_folder

    if options.worker:
        return _work(options.worker)
    if cache_folder() is None:
        raise ArgumentError("prebuild: the cache is off (WEFTGRAD_CACHE), so there is nowhere to build to")
    place = to_device(options.device)
    begun = time.perf_counter()
    types = [dtypes.parse(d) for d in options.dtypes]
    if place.type == "interpreter":
        raise ArgumentError("prebuild: the interpreter compiles nothing; `weftgrad compile` compiles for absent GPUs")
    if place.driver.target == "triton":
        return compile_ahead(place, options.ops, types, options.jobs)
    listed = instances(place, options.ops, types)
    driver: Any = place.driver
    missing = [i for i in listed if not driver.is_cached(i)]
    collected = time.perf_counter() - begun
    done = len(listed) - len(missing)
    print(f"{place}: {len(listed)} kernels, {done} of them built already (found in {collected:.1f} s)", flush=True)
    failed = build(place, missing, options.jobs)
    print(f"built {len(missing) - failed} kernels in {time.perf_counter() - begun - collected:.1f} s: {cache_folder()}")
    return 1 if failed else 0


def instances(place: Device, ops: Sequence[str] | None, types: Sequence[Any]) -> list[Any]:
    """Return the kernels that `ops` (None: all) need for tensors small and large."""
    return list(dict.fromkeys(step.instance for step in steps_of(place, ops, types)))


def steps_of(place: Device, ops: Sequence[str] | None, types: Sequence[Any]) -> list[Any]:
    """The launches of `ops` (None: all), their first derivatives, and what public functions make of them."""
    from ..runtime.records import registry
    from .calls import calls_of
    from .samples import collecting
    from .scenes import scenes

    for name in ops or ():
        registry[name]
    with collecting(place) as steps:
        for record in registry:
            wanted = record.name in ops if ops else "_grad_" not in record.name
            if wanted and record.spec and record.kind not in ("view", "composite"):
                play(calls_of(record, place, types))
        play(scenes(place, types, ops))
    return steps


def compile_ahead(place: Device, ops: Sequence[str] | None, types: Sequence[Any], jobs: int) -> int:
    """Compile for a device of the Triton target, into the cache; 1 if a kernel does not compile.

    There is a kernel a signature, which a step's geometry is part of: so steps are compiled here, and not instances.
    """
    from ..runtime.triton.compile import Target, is_cached
    from ..runtime.triton.signature import signature

    begun = time.perf_counter()
    found = {(s.instance.text, signature(s, True).key): s for s in steps_of(place, ops, types)}
    target = Target("cuda", place.driver.capabilities.sm)
    missing = [step for step in found.values() if not is_cached(step, True, target)]
    collected = time.perf_counter() - begun
    done = len(found) - len(missing)
    print(f"{place}: {len(found)} kernels, {done} of them built already (found in {collected:.1f} s)")
    failed = sum(spread(partial(_compiled, target=target), missing, max(1, jobs), 4))
    print(f"built {len(missing) - failed} kernels for {target} in {time.perf_counter() - begun - collected:.1f} s")
    return 1 if failed else 0


def _compiled(step: Any, target: Any) -> int:
    """In a process of its own: compile into the cache; 1 if that failed."""
    from ..runtime.triton.compile import binary

    try:
        binary(step, True, target)
    except WeftgradError as error:
        print(f"{step.instance.entry}: {str(error).partition(chr(10))[0]}", file=sys.stderr)
        return 1
    return 0


def play(calls: Iterable[Callable[[], Any]]) -> None:
    """Call all, but for what an op refuses (a dtype, a number in place of a tensor)."""
    for each in calls:
        with contextlib.suppress(WeftgradError):
            each()


def build(place: Device, missing: list[Any], jobs: int) -> int:
    """Build in batches, `jobs` processes at a time; how many kernels could not be built."""
    if not missing:
        return 0
    if place.type == "cpu":  # whose driver compiles on all cores itself
        return _built(place.driver.build, missing)
    batches = [missing[i : i + BATCH] for i in range(0, len(missing), BATCH)]
    with tempfile.TemporaryDirectory(prefix="weftgrad-prebuild-") as folder:
        shares = [batches[i::jobs] for i in range(min(jobs, len(batches)))]
        running: list[subprocess.Popen[bytes]] = []
        try:
            for number, share in enumerate(shares):
                path = Path(folder) / f"{number}.pickle"
                path.write_bytes(pickle.dumps((str(place), share)))
                command = [sys.executable, "-m", "weftgrad.cli", "prebuild", "--worker", str(path)]
                with interrupts_held():
                    running.append(subprocess.Popen(command))
            statuses = [process.wait() for process in running]
        except BaseException:
            for process in running:
                process.terminate()
            for process in running:
                process.wait()
            raise
    return sum(sum(map(len, share)) for share, status in zip(shares, statuses, strict=True) if status)


def _work(path: Path) -> int:
    """In a process of its own: build the batches that the parent left in a file of its temporary folder."""
    interruptible()
    name, share = pickle.loads(path.read_bytes())
    place = to_device(name)
    place.driver.capabilities  # noqa: B018  (opens it)
    return min(1, sum(_built(place.driver.build, batch) for batch in share))


def _built(build: Callable[[Sequence[Any]], int], batch: Sequence[Any]) -> int:
    """Build a batch; where it does not compile, its halves, so that the others are not lost. How many failed."""
    try:
        build(batch)
    except WeftgradError as error:
        if len(batch) == 1:
            print(f"{batch[0].name}: {str(error).partition(chr(10))[0]}", file=sys.stderr)
            return 1
        half = len(batch) // 2
        return _built(build, batch[:half]) + _built(build, batch[half:])
    return 0
