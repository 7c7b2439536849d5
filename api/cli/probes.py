"""Checks that run in a child process, because they may crash or hang it.

Opening OpenCL or CUDA drivers and running freshly compiled machine code can do both. `run_probe` starts a child
process. The child prints each fact as a line of JSON as soon as it knows it, so a crash loses only the facts after it.

    python -m weftgrad.cli.probes kernel          compile and run one kernel on `cpu`
    python -m weftgrad.cli.probes opencl SKIP…    list OpenCL's platforms, run a kernel on each device,
                                                  try the fallback of `cpu`; leave out devices in SKIP
    python -m weftgrad.cli.probes cuda            list NVIDIA's GPUs, run a kernel on each

The modules of drivers are imported inside the probes: importing one may fail, which is a fact too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from .. import device, tensor
from ..runtime.backends.protocol import Driver
from ..runtime.backends.queues import Counter
from ..runtime.errors import DeviceError

__all__ = ["Fact", "ProbeResult", "run_probe"]

_PREFIX = "weftgrad-probe "  # begins each line of facts: drivers print lines of their own
_TIMEOUT = 180.0  # seconds; Triton's first kernel takes about 20 s on a slow machine
_POCL = "Portable"  # PoCL's platform is called "Portable Computing Language"


class Fact(dict[str, object]):
    """One line that a probe printed: JSON values by name."""

    def text(self, name: str) -> str:
        """Return a value as text; "" if there is none."""
        value = self.get(name)
        return "" if value is None else str(value)

    def number(self, name: str) -> float:
        """Return a number; 0 if there is none."""
        value = self.get(name)
        return value if isinstance(value, int | float) else 0


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a child process printed.

    Attributes:
        facts: One mapping for each line, in order.
        problem: Why the process failed, or "".
        seconds: From the start of the process to its end.
    """

    facts: list[Fact]
    problem: str
    seconds: float

    def get(self, name: str) -> object:
        """Return the first value of that name; None if there is none."""
        return next((fact[name] for fact in self.facts if name in fact), None)

    def text(self, name: str) -> str:
        """Return the first value of that name as text; "" if there is none."""
        value = self.get(name)
        return "" if value is None else str(value)


def run_probe(*words: str, timeout: float = _TIMEOUT) -> ProbeResult:
    """Run a probe in a child process, and return its facts. A crash, a hang or a failure to start is its `problem`.

    Args:
        words: The probe's name and its arguments, as on the command line above.
        timeout: Seconds after which the child is killed.
    """
    # The child gets this process's sys.path; `-P` keeps the current folder out of it.
    path = os.pathsep.join(os.path.abspath(folder) for folder in sys.path if os.path.exists(folder or "."))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable or "python3", "-P", "-m", "weftgrad.cli.probes", *words]
    begin = time.perf_counter()
    output, errors, status, problem = "", "", 0, ""
    try:
        child = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, text=True,
            errors="replace",
        )  # fmt: skip
        output, errors, status = child.stdout, child.stderr, child.returncode
    except subprocess.TimeoutExpired as error:
        partial = error.stdout or b""
        output = partial if isinstance(partial, str) else partial.decode(errors="replace")
        problem = f"no answer within {timeout:.0f} s"
    except (OSError, ValueError) as error:
        problem = f"no process can be started: {error}"
    seconds = time.perf_counter() - begin
    facts = []
    for line in output.splitlines():
        if line.startswith(_PREFIX):
            with suppress(ValueError):  # the line is incomplete: the child died while it was writing
                facts.append(Fact(json.loads(line.removeprefix(_PREFIX))))
    if status:
        problem = _describe_exit(status, errors)
    return ProbeResult(facts, problem, seconds)


def _describe_exit(status: int, errors: str) -> str:
    last_line = next((line.strip() for line in reversed(errors.splitlines()) if line.strip()), "")
    detail = f" ({last_line[:200]})" if last_line else ""
    if status < 0:
        with suppress(ValueError):  # Python has no name for the signal
            return f"the process was ended by {signal.Signals(-status).name}{detail}"
    return f"the process ended with status {status}{detail}"


# The probes, which run in the child process. Each yields its facts.


def _kernel() -> Iterator[dict[str, object]]:
    yield from _run_kernel("cpu")


