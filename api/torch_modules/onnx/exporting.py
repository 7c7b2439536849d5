"""`export`: run a model, record its calls, and write them as an ONNX graph."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, BinaryIO

from ..autograd.grad_mode import no_grad
from ..nn.module import Module
from ..runtime.context import state
from ..runtime.errors import ArgumentError, WeftgradError
from ..runtime.tensor import Tensor
from ..version import __version__
from .errors import DynamicSizeError, OnnxExporterError
from .exporter.capture import Capture, flat_tensors
from .exporter.converter import convert
from .exporter.dynamic_sizes import Size, find_formula
from .exporter.graph import Graph, element_type, import_onnx
from .exporter.program import Program, Ref, Run, merge_runs
from .exporter.resizing import DynamicDim, GraphInput, read_dynamic_axes, resized, size_plans

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ONNXProgram", "TrainingMode", "export", "is_in_onnx_export"]

_MIN_OPSET, _DEFAULT_OPSET = 17, 18
_MAX_FILE_BYTES = 2**31 - 1  # of one protobuf message
_is_exporting = False


class TrainingMode(Enum):
    """In which mode a model is exported, under PyTorch's name."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class ONNXProgram:
    """An exported model.

    Args:
        model_proto: The model, an `onnx.ModelProto`.

    Attributes:
        model_proto: The model, an `onnx.ModelProto`.
    """

    def __init__(self, model_proto: Any):
        self.model_proto = model_proto

    def save(self, destination: str | os.PathLike[str] | BinaryIO, *, external_data: bool | None = None) -> None:
        """Write the model to a file.

        Args:
            destination: Path, or a file opened for writing bytes.
            external_data: Whether the weights go to a file of their own beside it, `NAME.data`. None does so for models
                of 2 GiB or more, which one file cannot hold.

        Raises:
            OnnxExporterError: The model is too large for one file.
        """
        onnx = import_onnx()
        is_large = self.model_proto.ByteSize() > _MAX_FILE_BYTES
        if not isinstance(destination, (str, os.PathLike)):
            if is_large or external_data:
                raise OnnxExporterError("export: a model with external data needs a path, not an open file")
            destination.write(self.model_proto.SerializeToString())
            return
        path = os.fspath(destination)
        if external_data or (external_data is None and is_large):
            onnx.save_model(
                self.model_proto, path, save_as_external_data=True, location=f"{os.path.basename(path)}.data"
            )
        else:
            onnx.save_model(self.model_proto, path)


def is_in_onnx_export() -> bool:
    """Return whether `export` is running the model.

    Returns:
        True inside of a model's `forward` that `export` calls.

    Example:
        >>> wg.onnx.is_in_onnx_export()
        False
    """
    return _is_exporting


