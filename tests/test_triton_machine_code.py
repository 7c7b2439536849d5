"""Bars for the machine code of the kernels that training spends its time in, compiled for sm_90."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("triton")

import weftgrad as wg
import weftgrad.nn.functional as F
from weftgrad.bench.audit.capture import Launch, capture
from weftgrad.bench.audit.estimate import LaunchFigures, launch_figures
from weftgrad.bench.audit.machines import MACHINES
from weftgrad.cli.calls import blank
from weftgrad.cli.compile import planning_device

pytestmark = pytest.mark.slow
H100 = MACHINES["H100"]
DEVICE = planning_device(H100.target)


def half(*shape: int) -> wg.Tensor:
    return blank(DEVICE, *shape, dtype=wg.bfloat16, grad=True)


def single(*shape: int) -> wg.Tensor:
    return blank(DEVICE, *shape, dtype=wg.float32, grad=True)


def plan_call(call: Callable[[], object]) -> list[Launch]:
    return capture(DEVICE, lambda: call)[0]


def figures_of(call: Callable[[], object]) -> dict[str, LaunchFigures]:
    """Return the figures of each kernel that a call launches, by the kernel's name."""
    return {launch.step.instance.entry: launch_figures(launch, H100) for launch in plan_call(call)}


def convolve_3x3(tensor: Callable[..., wg.Tensor], channels: int, size: int) -> None:
    x, w = tensor(32, channels, size, size), tensor(channels, channels, 3, 3)
    F.conv2d(x, w, None, padding=1).backward(tensor(32, channels, size, size).detach())


@pytest.mark.parametrize(
    ("tensor", "channels", "size", "bar", "weight_bar"),
    [(half, 64, 56, 0.65, 0.3), (half, 256, 14, 0.9, 0.65), (single, 64, 56, 0.65, 0.45)],
    ids=["bfloat16 64", "bfloat16 256", "float32 64"],
)
def test_convolutions_keep_tensor_cores_busy(
    tensor: Callable[..., wg.Tensor], channels: int, size: int, bar: float, weight_bar: float
) -> None:
    kernels = figures_of(lambda: convolve_3x3(tensor, channels, size))
    assert kernels["convolution_channels"].tensor_share >= bar
    assert kernels["convolution_channels_weight"].tensor_share >= weight_bar
    assert kernels["convolution_channels"].narrow_loads == 0
    assert not [name for name, kernel in kernels.items() if kernel.spills or kernel.calls]


def test_convolutions_of_one_pixel_are_matrix_products() -> None:
    kernels = figures_of(lambda: F.conv2d(half(32, 256, 56, 56).detach(), half(64, 256, 1, 1).detach()))
    assert list(kernels) == ["contraction_tma"]


def attend(features: int) -> None:
    query, key, value = (half(4, 16, 4096, features) for _ in range(3))
    F.scaled_dot_product_attention(query, key, value).backward(half(4, 16, 4096, features).detach())


@pytest.mark.parametrize(("features", "bars"), [(64, (0.75, 1.4, 0.95)), (128, (1.25, 2.5, 1.6))])
def test_attention_is_bound_by_its_products(features: int, bars: tuple[float, float, float]) -> None:
    kernels = figures_of(lambda: attend(features))
    for name, bar in zip(("forward", "query", "key_value"), bars, strict=True):
        kernel = kernels[f"attention_{name}"]
        assert kernel.tensor_share >= bar, name
        assert not kernel.spills, name


@pytest.mark.parametrize(
    ("tensor", "m", "k", "n"),
    [(half, 8192, 200, 4096), (half, 1000, 1000, 1000), (single, 1000, 1000, 1000)],
    ids=["bfloat16 k=200", "bfloat16 1000", "float32 1000"],
)
def test_rows_of_16_bytes_are_loaded_16_bytes_at_a_time(
    tensor: Callable[..., wg.Tensor], m: int, k: int, n: int
) -> None:
    kernels = figures_of(lambda: tensor(m, k).detach() @ tensor(k, n).detach())
    assert kernels["contraction_tile"].narrow_loads == 0
    assert kernels["contraction_tile"].tensor_share >= 1


def test_narrow_products_have_narrow_tiles() -> None:
    (launch,) = plan_call(lambda: half(96, 1024, 1024).detach() @ half(96, 1024, 64).detach())
    assert dict(launch.step.instance.defines)["BN"] == 64


def test_pools_need_no_64_bit_division() -> None:
    def pool() -> None:
        F.max_pool2d(single(32, 64, 112, 112), 3, 2, 1).backward(single(32, 64, 56, 56).detach())

    for launch in plan_call(pool):
        figures = launch_figures(launch, H100)
        assert dict(launch.step.instance.defines)["INDEX"] == "int32", figures.kernel
        assert figures.calls == 0, figures.kernel
        assert figures.hot_barriers == 0, figures.kernel


@pytest.mark.parametrize(
    ("function", "bar"),
    [(wg.exp, 12), (F.silu, 22), (wg.sigmoid, 22), (wg.tanh, 31), (F.gelu, 31), (F.relu, 7)],
    ids=["exp", "silu", "sigmoid", "tanh", "gelu", "relu"],
)
def test_functions_in_half_precision_are_bound_by_memory(function: Callable[[wg.Tensor], wg.Tensor], bar: int) -> None:
    """An H100 issues 31 instructions of a thread while memory reads and writes an element of half precision."""
    (launch,) = plan_call(lambda: function(half(1 << 24).detach()))
    figures = launch_figures(launch, H100)
    threads = 32 * figures.warps
    assert figures.instructions * threads / int(dict(launch.step.instance.defines)["BLOCK"]) <= bar


