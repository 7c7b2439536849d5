"""Stores that bypass the caches: which results get them, and that they leave the same bits as others."""

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

Maker = Callable[[np.random.Generator], Callable[[], wg.Tensor]]


@pytest.fixture
def streaming(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`cpu`, where every result of a line of a cache and more is large."""
    yield from vendors.posing({"stream": 64, "stream_rows": 64}, monkeypatch)


def normal(rng: np.random.Generator, *shape: int) -> wg.Tensor:
    return wg.tensor(rng.standard_normal(shape).astype(np.float32))


def index(rng: np.random.Generator, *shape: int, below: int) -> wg.Tensor:
    return wg.tensor(rng.integers(0, below, shape))


def scattered(rng: np.random.Generator) -> Callable[[], wg.Tensor]:
    target, places, source = normal(rng, 70, 96), index(rng, 70, 40, below=96), normal(rng, 70, 40)
    return lambda: target.scatter_add(1, places, source)


def gathered(rng: np.random.Generator) -> Callable[[], wg.Tensor]:
    source, places = normal(rng, 70, 96), index(rng, 70, 32, below=96)
    return lambda: source.gather(1, places)


def taken(rng: np.random.Generator) -> Callable[[], wg.Tensor]:
    source, places = normal(rng, 70, 96), index(rng, 33, 64, below=70 * 96)
    return lambda: wg.take(source, places)


def copied(start: int) -> Maker:
    """A copy into memory that starts `start` elements after a line of a cache."""

    def make(rng: np.random.Generator) -> Callable[[], wg.Tensor]:
        source, target = normal(rng, 37, 113), wg.zeros(start + 37 * 113)
        return lambda: target[start:].view(37, 113).copy_(source)

    return make


def of(function: Callable[..., wg.Tensor], *shapes: tuple[int, ...]) -> Maker:
    def make(rng: np.random.Generator) -> Callable[[], wg.Tensor]:
        operands = [normal(rng, *shape) for shape in shapes]
        return lambda: function(*operands)

    return make


CASES: dict[str, Maker] = {
    "add": of(wg.add, (37, 113), (37, 113)),
    "add of few": of(wg.add, (19,), (19,)),
    "a row": of(wg.add, (70, 96), (96,)),
    "a column": of(wg.add, (70, 96), (70, 1)),
    "part of a row": of(lambda x: x[:, 3:99] * 2, (70, 128)),
    "double": of(lambda x: wg.exp(x.double()), (37, 113)),
    "rows softened": of(lambda x: F.softmax(x, -1), (33, 192)),
    "rows normalised": of(lambda x: F.layer_norm(x, (192,)), (33, 192)),
    "running sums": of(lambda x: x.cumsum(1), (33, 192)),
    "sums that run back": of(lambda x: x.flip(1).cumsum(0), (33, 192)),
    "copy": copied(0),
    "copy to anywhere": copied(3),
    "gather": gathered,
    "take": taken,
    "scatter_add": scattered,
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored past the caches, beside what is not; both by kernels that are built alike."""
    found: list[np.ndarray[Any, Any]] = []
    streamed: list[bool] = []
    for threshold in (1 << 40, 64):
        pose = vendors.posing({"stream": threshold, "stream_rows": threshold}, monkeypatch)
        next(pose)
        try:
            call = CASES[name](np.random.default_rng(7))
            steps = facts.steps_of(OurSite("cpu"), call)
            found.append(call().numpy())
        finally:
            next(pose, None)
        defines = [define for step in steps for define in step.instance.defines]
        streamed.append(any(key.startswith("STREAM") and value != "0" for key, value in defines))
        streamed[-1] |= any(key == "BOARD" for key, _ in defines)
    np.testing.assert_array_equal(found[0].view(np.uint8), found[1].view(np.uint8), err_msg=f"{name} on cpu")
    assert streamed == [False, True]


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32, np.int64, np.float64], ids=lambda t: t.__name__)
def test_copies_to_anywhere(dtype: type, streaming: None) -> None:
    """Into memory that starts at any byte, as that of arrays over packed files does, by several work-items."""
    size, n = np.dtype(dtype).itemsize, 70_001
    source = np.random.default_rng(3).integers(0, 100, n).astype(dtype)
    for start in {0, 1, 4, size, 3 * size, 64 - size, 65}:
        raw = np.zeros(start + (n + 2) * size, np.uint8)
        target = raw[start : start + n * size].view(dtype)
        into = wg.from_numpy(target)
        steps = facts.steps_of(OurSite("cpu"), lambda into=into: into.copy_(wg.tensor(source)))
        assert any(("STREAM", "1") in step.instance.defines for step in steps)
        assert steps[-1].global_size[0] > 1
        into.copy_(wg.tensor(source))
        np.testing.assert_array_equal(into.numpy(), source, err_msg=f"copy to byte {start}, {dtype.__name__}")
        assert not raw[:start].any()
        assert not raw[start + n * size :].any()


