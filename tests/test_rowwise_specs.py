"""Check rowwise ops of users: errors of calls and specs, optional operands and several results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from rowwise_running import SPECS, fetch, tensor, use_vendor

from weftgrad.codegen.loader import load_file, load_text
from weftgrad.codegen.model import SpecError, SpecErrors
from weftgrad.codegen.render import render_all
from weftgrad.runtime import dispatch
from weftgrad.runtime.derive import register_generated
from weftgrad.runtime.errors import ArgumentError, DTypeError, IndexOutOfRange, ShapeError
from weftgrad.runtime.records import registry

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module", autouse=True)
def ops() -> None:
    register_generated(render_all(load_file(SPECS), 2))


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    yield from use_vendor("cpu", monkeypatch)


def message(call: Callable[[], Any], kind: type[Exception]) -> str:
    with pytest.raises(kind) as excinfo:
        call()
    return str(excinfo.value)


def test_errors_name_op_and_shapes(cpu: str) -> None:
    x = tensor(np.zeros((3, 4), np.float32))
    norm, call = registry["layer_norm"], dispatch.call
    text = message(lambda: call(norm, (x, None, None, 1e-5), ((5,),)), ShapeError)
    assert "layer_norm" in text
    assert "[5]" in text
    assert "[3, 4]" in text
    assert "[3]" in message(lambda: call(norm, (x, tensor(np.zeros(3, np.float32)), None, 1e-5), ((4,),)), ShapeError)
    message(lambda: call(norm, (x, None, None, 1e-5), ((),)), ShapeError)
    losses = registry["cross_entropy_row"]
    text = message(lambda: call(losses, (x, tensor(np.zeros(4, int)), -100.0, 0.0), (-1,)), ShapeError)
    assert "target" in text
    assert "[3]" in text
    assert "int64" in message(lambda: call(registry["softmax"], (tensor(np.zeros((3, 4), int)),), (-1,)), DTypeError)
    message(lambda: call(registry["softmax"], (x,), (2,)), IndexOutOfRange)
    message(lambda: call(losses, (x, 3, -100.0, 0.0), (-1,)), ArgumentError)
    message(lambda: call(registry["softmax_grad_input"], (x, tensor(np.zeros((3, 5), np.float32))), (-1,)), ShapeError)


@pytest.mark.parametrize(
    ("spec", "pattern"),
    [
        ("- op: 'f(input, dim: int = -1)'\n  kind: rowwise\n  out: sum(inptu)", "input"),
        ("- op: 'f(input, dim: int = -1)'\n  kind: rowwise\n  let: {input: 1}\n  out: input", "let.input"),
        ("- op: f(input)\n  kind: rowwise\n  out: sum(input)", "dim: int"),
        ("- op: 'f(input, dim: int = -1, w: Row = 0)'\n  kind: rowwise\n  out: sum(input)", "'w'"),
        ("- op: 'f(w: Row, dim: int = -1)'\n  kind: rowwise\n  out: sum(w)", "operand that has the rows"),
        ("- op: 'f(input, dim: int = -1)'\n  kind: rowwise\n  rows: shape\n  out: sum(input)", "normalized_shape"),
        ("- op: 'f(input, dim: int = -1)'\n  kind: rowwise\n  out: sum(input)\n  grad: {other: grad}", "other"),
    ],
)
def test_spec_errors(spec: str, pattern: str) -> None:
    with pytest.raises(SpecErrors, match=pattern):
        load_text(spec)


def test_an_optional_operand_is_a_factor_or_a_summand() -> None:
    spec = "- op: 'f(input, dim: int = -1, w: Row | None = None)'\n  kind: rowwise\n  out: exp(input - {})"
    records = render_all(load_text(spec.format("w")), 0).records
    assert "exp(input)" in records["f_plain"].op.outputs["out"]
    with pytest.raises(SpecError, match="argument of cos"):
        render_all(load_text(spec.format("cos(w)")), 0)


@pytest.mark.parametrize("kind", ["cpu", "poor"])
def test_several_results(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = """
- op: 'row_statistics(input, w: Row, dim: int = -1)'
  kind: rowwise
  let: {m: mean(input)}
  out:
    above: input > m
    lowest: min(input)
    product: prod(1 + input / 100)
    ranks: where(index < 3, w, input) * input
    total: column_sum(input * m)
    spread: broadcast(max(input) - m)
"""
    register_generated(render_all(load_text(spec), 0))
    for _ in use_vendor(kind, monkeypatch):
        check_statistics(np.random.default_rng(11))


def check_statistics(rng: Any) -> None:
    for n in (2, 21, 300):
        x, w = rng.standard_normal((9, n)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
        results = [fetch(r) for r in dispatch.call(registry["row_statistics"], (tensor(x), tensor(w)), (-1,))]
        m = x.mean(1, keepdims=True, dtype=float)
        expected = (x > m, x.min(1), np.prod(1 + x.astype(float) / 100, 1), np.where(np.arange(n) < 3, w, x) * x,
                    (x * m).sum(0), np.broadcast_to(x.max(1, keepdims=True) - m, x.shape))  # fmt: skip
        for result, reference in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, reference, rtol=1e-5, atol=1e-5)
