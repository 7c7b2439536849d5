"""Check reductions of users: specs, errors, gradients, and variants that save or leave out outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from reduction_running import (
    SPECS,
    VENDORS,
    Case,
    close,
    entry,
    equal,
    fetch,
    records_of,
    run,
    run_all,
    tensor,
    with_saved_outputs,
)
from vendors import change_capabilities

import weftgrad as wg
import weftgrad.codegen
from weftgrad.codegen.kinds import reduction as kind
from weftgrad.codegen.loader import load_file, load_text
from weftgrad.codegen.model import SpecError, SpecErrors
from weftgrad.codegen.render import environment, record_literals, render_all
from weftgrad.runtime import dispatch
from weftgrad.runtime.context import forget_plans
from weftgrad.runtime.errors import IndexOutOfRange, ShapeError
from weftgrad.runtime.records import OpRecord, Text, make_record, registry


@pytest.fixture(scope="module")
def ops() -> dict[str, OpRecord]:
    return records_of(load_file(SPECS))


@pytest.fixture(params=("cpu", pytest.param("poor", marks=pytest.mark.thorough)))
def vendor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The CPU device with the capabilities of the named vendor."""
    for _ in change_capabilities(VENDORS[request.param], monkeypatch):
        yield request.param


@pytest.fixture
def cpu() -> None:
    forget_plans()


def test_saved_outputs(ops: dict[str, OpRecord], vendor: str) -> None:
    def with_all_outputs(name: str) -> OpRecord:
        record = with_saved_outputs(ops[name])
        return replace(record, outputs=tuple(replace(o, saved=False) for o in record.outputs))

    x = np.array([[3, 1, 3], [0, 2, 5], [0, 4, 0]], np.float32)
    expected = {
        "amax": ([3, 5, 4], [2, 1, 1]), "amin": ([1, 0, 0], [1, 1, 2]),
        "prod": ([9, 0, 0], [9, 10, 4], [0, 1, 2], [0, 0, 0]),
    }  # fmt: skip
    for name, values in expected.items():
        outputs = run(with_all_outputs(name), tensor(x), dim=1)
        assert len(outputs) == len(values)
        for actual, value in zip(outputs, values, strict=True):
            np.testing.assert_array_equal(actual, value, err_msg=name)
        np.testing.assert_array_equal(run(ops[name], tensor(x), dim=1), values[0], err_msg=name)


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_calls_without_gradients_save_nothing(name: str) -> None:
    """Such calls, also with `out=`, run the op without saved outputs; profiles and errors show the op's own name."""
    x = np.array([[3, 1, 3], [0, 2, 5], [0, 4, 0]], np.float32)
    op = getattr(wg, name)
    x_tensor, leaf, out = wg.tensor(x), wg.tensor(x, requires_grad=True), wg.empty(3)
    with wg.profiler.profile() as profile:
        plain = op(x_tensor, 1)
        op(x_tensor, 1, out=out)
        with wg.no_grad():
            unrecorded = op(leaf, 1)
        recorded = op(leaf, 1)
    kernels = [e.name.rpartition("_")[0] for e in profile.events() if e.is_kernel and e.name.startswith(name)]
    assert kernels == [*[f"{name}_bare"] * 3, name]
    assert f"{name}_bare" not in {e.name for e in profile.events() if not e.is_kernel}
    assert [t.requires_grad for t in (plain, out, unrecorded, recorded)] == [False, False, False, True]
    for output in (plain, out, unrecorded, recorded):
        np.testing.assert_array_equal(output.detach().numpy(), getattr(np, name)(x, 1))
    recorded.sum().backward()
    assert leaf.grad is not None
    with pytest.raises(IndexOutOfRange, match=rf"^{name}\(input float32\[3, 3\]\): dimension out of range"):
        op(x_tensor, 2)