def test_whether_kernels_ask_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the device's to say, and reaches the compiler."""
    for ahead in (True, False):
        pose = vendors.posing({"ahead": ahead}, monkeypatch)
        next(pose)
        try:
            driver: Any = device("cpu").driver
            assert ("-DWG_NO_AHEAD" in driver.road.kernels.store._flags) is not ahead
            np.testing.assert_array_equal((wg.ones(5000) + 1).numpy(), np.full(5000, 2, np.float32))
        finally:
            next(pose, None)


def test_in_place_keeps_to_the_caches(streaming: None) -> None:
    """Memory that a program has in hand is in a cache already, unless it is only written, as in copies of one run."""
    x, y = wg.zeros(64, 64), wg.ones(64, 64)
    part = wg.zeros(64, 128)[:, 3:67]
    for call in (lambda: x.add_(y), lambda: wg.add(x, y, out=x), lambda: part.copy_(y)):
        steps = facts.steps_of(OurSite("cpu"), call)
        assert [d for step in steps for d in step.instance.defines if d[0].startswith("STREAM")] == []
    assert x.sum().item() == 2 * part.sum().item() == 2 * 64 * 64  # each was called


def test_rows_where_every_vector_is_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a result that is large enough, each vector of which starts at a multiple of its size, and nowhere else."""
    base = np.arange(1 << 17, dtype=np.float32)
    pose = vendors.posing({"stream": 256 << 10}, monkeypatch)
    next(pose)
    try:
        for shape, whole in (((64, 1040), True), ((70, 1037), False), ((32, 1040), False)):
            row = base[: shape[1]] * 2
            x = wg.tensor(base)[: shape[0] * shape[1]].reshape(shape)
            expected = base[: x.numel()].reshape(shape) + row
            operands = (x, wg.tensor(row))
            (step,) = dispatch.plan_for(registry["add"], operands).steps
            assert step.instance.entry == "add_rows"
            assert (("STREAM", "1") in step.instance.defines) is whole, shape
            np.testing.assert_array_equal(wg.add(*operands).numpy(), expected, err_msg=f"add {shape} on cpu")
            out = wg.empty(x.numel() + 1)[1:].view(shape)  # not where a vector starts
            wg.add(*operands, out=out)
            np.testing.assert_array_equal(out.numpy(), expected, err_msg=f"add {shape} on cpu, out")
    finally:
        next(pose, None)


def test_threshold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the largest cache of the host: four of it, or 8 MiB where it is one that many share; half of an AMD's."""

    def of_caches(*sizes: str) -> int:
        folder = tmp_path / "-".join(sizes or ("none",))
        for i, size in enumerate(sizes):
            (folder / f"index{i}").mkdir(parents=True)
            (folder / f"index{i}" / "size").write_text(f"{size}\n", encoding="ascii")
        monkeypatch.setattr(processor, "_CACHES", folder)
        processor.last_level_cache.cache_clear()
        return processor.stream_threshold()

    try:
        monkeypatch.setattr(processor, "from_amd", lambda: True)
        assert of_caches("32K", "1024K", "32768K") == processor.stream_rows_threshold() == 16 << 20
        monkeypatch.setattr(processor, "from_amd", lambda: False)
        assert of_caches("32K", "1024K", "36608K") == processor.stream_rows_threshold() // 4 == 4 * 36608 << 10
        assert of_caches("48K", "2048K", "491520K") == 8 << 20
        assert of_caches("48K", "2M", "1G") == 8 << 20
        assert of_caches() == of_caches("odd") == 128 << 20
    finally:
        processor.last_level_cache.cache_clear()


def test_the_device_has_it() -> None:
    driver: Any = device("cpu").driver
    driver.require()
    assert driver.capabilities.stream == processor.stream_threshold()
    assert driver.capabilities.stream_rows == processor.stream_rows_threshold()
    assert driver.capabilities.ahead is not processor.from_amd()


def test_the_maker_of_the_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the system says of its first processor counts, and nothing where it says nothing."""
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
        monkeypatch.setattr(processor.native, "processor_features", lambda: ())  # what C asks where there is no file
        processor._described.cache_clear()
        try:
            assert (processor.from_amd(), processor.has_avx512()) == (amd, avx512), text
        finally:
            processor._described.cache_clear()
