"""Check the CUDA backend without drivers, compilers or devices, the cache of kernels, and the stand-in itself."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cuda_running import TEXT, Compiler, buffers, driver_of, make_step, use_standin
from cuda_standin import Standin
from cuda_standin_objects import CUresult, Gpu, parameter_sizes

import weftgrad as wg
from weftgrad.runtime import errors
from weftgrad.runtime.backends import available, best_device, cuda_api
from weftgrad.runtime.device import known_devices
from weftgrad.runtime.triton import compile as compiler
from weftgrad.runtime.triton.signature import signature

# Missing drivers, compilers and devices


def test_no_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_api.use(None)
    monkeypatch.setitem(sys.modules, "cuda", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(errors.DriverNotFound, match=r"needs cuda-bindings.*pip install 'weftgrad\[cuda\]'"):
        cuda_api.library()


def test_no_driver_and_no_gpu() -> None:
    standin = Standin()
    standin.fail("cuInit", CUresult.CUDA_ERROR_NO_DEVICE)
    with pytest.raises(errors.DriverNotFound, match=r"no GPU that this process may use.*CUDA_VISIBLE_DEVICES"):
        cuda_api.initialise(standin)
    standin.fail("cuInit", CUresult.CUDA_ERROR_NOT_INITIALIZED)
    with pytest.raises(errors.DriverNotFound, match=r"does not start \(CUDA_ERROR_NOT_INITIALIZED"):
        cuda_api.initialise(standin)

    def absent(flags: int) -> Any:
        raise RuntimeError("Failed to dlopen libcuda.so.1")

    standin.cuInit = absent
    with pytest.raises(errors.DriverNotFound, match=r"libcuda.*install the NVIDIA driver"):
        cuda_api.initialise(standin)


def test_an_old_gpu_and_one_too_many() -> None:
    with use_standin(Gpu("Stand-in V100", (7, 0))):
        with pytest.raises(errors.NotSupported, match=r"cuda:0 \(Stand-in V100\) has compute capability 7.0; .* 8.0"):
            driver_of()
        with pytest.raises(errors.UnknownDevice, match="cuda:1 does not exist: there are 1 CUDA devices"):
            driver_of(1)


def test_no_compiler(cuda: Standin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WEFTGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(compiler, "compiler_installed", lambda: False)
    driver = driver_of()
    with pytest.raises(errors.DriverNotFound, match=r"needs triton.*pip install 'weftgrad\[cuda\]'"):
        driver.launcher([make_step()], ())(buffers(driver), [1, 1, 1], driver.default_stream)


def test_best_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "compiler_installed", lambda: True)
    with use_standin(Gpu("old", (7, 5)), Gpu("new", (9, 0))):
        assert str(best_device()) == "cuda:1"
        assert [str(d) for d in available()][:3] == ["cpu", "cuda:0", "cuda:1"]
        monkeypatch.setattr(compiler, "compiler_installed", lambda: False)
        assert best_device().type != "cuda"


def test_nothing_is_loaded_where_no_gpu_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_api.use(None)
    monkeypatch.setattr(cuda_api, "_load", lambda: pytest.fail("the library was loaded"))
    # For the nodes alone: `available` may import pyopencl, which looks for files of its own.
    nodes = {"present": False}
    exists = os.path.exists

    def pretend(path: str) -> bool:
        return nodes["present"] if path.startswith("/dev/") else exists(path)

    monkeypatch.setattr(os.path, "exists", pretend)
    assert not [d for d in available() if d.type == "cuda"]
    nodes["present"] = True
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not [d for d in available() if d.type == "cuda"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_after_a_fork(cuda: Standin, compiled: Compiler) -> None:
    driver = driver_of()
    operands = buffers(driver)
    run = driver.launcher([make_step()], ())
    run(operands, [1, 1, 1], driver.default_stream)
    calls: list[Callable[[], Any]] = [
        lambda: run(operands, [1, 1, 1], driver.default_stream),
        lambda: driver.launcher([make_step()], ()),
        driver.default_stream.synchronize,
        driver.default_stream.record_event,
        driver.synchronize,
        driver.new_stream,
        lambda: wg.ones(3, device="cuda"),
    ]
    child = os.fork()
    if child == 0:
        refused = 0
        for call in calls:
            try:
                call()
            except errors.ForkError as error:
                refused += "spawn" in str(error)
            except BaseException as error:
                print(call, repr(error), file=sys.stderr, flush=True)
        os._exit(0 if refused == len(calls) else 1)
    assert os.waitpid(child, 0)[1] == 0
    run(operands, [1, 1, 1], driver.default_stream)  # the parent still works


# The compiler, and the cache in front of it

_WARM = """
import sys
from cuda_standin import Standin
from weftgrad.runtime.backends import cuda_api
import weftgrad as wg
standin = Standin()
cuda_api.use(standin)
x = wg.tensor([1.0, 2.0, 3.0], device="cuda")
y = (x * 2 + x[1:2]).tolist()
wg.synchronize()
assert standin.launches and not standin.violations, standin.violations
print(len(standin.launches), [m for m in ("triton", "torch", "pyopencl") if m in sys.modules])
"""


def test_a_warm_start_does_without_the_compiler(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    environment = {**os.environ, "WEFTGRAD_CACHE": str(tmp_path), "PYTHONPATH": str(Path(__file__).parent)}

    def start() -> str:
        process = subprocess.run(
            [sys.executable, "-c", _WARM], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert process.returncode == 0, process.stderr
        return process.stdout.strip()

    assert "['triton']" in start()
    cold = set(tmp_path.rglob("*.bin"))
    assert start().endswith("[]")
    assert set(tmp_path.rglob("*.bin")) == cold


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_compiling_for_any_target(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("WEFTGRAD_CACHE", str(tmp_path))
    kernel = compiler.compile_for(make_step(num_warps=8), True, compiler.Target.named(target))
    assert 0 < kernel.registers < 256
    assert kernel.spills == 0
    assert kernel.binary.threads == (512 if target == "gfx942" else 256)
    assert str(kernel.target) == target
    if target == "gfx942":
        assert "scale_flat" in kernel.asm["amdgcn"]
        return
    assert f".target {target}" in kernel.asm["ptx"]
    sizes = [struct.calcsize("=" + c) for c in signature(make_step(), True).codes + "QQ"]
    assert parameter_sizes(kernel.binary.image) == {"scale_flat": sizes}


def test_a_kernel_that_does_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("WEFTGRAD_CACHE", str(tmp_path))
    step = make_step()
    bad_step = replace(step, instance=replace(step.instance, text=TEXT.replace("mask=mask, other=0", "mask=nothing")))
    with pytest.raises(errors.CompileError, match=r"scale_flat does not compile for sm_90 with Triton 3(.|\n)*nothing"):
        compiler.binary(bad_step, True, compiler.Target.named("sm_90"))


def test_the_cache_tells_kernels_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("WEFTGRAD_CACHE", str(tmp_path))
    target = compiler.Target.named("sm_90")
    first = compiler.binary(make_step(), True, target)
    assert compiler.is_cached(make_step(n=301), True, target)  # a different size needs no other kernel
    for variant in (make_step(n=320), make_step("double", "float64"), make_step(index="int64"), make_step(num_warps=8)):
        assert not compiler.is_cached(variant, True, target)
    assert not compiler.is_cached(make_step(), False, target)
    assert not compiler.is_cached(make_step(), True, compiler.Target.named("sm_80"))
    assert compiler.binary(make_step(), True, target) == first


# The stand-in compared with the real library


def test_the_standin_is_like_the_library() -> None:
    """Function names, parameters and enum values equal those of the installed cuda-bindings."""
    driver = pytest.importorskip("cuda.bindings.driver")
    standin = Standin()
    for name in [n for n in dir(Standin) if n.startswith("cu")]:
        function = getattr(driver, name)
        signature_line = function.__doc__.partition("\n")[0]
        declarations = signature_line[signature_line.index("(") + 1 : -1].replace("*", "").split(",")
        names = [declaration.split(":")[0].split()[-1] for declaration in declarations if declaration]
        code = getattr(standin, name).__func__.__code__
        assert list(code.co_varnames[1 : code.co_argcount]) == names, signature_line
    for name in ("CUresult", "CUdevice_attribute", "CUfunction_attribute", "CUstreamCaptureMode"):
        for member in getattr(standin, name):
            assert int(getattr(getattr(driver, name), member.name)) == member, member


def test_devices_are_forgotten() -> None:
    """No test leaves a driver of the stand-in behind."""
    assert all(d._driver is None for d in known_devices() if d.type == "cuda")
