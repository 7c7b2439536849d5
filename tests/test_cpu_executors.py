"""Check which compiler or OpenCL driver runs the kernels of `cpu`, and forced executors."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from cpu_kernel_running import instance, run

from weftgrad.runtime.backends import processor
from weftgrad.runtime.backends.cpu import compilers
from weftgrad.runtime.errors import CompileError, DriverNotFound

WHICH_EXECUTOR = (
    "import json, weftgrad as wg\n"
    "d = wg.device('cpu').driver; x = wg.randn(100, 30, device='cpu')\n"
    "x.requires_grad_(); y = (x @ x.t()).log_softmax(1).sum(); y.backward()\n"
    "print(json.dumps([type(d.executor).__name__, d.executor.name, float(x.grad.sum() * 0 + 1),\n"
    " d.capabilities.lanes]))\n"
)


def executor_facts(**environment: str) -> list[Any]:
    process = run(WHICH_EXECUTOR, **environment)
    assert process.returncode == 0, process.stderr
    return list(json.loads(process.stdout))


def test_a_compiler_is_named(tmp_path: Path) -> None:
    """WEFTGRAD_CLANG names the compiler: here a script that calls the one of the ziglang wheel."""
    zig = shutil.which("zig") or next(
        (str(p / "ziglang/zig") for p in map(Path, sys.path) if (p / "ziglang/zig").is_file()), None
    )
    if zig is None:
        pytest.skip("no ziglang")
    linker = tmp_path / "ld.lld"
    clang = tmp_path / "my-clang"
    clang.write_text(f'#!/bin/sh\nexec "{zig}" clang "$@"\n')
    linker.write_text(f'#!/bin/sh\nexec "{zig}" ld.lld "$@"\n')
    for script in (clang, linker):
        script.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "WEFTGRAD_CACHE": str(tmp_path / "cache")}
    name, compiler, value, _ = executor_facts(WEFTGRAD_CLANG=str(clang), **environment)
    assert (name, value) == ("ClangExecutor", 1.0)
    assert "my-clang" in compiler
    process = run(WHICH_EXECUTOR, WEFTGRAD_CLANG=str(tmp_path / "none"), **environment)
    assert "no such program" in process.stderr


def test_without_a_clang_an_opencl_driver_serves(tmp_path: Path) -> None:
    pytest.importorskip("pocl_binary_distribution")
    name, driver_name, value, _ = executor_facts(WEFTGRAD_CLANG="off", WEFTGRAD_CACHE=str(tmp_path / "cache"))
    assert (name, value) == ("OpenCLExecutor", 1.0)
    assert "Portable" in driver_name


def test_pocl_gets_the_name_of_an_unknown_processor(tmp_path: Path) -> None:
    """Set the name that PoCL uses for an unknown processor: nothing compiles until our correction replaces it."""
    pytest.importorskip("pocl_binary_distribution")
    code = (
        "import weftgrad as wg, pyopencl as cl\n"
        "from weftgrad.runtime.backends import opencl, pocl\n"
        "handle = next(i.handle for i in opencl.devices() if 'Portable' in i.platform)\n"
        "known = handle.version.rpartition('-gnu-')[2].encode() + b'\\0'\n"
        "assert pocl.replace_name(handle, known, b'generic')\n"
        "context = cl.Context([handle])\n"
        "text = 'kernel void f(global float *a) { a[0] = 1; }'\n"
        "try: cl.Program(context, text).build(cache_dir=False); print('compiles')\n"
        "except cl.Error as error: print('generic' in str(error))\n"
        "print(pocl.correct_processor(handle), pocl.replace_name(handle, b'generic\\0', b'x86-64-v2'))\n"
        "print(float((wg.ones(1000, device='cpu') * 3).exp().log().sum()))\n"
    )
    process = run(code, WEFTGRAD_CLANG="off", WEFTGRAD_CACHE=str(tmp_path / "cache"))
    lines = process.stdout.splitlines()
    assert lines[0] == "True", process
    assert "True" in lines[1], process
    assert abs(float(lines[2]) - 3000) < 1, process


def test_missing_compilers_are_one_error_with_the_remedy(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pyopencl'] = None\n"
        "import weftgrad as wg\n"
        "x = wg.zeros(3, device='cpu'); print(x.tolist())\n"
        "try: x + 1\n"
        "except wg.runtime.errors.DriverNotFound as error: print(error)\n"
    )
    process = run(code, WEFTGRAD_CLANG="off", WEFTGRAD_CACHE=str(tmp_path / "cache"))
    message = process.stdout.splitlines()[-1]
    for phrase in (processor.model_name(), "WEFTGRAD_CLANG=off", "pyopencl", "pip install ziglang", "weftgrad doctor"):
        assert phrase in message, process


@pytest.mark.parametrize("lanes", [4, 8])
def test_fewer_lanes_are_compiled_for_older_processors(lanes: int, tmp_path: Path) -> None:
    capabilities = f"lanes={lanes},registers=16"
    name, _, value, actual_lanes = executor_facts(
        WEFTGRAD_CAPABILITIES=capabilities, WEFTGRAD_CACHE=str(tmp_path / "cache")
    )
    assert (name, value, actual_lanes) == ("ClangExecutor", 1.0, lanes)


def test_work_groups_of_several_are_left_to_opencl_devices() -> None:
    from weftgrad.runtime.backends.cpu.launching import _size_of
    from weftgrad.runtime.backends.protocol import Step

    step = Step(instance(1), (0,), b"\0" * 8, (64,), (32,), 64)
    with pytest.raises(CompileError, match=r"count1: count has work-groups of \(32,\).*opencl:0"):
        _size_of(step)


def test_candidates_say_why_they_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_clang = tmp_path / "clang"
    old_clang.write_text("#!/bin/sh\necho Debian clang version 14.0.6\n")
    old_clang.chmod(0o755)
    monkeypatch.delenv("WEFTGRAD_CLANG", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [])
    notes: list[str] = []
    assert list(compilers.candidates(notes)) == []
    assert notes == ["ziglang is not installed", f"{old_clang} is Debian clang version 14.0.6, not clang 15 or later"]
    monkeypatch.setenv("WEFTGRAD_CLANG", str(old_clang))
    with pytest.raises(DriverNotFound, match="not clang 15 or later"):
        list(compilers.candidates([]))
