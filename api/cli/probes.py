"""Questions that are put to a process of its own, because the answer may end it.

Opening OpenCL's drivers, CUDA's, and running machine code that was just compiled can crash or hang. `ask` starts a
child process, which prints a line of JSON for each fact as soon as it has it, so that a crash loses only the rest.

    python -m weftgrad.cli.probes kernel          compile and run one kernel on `cpu`
    python -m weftgrad.cli.probes opencl SKIP…    list OpenCL's platforms, run a kernel on each device,
                                                  try the fallback of `cpu`; leave out devices in SKIP
    python -m weftgrad.cli.probes cuda            list NVIDIA's GPUs, run a kernel on each
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
from typing import Any

__all__ = ["Answer", "ask"]

_PREFIX = "weftgrad-probe "  # drivers print lines of their own
_TIMEOUT = 180.0  # seconds: Triton's first kernel takes some 20 on a slow machine
_POCL = "Portable"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a child process printed.

    Attributes:
        facts: One mapping for each line, in order.
        problem: Why the process ended early, or "".
        seconds: From the start of the process to its end.
    """

    facts: list[dict[str, Any]]
    problem: str
    seconds: float

    def get(self, name: str, default: Any = None) -> Any:
        """Return the first fact of that name."""
        return next((fact[name] for fact in self.facts if name in fact), default)


def ask(*words: str, timeout: float = _TIMEOUT) -> Answer:
    """Put a question to a child process. Never raises on a crash, a hang, or where no process can be started."""
    # The child imports what this process would: its sys.path, and nothing from the current folder beyond that.
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
            with suppress(ValueError):  # cut short
                facts.append(json.loads(line.removeprefix(_PREFIX)))
    if status:
        problem = _describe_exit(status, errors)
    return Answer(facts, problem, seconds)


def _describe_exit(status: int, errors: str) -> str:
    last = next((line.strip() for line in reversed(errors.splitlines()) if line.strip()), "")
    detail = f" ({last[:200]})" if last else ""
    if status < 0:
        with suppress(ValueError):
            return f"the process was ended by {signal.Signals(-status).name}{detail}"
    return f"the process ended with status {status}{detail}"


# in the child


def _kernel() -> Iterator[dict[str, Any]]:
    yield from _run_kernel("cpu")


def _run_kernel(name: str) -> Iterator[dict[str, Any]]:
    """Compute two small products on a device, and say how long each took and whether a compiler ran for it."""
    from .. import device, tensor

    place = device(name)
    try:
        begin = time.perf_counter()
        x = tensor([1.0, 2.0, 3.0], device=place)
        values = (x * 2.0).tolist()
        first = time.perf_counter() - begin
        begin = time.perf_counter()
        again = (x * 2.0).tolist()
        second = time.perf_counter() - begin
    except Exception as error:
        yield {"device": name, "error": str(error) or type(error).__name__, "error_type": type(error).__name__}
        return
    driver: Any = place.driver
    yield {
        "device": name, "first_seconds": first, "second_seconds": second, "compiled": _compilations(driver),
        "is_right": values == again == [2.0, 4.0, 6.0], **_road(driver),
    }  # fmt: skip


def _road(driver: Any) -> dict[str, Any]:
    road = getattr(driver, "road", None)
    return {} if road is None else {"road": road.name, "compiler": "clang" if hasattr(road, "kernels") else "opencl"}


def _compilations(driver: Any) -> int | None:
    """Return how many programs this process compiled for a device, or None where the driver does not count them."""
    road = getattr(driver, "road", None) or driver
    if hasattr(road, "kernels"):
        return int(road.kernels.store.compiled)
    return int(road.compiler.built) if hasattr(getattr(road, "compiler", None), "built") else None


def _opencl(*skip: str) -> Iterator[dict[str, Any]]:
    try:
        from ..runtime.backends import opencl, pocl
    except Exception as error:
        yield {"import_error": str(error)}
        return
    cl = opencl.cl
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        yield {"platform_error": str(error)}
        return
    for platform in platforms:
        yield {"platform": platform.name, "version": platform.version}
        try:
            handles = platform.get_devices()
        except cl.Error as error:
            yield {"platform": platform.name, "device_error": str(error)}
            continue
        for handle in handles:
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
            yield {"begin": f"opencl:{i}"}
            yield from _run_kernel(f"opencl:{i}")
    if "fallback" not in skip:
        yield {"begin": "fallback"}
        yield _fallback()


def _fallback() -> dict[str, Any]:
    """Return the name of the OpenCL driver that would run kernels of `cpu` without clang, or why there is none."""
    from ..runtime.backends.cpu.fallback import OpenCLRoad
    from ..runtime.backends.queues import Counter

    try:
        return {"fallback": OpenCLRoad(Counter()).name}
    except Exception as error:
        return {"fallback_error": str(error) or type(error).__name__}


def _cuda() -> Iterator[dict[str, Any]]:
    from ..runtime.backends import cuda, cuda_api
    from ..runtime.errors import DeviceError

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


_QUESTIONS: dict[str, Callable[..., Iterator[dict[str, Any]]]] = {"kernel": _kernel, "opencl": _opencl, "cuda": _cuda}


def _main(name: str, *arguments: str) -> None:
    for fact in _QUESTIONS[name](*arguments):
        print(_PREFIX + json.dumps(fact), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
