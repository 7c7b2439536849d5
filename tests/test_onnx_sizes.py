"""Check how the exporter follows sizes and memory; nothing here needs the package onnx."""

from __future__ import annotations

import sys

import pytest

import weftgrad as wg
from weftgrad.onnx.exporter.boxes import find_box
from weftgrad.onnx.exporter.capture import Capture
from weftgrad.onnx.exporter.dynamic_sizes import Size, Varying, find_formula, merge
from weftgrad.onnx.exporter.program import Run, merge_runs
from weftgrad.onnx.exporter.resizing import GraphInput, read_dynamic_axes, resized, size_plans
from weftgrad.runtime.device import meta
from weftgrad.runtime.dtypes import float32

RUNS = [{"n": 4, "t": 6}, {"n": 3, "t": 6}, {"n": 4, "t": 5}, {"n": 2, "t": 3}]


def values(function) -> Size:
    return Size(tuple(function(run["n"], run["t"]) for run in RUNS))


def test_sizes_compute_with_the_value_of_each_run() -> None:
    n = values(lambda n, t: n)
    assert n * 2 + 1 == values(lambda n, t: 2 * n + 1)
    assert 10 - n == values(lambda n, t: 10 - n)
    assert n - n == 0
    assert isinstance(n // n, int)
    assert merge([3, 3, 3]) == 3
    assert n > 1
    assert not n <= 1
    with pytest.raises(wg.onnx.DynamicSizeError, match="depends on a dynamic dimension"):
        assert n > 3


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda n, t: n, "batch"),
        (lambda n, t: 3 * n + 2, "3*batch + 2"),
        (lambda n, t: n * t, "batch*steps"),
        (lambda n, t: 8 * n * t, "8*batch*steps"),
        (lambda n, t: n + t - 1, "batch + steps - 1"),
        (lambda n, t: t // 2, "steps//2"),
        (lambda n, t: -(-t // 2), "(steps + 1)//2"),
        (lambda n, t: n * n, None),
        (lambda n, t: max(n, 3), None),
    ],
)
def test_formulas(function, text: str | None) -> None:
    formula = find_formula(values(function), RUNS)
    assert (None if formula is None else formula.text({"n": "batch", "t": "steps"})) == text
    if formula is not None:
        assert all(formula.value(run) == function(run["n"], run["t"]) for run in RUNS)


def test_numbers_that_are_functions_of_a_size() -> None:
    roots = Varying(tuple(run["n"] ** 0.5 for run in RUNS))
    assert roots.size(lambda v: v * v) == values(lambda n, t: n)
    assert roots.size(lambda v: 1 / v) is None


def test_dynamic_axes() -> None:
    inputs, outputs = read_dynamic_axes({"a": {0: "n", -1: "t"}, "b": [0], "out": {0: "n"}}, ["a", "b"], [3, 2])
    assert {p: (d.label, d.symbol) for p, d in inputs[0].items()} == {0: ("n", "n"), 2: ("t", "t")}
    assert inputs[1][0].label == "b_dynamic_axes_0"
    assert outputs == {"out": {0: "n"}}
    inputs, _ = read_dynamic_axes(({0: "n", 1: None}, None), ["a", "b"], [3, 2])
    assert [list(dims) for dims in inputs] == [[0], []]
    for axes in ({"a": {3: "n"}}, {"a": "n"}, 3, ({}, {}, {})):
        with pytest.raises(ValueError, match="export: "):
            read_dynamic_axes(axes, ["a", "b"], [3, 2])


def test_example_arguments_keep_their_range_of_values() -> None:
    tensor = wg.tensor([[1, 2], [3, 4], [5, 6]])
    dims, _ = read_dynamic_axes({"x": {0: "n"}}, ["x"], [2])
    graph_input = GraphInput("x", tensor, dims[0])
    assert resized(graph_input, {"n": 2}).tolist() == [[1, 2], [3, 4]]
    assert resized(graph_input, {"n": 5}).tolist() == [[1, 2], [3, 4], [5, 6], [1, 2], [3, 4]]
    for plan in size_plans([graph_input]):
        sizes = [run["n"] for run in plan]
        assert len(set(sizes)) == 3
        assert min(sizes) > 1  # a dimension of size 1 broadcasts


def run_once(function, dims: dict[str, int], *tensors: wg.Tensor) -> Run:
    model = wg.nn.Identity()
    with wg.no_grad(), Capture(model) as capture:
        places = [capture.add_input(tensor) for tensor in tensors]
        output = function(*tensors)
    return Run(dims, capture.calls, places, [capture.place(output)], {}, capture.members)


def test_capture_records_calls_constants_and_layers() -> None:
    layer = wg.nn.Sequential(wg.nn.Linear(3, 2))
    table = wg.tensor([[1.0, 2.0]])
    x = wg.ones(4, 3)
    with wg.no_grad(), Capture(layer) as capture:
        capture.add_input(x)
        result = layer(x) + table
        table.mul_(2)  # the value that the sum has read is the old one
    product, total = capture.calls[:2]
    assert (product.record.name, product.layer) == ("linear_bias", "0")
    assert {p: c.name for p, c in product.constants.items()} == {1: "0.weight", 2: "0.bias"}
    assert (total.record.name, total.layer) == ("add", "")
    assert total.constants[1].values().tolist() == [[1.0, 2.0]]
    assert capture.constant(result) is None
    assert not capture.host_reads


def test_capture_notes_values_that_the_program_reads() -> None:
    x = wg.ones(2)
    with wg.no_grad(), Capture(wg.nn.Identity()) as capture:
        capture.add_input(x)
        assert wg.tensor([1.0]).item() == 1.0  # a constant
        assert not capture.host_reads
        assert float((x + 1).sum()) == 4.0
    assert capture.host_reads == [""]


def test_programs_have_sizes_where_runs_differ() -> None:
    def function(x):
        return x.reshape(x.shape[0] * 3).sum() / x.shape[0]

    runs = [run_once(function, {"n": n}, wg.ones(n, 3)) for n in (2, 3, 7)]
    program = merge_runs(runs)
    view, total, quotient = program.calls
    assert view.statics == ((Size((6, 9, 21)),),)
    assert total.results[0].shape == ()
    assert quotient.operands[1] == Size((2, 3, 7))
    assert program.live == {0, 1, 2}


def test_loops_over_a_dynamic_dimension_are_refused() -> None:
    def function(x):
        total = x[0]
        for row in range(1, x.shape[0]):
            total = total + x[row]
        return total

    runs = [run_once(function, {"n": n}, wg.ones(n, 3)) for n in (2, 3, 7)]
    with pytest.raises(wg.onnx.DynamicSizeError, match="with n = 2, the model calls 3 ops, and with n = 3 5"):
        merge_runs(runs)


def test_boxes_of_views() -> None:
    def function(x):
        return x[:, 1].transpose(0, 1) + x[:, 2:3, 1:].squeeze(1).transpose(0, 1)[:1]

    runs = [run_once(function, {"n": n}, wg.ones(n, 4, 5)) for n in (2, 3, 7)]
    program = merge_runs(runs)
    root = program.inputs[0]
    views = {call.results[0]: call.record.name for call in program.calls if call.record.kind == "view"}
    boxes = [find_box(ref, root) for ref in views]
    assert all(box is not None for box in boxes)
    first, second = boxes[0], boxes[1]
    assert (first.region[1], first.dims) == ((1, 2), (0, 2))
    assert (second.region[1], second.dims) == ((1, 2), (2, 0))
    reshaped = meta(float32, (40,), None, wg.device("cpu"))
    assert reshaped.numel == runs[0].inputs[0].meta.numel


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    for use in (lambda: wg.onnx.export(wg.nn.Linear(2, 2), wg.ones(1, 2)), lambda: wg.onnx.load("missing.onnx")):
        with pytest.raises(ImportError, match=r"pip install 'weftgrad\[onnx\]'"):
            use()