def test_variants_of_a_user_op_are_registered_once() -> None:
    """Deriving the gradients of an op that was loaded in this process must not register its variants again."""
    ops = wg.ops.load("""
- op: "loaded_peak(input, dim: int | None = None, keepdim: bool = False)"
  kind: reduction
  doc: The largest element.
  dtypes: float
  reduce:
    identity: {value: lowest, ties: 0}
    map: {value: input, ties: 1}
    combine:
      value: maximum(a_value, b_value)
      ties: where(a_value > b_value, a_ties, where(b_value > a_value, b_ties, a_ties + b_ties))
    finish: {out: value, count: ties}
    save: [count]
  grad: {input: "where(input == out, grad / count, 0)"}

- op: "loaded_softmax(input, weight: Row | None, dim: int = -1)"
  kind: rowwise
  doc: Softmax, times a weight.
  dtypes: float
  let: {powers: exp(input - max(input))}
  out: powers / sum(powers) * weight
""")
    x = wg.tensor([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]], requires_grad=True)
    ops.loaded_peak(x, 1).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [[0, 0.5, 0.5], [1, 0, 0]])  # type: ignore[union-attr]
    (ops.loaded_softmax(x, None) ** 2).sum().backward()
    (ops.loaded_softmax(x, x[0].detach()) ** 2).sum().backward()
    names = [r.name for r in registry if r.name.startswith("loaded_")]
    assert {"loaded_peak_bare", "loaded_softmax_plain"} <= set(names)
    assert not [name for name in names if name.endswith("_v2")]


def test_bare_ops_drop_the_fields_of_saved_outputs() -> None:
    text = """
- op: "spread(input, dim: int | None = None, keepdim: bool = False)"
  kind: reduction
  doc: Largest element minus the smallest; also the number of elements and the index of the largest.
  dtypes: float
  reduce:
    identity: {high: lowest, low: highest, place: 0, several: 0}
    map: {high: input, low: input, place: index, several: 1}
    let: {later: (b_high > a_high) or (b_high == a_high and b_place < a_place)}
    combine:
      high: maximum(a_high, b_high)
      low: minimum(a_low, b_low)
      place: where(later, b_place, a_place)
      several: a_several + b_several
    finish: {out: high - low, top: place, all: several}
    save: [SAVED]
  grad: none
"""
    records = {k: render_all(load_text(text.replace("SAVED", k)), 0).records for k in ("all", "top, all")}
    assert [(o.name, o.saved) for o in records["all"]["spread"].rendered.outputs] == [
        ("out", False), ("top", False), ("all", True),
    ]  # fmt: skip
    assert list(records["all"]) == ["spread"]  # without `place` the result bits could change
    assert set(records["top, all"]) == {"spread", "spread_bare"}
    bare = records["top, all"]["spread_bare"]
    assert list(bare.op.fields["reduce"]["map"]) == ["high", "low"]
    assert [o.name for o in bare.rendered.outputs] == ["out"]


@pytest.mark.parametrize(
    ("signature", "finish"),
    [("acc", "{out: value, count: ties}"), ("input, eps: float", "{out: value, count: ties + eps}"),
     ("input", "{out: n, count: ties}"), ("input, acc: float", "{out: value + acc, count: ties}")],
)  # fmt: skip
def test_ops_that_cannot_be_bare(signature: str, finish: str) -> None:
    """An op has no bare form where a name would clash or a parameter would be unused. It is correct without one."""
    source = signature.partition(",")[0]
    text = f"""
- op: "peak({signature}, dim: int | None = None, keepdim: bool = False)"
  kind: reduction
  doc: The largest element.
  dtypes: float
  reduce:
    identity: {{value: lowest, ties: 0}}
    map: {{value: {source}, ties: 1}}
    combine: {{value: "maximum(a_value, b_value)", ties: a_ties + b_ties}}
    finish: {finish}
    save: [count]
  grad: none
"""
    assert list(render_all(load_text(text), 0).records) == ["peak"]


@pytest.mark.parametrize("name", ["amax", "amin", "prod", "max", "std"])
def test_bits_are_the_same_with_a_gradient_and_without(name: str) -> None:
    rng = np.random.default_rng(1)
    for shape in ((64, 3000), (3000, 64), (5000, 3), (600, 40)):
        x = (1 + 0.02 * rng.standard_normal(shape)).astype(np.float32)
        for dim in (0, 1):
            results = [getattr(wg.tensor(x, requires_grad=grad), name)(dim) for grad in (False, True)]
            plain, recorded = (r.values if name == "max" else r for r in results)
            np.testing.assert_array_equal(plain.numpy(), recorded.detach().numpy(), err_msg=f"{name} {shape} {dim}")


