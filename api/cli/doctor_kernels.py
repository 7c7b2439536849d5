"""Check the device `cpu`: the compilers for its kernels, and a first result."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator

from .doctor_host import temporary_remedy
from .findings import NOTE, OK, PROBLEM, Finding, first_line
from .probes import Answer

__all__ = ["check_compilers", "check_cpu", "cpu_runs"]

_PIP_ZIGLANG = "pip install ziglang"


def check_compilers() -> Iterator[Finding]:
    """Try every clang that could compile kernels of `cpu`: compile, link and run a probe kernel with each."""
    topic = "compilers for cpu"
    notes: list[str] = []
    trials: list[tuple[str, str]] = []  # (compiler, what is wrong with it)
    failure = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `check_cache` reports an unusable cache
        try:
            trials.extend(_try_compilers(notes))
        except Exception as error:
            failure = str(error)
    working = [name for name, problem in trials if not problem]
    for i, (name, problem) in enumerate(trials):
        facts = {"works": not problem, "is_used": bool(working) and name == working[0], "reason": problem}
        if not problem:
            text = f"{name} compiles and runs a probe kernel" + (", not needed" if name != working[0] else "")
            yield Finding(topic, f"candidate {i + 1}", OK, text, facts=facts)
        else:
            text = f"{name}: {first_line(problem)}"
            yield Finding(topic, f"candidate {i + 1}", NOTE, text, _compiler_remedy(problem), facts)
    verdict = OK if trials else NOTE  # a compiler that fails has its own line
    for note in (note for note in notes if note not in failure):
        text = f"{note} (not needed)" if working else note
        remedy = "" if trials else "unset WEFTGRAD_CLANG" if "WEFTGRAD_CLANG" in note else _PIP_ZIGLANG
        yield Finding(topic, "left out", verdict, text, remedy, {"reason": note})
    if failure:
        remedy = "unset WEFTGRAD_CLANG" if "WEFTGRAD_CLANG" in failure else _settings_remedy()
        yield Finding(topic, "search", PROBLEM, first_line(failure), remedy, {"reason": failure})
    elif os.environ.get("WEFTGRAD_CLANG") and working:
        yield Finding(
            topic, "search", OK, f"WEFTGRAD_CLANG={os.environ['WEFTGRAD_CLANG']}: no other compiler is searched for"
        )


def _try_compilers(notes: list[str]) -> Iterator[tuple[str, str]]:
    from ..runtime.backends.cpu.compilers import candidates
    from ..runtime.backends.cpu.driver import capabilities_here
    from ..runtime.backends.cpu.objects import ObjectStore

    capabilities = capabilities_here()
    for compiler in candidates(notes):
        try:
            problem = ObjectStore(compiler, capabilities).probe()
        except Exception as error:  # killed by a signal, or no space for its files
            problem = str(error) or type(error).__name__
        yield compiler.name, problem


def _compiler_remedy(problem: str) -> str:
    if "TMPDIR" in problem:
        return temporary_remedy() or "export TMPDIR=FOLDER, one with 10 MiB free"
    named = os.environ.get("WEFTGRAD_CLANG")
    return "unset WEFTGRAD_CLANG" if named else "pip install --force-reinstall ziglang"


def _settings_remedy() -> str:
    return "unset WEFTGRAD_CAPABILITIES" if os.environ.get("WEFTGRAD_CAPABILITIES") else _PIP_ZIGLANG


def check_cpu(answer: Answer) -> Iterator[Finding]:
    """Report how `cpu` compiled and ran a kernel, and after how long the first result was available.

    Args:
        answer: The answer of the probe `kernel`.
    """
    topic = "cpu"
    result = next((fact for fact in answer.facts if fact.get("device") == "cpu"), None)
    if result is None or "error" in result:
        reason = result.text("error") if result is not None else answer.problem or "the process printed nothing"
        remedy = temporary_remedy() or _executor_remedy()
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
    facts["process_seconds"] = answer.seconds
    if not result["is_right"] or answer.problem:
        reason = answer.problem or "its values are wrong"
        yield Finding(topic, "first result", PROBLEM, f"a kernel ran, but {reason}", _executor_remedy(), facts)
        return
    state = "cold: the kernel was compiled" if result["compiled"] else "warm: the kernel was in the cache"
    text = (
        f"{result.number('first_seconds') * 1e3:.0f} ms after import ({state}), "
        f"{answer.seconds:.1f} s after Python's start; the next takes {result.number('second_seconds') * 1e6:.0f} us"
    )
    yield Finding(topic, "first result", OK, text, facts=facts)


def cpu_runs(answer: Answer) -> bool:
    """Return whether the probe kernel ran and its values were right."""
    return not answer.problem and bool(answer.get("is_right"))


def _executor_remedy() -> str:
    for name in ("WEFTGRAD_CAPABILITIES", "WEFTGRAD_CLANG", "WEFTGRAD_CPU_PLATFORM"):
        if os.environ.get(name):
            return f"unset {name}"
    has_zig = importlib.util.find_spec("ziglang") is not None
    return "pip install --force-reinstall ziglang" if has_zig else _PIP_ZIGLANG
