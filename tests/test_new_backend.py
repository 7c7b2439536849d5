"""Register a backend from outside the package: one file with a driver and one call run ops on a new type of devices."""

import subprocess
import sys
from pathlib import Path

import pytest

from weftgrad.runtime.backends import register_backend
from weftgrad.runtime.backends.styles import CPU, ByStyle, Style, register_style, style_named
from weftgrad.runtime.backends.targets import OPENCL, Target, build_steps, register_target, target_named
from weftgrad.runtime.device import device
from weftgrad.runtime.errors import NotSupported, UnknownDevice

BACKEND = '''
"""A backend on host memory: kernels run by the executor of `cpu`, and launches are counted."""

from dataclasses import replace

from weftgrad.runtime.backends import register_backend
from weftgrad.runtime.backends.cpu import CpuDriver
from weftgrad.runtime.backends.styles import CPU, register_style
from weftgrad.runtime.kinds import pointwise

STYLE = register_style(replace(CPU, name="narrow", fallback="cpu"))


def plan_narrow(request, *args):
    """Plan pointwise ops as for CPUs, in one work-item."""
    step = pointwise.LAUNCHES["cpu"](request, *args)
    NarrowDriver.planned.append(request.record.name)
    return step


class NarrowDriver(CpuDriver):
    planned = []
    launched = 0

    def __init__(self, device):
        super().__init__(device)
        self.require()
        self._capabilities = replace(self.capabilities, style="narrow")

    def launcher(self, steps, scratch):
        run = super().launcher(steps, scratch)

        def counted(tensors, numbers, stream):
            NarrowDriver.launched += 1
            run(tensors, numbers, stream)

        return counted


pointwise.LAUNCHES.add("narrow", plan_narrow)
register_backend("narrow", NarrowDriver)
'''
PROGRAM = """
import backend
import weftgrad as wg
from weftgrad.runtime.errors import UnknownDevice

x = wg.arange(6, dtype=wg.float32, device="cpu").to("narrow:1").reshape(2, 3).requires_grad_()
y = x * x + 1
assert str(y.device) == "narrow:1", y.device
assert y.tolist() == [[1, 2, 5], [10, 17, 26]], y.tolist()
y.backward(wg.ones_like(y))
assert x.grad.tolist() == [[0, 2, 4], [6, 8, 10]], x.grad.tolist()
assert "mul" in backend.NarrowDriver.planned and backend.NarrowDriver.launched >= 2
assert y.sum().item() == 61 and wg.softmax(y, 1).sum().item() == 2  # planned by the fallback
try:
    wg.ones(3, device="wide:0")
except UnknownDevice as error:
    assert "narrow:<n>" in str(error), error
print("done")
"""


def test_one_file_adds_a_backend(tmp_path: Path) -> None:
    (tmp_path / "backend.py").write_text(BACKEND, encoding="utf-8")
    process = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROGRAM}"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert process.stdout.strip() == "done", process.stderr[-3000:]


def test_names_of_types_styles_and_targets_are_unique() -> None:
    with pytest.raises(ValueError, match="exist already"):
        register_backend("cpu", lambda device: None)
    with pytest.raises(ValueError, match="no type of devices"):
        register_backend("Two words", lambda device: None)
    with pytest.raises(ValueError, match="'cpu' exists already"):
        register_style(Style("cpu", "opencl", "opencl-cpu", lambda driver: "fallback"))
    with pytest.raises(ValueError, match="'opencl' exists already"):
        register_target(Target("opencl", "threads"))
    assert register_style(CPU) is CPU
    assert register_target(OPENCL) is OPENCL
    with pytest.raises(ValueError, match="there are cpu, gpu, triton"):
        style_named("fpga")
    with pytest.raises(ValueError, match="there are opencl, triton"):
        target_named("metal")


def test_the_types_of_devices_are_listed_in_the_error() -> None:
    with pytest.raises(UnknownDevice, match=r"there are cpu, opencl:<n>, cuda:<n>, interpreter and meta"):
        device("vulkan:0")


def test_a_table_refuses_a_second_function_of_a_style() -> None:
    table = ByStyle("fans", cpu=lambda: 1)
    with pytest.raises(ValueError, match="'cpu' has a function already"):
        table.add("cpu", lambda: 2)
    with pytest.raises(ValueError, match="no style is named 'fpga'"):
        table.add("fpga", lambda: 2)
    table.add("gpu", lambda: 3)
    assert table["gpu"]() == 3
    with pytest.raises(NotSupported, match="fans: no schedule for devices of style 'triton'; there are cpu, gpu"):
        table["triton"]


def test_drivers_build_what_their_target_compiles() -> None:
    class Recorder:
        def __init__(self, target: str):
            self.target = target

        def build(self, parts: list[object]) -> int:
            self.parts = parts
            return len(parts)

    class Launch:
        def __init__(self, instance: str):
            self.instance = instance

    steps = [Launch("a"), Launch("a"), Launch("b")]
    opencl, triton = Recorder("opencl"), Recorder("triton")
    assert (build_steps(opencl, steps), build_steps(triton, [*steps, steps[0]])) == (2, 3)  # type: ignore[list-item]
    assert opencl.parts == ["a", "b"]
    assert triton.parts == steps
