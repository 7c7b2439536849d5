"""Put a graph into an ONNX model: inputs, outputs and their shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...version import __version__
from .dynamic_sizes import Size, find_formula
from .graph import Graph, element_type
from .program import Program, Ref
from .resizing import DynamicDim, GraphInput

__all__ = ["MAX_FILE_BYTES", "make_model", "weight_bytes"]

MAX_FILE_BYTES = 2**31 - 1
"""The largest size of one protobuf message."""


def weight_bytes(model_proto: Any) -> int:
    """Return the bytes of a model's weights, nearly all of its size. Protobuf cannot say it of models above 2 GiB."""
    return sum(len(proto.raw_data) for proto in model_proto.graph.initializer)


def make_model(
    graph: Graph, program: Program, inputs: list[GraphInput], values: list[str], labels: list[str],
    output_dims: Mapping[str, Mapping[int, str]], keep_initializers_as_inputs: bool,
) -> Any:  # fmt: skip
    """Return the `ModelProto` of a finished graph, checked by `onnx.checker`.

    Args:
        graph: The graph.
        program: The calls that it was made from.
        inputs: Its inputs.
        values: The values of its outputs.
        labels: Names of the outputs.
        output_dims: Names of the outputs' dynamic dimensions, where the caller has given them.
        keep_initializers_as_inputs: Whether the weights are inputs, too.
    """
    helper = graph.onnx.helper
    _name_outputs(graph, values, labels)
    dim_labels = {d.symbol: d.label for graph_input in inputs for d in graph_input.dynamic.values()}
    input_infos = [
        helper.make_tensor_value_info(i.name, element_type(i.tensor.meta.dtype), _input_shape(i)) for i in inputs
    ]
    if keep_initializers_as_inputs:
        input_infos += [
            helper.make_tensor_value_info(name, proto.data_type, list(proto.dims))
            for name, proto in graph.initializers.items()
        ]
    output_infos = [
        helper.make_tensor_value_info(
            label, element_type(ref.dtype), _output_shape(ref, program, dim_labels, output_dims.get(label, {}))
        )
        for label, ref in zip(labels, program.outputs, strict=True)
    ]
    proto = helper.make_graph(graph.nodes, "main_graph", input_infos, output_infos, list(graph.initializers.values()))
    opset = helper.make_opsetid("", graph.opset)
    result = helper.make_model(
        proto, opset_imports=[opset], producer_name="weftgrad", producer_version=__version__,
        ir_version=helper.find_min_ir_version_for([opset]),
    )  # fmt: skip
    if weight_bytes(result) <= MAX_FILE_BYTES:
        graph.onnx.checker.check_model(result, full_check=True)
    return result


def _name_outputs(graph: Graph, values: list[str], labels: list[str]) -> None:
    """Give the outputs their names: those of the values, or of copies where a value is an input or is used twice."""
    produced = {name: node for node in graph.nodes for name in node.output}
    renamed: dict[str, str] = {}
    for value, label in zip(values, labels, strict=True):
        if value in produced and value not in renamed:
            renamed[value] = label
        else:
            source = renamed.get(value, value)
            graph.nodes.append(graph.onnx.helper.make_node("Identity", [source], [label], name=f"/Identity_{label}"))
    for node in graph.nodes:
        for names in (node.input, node.output):
            for position, name in enumerate(names):
                if name in renamed:
                    names[position] = renamed[name]


def _input_shape(graph_input: GraphInput) -> list[int | str]:
    labels: dict[int, DynamicDim] = graph_input.dynamic
    return [labels[d].label if d in labels else n for d, n in enumerate(graph_input.tensor.meta.shape)]


def _output_shape(
    ref: Ref, program: Program, dim_labels: Mapping[str, str], labels: Mapping[int, str]
) -> list[int | str | None]:
    """Return the sizes of an output: numbers, and names or formulas of dynamic dimensions."""
    shape: list[int | str | None] = []
    for position, size in enumerate(ref.shape):
        if isinstance(size, Size):
            formula = find_formula(size, program.dims)
            text = None if formula is None else formula.text(dim_labels)
            shape.append(labels.get(position, labels.get(position - ref.ndim, text)))
        else:
            shape.append(size)
    return shape
