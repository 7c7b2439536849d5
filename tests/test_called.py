"""Kernels that are functions, too (`runtime.called`), for drivers that compile functions as C compilers do.

PoCL does not keep the functions, so the line of assembler that asks for their addresses is taken away here, and kernels
call them. Where Intel's runtime is installed, what users have is tried in a process of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.runtime import called
from weftgrad.runtime.backends import opencl, processor, workgroups
from weftgrad.runtime.backends.opencl_cpu import CpuDriver, _chosen
from weftgrad.runtime.backends.protocol import Instance
from weftgrad.runtime.context import forget_plans
from weftgrad.runtime.device import device
from weftgrad.runtime.errors import DriverNotFound

Array = np.ndarray[Any, Any]
_PLACE = re.compile(r"kernel void NAME\((\w+)_place\)\(global ulong \*to\) \{.*?\n\}", re.DOTALL)
# Instead of telling the function's address, call it: with the places of the arguments and of the launch, and a group.
_CALL = r"""kernel void NAME(\1_place)(global ulong *to) {
    NAME(\1_call)((global void *global *)to[0], (global const wg_launch_t *)to[1], to[2], to[3], to[4]);
}"""


class Compiler(opencl.Compiler):
    """Of functions, which kernels call."""

    made: set[str]

    def _source(self, instances: Sequence[Instance]) -> str:
        text, count = _PLACE.subn(_CALL, super()._source(instances))
        self.made = {*getattr(self, "made", ()), *(i.entry for i in instances if count == len(instances))}
        return text


class Called:
    """A function by the kernel that calls it."""

    def __init__(self, driver: CpuDriver, compiler: Compiler, instance: Instance):
        program, name = compiler.program_of(instance)
        self.driver, self.kernel = driver, opencl.cl.Kernel(program, called.place_name(name))

    def find(self) -> bool:
        return True

    def try_call(self, places: Sequence[int], groups: Sequence[int], group: Sequence[int]) -> None:
        given, launch = np.array(places, np.uint64), np.array(groups, np.uint64)
        to = np.array([given.ctypes.data, launch.ctypes.data, *group], np.uint64)
        queue = self.driver.default_stream.queue
        held = self.driver.buffer_over(to)
        self.kernel.set_args(held)
        opencl.cl.enqueue_nd_range_kernel(queue, self.kernel, (1,), (1,))
        queue.finish()


class Calling:
    """The functions of a compiler."""

    tried = True

    def __init__(self, driver: CpuDriver, compiler: Compiler):
        self.driver, self.compiler = driver, compiler

    def function(self, instance: Instance) -> Called:
        return Called(self.driver, self.compiler, instance)


@pytest.fixture
def driver() -> CpuDriver:
    found: Any = device("cpu").driver
    found.require()
    return found  # type: ignore[no-any-return]


@pytest.fixture
def compiler(driver: CpuDriver) -> Compiler:
    return Compiler(driver.context, driver.compiler._handle, driver.capabilities, functions=True)


@pytest.fixture
def compiled(driver: CpuDriver, compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    """`cpu` with kernels that call functions."""
    yield from compiled_by(compiler, driver, monkeypatch)


def compiled_by(compiler: Any, driver: CpuDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(driver, "compiler", compiler)
    monkeypatch.setattr(driver, "quick_compiler", None)
    forget_plans()
    yield compiler
    forget_plans()


@pytest.fixture
def told(driver: CpuDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[opencl.Compiler]:
    """`cpu` with a compiler that is told of AVX-512, whether or not it knows."""
    if not processor.has_avx512():
        pytest.skip("the processor has no AVX-512")
    able = replace(driver.capabilities, lanes=16, registers=32, avx512=True)
    yield from compiled_by(opencl.Compiler(driver.context, driver.compiler._handle, able), driver, monkeypatch)


def test_a_function_is_given_what_the_kernel_is(driver: CpuDriver, compiler: Compiler) -> None:
    queue = driver.default_stream.queue
    assert workgroups.can_call(opencl.cl, driver.context, queue, Calling(driver, compiler))  # type: ignore[arg-type]


def _values(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


_A, _B, _WIDE = _values(60, 70), _values(70, 33), _values(50, 3000)
_CASES: dict[str, tuple[Callable[[], Any], Array]] = {
    "exp": (lambda: wg.exp(wg.tensor(_A, device="cpu")), np.exp(_A)),
    "add": (lambda: wg.tensor(_A, device="cpu") + wg.tensor(_A[:1], device="cpu").T[:60], _A + _A[:1].T[:60]),
    "sum": (lambda: wg.tensor(_WIDE, device="cpu").sum(1), _WIDE.sum(1)),
    "columns": (lambda: wg.tensor(_WIDE, device="cpu").sum(0), _WIDE.sum(0)),
    "whole": (lambda: wg.tensor(_WIDE, device="cpu").sum(), _WIDE.sum(dtype=np.float64)),
    "softmax": (
        lambda: wg.softmax(wg.tensor(_A, device="cpu"), 1), np.exp(_A) / np.exp(_A).sum(1, keepdims=True)
    ),
    "product": (lambda: wg.tensor(_A, device="cpu") @ wg.tensor(_B, device="cpu"), _A @ _B),
    "cumsum": (lambda: wg.cumsum(wg.tensor(_A, device="cpu"), 1), _A.cumsum(1)),
    "sort": (lambda: wg.sort(wg.tensor(_A, device="cpu"), 1)[0], np.sort(_A, 1)),
    "search": (
        lambda: wg.searchsorted(wg.tensor(np.sort(_A[0]), device="cpu"), wg.tensor(_A[1], device="cpu")),
        np.searchsorted(np.sort(_A[0]), _A[1]),
    ),
    "sample": (
        lambda: wg.nn.functional.grid_sample(
            wg.tensor(_A[None, None], device="cpu"), wg.tensor([[[[-1.0, -1.0], [1.0, 1.0]]]], device="cpu"),
            align_corners=True,
        ),
        np.array([[[[_A[0, 0], _A[-1, -1]]]]]),
    ),
    "index": (lambda: wg.tensor(_A, device="cpu")[wg.tensor([5, 0, 59], device="cpu")], _A[[5, 0, 59]]),
    "pad": (lambda: wg.nn.functional.pad(wg.tensor(_A, device="cpu"), (1, 2)), np.pad(_A, ((0, 0), (1, 2)))),
    "convolution": (
        lambda: wg.nn.functional.conv1d(wg.tensor(_A[:, None], device="cpu"), wg.tensor([[[1.0, 2.0]]], device="cpu")),
        (_A[:, :-1] + 2 * _A[:, 1:])[:, None],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", _CASES)
def test_kernels_that_call_functions_give_the_same(case: str, compiled: Compiler) -> None:
    call, expected = _CASES[case]
    np.testing.assert_allclose(call().numpy(), expected, rtol=2e-5, atol=2e-5, err_msg=case)
    assert compiled.made, f"{case}: no kernel was made a function"


@pytest.mark.parametrize("case", _CASES)
def test_kernels_whose_bodies_are_functions_give_the_same(case: str, told: opencl.Compiler) -> None:
    call, expected = _CASES[case]
    np.testing.assert_allclose(call().numpy(), expected, rtol=2e-5, atol=2e-5, err_msg=case)
    assert told._found, f"{case}: another compiler made the kernels"
    for instance in told._found:
        text = told._source([instance])
        assert f"NAME({instance.entry}_work)(const ulong *wg_at, " in text, f"{case}: {instance.entry} keeps its body"
        assert f"NAME({instance.entry}_call)" not in text


def test_a_body_asks_nothing_that_only_a_kernel_is_told() -> None:
    """A macro in front of a kernel may ask, too: PoCL would put the body into a function without its attributes."""
    text = """#define SHARE() (get_group_id(1) * get_global_size(0))
