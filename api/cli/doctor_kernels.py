"""Check the device `cpu`: the compilers for its kernels, and a first result."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator

from .doctor_host import tmpdir_remedy
from .findings import NOTE, OK, PROBLEM, Finding, first_line
from .probes import ProbeResult

__all__ = ["check_compilers", "check_cpu", "cpu_runs"]

_PIP_ZIGLANG = "pip install ziglang"


def check_compilers() -> Iterator[Finding]:
    """Try every clang that could compile kernels of `cpu`: compile, link and run a probe kernel with each."""
    topic = "compilers for cpu"
    left_out: list[str] = []  # why other compilers are not tried
    trials: list[tuple[str, str]] = []  # (compiler, its problem or "")
    search_error = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `check_cache` reports an unusable cache
        try:
            trials.extend(_try_compilers(left_out))
        except Exception as error:
            search_error = str(error)
    used_name = next((name for name, problem in trials if not problem), None)
    for i, (name, problem) in enumerate(trials, 1):
        facts = {"works": not problem, "is_used": name == used_name, "reason": problem}
        if problem:
            text = f"{name}: {first_line(problem)}"
            yield Finding(topic, f"candidate {i}", NOTE, text, _compiler_remedy(problem), facts)
        else:
            text = f"{name} compiles and runs a probe kernel" + ("" if name == used_name else ", not needed")
            yield Finding(topic, f"candidate {i}", OK, text, facts=facts)
    for reason in left_out:
        if reason in search_error:
            continue
        text = reason if used_name is None else f"{reason} (not needed)"
        if trials:  # if they fail, they have findings of their own
            yield Finding(topic, "left out", OK, text, facts={"reason": reason})
        else:
            remedy = "unset WEFTGRAD_CLANG" if "WEFTGRAD_CLANG" in reason else _PIP_ZIGLANG
            yield Finding(topic, "left out", NOTE, text, remedy, {"reason": reason})
    clang_setting = os.environ.get("WEFTGRAD_CLANG")
    if search_error:
        remedy = "unset WEFTGRAD_CLANG" if "WEFTGRAD_CLANG" in search_error else _settings_remedy()
        yield Finding(topic, "search", PROBLEM, first_line(search_error), remedy, {"reason": search_error})
    elif clang_setting and used_name is not None:
        yield Finding(topic, "search", OK, f"WEFTGRAD_CLANG={clang_setting}: no other compiler is searched for")


def _try_compilers(left_out: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each compiler and its problem or "". Append to `left_out` why other compilers are not tried."""
    # lazy: start-up
    from ..runtime.backends.cpu.compilers import candidates
    from ..runtime.backends.cpu.driver import capabilities_here
    from ..runtime.backends.cpu.objects import ObjectStore

    capabilities = capabilities_here()
    for compiler in candidates(left_out):
        try:
            problem = ObjectStore(compiler, capabilities).probe()
        except Exception as error:  # killed by a signal, or no space for its files
            problem = str(error) or type(error).__name__
        yield compiler.name, problem


def _compiler_remedy(problem: str) -> str:
    """Return the remedy for a compiler that fails."""
    if "TMPDIR" in problem:
        return tmpdir_remedy() or "export TMPDIR=FOLDER, one with 10 MiB free"
    return "unset WEFTGRAD_CLANG" if os.environ.get("WEFTGRAD_CLANG") else "pip install --force-reinstall ziglang"


def _settings_remedy() -> str:
    """Return the remedy if the search for compilers itself fails."""
    return "unset WEFTGRAD_CAPABILITIES" if os.environ.get("WEFTGRAD_CAPABILITIES") else _PIP_ZIGLANG


def check_cpu(probe: ProbeResult) -> Iterator[Finding]:
    """Report how `cpu` compiled and ran a kernel, and after how long the first result was available.

    Args:
        probe: The result of the probe `kernel`.
    """
    topic = "cpu"
    result = next((fact for fact in probe.facts if fact.get("device") == "cpu"), None)
    if result is None or "error" in result:
        reason = result.text("error") if result is not None else probe.problem or "the process printed nothing"
        remedy = tmpdir_remedy() or _executor_remedy()
        yield Finding(topic, "executor", PROBLEM, f"no kernel runs: {first_line(reason)}", remedy, {"reason": reason})
        return
    executor = result.text("executor")
    facts: dict[str, object] = {"executor": executor, "compiler": result["compiler"]}
    if result["compiler"] == "clang":
        text = f"kernels are compiled by {executor} and called as functions"
        yield Finding(topic, "executor", OK, text, facts=facts)
    else:
        yield Finding(
            topic, "executor", NOTE,
            f"kernels go to {executor}, the fallback: small ops take about ten times as long",
            _executor_remedy(), facts,
        )  # fmt: skip
    facts = {name: result[name] for name in ("first_seconds", "second_seconds", "compiled", "is_right")}
    facts["process_seconds"] = probe.seconds
    if not result["is_right"] or probe.problem:
        reason = probe.problem or "its values are wrong"
        yield Finding(topic, "first result", PROBLEM, f"a kernel ran, but {reason}", _executor_remedy(), facts)
        return
    state = "cold: the kernel was compiled" if result["compiled"] else "warm: the kernel was in the cache"
    text = (
        f"{result.number('first_seconds') * 1e3:.0f} ms after import ({state}), "
        f"{probe.seconds:.1f} s after Python's start; the next takes {result.number('second_seconds') * 1e6:.0f} us"
    )
    yield Finding(topic, "first result", OK, text, facts=facts)


def cpu_runs(probe: ProbeResult) -> bool:
    """Return whether the probe kernel ran and its values were right."""
    return not probe.problem and bool(probe.get("is_right"))


def _executor_remedy() -> str:
    """Return the remedy if kernels do not run: first without settings of the user, then with another clang."""
    for name in ("WEFTGRAD_CAPABILITIES", "WEFTGRAD_CLANG", "WEFTGRAD_CPU_PLATFORM"):
        if os.environ.get(name):
            return f"unset {name}"
    has_zig = importlib.util.find_spec("ziglang") is not None
    return "pip install --force-reinstall ziglang" if has_zig else _PIP_ZIGLANG
