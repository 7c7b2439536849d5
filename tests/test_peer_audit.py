"""Check that PyTorch runs the audit's calls: the same program on torch's tensors, on the processor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weftgrad.bench.audit import gpu_timing
from weftgrad.bench.audit.auditing import matching_cases
from weftgrad.bench.audit.cases import cases
from weftgrad.bench.audit.operands import Operands
from weftgrad.bench.peers.torch import TorchSite
from weftgrad.bench.sites import OurSite

torch = pytest.importorskip("torch")
CASES = {case.name: case for case in cases()}


def test_torch_has_every_call() -> None:
    assert set(gpu_timing._cases_of(torch)) == set(CASES) == set(matching_cases([]))


@pytest.mark.parametrize("name", ["bias 16384x1024 + 1024 f32", "embedding backward 8192 of 50257x1024 f32",
                                  "batch_norm backward 32x64x56x56 f32"])  # fmt: skip
def test_both_libraries_compute_the_same_shapes(name: str) -> None:
    """A call has PyTorch's result, of the same shape as ours."""
    ours = CASES[name].prepare(gpu_timing._operands(OurSite("cpu"), CASES[name]))()
    theirs = gpu_timing._cases_of(torch)[name].prepare(gpu_timing._operands(TorchSite(torch, "cpu"), CASES[name]))()
    ours, theirs = (result if isinstance(result, tuple | list) else [result] for result in (ours, theirs))
    assert [tuple(t.shape) for t in ours] == [tuple(t.shape) for t in theirs]
    assert all(isinstance(t, torch.Tensor) for t in theirs)


def test_both_libraries_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_timing, "_site", lambda: OurSite("cpu"))
    monkeypatch.setattr(gpu_timing, "_torch_site", lambda: TorchSite(torch, "cpu"))
    ours, peer = gpu_timing.time_case(CASES["mse_loss 16M f32"])
    assert 0 < ours.least < 10
    assert peer is not None
    assert 0 < peer.least < 10

    def fails(operands: Operands) -> None:
        raise RuntimeError("out of memory")

    failing = {"mse_loss 16M f32": replace(CASES["mse_loss 16M f32"], prepare=fails)}
    monkeypatch.setattr(gpu_timing, "_cases_of", lambda library: failing)
    assert gpu_timing.time_case(CASES["mse_loss 16M f32"])[1] is None
