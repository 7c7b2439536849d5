"""Bars for the machine code of depthwise convolutions and pools, whose lanes compute tiles of planes."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

import weftgrad as wg
import weftgrad.nn.functional as F
from weftgrad.bench.audit.capture import capture
from weftgrad.bench.audit.estimate import LaunchFigures, launch_figures
from weftgrad.bench.audit.machines import MACHINES
from weftgrad.cli.calls import blank
from weftgrad.cli.compile import planning_device
from weftgrad.runtime.device import Device

pytestmark = pytest.mark.slow


def half(device: Device, *shape: int) -> wg.Tensor:
    return blank(device, *shape, dtype=wg.bfloat16, grad=False)


def instructions_per_result(figures: LaunchFigures, results: int) -> float:
    return figures.instructions * figures.programs * figures.warps * 32 / results


@pytest.mark.parametrize("name", ["A100", "H100", "B200"])
def test_depthwise_convolutions_load_rows_and_keep_to_their_registers(name: str) -> None:
    device = planning_device(MACHINES[name].target)
    x, w = half(device, 32, 256, 28, 28), half(device, 256, 1, 3, 3)
    (launch,), _ = capture(device, lambda: lambda: F.conv2d(x, w, None, padding=1, groups=256))
    figures = launch_figures(launch, MACHINES[name])
    assert (figures.spills, figures.calls, figures.shared) == (0, 0, 0)
    # 9 multiplications, and as many for loads, conversions and stores together.
    assert instructions_per_result(figures, 32 * 256 * 28 * 28) <= 30
    assert max(figures.widths) == 8  # rows of 56 bytes


def test_average_pools_issue_less_than_memory_takes() -> None:
    device = planning_device(MACHINES["H100"].target)
    x = half(device, 32, 64, 112, 112)
    (launch,), _ = capture(device, lambda: lambda: F.avg_pool2d(x, 2))
    figures = launch_figures(launch, MACHINES["H100"])
    assert (figures.spills, figures.calls, figures.bound) == (0, 0, "memory")
    assert max(figures.widths) == 16
