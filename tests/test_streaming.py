"""Check non-temporal stores, which bypass the caches: which results use them, and that the bits stay the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vendors

import weftgrad as wg
from weftgrad.bench import facts
from weftgrad.bench.sites import OurSite
from weftgrad.nn import functional as F
from weftgrad.runtime import dispatch
from weftgrad.runtime.backends import processor
from weftgrad.runtime.device import device
from weftgrad.runtime.records import registry

CallFactory = Callable[[np.random.Generator], Callable[[], wg.Tensor]]


@pytest.fixture
def streaming(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lower the thresholds of `cpu` so that every result of at least one cache line (64 bytes) is streamed."""
    yield from vendors.change_capabilities({"stream": 64, "stream_rows": 64}, monkeypatch)


def random_tensor(rng: np.random.Generator, *shape: int) -> wg.Tensor:
    return wg.tensor(rng.standard_normal(shape).astype(np.float32))


def random_indices(rng: np.random.Generator, *shape: int, high: int) -> wg.Tensor:
    return wg.tensor(rng.integers(0, high, shape))


def make_scatter(rng: np.random.Generator) -> Callable[[], wg.Tensor]:
    target, indices, source = (
        random_tensor(rng, 70, 96),
        random_indices(rng, 70, 40, high=96),
        random_tensor(rng, 70, 40),
    )
    return lambda: target.scatter_add(1, indices, source)


def make_gather(rng: np.random.Generator) -> Callable[[], wg.Tensor]:
    source, indices = random_tensor(rng, 70, 96), random_indices(rng, 70, 32, high=96)
    return lambda: source.gather(1, indices)


def make_take(rng: np.random.Generator) -> Callable[[], wg.Tensor]:
    source, indices = random_tensor(rng, 70, 96), random_indices(rng, 33, 64, high=70 * 96)
    return lambda: wg.take(source, indices)


def make_copy(start: int) -> CallFactory:
    """Return a factory of a copy into memory that starts `start` elements after the start of a cache line."""

    def make(rng: np.random.Generator) -> Callable[[], wg.Tensor]:
        source, target = random_tensor(rng, 37, 113), wg.zeros(start + 37 * 113)
        return lambda: target[start:].view(37, 113).copy_(source)

    return make


def make_call(function: Callable[..., wg.Tensor], *shapes: tuple[int, ...]) -> CallFactory:
    def make(rng: np.random.Generator) -> Callable[[], wg.Tensor]:
        operands = [random_tensor(rng, *shape) for shape in shapes]
        return lambda: function(*operands)

    return make


CASES: dict[str, CallFactory] = {
    "add": make_call(wg.add, (37, 113), (37, 113)),
    "add of 19 elements": make_call(wg.add, (19,), (19,)),
    "add of a row": make_call(wg.add, (70, 96), (96,)),
    "add of a column": make_call(wg.add, (70, 96), (70, 1)),
    "part of a row": make_call(lambda x: x[:, 3:99] * 2, (70, 128)),
    "double": make_call(lambda x: wg.exp(x.double()), (37, 113)),
    "softmax of rows": make_call(lambda x: F.softmax(x, -1), (33, 192)),
    "layer_norm of rows": make_call(lambda x: F.layer_norm(x, (192,)), (33, 192)),
    "running sums": make_call(lambda x: x.cumsum(1), (33, 192)),
    "reversed running sums": make_call(lambda x: x.flip(1).cumsum(0), (33, 192)),
    "copy": make_copy(0),
    "copy to unaligned memory": make_copy(3),
    "gather": make_gather,
    "take": make_take,
    "scatter_add": make_scatter,
}


@pytest.mark.parametrize("name", CASES)
def test_streaming_stores_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare results of streaming stores with those of ordinary stores, from kernels with the same build options."""
    outputs: list[np.ndarray[Any, Any]] = []
    streamed: list[bool] = []
    for threshold in (1 << 40, 64):
        capability_change = vendors.change_capabilities({"stream": threshold, "stream_rows": threshold}, monkeypatch)
        next(capability_change)
        try:
            call = CASES[name](np.random.default_rng(7))
            steps = facts.steps_of(OurSite("cpu"), call)
            outputs.append(call().numpy())
        finally:
            next(capability_change, None)
        defines = [define for step in steps for define in step.instance.defines]
        streamed.append(any(key.startswith("STREAM") and value != "0" for key, value in defines))
        streamed[-1] |= any(key == "ROW_BUFFER" for key, _ in defines)
    np.testing.assert_array_equal(outputs[0].view(np.uint8), outputs[1].view(np.uint8), err_msg=f"{name} on cpu")
    assert streamed == [False, True]


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32, np.int64, np.float64], ids=lambda t: t.__name__)
def test_copies_to_unaligned_memory(dtype: type, streaming: None) -> None:
    """Copy with several work-items into memory that starts at any byte, as arrays over packed files do."""
    size, n = np.dtype(dtype).itemsize, 70_001
    source = np.random.default_rng(3).integers(0, 100, n).astype(dtype)
    for start in {0, 1, 4, size, 3 * size, 64 - size, 65}:
        raw = np.zeros(start + (n + 2) * size, np.uint8)
        target = raw[start : start + n * size].view(dtype)
        destination = wg.from_numpy(target)
        steps = facts.steps_of(OurSite("cpu"), lambda destination=destination: destination.copy_(wg.tensor(source)))
        assert any(("STREAM", "1") in step.instance.defines for step in steps)
        assert steps[-1].global_size[0] > 1
        destination.copy_(wg.tensor(source))
        np.testing.assert_array_equal(destination.numpy(), source, err_msg=f"copy to byte {start}, {dtype.__name__}")
        assert not raw[:start].any()
        assert not raw[start + n * size :].any()


def test_the_device_decides_whether_kernels_prefetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The capability `ahead` switches prefetch instructions on or off when kernels are compiled."""
    for ahead in (True, False):
        capability_change = vendors.change_capabilities({"ahead": ahead}, monkeypatch)
        next(capability_change)
        try:
            driver: Any = device("cpu").driver
            assert ("-DWG_NO_AHEAD" in driver.executor.kernels.store._flags) is not ahead
            np.testing.assert_array_equal((wg.ones(5000) + 1).numpy(), np.full(5000, 2, np.float32))
        finally:
            next(capability_change, None)