def export(
    model: Module,
    args: object = (),
    f: str | Path | BinaryIO | None = None,
    *,
    kwargs: Mapping[str, object] | None = None,
    export_params: bool = True,
    verbose: bool | None = None,
    training: TrainingMode | int = TrainingMode.EVAL,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None,
    dynamic_shapes: object = None,
    keep_initializers_as_inputs: bool = False,
    external_data: bool | None = None,
    do_constant_folding: bool = True,
    dynamo: bool | None = None,
) -> ONNXProgram:
    """Export a model to an ONNX file.

    The model runs on example arguments, and the ops that it calls become the nodes of a graph. So conditions and loops of
    its Python code are fixed by the arguments. With dynamic dimensions it runs several times with different sizes;
    numbers that follow the sizes become nodes, and an error is raised where that is impossible.

    Args:
        model: The model.
        args: Example arguments: a tensor, or a tuple, whose last entry may be a dict of keyword arguments. Tensors in
            nested tuples, lists and dicts are inputs of the graph, other values are fixed.
        f: Path or open file to write to; None writes nothing.
        kwargs: Keyword arguments.
        export_params: Must be True: the file has the weights.
        verbose: Print the graph.
        training: `TrainingMode.EVAL` exports the model in evaluation mode, `PRESERVE` in its own mode.
        input_names: Names of the inputs; None takes those of `forward`'s parameters.
        output_names: Names of the outputs; None calls them `output`, or `output_0` and so on.
        opset_version: Version of the operators, 17 or later; None means 18.
        dynamic_axes: For each name of an input, the dimensions whose size is not fixed: a dict from positions to names,
            or a list of positions. Dimensions of one name are equal. Without a name, dimensions at the same position are
            equal. Names of outputs give names to their dimensions.
        dynamic_shapes: The same in the form of PyTorch's newer exporter: a dict by names of inputs, or a tuple, of dicts
            from positions to names.
        keep_initializers_as_inputs: Also list the weights as inputs, as files of IR version 3 do.
        external_data: Whether the weights go to a file of their own; None does so for 2 GiB or more.
        do_constant_folding: Ignored: values that do not depend on the inputs are always constants.
        dynamo: Ignored: there is one exporter.

    Returns:
        `ONNXProgram`, whose `model_proto` is the model.

    Raises:
        PackageNotFound: The package `onnx` is not installed.
        UnsupportedOperatorError: The model calls an op that the table of ops lacks; the message names op and layer.
        DynamicSizeError: A dynamic dimension determines something that a graph cannot express.
        OnnxExporterError: The model cannot be exported for another reason.
        ArgumentError: An argument is wrong.

    Example:
        >>> model = wg.nn.Linear(3, 2)
        >>> program = wg.onnx.export(model, wg.ones(4, 3), dynamic_axes={"input": {0: "batch"}})  # doctest: +SKIP
        >>> [node.op_type for node in program.model_proto.graph.node]  # doctest: +SKIP
        ['Gemm']
    """
    onnx = import_onnx()
    opset = _check_options(model, export_params, opset_version, onnx)
    call_args, call_kwargs = _split_arguments(args, kwargs)
    tensors = flat_tensors((call_args, call_kwargs))
    names = _input_names(model, call_args, call_kwargs, input_names, len(tensors))
    if dynamic_axes is not None and dynamic_shapes is not None:
        raise ArgumentError("export: pass dynamic_axes or dynamic_shapes, not both")
    axes = dynamic_axes if dynamic_shapes is None else dynamic_shapes
    dims, output_dims = read_dynamic_axes(axes, names, [tensor.meta.ndim for tensor in tensors])
    inputs = [GraphInput(*fields) for fields in zip(names, tensors, dims, strict=True)]
    with _mode_of(model, training):
        program = _trace(model, call_args, call_kwargs, inputs)
    labels = _output_names(output_names, len(program.outputs))
    unknown = sorted(set(output_dims) - set(labels))
    if unknown:
        raise ArgumentError(f"export: dynamic_axes names {unknown}; the inputs are {names} and the outputs {labels}")
    graph = Graph(opset, program.dims)
    values = _build(graph, program, inputs, labels, {name for name, _ in model.named_buffers()})
    result = ONNXProgram(_model_proto(graph, program, inputs, values, labels, output_dims, keep_initializers_as_inputs))
    if verbose:
        print(onnx.printer.to_text(result.model_proto.graph))
    if f is not None:
        result.save(f, external_data=external_data)
    return result


def _check_options(model: object, export_params: bool, opset_version: int | None, onnx: Any) -> int:
    if not isinstance(model, Module):
        raise ArgumentError(f"export: the model is a Module, not {type(model).__name__}")
    if not export_params:
        raise ArgumentError("export: export_params=False is not supported: the file has the weights")
    opset = _DEFAULT_OPSET if opset_version is None else opset_version
    newest = onnx.defs.onnx_opset_version()
    if not isinstance(opset, int) or not _MIN_OPSET <= opset <= newest:
        raise ArgumentError(f"export: opset_version is {_MIN_OPSET} to {newest} with onnx {onnx.__version__}, not {opset}")
    return opset


def _split_arguments(args: object, kwargs: Mapping[str, object] | None) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return positional and keyword arguments; a dict at the end of `args` has keyword arguments, as in PyTorch."""
    call_args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    if kwargs is None and call_args and isinstance(call_args[-1], dict) and all(isinstance(k, str) for k in call_args[-1]):
        return call_args[:-1], dict(call_args[-1])
    return call_args, dict(kwargs or {})


def _input_names(
    model: Module, args: Sequence[object], kwargs: Mapping[str, object], names: Sequence[str] | None, count: int
) -> list[str]:
    """Return a name for each tensor of the arguments: those of the caller, then names of `forward`'s parameters."""
    parameters = list(inspect.signature(model.forward).parameters.values())
    variadic = next((i for i, p in enumerate(parameters) if p.kind is p.VAR_POSITIONAL), len(parameters))
    labels: list[str] = []
    for position, value in enumerate(args):
        label = parameters[position].name if position < variadic else f"input_{position}"
        labels += _labels_of(label, value)
    for key, value in kwargs.items():
        labels += _labels_of(key, value)
    chosen = list(names or ())
    if len(chosen) > count or len(set(chosen)) < len(chosen):
        raise ArgumentError(f"export: input_names are {chosen}; give the {count} inputs different names")
    return [*chosen, *labels[len(chosen) :]]