USER = """
- op: "dot_all(input, other, scale: Scalar = 1, dim: int | None = None, keepdim: bool = False)"
  kind: reduction
  dtypes: float
  reduce: {identity: 0, map: input * other * scale, combine: a + b, finish: acc}
- op: "root_mean(input, power: float, dim: int | None = None)"
  kind: reduction
  dtypes: float
  result: float
  reduce: {identity: 0, map: abs(input) * power, combine: a + b, finish: sqrt(acc / n)}
- op: "last_true(input, mask: Mask, dim: int)"
  kind: reduction
  dtypes: all
  reduce:
    identity: {value: 0, place: -1}
    map: {value: input, place: "where(mask, index, -1)"}
    let: {later: b_place > a_place}
    combine: {value: "where(later, b_value, a_value)", place: "where(later, b_place, a_place)"}
    finish: {out: value, place_found: place, found: place >= 0}
  grad: none
"""


def test_user_ops(vendor: str) -> None:
    records = records_of(load_text(USER))
    rng = np.random.default_rng(9)
    a, b = rng.standard_normal((37, 50)).astype(np.float32), rng.standard_normal((50,)).astype(np.float32)
    column = rng.standard_normal((37, 1)).astype(np.float32)
    mask = rng.random((37, 50)) > 0.8
    mask[3] = False
    last_column = np.where(mask.any(1), 49 - np.argmax(mask[:, ::-1], 1), -1)
    last_row = np.where(mask.any(0), 36 - np.argmax(mask[::-1], 0), -1)
    cases: list[Case] = []
    for other in (b, column, a.T.copy().T):
        for dim in (0, 1):
            product = a.astype(np.float64) * other * 2.5
            check = close(product.sum(dim), 1e-6, np.abs(product).sum(dim))
            cases.append((records["dot_all"], (tensor(a), tensor(other), 2.5), {"dim": dim}, check))
    for dim in (0, 1):
        value = np.sqrt((np.abs(a).astype(np.float64) * 1.5).mean(dim))
        cases.append((records["root_mean"], (tensor(a), 1.5), {"dim": dim}, close(value, 1e-6, value)))
    picked = np.where(mask.any(1), a[np.arange(37), last_column], 0)
    cases.append(
        (records["last_true"], (tensor(a), tensor(mask)), {"dim": 1}, equal((picked, last_column, last_column >= 0)))
    )
    picked = np.where(mask.any(0), a[last_row, np.arange(50)], 0)
    cases.append(
        (records["last_true"], (tensor(a), tensor(mask)), {"dim": 0}, equal((picked, last_row, last_row >= 0)))
    )
    run_all(cases)
    with pytest.raises(ShapeError, match="do not broadcast"):
        run(records["dot_all"], tensor(a), tensor(a[:, :7].copy()), 1.0)


# The spec


@pytest.mark.parametrize(
    ("reduce", "field", "message"),
    [
        ("{identity: 0, map: input}", "reduce", "needs `reduce:`"),
        ("{identity: 0, map: input, combine: a + c}", "reduce.combine", "unknown name 'c'"),
        ("{identity: 0, map: input, combine: a + b, extra: 1}", "reduce", "unknown fields extra"),
        ("{identity: low, map: input, combine: a + b}", "reduce.identity", "unknown name 'low'"),
        ("{identity: 0, map: input > 0, combine: a or b}", "reduce.identity", "0 is no mask"),
        ("{identity: false, map: input > 0, combine: a + b}", "reduce.combine", "gives a value, but map gives a mask"),
        ("{identity: {x: 0}, map: {y: input}, combine: {y: a_y}}", "reduce.identity", "map has"),
        ("{identity: 0, map: {y: input}, combine: {y: a_y}}", "reduce.identity", "all mappings"),
        ("{identity: lowest, map: index + 0 * index, combine: a + b}", "reduce.identity", "lowest is for values"),
        ("{identity: 0, map: 'where(input > 0, index, 0)', combine: 'maximum(a, b)'}", "", "of an index"),
        ("{identity: {input: 0}, map: {input: input}, combine: {input: a_input}}", "reduce.map", "name of a parameter"),
        ("{identity: 0, map: input, combine: a + b, finish: {input: acc}}", "reduce.finish", "name of a parameter"),
        ("{identity: 0, map: input, combine: a + b, finish: {out: acc}, save: [out]}", "reduce.save", "after one"),
        ("{identity: 0, map: 1, combine: a + b}", "reduce", "'input' is used by no expression"),
        ("{identity: 1, map: input, combine: a * b}", "", "only `combine: a \\+ b` is derived"),
    ],
)
def test_errors_name_the_field(reduce: str, field: str, message: str) -> None:
    if not field:
        (op,) = load_text(entry(reduce=reduce, dtypes="all"))
        with pytest.raises(SpecError, match=message):
            kind.render(op, environment()) if "index" in reduce else kind.derive(op)
        return
    with pytest.raises(SpecErrors) as excinfo:
        load_text(entry(reduce=reduce, dtypes="all"))
    assert message in str(excinfo.value)
    assert any(e.field == field for e in excinfo.value.errors), [e.field for e in excinfo.value.errors]