def test_in_place_results_are_not_streamed(streaming: None) -> None:
    """Results in place are in a cache already, so ordinary stores are faster; copies of whole runs only write."""
    x, y = wg.zeros(64, 64), wg.ones(64, 64)
    part = wg.zeros(64, 128)[:, 3:67]
    for call in (lambda: x.add_(y), lambda: wg.add(x, y, out=x), lambda: part.copy_(y)):
        steps = facts.steps_of(OurSite("cpu"), call)
        assert [d for step in steps for d in step.instance.defines if d[0].startswith("STREAM")] == []
    assert x.sum().item() == 2 * part.sum().item() == 2 * 64 * 64  # every call has run


def test_only_results_whose_rows_are_aligned_are_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are streamed only if the result is large enough and every vector starts at a multiple of its size."""
    base = np.arange(1 << 17, dtype=np.float32)
    capability_change = vendors.change_capabilities({"stream": 256 << 10}, monkeypatch)
    next(capability_change)
    try:
        for shape, is_aligned in (((64, 1040), True), ((70, 1037), False), ((32, 1040), False)):
            row = base[: shape[1]] * 2
            x = wg.tensor(base)[: shape[0] * shape[1]].reshape(shape)
            expected = base[: x.numel()].reshape(shape) + row
            operands = (x, wg.tensor(row))
            (step,) = dispatch.plan_for(registry["add"], operands).steps
            assert step.instance.entry == "add_rows"
            assert (("STREAM", "1") in step.instance.defines) is is_aligned, shape
            np.testing.assert_array_equal(wg.add(*operands).numpy(), expected, err_msg=f"add {shape} on cpu")
            out = wg.empty(x.numel() + 1)[1:].view(shape)  # starts between two vectors
            wg.add(*operands, out=out)
            np.testing.assert_array_equal(out.numpy(), expected, err_msg=f"add {shape} on cpu, out")
    finally:
        next(capability_change, None)


def test_threshold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The threshold is four times the last-level cache, 8 MiB if many cores share it, and half of an AMD cache."""

    def of_caches(*sizes: str) -> int:
        folder = tmp_path / "-".join(sizes or ("none",))
        for i, size in enumerate(sizes):
            (folder / f"index{i}").mkdir(parents=True)
            (folder / f"index{i}" / "size").write_text(f"{size}\n", encoding="ascii")
        monkeypatch.setattr(processor, "_CACHES", folder)
        processor.last_level_cache.cache_clear()
        return processor.stream_threshold()

    try:
        monkeypatch.setattr(processor, "is_amd", lambda: True)
        assert of_caches("32K", "1024K", "32768K") == processor.stream_rows_threshold() == 16 << 20
        monkeypatch.setattr(processor, "is_amd", lambda: False)
        assert of_caches("32K", "1024K", "36608K") == processor.stream_rows_threshold() // 4 == 4 * 36608 << 10
        assert of_caches("48K", "2048K", "491520K") == 8 << 20
        assert of_caches("48K", "2M", "1G") == 8 << 20
        assert of_caches() == of_caches("odd") == 128 << 20
        assert of_caches("32K", "1024K", "8192K") == 32 << 20
        assert processor.last_level_cache() == 8 << 20
    finally:
        processor.last_level_cache.cache_clear()


def test_the_device_has_the_threshold_of_its_processor() -> None:
    driver: Any = device("cpu").driver
    driver.require()
    assert driver.capabilities.stream == processor.stream_threshold()
    assert driver.capabilities.stream_rows == processor.stream_rows_threshold()
    assert driver.capabilities.ahead is not processor.is_amd()


def test_vendor_and_features_of_the_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Vendor and AVX-512 are read from the first processor of /proc/cpuinfo, and are absent without that file."""
    for number, (text, amd, avx512) in enumerate([
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx512f avx512bw avx512cd avx512dq avx512vl\n\nvendor_id\t: No\n",
         True, True),
        ("vendor_id\t: GenuineIntel\nflags\t: fpu avx2\n\n", False, False),
        ("Processor\t: some ARM\n", False, False),
        (None, False, False),
    ]):  # fmt: skip
        path = tmp_path / f"cpuinfo{number}"
        if text is not None:
            path.write_text(text, encoding="ascii")
        monkeypatch.setattr(processor, "_PROCESSORS", path)
        # What native code reports if there is no file.
        monkeypatch.setattr(processor.native, "processor_features", lambda: ())
        processor._cpu_info.cache_clear()
        try:
            assert (processor.is_amd(), processor.has_avx512()) == (amd, avx512), text
        finally:
            processor._cpu_info.cache_clear()
