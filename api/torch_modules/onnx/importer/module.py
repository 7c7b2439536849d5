"""A module that runs an ONNX graph."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ...nn.module import Module
from ...nn.parameter import Parameter
from ...runtime.device import DeviceLike
from ...runtime.errors import ArgumentError
from ...runtime.tensor import Tensor
from ..errors import OnnxImportError
from .nodes import Node, read_attributes, read_tensor
from .table import TABLE

__all__ = ["OnnxModule"]

# Inputs that are statistics or limits: floating initializers there are buffers, and elsewhere parameters.
_BUFFER_INPUTS = {"BatchNormalization": (3, 4), "Clip": (1, 2), "Pad": (2,), "Resize": (1, 2), "Dropout": (1,),
                  "Range": (0, 1, 2), "OneHot": (2,)}  # fmt: skip
_DOMAINS = ("", "ai.onnx")


class OnnxModule(Module):
    """A module that runs an ONNX graph with weftgrad's ops.

    Floating initializers are parameters under their names in the file; a dot in a name makes a submodule, so that a
    file that `export` wrote has the state dict of the exported model. Integers, statistics and limits are buffers.

    Args:
        model_proto: The model.
        device: Device of the parameters; None for the default device.
        folder: Folder of external data.

    Attributes:
        input_names: Names of the inputs.
        output_names: Names of the outputs.
    """

    def __init__(self, model_proto: Any, device: DeviceLike | None = None, folder: str = ""):
        super().__init__()
        graph = model_proto.graph
        if model_proto.functions or graph.sparse_initializer:
            raise OnnxImportError("load: local functions and sparse tensors are not supported")
        opsets = {entry.domain: entry.version for entry in model_proto.opset_import}
        opset = max(opsets.get(domain, 0) for domain in _DOMAINS) or 1
        self._nodes = [_read_node(proto, opset) for proto in graph.node]
        initializers = {proto.name: proto for proto in graph.initializer}
        self.input_names = [info.name for info in graph.input if info.name not in initializers]
        self.output_names = [info.name for info in graph.output]
        self._paths: dict[str, tuple[str, ...]] = {}
        buffer_names = _buffer_names(self._nodes)
        for name, proto in initializers.items():
            tensor = read_tensor(proto, f"initializer {name!r}", device, folder)
            is_parameter = tensor.dtype.kind == "f" and name not in buffer_names and proto.doc_string != "buffer"
            self._add_member(name, tensor, is_parameter)
        self._constants = Module()
        self._add_constants(initializers)
        self._last_uses = _last_uses(self._nodes, self.output_names)

    def forward(self, *inputs: Tensor, **named_inputs: Tensor) -> Any:
        """Run the graph.

        Args:
            inputs: The inputs in the order of `input_names`.
            named_inputs: Inputs by name.

        Returns:
            The output, or a tuple of the outputs.

        Raises:
            ArgumentError: An input is missing, or unknown.
        """
        values: dict[str, Tensor | None] = dict(zip(self.input_names, inputs, strict=False))
        values.update(named_inputs)
        if len(inputs) > len(self.input_names) or set(values) != set(self.input_names):
            raise ArgumentError(
                f"the graph takes the inputs {self.input_names}, not {len(inputs)} by position and "
                f"{sorted(named_inputs)} by name"
            )
        for name, path in self._paths.items():
            values[name] = self._member(path)
        for node, unused in zip(self._nodes, self._last_uses, strict=True):
            node.bind([values[name] if name else None for name in node.input_names], self.training)
            results = TABLE[node.op_type](node)
            outputs = [results] if isinstance(results, Tensor) else results
            for position, name in enumerate(node.output_names):
                if name and position < len(outputs):
                    values[name] = outputs[position]
                elif name:
                    raise node.unsupported(f"output {position}")
            node.bind([], self.training)
            for name in unused:
                values.pop(name, None)
        outputs = [values[name] for name in self.output_names]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def extra_repr(self) -> str:
        return f"inputs={self.input_names}, outputs={self.output_names}, nodes={len(self._nodes)}"

    def _add_member(self, name: str, tensor: Tensor, is_parameter: bool) -> None:
        """Register a tensor under its path; names that modules use themselves get an underscore."""
        *folders, last = (part or "_" for part in name.split("."))
        module: Module = self
        path = []
        for part in folders:
            child = module._modules.get(part)
            while child is None and hasattr(module, part):
                part += "_"
                child = module._modules.get(part)
            if child is None:
                child = Module()
                module.add_module(part, child)
            module = child
            path.append(part)
        while hasattr(module, last):
            last += "_"
        if is_parameter:
            module.register_parameter(last, Parameter(tensor))
        else:
            module.register_buffer(last, tensor)
        self._paths[name] = (*path, last)

    def _member(self, path: Sequence[str]) -> Tensor:
        module: Any = self
        for part in path:
            module = getattr(module, part)
        return module

    def _add_constants(self, initializers: Mapping[str, Any]) -> None:
        """Turn constant nodes into buffers, and note integers, which say shapes and axes."""
        known: dict[str, list[int]] = {}
        nodes = []
        for node in self._nodes:
            if node.op_type != "Constant":
                nodes.append(node)
                continue
            tensor = TABLE["Constant"](node)
            assert isinstance(tensor, Tensor)
            name = f"c{len(self._constants._buffers)}"
            self._constants.register_buffer(name, tensor, persistent=False)
            self._paths[node.output_names[0]] = ("_constants", name)
            if tensor.dtype.kind in "iu":
                known[node.output_names[0]] = tensor.reshape(-1).tolist()
        for name in initializers:
            tensor = self._member(self._paths[name])
            if tensor.dtype.kind in "iu" and tensor.numel() <= 64:
                known[name] = tensor.reshape(-1).tolist()
        self._nodes = nodes
        for node in nodes:
            node.known_integers = {name: known[name] for name in node.input_names if name in known}


def _read_node(proto: Any, opset: int) -> Node:
    label = f"node {proto.name!r} ({proto.op_type})"
    if proto.domain not in _DOMAINS or proto.op_type not in TABLE:
        domain = f" of the domain {proto.domain!r}" if proto.domain else ""
        raise OnnxImportError(f"load: {label}: there is no function for this operator{domain} in the importer's table")
    attributes = read_attributes(proto, label)
    return Node(proto.op_type, proto.name, proto.input, proto.output, attributes, opset)


def _buffer_names(nodes: Sequence[Node]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        positions = _BUFFER_INPUTS.get(node.op_type, ())
        names.update(node.input_names[p] for p in positions if p < len(node.input_names))
    return names


def _last_uses(nodes: Sequence[Node], outputs: Sequence[str]) -> list[list[str]]:
    """Return for each node the values that no later node reads, so that their memory is freed."""
    used_names = set(outputs)
    result: list[list[str]] = []
    for node in reversed(nodes):
        unused = [
            name for name in dict.fromkeys([*node.input_names, *node.output_names]) if name and name not in used_names
        ]
        used_names.update(unused)
        result.append(unused)
    return result[::-1]


def read_model(f: Any) -> tuple[Any, str]:
    """Return the `ModelProto` of a path, an open file, bytes, or a model, and the folder of its external data."""
    from ..exporter.graph import import_onnx  # lazy: optional dependency

    onnx = import_onnx()
    if isinstance(f, onnx.ModelProto):
        return f, ""
    if isinstance(f, (bytes, bytearray)):
        return onnx.load_model_from_string(bytes(f)), ""
    if isinstance(f, (str, os.PathLike)):
        path = os.fspath(f)
        return onnx.load_model(path, load_external_data=False), os.path.dirname(path)
    return onnx.load_model(f, load_external_data=False), ""