def test_gradients_are_pointwise() -> None:
    ops = {op.name: kind.derive(op) for op in [*load_file(SPECS), *load_text(USER)]}
    assert ops["sum"]["input"].spec is None
    assert ops["mean"]["input"].operands == ("grad", "n_reduced")
    assert ops["mean"]["input"].spec["out"] == "grad / n_reduced"  # type: ignore[index]
    assert ops["sum_squares"]["input"].operands == ("grad", "input")
    assert ops["amax"]["input"].operands == ("grad", "input", "out", "count")
    assert ops["max_dim"]["input"].operands == ("grad_values", "indices", "index_reduced")
    assert set(ops["dot_all"]) == {"input", "other"}
    assert ops["root_mean"]["input"].operands == ("grad", "input", "power", "out", "n_reduced")
    assert not ops["argmax"]
    assert not ops["all"]


def test_gradients_by_hand() -> None:
    """Call the derived ops with the operands that autograd would pass: outputs that keep the reduced dimension."""
    generated = render_all(
        [o for o in load_file(SPECS) if o.name in ("mean", "amax", "prod", "max_dim", "euclidean_norm")], 1
    )
    x = np.array([[2, 5, 5, 1], [3, 0, 2, 4], [0, 0, 7, 1], [1, 2, 3, 9]], np.float32)
    grad = np.array([[1], [10], [100], [1000]], np.float32)
    norm = np.sqrt((x**2).sum(1, keepdims=True))
    products_of_others = [[25, 10, 10, 50], [0, 24, 0, 0], [0, 0, 0, 0], [54, 27, 18, 6]]
    values: dict[str, dict[str, Any]] = {
        "mean": {"n_reduced": 4.0},
        "amax": {"out": x.max(1, keepdims=True), "count": np.array([[2], [1], [1], [1]], np.float32)},
        "prod": {
            "out": x.prod(1, keepdims=True),
            "nonzero": [[50], [24], [7], [54]],
            "zeros": [[0], [1], [2], [0]],
            "nonfinite": [[0]] * 4,
        },
        "max_dim": {"index_reduced": np.arange(4), "indices": np.array([[1], [3], [2], [3]])},
        "euclidean_norm": {"out": norm},
    }
    expected = {
        "mean": np.full((4, 1), 0.25),
        "amax": [[0, 0.5, 0.5, 0], [0, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]],
        "prod": np.array(products_of_others),
        "max_dim": [[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]],
        "euclidean_norm": x / norm,
    }
    for name, arguments in values.items():
        rules = generated.records[name].rules
        assert rules is not None
        arguments = {"input": x, "grad": grad, "grad_values": grad, **arguments}
        data = generated.records[str(rules["input"].target)]
        texts = {k: Text(s.text, s.functions) for k, s in data.rendered.sources.items()}
        operands = [arguments[n] for n in rules["input"].operands]
        operands = [o if isinstance(o, float) else tensor(_floats(o)) for o in operands]
        actual = dispatch.call(make_record(**record_literals(data), texts=texts), operands)
        np.testing.assert_allclose(fetch(actual), np.asarray(expected[name]) * grad, rtol=1e-6, err_msg=name)


def _floats(values: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(values)
    return array if isinstance(values, np.ndarray) else array.astype(np.float32)
