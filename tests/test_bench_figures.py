"""`weftgrad bench --figures`: traces are measured, saved, drawn and read back; a pool without a cache."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.bench import command, figure_traces, figures, plots, report_files, uncached_pool
from weftgrad.bench.cases import Case, Work
from weftgrad.bench.models import suite
from weftgrad.bench.sites import OurSite
from weftgrad.runtime.errors import ArgumentError, OutOfMemoryError

CPU = wg.device("cpu")


def run(*arguments: str) -> int:
    args = command.options(argparse.ArgumentParser()).parse_args(arguments)
    return int(args.run(args))


def tiny_training(site: Any) -> Work:
    nn, functional = wg.nn, wg.nn.functional
    model = nn.Linear(8, 4).to(site.device)
    optimizer = wg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, target = site.normal(32, 8), site.normal(32, 4)

    def step() -> Any:
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return Work(step, list, moves=True)


TINY = Case("models", "tiny training", tiny_training)


@pytest.fixture
def tiny_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "cases", lambda on_gpu: iter([TINY]))


def is_ordered(begins: list[float]) -> bool:
    return begins == sorted(begins)


@pytest.mark.parametrize("device", ["cpu", "opencl:0"])
def test_the_trace_of_a_step(device: str) -> None:
    if device != "cpu" and not any(str(d) == device for d in wg.devices()):
        pytest.skip(f"no {device}")
    (trace,) = figure_traces.step_traces({"step_traces": [figure_traces.record_step(TINY, OurSite(device))]})
    assert trace.is_synchronous is (device == "cpu")
    assert trace.host
    assert is_ordered([bar.begin for bar in trace.host])
    assert all(a.begin + a.length <= b.begin + 0.2 for a, b in zip(trace.host, trace.host[1:], strict=False))
    assert trace.kernels
    assert is_ordered([bar.begin for bar in trace.kernels])
    assert is_ordered([bar.queued for bar in trace.kernels])  # one queue, in order
    assert list(dict.fromkeys(bar.phase for bar in trace.host)) == list(figure_traces.PHASES)
    assert list(dict.fromkeys(bar.phase for bar in trace.kernels)) == list(figure_traces.PHASES)
    spans = trace.phase_spans()
    assert spans["forward"][0] == 0.0
    assert spans["forward"][1] == spans["backward"][0]
    assert spans["optimizer"][1] == trace.host_end <= trace.device_end
    assert 0 < trace.busy <= trace.device_end
    assert 1 <= trace.max_queue <= len(trace.kernels)
    words = " ".join(figures.trace_words(trace))
    assert ("is synchronous" in words) is (device == "cpu")
    assert ("kernels ahead of the device" in words) is (device != "cpu")


def test_driver_allocations_with_and_without_a_cache() -> None:
    row = figure_traces.record_caching(TINY, OurSite("cpu"), iterations=4, tries=2)
    (caching_run,) = figure_traces.caching_runs({"caching_runs": [row]})
    cached, uncached = (caching_run.shortest(mode) for mode in (figure_traces.CACHED, figure_traces.UNCACHED))
    assert [i.allocations for i in cached[1:]] == [0, 0, 0]
    assert all(i.allocations > 0 and i.frees > 0 for i in uncached[1:])
    assert uncached[1].allocations == uncached[3].allocations > cached[0].allocations
    assert all(0 < i.driver < i.total for i in uncached)
    assert len({i.reserved for i in uncached[1:]}) == 1  # nothing piles up
    with_cache, without = figures.caching_words(caching_run)
    assert " with 0 (memory" in with_cache
    assert f" with {uncached[1].allocations} (memory" in without


def test_a_gpu(cuda: Any, compiled: Any) -> None:
    """On the fake driver, which detects memory that is freed under queued kernels."""
    site = OurSite("cuda:0")
    (trace,) = figure_traces.step_traces({"step_traces": [figure_traces.record_step(TINY, site)]})
    assert not trace.is_synchronous
    assert trace.max_queue > 1
    row = figure_traces.record_caching(TINY, site, iterations=3, tries=1)
    (caching_run,) = figure_traces.caching_runs({"caching_runs": [row]})
    assert [i.allocations for i in caching_run.shortest(figure_traces.CACHED)[1:]] == [0, 0]
    assert all(i.allocations > 0 and i.frees > 0 for i in caching_run.shortest(figure_traces.UNCACHED)[1:])


def test_files_are_written_and_drawn_again(
    tiny_suite: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "new" / "pictures"
    assert run("--figures", str(folder), "--device", "cpu", "--only", "tiny") == 0
    names = {path.name for path in folder.iterdir()}
    pictures = {f"{stem}-tiny-training-cpu.{kind}" for stem in ("host-and-device", "caching-allocator")
                for kind in ("png", "svg")}  # fmt: skip
    assert names == pictures | {"traces-tiny-training-cpu.json"}
    assert all((folder / name).stat().st_size > 2000 for name in names)
    out = capsys.readouterr().out
    assert "cpu is synchronous" in out
    assert "later ones" in out
    drawing = (folder / "host-and-device-tiny-training-cpu.svg").read_text()
    assert "cpu is synchronous" in drawing
    assert (
        "no cache: a driver allocation for each block"
        in (folder / "caching-allocator-tiny-training-cpu.svg").read_text()
    )
    again = tmp_path / "again"
    assert run("--report", str(folder / "traces-tiny-training-cpu.json"), "--figures", str(again)) == 0
    assert {path.name for path in again.iterdir()} == pictures
    assert (again / "host-and-device-tiny-training-cpu.svg").read_text() == drawing


def test_options_that_are_refused(
    tiny_suite: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(plots, "available", lambda: True)
    with pytest.raises(ArgumentError, match="no model has 'large' in its name"):
        run("--figures", str(tmp_path / "a"), "--device", "cpu", "--only", "large")
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match="it is no folder"):
        run("--figures", str(tmp_path / "file"), "--device", "cpu")
    with pytest.raises(ArgumentError, match="name devices such as cpu,opencl:0, not all"):
        run("--figures", str(tmp_path / "a"), "--device", "all")
    with pytest.raises(ArgumentError, match="leave --output away"):
        run("--figures", str(tmp_path / "a"), "--device", "cpu", "--output", str(tmp_path / "report.json"))
    monkeypatch.setattr(plots, "available", lambda: False)
    with pytest.raises(ArgumentError, match=r"^bench: --figures needs matplotlib: pip install \"weftgrad\[bench\]\"$"):
        run("--figures", str(tmp_path / "a"), "--device", "cpu")


def test_malformed_traces_are_refused(tmp_path: Path) -> None:
    head = {"date": "2026", "devices": [{"device": "cpu", "name": "Cores"}], "torch": None, "versions": {}}
    step = {"name": "a", "device": "cpu", "is_synchronous": True, "host_end": 2, "device_end": 2, "unprofiled": [1, 1],
            "host": ["0 1 forward add"], "kernels": ["0 0 1 forward add"]}  # fmt: skip
    path = tmp_path / "report.json"
    for extra in ({"step_traces": [step | {"host": ["0 1 sideways add"]}]},
                  {"step_traces": [step | {"kernels": ["0"]}]},
                  {"caching_runs": [{"name": "a", "device": "cpu", "tries": {"cached": []}}]}):  # fmt: skip
        report = {"suite": "models", "machine": head, "host": [], "kernels": []} | extra
        path.write_text(json.dumps(report))
        with pytest.raises(ArgumentError, match="is no report"):
            report_files.load(path)


def test_a_pool_without_a_cache() -> None:
    before = wg.ones(1000, device=CPU)
    caching_pool = CPU.driver.default_stream.pool
    with uncached_pool.without_cache(CPU) as pool:
        assert CPU.driver.default_stream.pool is pool
        total = before * 2.0
        for _ in range(20):
            total = total + before
        stats = pool.stats()
        assert stats.driver_allocations == stats.allocations >= 21
        assert stats.driver_frees >= 18
        assert stats.allocated == total.storage.block.size == 4096
        view = total[10:20]
        del total
        assert pool.stats().allocated == 4096  # the view holds the memory
    assert CPU.driver.default_stream.pool is caching_pool
    assert (view.numpy() == np.full(10, 22.0)).all()
    reserved = CPU.driver.budget.reserved
    del view, pool
    wg.empty_cache(CPU)
    assert CPU.driver.budget.reserved <= reserved - 4096


def test_a_pool_without_a_cache_keeps_the_limit() -> None:
    budget = CPU.driver.budget
    limit = budget.limit
    with uncached_pool.without_cache(CPU) as pool:
        try:
            budget.limit = budget.reserved + (1 << 20)
            for _ in range(8):  # each fits, because freed blocks are returned first
                pool.free(pool.allocate(1 << 19))
            with pytest.raises(OutOfMemoryError):
                pool.allocate(1 << 21)
        finally:
            budget.limit = limit