def _labels_of(label: str, value: object) -> list[str]:
    count = len(flat_tensors(value))
    return [label] if isinstance(value, Tensor) else [f"{label}_{i}" for i in range(count)]


def _output_names(names: Sequence[str] | None, count: int) -> list[str]:
    chosen = list(names or ())
    if len(chosen) > count or len(set(chosen)) < len(chosen):
        raise ArgumentError(f"export: output_names are {chosen}; give the {count} outputs different names")
    defaults = ["output"] if count == 1 else [f"output_{i}" for i in range(count)]
    return [*chosen, *defaults[len(chosen) :]]


@contextmanager
def _mode_of(model: Module, training: TrainingMode | int) -> Iterator[None]:
    """Switch the model to the mode in which it is exported."""
    global _is_exporting
    mode = TrainingMode(training)
    old_modes = [(module, module.training) for module in model.modules()]
    if mode is not TrainingMode.PRESERVE:
        model.train(mode is TrainingMode.TRAINING)
    _is_exporting = True
    try:
        yield
    finally:
        _is_exporting = False
        for module, was_training in old_modes:
            module.training = was_training


# --- Running the model ---


def _trace(model: Module, args: Sequence[object], kwargs: Mapping[str, object], inputs: list[GraphInput]) -> Program:
    """Run the model with the sizes of each plan until one works, and merge the runs."""
    first_error: Exception | None = None
    for plan in size_plans(inputs):
        try:
            runs = [_run(model, args, kwargs, inputs, dims) for dims in plan]
            return merge_runs(runs)
        except (WeftgradError, ValueError, RuntimeError, IndexError, AssertionError) as error:
            if not plan[0] or isinstance(error, OnnxExporterError) and not isinstance(error, DynamicSizeError):
                raise
            first_error = first_error or error
    assert first_error is not None
    if isinstance(first_error, DynamicSizeError):
        raise first_error
    raise DynamicSizeError(
        f"export: the model does not run with other sizes of its dynamic dimensions: {first_error}. Dimensions that must "
        "be equal need the same name in dynamic_axes"
    ) from first_error


def _run(
    model: Module, args: Sequence[object], kwargs: Mapping[str, object], inputs: list[GraphInput], dims: Mapping[str, int]
) -> Run:
    """Run the model once with given sizes of the dynamic dimensions."""
    tensors = [resized(graph_input, dims).clone() for graph_input in inputs]
    replacements = iter(tensors)
    run_args, run_kwargs = _replace_tensors((tuple(args), dict(kwargs)), replacements)
    thread_state = state()
    autocast, thread_state.autocast = thread_state.autocast, None
    try:
        with no_grad(), Capture(model) as capture:
            places = [capture.add_input(tensor) for tensor in tensors]
            outputs = flat_tensors(model(*run_args, **run_kwargs))
            output_places = [capture.place(tensor) for tensor in outputs]
            constants = {i: c for i, tensor in enumerate(outputs) if (c := capture.constant(tensor)) is not None}
    finally:
        thread_state.autocast = autocast
    if not outputs:
        raise OnnxExporterError("export: the model returns no tensors")
    for layer in dict.fromkeys(capture.host_reads):
        where = f"layer {layer!r}" if layer else "the model"
        warnings.warn(
            f"export: {where} reads values that depend on its inputs as Python numbers; the graph is right only for "
            "inputs with the same values there",
            stacklevel=5,
        )
    return Run(dims, capture.calls, places, output_places, constants, capture.members)


def _replace_tensors(value: Any, tensors: Iterator[Tensor]) -> Any:
    """Return nested tuples, lists and dicts with other tensors, in the order of `flat_tensors`."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, Mapping):
        return {key: _replace_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        items = [_replace_tensors(item, tensors) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


# --- The file ---


def _build(graph: Graph, program: Program, inputs: list[GraphInput], labels: list[str], buffers: set[str]) -> list[str]:
    """Add all nodes to the graph, and return the names of the outputs' values."""
    for graph_input in inputs:
        graph.unique(graph_input.name)
        for position, dim in graph_input.dynamic.items():
            graph.add_symbol(dim.symbol, graph_input.name, position)
    for label in labels:
        if graph.unique(label) != label:
            raise ArgumentError(f"export: an input and an output are both called {label!r}; pass other output_names")
    values = convert(program, graph, [graph_input.name for graph_input in inputs], buffers)
    graph.prune(values)
    return values


def _model_proto(
    graph: Graph, program: Program, inputs: list[GraphInput], values: list[str], labels: list[str],
    output_dims: Mapping[str, Mapping[int, str]], keep_initializers_as_inputs: bool,
) -> Any:  # fmt: skip
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
    if result.ByteSize() <= _MAX_FILE_BYTES:
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

