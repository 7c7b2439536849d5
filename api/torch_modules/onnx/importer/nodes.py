"""What a function of the table of operators sees of a node: its inputs, its attributes, and integers among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import weftgrad as wg

from ...runtime import dtypes
from ...runtime.device import DeviceLike
from ...runtime.dtypes import DType
from ...runtime.tensor import Tensor
from ..errors import OnnxImportError

__all__ = ["Node", "NodeFunction", "NodeResult", "dtype_of", "element_dtypes", "read_attributes", "read_tensor"]

_MISSING = object()


def element_dtypes() -> dict[int, DType]:
    """Return the dtype of each element type in ONNX files."""
    from ..exporter.graph import element_type  # lazy: optional dependency

    return {element_type(dtype): dtype for dtype in dtypes.BY_NAME.values()}


def dtype_of(number: int, where: str) -> DType:
    """Return the dtype of an element type.

    Raises:
        OnnxImportError: There are no tensors of this type.
    """
    dtype = element_dtypes().get(number)
    if dtype is None:
        import onnx  # lazy: optional dependency

        name = onnx.TensorProto.DataType.Name(number)
        raise OnnxImportError(f"load: {where}: there are no tensors of the element type {name}")
    return dtype


def read_tensor(proto: Any, where: str, device: DeviceLike | None = None, folder: str = "") -> Tensor:
    """Return the tensor that a `TensorProto` describes."""
    import onnx.numpy_helper  # lazy: optional dependency

    dtype = dtype_of(proto.data_type, where)
    array = onnx.numpy_helper.to_array(proto, folder)
    if dtype is dtypes.bfloat16:
        array = array.astype("float32")
    return wg.tensor(array, dtype=dtype, device=device)


def read_attributes(proto: Any, where: str) -> dict[str, object]:
    """Return the attributes of a `NodeProto`: numbers, texts, lists, and tensors on `cpu`."""
    import onnx  # lazy: optional dependency

    result: dict[str, object] = {}
    for attribute in proto.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if attribute.type == onnx.AttributeProto.TENSOR:
            value = read_tensor(value, where, "cpu")
        elif attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            raise OnnxImportError(f"load: {where}: graphs inside of nodes (loops and conditions) are not supported")
        elif isinstance(value, bytes):
            value = value.decode()
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], bytes):
            value = [text.decode() for text in value]
        elif attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
            value = list(value)
        result[attribute.name] = value
    return result


class Node:
    """One node.

    Args:
        op_type: The operator.
        name: Name of the node.
        inputs: Names of its inputs, "" for missing ones.
        outputs: Names of its outputs.
        attributes: Its attributes.
        opset: Version of the operators.

    Attributes:
        known_integers: Integer constants among the inputs, by name.
        is_training: Whether the module is in training mode.
    """

    def __init__(
        self, op_type: str, name: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, object],
        opset: int,
    ):  # fmt: skip
        self.op_type, self.name, self.opset = op_type, name, opset
        self.input_names, self.output_names = list(inputs), list(outputs)
        self.attributes = attributes
        self.known_integers: dict[str, list[int]] = {}
        self.is_training = False
        self._tensors: list[Tensor | None] = []

    @property
    def where(self) -> str:
        """The node, for messages."""
        return f"node {self.name!r} ({self.op_type})" if self.name else f"a node {self.op_type}"

    def unsupported(self, reason: str) -> OnnxImportError:
        """Return the error for a node that is not supported."""
        return OnnxImportError(f"load: {self.where}: {reason}")

    def bind(self, tensors: Sequence[Tensor | None], is_training: bool) -> None:
        """Set the inputs of the next call. Tensors on `cpu`, such as shapes, move to the device of the others."""
        self.is_training = is_training
        devices = {t.meta.device for t in tensors if t is not None}
        if len(devices) > 1:
            device = next(d for d in devices if d.type != "cpu")
            tensors = [
                t if t is None or name in self.known_integers else t.to(device)
                for t, name in zip(tensors, self.input_names, strict=True)
            ]
        self._tensors = list(tensors)

    # --- inputs ---

    def has(self, position: int) -> bool:
        """Return whether an input is present."""
        return position < len(self._tensors) and self._tensors[position] is not None

    def __getitem__(self, position: int) -> Tensor:
        tensor = self._tensors[position] if position < len(self._tensors) else None
        if tensor is None:
            raise self.unsupported(f"input {position} is missing")
        return tensor

    def get(self, position: int) -> Tensor | None:
        """Return an input, or None if it is missing."""
        return self._tensors[position] if position < len(self._tensors) else None

    def tensors(self) -> list[Tensor]:
        """Return all inputs that are present."""
        return [tensor for tensor in self._tensors if tensor is not None]

    # --- attributes and numbers ---

    def attribute(self, name: str, default: Any = _MISSING) -> Any:
        """Return an attribute.

        Raises:
            OnnxImportError: It is missing, and there is no default.
        """
        if name in self.attributes:
            return self.attributes[name]
        if default is _MISSING:
            raise self.unsupported(f"the attribute {name!r} is missing")
        return default

    def integers(self, position: int, attribute: str = "", default: Any = _MISSING) -> Any:
        """Return integers, which older opsets have as an attribute and newer ones as an input.

        Args:
            position: Of the input.
            attribute: Name of the attribute.
            default: What to return if there is neither.
        """
        if attribute and attribute in self.attributes:
            value = self.attributes[attribute]
            return list(value) if isinstance(value, (list, tuple)) else [value]
        if self.has(position):
            known = self.known_integers.get(self.input_names[position])
            return list(known) if known is not None else self[position].reshape(-1).tolist()
        if default is _MISSING:
            raise self.unsupported(f"input {position} is missing")
        return default

    def number(self, position: int, attribute: str = "", default: Any = None) -> Any:
        """Return a number, which is an attribute or an input without dimensions."""
        if attribute and attribute in self.attributes:
            return self.attributes[attribute]
        return self[position].item() if self.has(position) else default


NodeResult: TypeAlias = "Tensor | Sequence[Tensor | None]"
"""The output of a node, or its outputs in order; None for one that nobody reads."""

NodeFunction: TypeAlias = Callable[[Node], NodeResult]
"""Computes the outputs of a node."""
