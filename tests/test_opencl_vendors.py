"""What differs between vendors' OpenCL drivers: limits of launches and memory, float64, rounding of divisions."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from op_attention import backward, forward
from op_devices import prebuilt
from op_running import host
from opencl_language import find_clang, vendor_device

import weftgrad as wg
from weftgrad import testing
from weftgrad.cli.samples import capture_steps
from weftgrad.runtime import dispatch, memory_stats, program
from weftgrad.runtime.device import Device
from weftgrad.runtime.errors import CompileError, DTypeError, LaunchError, OutOfMemoryError
from weftgrad.runtime.records import registry

cl = pytest.importorskip("pyopencl")
attention = wg.nn.functional.scaled_dot_product_attention

POOR = "style=gpu,lanes=4,fp64=0,fp16=0,max_group=32,local_memory=16384,builtins=1,optimize=0"
GPU = "style=gpu,lanes=4,max_group=256,builtins=1,optimize=0"


def device_with(capabilities: str) -> Device:
    return testing.synthetic_device(984 + (capabilities == POOR), capabilities)


@pytest.fixture
def gpu() -> Device:
    return device_with(GPU)


def steps_of(device: Device, function: Callable[[], Any]) -> list[Any]:
    """Return the launches of `function`, without running them."""
    with capture_steps(device) as steps:
        function()
    return steps


# Attention


@pytest.mark.parametrize(
    ("capabilities", "width", "depth", "causal", "has_mask"),
    [(GPU, 40, 33, False, True), (GPU, 80, 128, True, False), (POOR, 300, 7, False, False)],
)
def test_attention_divides_the_features_of_a_position(capabilities, width, depth, causal, has_mask):
    """Several work-items share a position: they add up its scores, and each has some features of its result."""
    gpu = device_with(capabilities)
    rng = np.random.default_rng(width)
    arrays = [rng.standard_normal((1, 2, n, f)).astype(np.float32) for n, f in ((37, width), (41, width), (41, depth))]
    if causal:
        arrays = [a[:, :, :37] for a in arrays]
    keys = arrays[1].shape[2]
    mask = rng.standard_normal((1, 2, 37, keys)).astype(np.float32) if has_mask else None
    operands = [wg.tensor(a, device=gpu, requires_grad=True) for a in arrays]
    device_mask = None if mask is None else wg.tensor(mask, device=gpu)
    grad = rng.standard_normal((1, 2, 37, depth)).astype(np.float32)

    def compute() -> tuple[Any, Any]:
        result = attention(*operands, device_mask, is_causal=causal)
        return result, wg.autograd.grad(result, operands, wg.tensor(grad, device=gpu))

    result, grads = prebuilt(gpu, compute)
    exact = [a.astype(np.float64) for a in arrays]
    expected = forward(*exact, mask, causal, 1.0)[0]
    np.testing.assert_allclose(host(result), expected, atol=2e-5, rtol=1e-5)
    for actual, value in zip(grads, backward(*exact, mask, grad, causal, 1.0), strict=True):
        np.testing.assert_allclose(host(actual), value, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("features", [64, 256])
def test_kernels_of_matrices_have_no_arrays_in_memory(features):
    """An array that registers do not hold, or whose index is no constant, lies in a GPU's memory, which is slow."""
    clang = find_clang()
    if not clang:
        pytest.skip("no clang here compiles OpenCL C")
    device = vendor_device(True)

    def compute() -> None:
        operands = [wg.empty((2, 4, 128, features), device=device, requires_grad=True) for _ in range(3)]
        result = attention(*operands)
        wg.autograd.grad(result, operands, wg.empty_like(result))
        wg.empty((200, 200), device=device) @ wg.empty((200, 200), device=device)

    kernels = dict.fromkeys(step.instance for step in steps_of(device, compute))
    kernels = [k for k in kernels if k.name in ("attention", "contraction")]
    assert len(kernels) == 5
    options = ("-x", "cl", "-cl-std=CL1.2", "-target", "nvptx64", "-march=sm_80", "-O2", "-w", "-S", "-o", "-", "-")
    for kernel in kernels:
        text = program.source([kernel], builtins=True)
        answer = subprocess.run([*clang, *options], input=text, capture_output=True, text=True, timeout=120)
        if "nvptx64" in answer.stderr:
            pytest.skip("this clang compiles for no NVIDIA GPU")
        assert answer.returncode == 0, answer.stderr
        assert not re.findall(r"__local_depot\d*\[(\d+)\]", answer.stdout), f"{kernel.entry}: bytes in memory"