def instructions_per_item(launch: Launch, items: int) -> float:
    """Return the instructions of threads per item in a kernel's hot loop, whose pass processes `items`."""
    figures = launch_figures(launch, H100)
    assert figures.spills == 0, figures.kernel
    return figures.hot_instructions * 32 * figures.warps / items


def entries(launches: list[Launch]) -> list[str]:
    return [launch.step.instance.entry for launch in launches]


@pytest.mark.parametrize("dtype", [wg.float32, wg.bfloat16, wg.int64], ids=["float32", "bfloat16", "int64"])
def test_top_k_reads_a_row_twice(dtype: wg.DType) -> None:
    launches = plan_call(lambda: blank(DEVICE, 4096, 32000, dtype=dtype).topk(50))
    assert entries(launches) == ["sort_select", "sort_whole"]
    block = int(dict(launches[0].step.instance.defines)["BLOCK"])
    assert instructions_per_item(launches[0], block) <= (100 if dtype is wg.int64 else 75)


def test_reads_by_an_index_take_one_launch() -> None:
    index, table = blank(DEVICE, 8, 1024, dtype=wg.int64), half(50257, 1024).detach()
    for call in (lambda: F.embedding(index, table), lambda: table.index_select(0, index[0])):
        assert len(plan_call(call)) == 1


def test_rows_are_sorted_in_one_program() -> None:
    """The loop has a stage for each bit of a slot."""
    (launch,) = plan_call(lambda: single(4096, 4096).detach().sort(-1))
    assert instructions_per_item(launch, 4096 * 12) <= 11.5


def test_a_digit_of_radix_sort_takes_two_launches() -> None:
    launches = plan_call(lambda: single(1 << 24).detach().sort(-1))
    assert entries(launches) == ["sort_count", "sort_scatter"] * 4
    assert instructions_per_item(launches[2], 2048) <= 85
    assert instructions_per_item(launches[3], 2048) <= 360


@pytest.mark.parametrize(("tensor", "bars"), [(single, (46, 40)), (half, (32, 28))], ids=["float32", "bfloat16"])
def test_cross_entropy_reads_logits_once_each_way(tensor: Callable[..., wg.Tensor], bars: tuple[int, int]) -> None:
    """Instructions for a logit; it was read three times forward and twice backward, by 14 launches."""
    target = blank(DEVICE, 8192, dtype=wg.int64)
    launches = plan_call(lambda: F.cross_entropy(tensor(8192, 50257), target).backward())
    launches = [launch for launch in launches if launch.step.instance.name != "full_like_as"]
    assert entries(launches) == ["cross_entropy_total_swept", "class_loss_sums_tiles", "cross_entropy_slope_swept"]
    assert launches[0].step.instance.text.count("for start in range(0, full_blocks, BLOCK)") == 1
    for launch, bar in zip((launches[0], launches[-1]), bars, strict=True):
        assert instructions_per_item(launch, int(dict(launch.step.instance.defines)["BLOCK"])) <= bar


def test_sums_over_planes_load_16_bytes_without_division() -> None:
    def normalize() -> None:
        x, weight, bias = single(32, 64, 56, 56), single(64), single(64)
        running = blank(DEVICE, 64, dtype=wg.float32), blank(DEVICE, 64, dtype=wg.float32)
        F.batch_norm(x, *running, weight, bias, training=True).backward(single(32, 64, 56, 56).detach())

    launches = {launch.step.instance.entry: launch for launch in plan_call(normalize)}
    assert len(launches) <= 7
    for name, bar in (("moments_partial", 18), ("standardize_sums_partial", 24)):
        defines = dict(launches[name].step.instance.defines)
        assert 16 in launch_figures(launches[name], H100).widths, name
        assert instructions_per_item(launches[name], int(defines["RESULTS"]) * int(defines["BLOCK"])) <= bar, name


@pytest.mark.parametrize("tensor", [single, half], ids=["float32", "bfloat16"])
def test_scatters_and_embeddings_add_sorted_runs(tensor: Callable[..., wg.Tensor]) -> None:
    x, index = tensor(8192, 4096).detach(), blank(DEVICE, 8192, 4096, dtype=wg.int64)
    launches = plan_call(lambda: x.scatter_add(1, index, tensor(8192, 4096).detach()))
    assert entries(launches)[-1] == "scatter_add_segments"
    assert launch_figures(launches[-1], H100).spills == 0
    table, words = tensor(50257, 1024), blank(DEVICE, 8192, dtype=wg.int64)
    launches = plan_call(lambda: F.embedding(words, table).backward(tensor(8192, 1024).detach()))
    assert entries(launches)[-2:] == ["spread_at_runs", "spread_at_joins"]
    assert not any(launch_figures(launch, H100).spills for launch in launches[-2:])
    outputs = launches[-2].step.instance.slots[2:4]
    assert {slot.dtype for slot in outputs} == {str(table.dtype).rpartition(".")[2]}  # no float32 table