WG_ONE kernel void NAME(name)(global float *p0, const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    p0[get_global_id(0)] = SHARE();
}
"""
    made = called.apart(text, "name", 1)
    assert made is not None
    body, kernel = made.split("// The kernel.")
    asked = ("global_id", "group_id", "global_size")
    for name in asked:
        assert f"#define get_{name}(d) wg_at[" in body
        assert f"get_{name}(0), get_{name}(1), get_{name}(2)" in kernel
    assert "local" not in made
    assert "num_groups" not in made


def test_kernels_of_groups_are_left_as_they_are() -> None:
    body = "{{\n    {}\n}}\n"
    head = "WG_ONE kernel void NAME(name)(global float *p0, const NAME(Geometry) geo, const NAME(Dynamic) dyn) "
    assert called.with_function(head + body.format("*p0 = get_global_id(0);"), "name", 1) is not None
    for within in ("barrier(CLK_LOCAL_MEM_FENCE);", "local float shared[8];"):
        assert called.with_function(head + body.format(within), "name", 1) is None, within
        assert called.apart(head + body.format(within), "name", 1) is None, within
    assert called.with_function("kernel void other(global float *p0) {\n}\n", "name", 1) is None


def test_the_platform_of_cpu_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    handle: Any = opencl.devices()[0].handle
    pocl = opencl.DeviceInfo(handle, "Portable Computing Language", "cpu", False, handle)
    intel = opencl.DeviceInfo(handle, "Intel(R) OpenCL", "cpu", False)
    monkeypatch.delenv("WEFTGRAD_CPU_PLATFORM", raising=False)
    assert _chosen([intel, pocl]) is pocl
    assert _chosen([intel]) is intel
    monkeypatch.setenv("WEFTGRAD_CPU_PLATFORM", "intel")
    assert _chosen([pocl, intel]) is intel
    with pytest.raises(DriverNotFound, match=r"WEFTGRAD_CPU_PLATFORM=intel.*'Portable Computing Language'"):
        _chosen([pocl])


_PROGRAM = """
import numpy as np, weftgrad as wg
from weftgrad.runtime.backends import workgroups
driver = wg.device("cpu").driver
driver.require()
assert isinstance(driver._calls, workgroups.Placed), driver._calls
for size in (1, 1000, 1 << 17, 1 << 21):
    x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    t = wg.tensor(x, device="cpu", requires_grad=True)
    for _ in range(3):
        t.grad = None
        y = (t.exp() * 2).sum()
        y.backward()
    np.testing.assert_allclose(y.item(), (np.exp(x.astype(np.float64)) * 2).sum(), rtol=1e-5)
    np.testing.assert_allclose(t.grad.numpy(), np.exp(x) * 2, rtol=1e-5)
assert driver.default_stream.pending is None  # all was called
print("right")
"""


def test_intels_kernels_are_called() -> None:
    if not any("Intel" in info.platform and not info.is_gpu for info in opencl.devices()):
        pytest.skip("Intel's OpenCL for CPUs is not installed")
    environment = {**os.environ, "WEFTGRAD_CPU_PLATFORM": "Intel"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.strip() == "right", done.stderr
