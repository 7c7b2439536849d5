"""`export`: run a model, record its calls, and write them as an ONNX graph."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, BinaryIO

from ..nn.module import Module
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from .errors import OnnxExporterError
from .exporter.capture import flat_tensors
from .exporter.converter import convert
from .exporter.graph import Graph, import_onnx
from .exporter.model_file import MAX_FILE_BYTES, make_model, weight_bytes
from .exporter.program import Program
from .exporter.resizing import GraphInput, read_dynamic_axes
from .exporter.tracing import trace

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ONNXProgram", "TrainingMode", "export", "is_in_onnx_export"]

_MIN_OPSET, _DEFAULT_OPSET = 17, 18
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
        is_large = weight_bytes(self.model_proto) > MAX_FILE_BYTES
        if not isinstance(destination, (str, os.PathLike)):
            if is_large or external_data:
                raise OnnxExporterError("export: a model with external data needs a path, not an open file")
            destination.write(self.model_proto.SerializeToString())
            return
        path = os.fspath(destination)
        if external_data or (external_data is None and is_large):
            model = onnx.ModelProto()
            model.CopyFrom(self.model_proto)  # saving moves the weights out of the model
            onnx.save_model(model, path, save_as_external_data=True, location=f"{os.path.basename(path)}.data")
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

    The model runs on example arguments, and the ops that it calls become the nodes of a graph. So conditions and loops
    of its Python code are fixed by the arguments. With dynamic dimensions it runs several times with different sizes;
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
            or a list of positions. Dimensions of one name are equal. Without a name, dimensions at the same position
            are equal. Names of outputs give names to their dimensions.
        dynamic_shapes: The same in the form of PyTorch's newer exporter: a dict by names of inputs, or a tuple, of
            dicts from positions to names.
        keep_initializers_as_inputs: Also list the weights as inputs, as files of IR version 3 do.
        external_data: Whether the weights go to a file of their own; None does so for 2 GiB or more.
        do_constant_folding: Whether what the model computes from its parameters alone becomes a constant. False adds
            the nodes that compute it, so that all parameters are in the file.
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
        program = trace(model, call_args, call_kwargs, inputs, do_constant_folding)
    labels = _output_names(output_names, len(program.outputs))
    unknown = sorted(set(output_dims) - set(labels))
    if unknown:
        raise ArgumentError(f"export: dynamic_axes names {unknown}; the inputs are {names} and the outputs {labels}")
    graph = Graph(opset, program.dims)
    values = _build(graph, program, inputs, labels, {name for name, _ in model.named_buffers()})
    result = ONNXProgram(make_model(graph, program, inputs, values, labels, output_dims, keep_initializers_as_inputs))
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
        raise ArgumentError(
            f"export: opset_version is {_MIN_OPSET} to {newest} with onnx {onnx.__version__}, not {opset}"
        )
    return opset


def _split_arguments(args: object, kwargs: Mapping[str, object] | None) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return positional and keyword arguments; a dict at the end of `args` has keyword arguments, as in PyTorch."""
    call_args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    if (
        kwargs is None
        and call_args
        and isinstance(call_args[-1], dict)
        and all(isinstance(k, str) for k in call_args[-1])
    ):
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
    user_names = list(names or ())
    if len(user_names) > count or len(set(user_names)) < len(user_names):
        raise ArgumentError(f"export: input_names are {user_names}; give the {count} inputs different names")
    return [*user_names, *labels[len(user_names) :]]


def _labels_of(label: str, value: object) -> list[str]:
    count = len(flat_tensors(value))
    return [label] if isinstance(value, Tensor) else [f"{label}_{i}" for i in range(count)]


def _output_names(names: Sequence[str] | None, count: int) -> list[str]:
    user_names = list(names or ())
    if len(user_names) > count or len(set(user_names)) < len(user_names):
        raise ArgumentError(f"export: output_names are {user_names}; give the {count} outputs different names")
    defaults = ["output"] if count == 1 else [f"output_{i}" for i in range(count)]
    return [*user_names, *defaults[len(user_names) :]]


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