# Launches


def test_batches_are_launched_along_the_first_dimension(gpu):
    """NVIDIA's driver has at most 65,535 work-groups along the others."""
    batch = 70_000

    def compute() -> None:
        operands = [wg.empty((batch, 1, 4, 8), device=gpu, requires_grad=True) for _ in range(3)]
        result = attention(*operands)
        wg.autograd.grad(result, operands, wg.empty_like(result))
        wg.empty((batch, 8, 8), device=gpu) @ wg.empty((batch, 8, 8), device=gpu)

    steps = steps_of(gpu, compute)
    assert {"attention_grid_forward", "contraction_tile"} <= {s.instance.entry for s in steps}
    for step in steps:
        groups = [n // m for n, m in zip(step.global_size, step.local_size, strict=True)]
        assert all(count <= 65_535 for count in groups[1:]), f"{step.instance.entry}: {groups}"
        assert groups[0] >= batch or step.instance.entry == "attention_grid_delta"


def _kernel(step_limit: int, compiled_size: tuple[int, int, int]) -> Any:
    """Return a kernel object whose work-groups have a limit, and the size that its source requires (0: none)."""
    info = cl.kernel_work_group_info
    values = {info.WORK_GROUP_SIZE: step_limit, info.COMPILE_WORK_GROUP_SIZE: compiled_size}
    return SimpleNamespace(get_work_group_info=lambda parameter, handle: values[parameter])


def test_work_groups_shrink_to_the_limit_of_their_kernel(gpu):
    """A kernel that needs many registers may have smaller work-groups than the device."""
    driver = gpu.driver
    step = next(s for s in steps_of(gpu, lambda: wg.ones((3000,), device=gpu).exp()) if s.instance.name == "exp")
    size = step.local_size[0]
    assert size > 8
    assert driver._fit_work_group(_kernel(size, (0, 0, 0)), step) is step
    smaller = driver._fit_work_group(_kernel(size // 2 + 1, (0, 0, 0)), step)
    assert smaller == replace(step, local_size=(size // 2,))
    assert driver._fit_work_group(_kernel(1, (0, 0, 0)), step).local_size == (1,)
    assert driver._fit_work_group(_kernel(8, (size, 1, 1)), step) is step  # Mesa launches it, and reports 8


def test_a_refused_work_group_names_the_limit_of_its_kernel(gpu, monkeypatch):
    from weftgrad.runtime.backends import opencl

    x = wg.ones((40, 40), device=gpu)

    def refuse(queue: Any, kernel: Any, size: Any, local: Any) -> Any:
        raise cl.LogicError("clEnqueueNDRangeKernel failed: INVALID_WORK_GROUP_SIZE")

    monkeypatch.setattr(opencl, "enqueue", refuse)
    monkeypatch.setattr(gpu.driver.default_stream, "queue_address", 0)  # launches from C ask for no function of Python
    with pytest.raises(LaunchError, match=r"sum.*INVALID_WORK_GROUP_SIZE") as caught:
        x.sum(1)
    assert not getattr(caught.value, "__notes__", [])
    monkeypatch.setattr(gpu.driver, "_work_group_limit", lambda kernel: 8)
    with pytest.raises(LaunchError) as caught:
        x.sum(1)
    assert "at most 8 work-items of sum" in caught.value.__notes__[0]
    assert "WEFTGRAD_CAPABILITIES=max_group=8" in caught.value.__notes__[0]


def test_launches_with_smaller_work_groups_compute_the_same(gpu, monkeypatch):
    driver = gpu.driver
    launches: list[Any] = []

    def fit(kernel: Any, step: Any) -> Any:
        launches.append(fit_work_group(kernel if driver._requires_size(kernel) else _kernel(4, (0, 0, 0)), step))
        return launches[-1]

    fit_work_group = driver._fit_work_group
    monkeypatch.setattr(driver, "_fit_work_group", fit)
    x = np.arange(2500, dtype=np.float32).reshape(50, 50) / 100
    tensor = wg.tensor(x, device=gpu)
    np.testing.assert_allclose(host((tensor.t().atan() * 3).sum(0)), (np.arctan(x.T) * 3).sum(0), rtol=1e-5)
    assert any(step.local_size == (4,) for step in launches)


def test_kernels_that_count_on_their_work_group_say_so(gpu):
    """Work-groups of all other kernels may be shrunk."""

    def compute() -> None:
        parameters = [wg.empty((30,), device=gpu, requires_grad=True) for _ in range(3)]
        for parameter in parameters:
            parameter.grad = wg.empty_like(parameter)
        wg.optim.SGD(parameters, lr=0.1).step()
        log_probs = wg.empty((9, 2, 5), device=gpu).log_softmax(2)
        wg.nn.functional.ctc_loss(log_probs, wg.ones((2, 3), dtype=wg.int64, device=gpu), (9, 9), (3, 3))
        z = wg.empty((300, 400), device=gpu)
        for result in (z.sum(), z.softmax(1), z.cumsum(0), z.sort(1), z @ z.t()):
            del result

    clang = find_clang()
    if not clang:
        pytest.skip("no clang here compiles OpenCL C")
    depends = re.compile(r"\b(get_local_id|get_group_id|get_local_size|barrier)\(")
    options = ("-x", "cl", "-cl-std=CL1.2", "-target", "spir64", "-w", "-E", "-P", "-")
    entries = set()
    for instance in dict.fromkeys(step.instance for step in steps_of(gpu, compute)):
        text = program.source([instance], builtins=True, fp64=gpu.driver.capabilities.fp64)
        text = text.replace("// ---- ", "int wg_marker;\n// ---- ")
        answer = subprocess.run([*clang, *options], input=text, capture_output=True, text=True, timeout=300)
        body = answer.stdout.partition("int wg_marker;")[2]
        assert instance.entry in body
        if depends.search(body):
            assert "reqd_work_group_size" in body, instance.entry
            entries.add(instance.entry)
    assert len(entries) > 4


# Memory


def test_a_discrete_gpu_is_limited_by_its_own_memory(monkeypatch):
    monkeypatch.setattr(memory_stats, "host_memory", lambda: 8 << 30)
    assert memory_stats.default_limit(24 << 30) == int((8 << 30) * 0.9)
    assert memory_stats.default_limit(24 << 30, is_host_memory=False) == int((24 << 30) * 0.9)
    assert memory_stats.default_limit(0, is_host_memory=False) == int((8 << 30) * 0.9)  # the driver does not know it


@pytest.mark.parametrize(("is_gpu", "is_unified", "is_own"), [(True, 0, True), (True, 1, False), (False, 0, False)])
def test_which_devices_have_own_memory(is_gpu, is_unified, is_own):
    from weftgrad.runtime.backends.opencl_devices import DeviceInfo, has_own_memory

    handle: Any = SimpleNamespace(host_unified_memory=is_unified)
    assert has_own_memory(DeviceInfo(handle, "platform", "name", is_gpu)) == is_own


def test_a_refused_allocation_names_the_largest_one(gpu, monkeypatch):
    driver = gpu.driver

    def refuse(nbytes: int) -> Any:
        raise MemoryError

    monkeypatch.setattr(driver.memory, "allocate", refuse)
    monkeypatch.setattr(driver, "handle", SimpleNamespace(max_mem_alloc_size=64 << 20))
    with pytest.raises(OutOfMemoryError) as caught:
        driver.allocate(100 << 20, driver.default_stream)
    assert "single allocations of up to 67108864 bytes" in caught.value.__notes__[0]
    with pytest.raises(OutOfMemoryError) as caught:
        driver.allocate(48 << 20, driver.default_stream)
    assert not getattr(caught.value, "__notes__", [])


# Several drivers


def test_the_library_of_a_driver_is_known():
    from weftgrad.runtime.backends import pocl

    platform = cl.get_platforms()[0]
    library = pocl.library_of(platform)
    assert Path(library).is_file()
    assert library in Path("/proc/self/maps").read_text()
    assert library != cl._cl.__file__
    without_extension: Any = SimpleNamespace(
        name="P", extensions="cl_khr_icd_of_another_name", int_ptr=platform.int_ptr
    )
    assert pocl.library_of(without_extension) == ""


def test_another_driver_renumbers_no_device_and_is_not_used_for_cpu(monkeypatch):
    """A PoCL of the system comes first in the loader's list, and a PoCL that pip installed last."""
    from weftgrad.runtime.backends import opencl_devices, pocl
    from weftgrad.runtime.backends.cpu import fallback

    packages = Path(cl.__file__).parents[1]
    libraries = {
        "PoCL 3.1+debian": "/usr/lib/libpocl.so.2.10.0", "Intel": "/opt/libintelocl.so", "CUDA": "/usr/lib/libnv.so",
        "PoCL 3.0": f"{packages}/pyopencl/.libs/libpocl-21062cec.so",
    }  # fmt: skip
    monkeypatch.setattr(pocl, "library_of", lambda platform: libraries[platform.version])
    monkeypatch.setattr(pocl, "correct_processor", lambda handle: False)

    def platform_of(version: str) -> Any:
        name = "Portable Computing Language" if "PoCL" in version else version
        platform = SimpleNamespace(name=name, version=version)
        kind = cl.device_type.GPU if version == "CUDA" else cl.device_type.CPU
        platform.get_devices = lambda: [SimpleNamespace(name=version, type=kind, platform=platform)]
        return platform

    def listed(*versions: str) -> list[str]:
        monkeypatch.setattr(cl, "get_platforms", lambda: [platform_of(version) for version in versions])
        return [info.name for info in opencl_devices.devices.__wrapped__()]

    assert listed("PoCL 3.0") == ["PoCL 3.0"]
    assert listed("PoCL 3.1+debian", "Intel", "PoCL 3.0") == ["PoCL 3.0", "PoCL 3.1+debian", "Intel"]
    assert listed("Intel", "PoCL 3.1+debian", "CUDA") == ["CUDA", "Intel", "PoCL 3.1+debian"]
    listed("PoCL 3.1+debian", "PoCL 3.0", "CUDA")
    monkeypatch.delenv("WEFTGRAD_CPU_PLATFORM", raising=False)
    monkeypatch.setattr(fallback.opencl, "devices", opencl_devices.devices.__wrapped__)
    assert fallback._cpu_device().name == "PoCL 3.0"
    monkeypatch.setenv("WEFTGRAD_CPU_PLATFORM", "3.1+debian")
    assert fallback._cpu_device().name == "PoCL 3.1+debian"


# Float64, rounding, binaries


def test_calls_with_float64_are_refused_when_planned():
    device = device_with(POOR)
    x = wg.ones(5, device=device)
    with pytest.raises(DTypeError, match=r"opencl:985 has no float64; use float32 there"):
        x.double()
    with pytest.raises(DTypeError, match=r"sum.*has no float64"):
        x.sum(dtype=wg.float64)
    assert x.sum().item() == 5


def test_without_float64_the_word_double_does_not_compile():
    """PoCL has double. A kernel that uses it must fail here all the same, or no test would see it."""
    device = device_with(POOR)
    record = registry["exp"]
    step = next(
        s
        for s in steps_of(device, lambda: dispatch.call(record, (wg.ones(3, device=device),), ()))
        if s.instance.name == "exp"
    )
    text = f"static inline float NAME(wide)(float x) {{ return (double)x; }}\n{step.instance.text}"
    with pytest.raises(CompileError, match="WG_NO_FLOAT64_HERE_USE_FLOAT32"):
        device.driver.compiler.build([replace(step.instance, text=text)])


@pytest.mark.parametrize("is_exact", [True, False])
def test_divisions_are_rounded_correctly_where_the_device_can(is_exact, monkeypatch):
    from weftgrad.runtime.backends import opencl_compiler

    driver = device_with(GPU).driver
    monkeypatch.setattr(opencl_compiler, "_rounds_correctly", lambda handle: is_exact)
    compiler = opencl_compiler.Compiler(driver.context, driver.handle, driver.capabilities)
    assert ("-cl-fp32-correctly-rounded-divide-sqrt" in compiler._options) == is_exact
    config = cl.device_fp_config
    handle: Any = SimpleNamespace(single_fp_config=config.CORRECTLY_ROUNDED_DIVIDE_SQRT if is_exact else config.FMA)
    monkeypatch.undo()
    assert opencl_compiler._rounds_correctly(handle) == is_exact


def test_drivers_without_binaries(gpu, monkeypatch):
    compiler = gpu.driver.compiler
    step = next(s for s in steps_of(gpu, lambda: wg.ones(3, device=gpu).tan()) if s.instance.name == "tan")
    built = compiler._compile_source(compiler._source([step.instance]))
    monkeypatch.setattr(compiler, "_compile_source", lambda text: SimpleNamespace(get_info=lambda parameter: [b""]))
    monkeypatch.setattr(compiler._cache, "load", lambda text: None)
    assert built.kernel_names.startswith("tan_grid")
    assert compiler._program([step.instance]).get_info(0) == [b""]