def _run_kernel(name: str) -> Iterator[dict[str, object]]:
    """Compute one small product twice on a device. Report both times, and how many programs were compiled.

    The first time includes compilation, or loading from the cache on disk; the second is that of a call alone.
    """
    target_device = device(name)
    try:
        begin = time.perf_counter()
        x = tensor([1.0, 2.0, 3.0], device=target_device)
        values = (x * 2.0).tolist()
        first_seconds = time.perf_counter() - begin
        begin = time.perf_counter()
        second_values = (x * 2.0).tolist()
        second_seconds = time.perf_counter() - begin
    except Exception as error:
        yield {"device": name, "error": str(error) or type(error).__name__, "error_type": type(error).__name__}
        return
    driver = target_device.driver
    yield {
        "device": name, "first_seconds": first_seconds, "second_seconds": second_seconds,
        "compiled": _compilations(driver), "is_right": values == second_values == [2.0, 4.0, 6.0],
        **_executor_facts(driver),
    }  # fmt: skip


def _executor_facts(driver: Driver) -> dict[str, object]:
    """Return how `cpu` runs kernels: as functions compiled by clang, or by an OpenCL driver. Empty for any other."""
    executor = getattr(driver, "executor", None)  # only the driver of `cpu` has one
    if executor is None:
        return {}
    return {"executor": executor.name, "compiler": "clang" if hasattr(executor, "kernels") else "opencl"}


def _compilations(driver: Driver) -> int | None:
    """Return how many programs this process compiled for a device, or None if the driver does not count them."""
    executor = getattr(driver, "executor", None) or driver
    if hasattr(executor, "kernels"):
        return int(executor.kernels.store.compiled)
    programs = getattr(getattr(executor, "compiler", None), "built", None)
    return None if programs is None else int(programs)


def _opencl(*skip: str) -> Iterator[dict[str, object]]:
    try:
        from ..runtime.backends import opencl, pocl
    except Exception as error:  # without a working OpenCL library, `import pyopencl` fails in many ways
        yield {"import_error": str(error)}
        return
    cl = opencl.cl
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        yield {"platform_error": str(error)}
        return
    for platform in platforms:
        yield {"platform": platform.name, "version": platform.version, "library": pocl.library_of(platform)}
        try:
            handles = platform.get_devices()
        except cl.Error as error:
            yield {"platform": platform.name, "device_error": str(error)}
            continue
        for handle in handles:
            # PoCL compiles nothing for a processor that its LLVM does not know; `correct_processor` says more.
            is_unknown = _POCL in platform.name and handle.version.endswith("-generic")
            yield {
                "handle": handle.name.strip(), "platform": platform.name, "driver": handle.driver_version,
                "is_unknown_processor": is_unknown, "is_corrected": is_unknown and pocl.correct_processor(handle),
            }  # fmt: skip
    try:
        infos = opencl.devices()
    except Exception as error:
        yield {"platform_error": str(error)}
        return
    for i, info in enumerate(infos):
        yield {
            "listed": f"opencl:{i}", "name": info.name, "platform": info.platform, "is_gpu": info.is_gpu,
            "cores": info.handle.max_compute_units, "memory": info.handle.global_mem_size,
        }  # fmt: skip
    for i in range(len(infos)):
        if f"opencl:{i}" not in skip:
            yield {"begin": f"opencl:{i}"}  # if the child dies, this names the device that it died on
            yield from _run_kernel(f"opencl:{i}")
    if "fallback" not in skip:
        yield {"begin": "fallback"}
        yield _fallback()


def _fallback() -> dict[str, object]:
    """Return the name of the OpenCL driver that would run kernels of `cpu` without clang, or why there is none."""
    from ..runtime.backends.cpu.fallback import OpenCLExecutor

    try:
        return {"fallback": OpenCLExecutor(Counter()).name}
    except Exception as error:
        return {"fallback_error": str(error) or type(error).__name__}


def _cuda() -> Iterator[dict[str, object]]:
    from ..runtime.backends import cuda, cuda_api

    try:
        infos = cuda_api.devices()
    except DeviceError as error:
        yield {"error": str(error)}
        return
    yield {"cuda": cuda_api.driver_version()}
    for info in infos:
        yield {
            "listed": f"cuda:{info.index}", "name": info.name, "sm": info.sm, "memory": info.memory,
            "can_run": cuda.runs_on(info),
        }  # fmt: skip
    for info in infos:
        if cuda.runs_on(info):
            yield {"begin": f"cuda:{info.index}"}
            yield from _run_kernel(f"cuda:{info.index}")


_PROBES: dict[str, Callable[..., Iterator[dict[str, object]]]] = {"kernel": _kernel, "opencl": _opencl, "cuda": _cuda}


def _main(name: str, *arguments: str) -> None:
    for fact in _PROBES[name](*arguments):
        print(_PREFIX + json.dumps(fact), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
