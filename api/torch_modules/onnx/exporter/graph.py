"""Build an ONNX graph with the package `onnx`: nodes, initializers, names, and vectors of sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...runtime import dtypes
from ...runtime.dtypes import Array, DType
from ..errors import DynamicSizeError, PackageNotFound, UnsupportedOperatorError
from .dynamic_sizes import Formula, Int, Size, find_formula, product

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["Graph", "Value", "element_type", "import_onnx"]

Value: TypeAlias = str
"""The name of a value in the graph."""

Shapes: TypeAlias = Callable[[], Iterable[tuple[Value, Sequence[Int]]]]
"""Returns values with their shapes."""

_INT64 = dtypes.int64
_MAX_SHOWN = 3
_OPTIONAL_OUTPUTS = ("MaxPool", "LSTM", "GRU", "RNN")


def import_onnx() -> ModuleType:
    """Return the package `onnx`.

    Raises:
        PackageNotFound: It is not installed.
    """
    try:
        import onnx  # lazy: optional dependency
        import onnx.numpy_helper
    except ImportError as error:
        raise PackageNotFound(f"weftgrad.onnx needs the package onnx ({error}); pip install 'weftgrad[onnx]'") from None
    return onnx


def element_type(dtype: DType) -> int:
    """Return the number of an element type in ONNX files."""
    return int(
        getattr(
            import_onnx().TensorProto, {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype.name, dtype.name.upper())
        )
    )


class Graph:
    """A graph that is being built.

    Args:
        opset: Version of the set of operators.
        dims: For each run of the model, the size of each dynamic dimension.

    Attributes:
        opset: Version of the set of operators.
        nodes: The nodes, each after those that it reads.
        initializers: Values of parameters and buffers by name.
        scope: Path of the layer whose calls are being converted.
        reshaped: For each output of a Reshape, the node's input and its shape.
    """

    def __init__(self, opset: int, dims: Sequence[Mapping[str, int]]):
        self.onnx = import_onnx()
        self.opset = opset
        self.dims = dims
        self.nodes: list[Any] = []  # NodeProto
        self.initializers: dict[str, Any] = {}  # TensorProto
        self.scope = ""
        self.reshaped: dict[Value, tuple[Value, tuple[Int, ...]]] = {}
        self._names: set[str] = set()
        self._known_operators: set[str] = set()
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Value] = {}
        self._nodes_by_key: dict[tuple[object, ...], list[Value]] = {}
        self._symbols: dict[str, tuple[Value, int]] = {}
        self._known_sizes: dict[Size, Value] = {}

    # --- names ---

    def unique(self, name: str) -> str:
        """Return `name`, with a number if it is used already."""
        candidate, number = name, 0
        while candidate in self._names:
            number += 1
            candidate = f"{name}_{number}"
        self._names.add(candidate)
        return candidate

    # --- nodes ---

    def node(self, op_type: str, inputs: Sequence[Value], outputs: int = 1, **attributes: object) -> list[Value]:
        """Add a node, and return the names of its outputs. An equal node that exists already is used again."""
        self._check_operator(op_type)
        known = {name: value for name, value in attributes.items() if value is not None}
        is_constant = op_type == "Constant"  # `constant` looks for equal ones
        key = (op_type, tuple(inputs), outputs, len(self.nodes) if is_constant else repr(sorted(known.items())))
        if key not in self._nodes_by_key:
            path = "".join(f"/{part}" for part in self.scope.split(".") if part)
            name = self.unique(f"{path}/{op_type}")
            results = [f"{name}_output_{i}" for i in range(outputs)]
            self.nodes.append(self.onnx.helper.make_node(op_type, list(inputs), results, name=name, **known))
            self._nodes_by_key[key] = results
        return self._nodes_by_key[key]

    def op(self, op_type: str, *inputs: Value, **attributes: object) -> Value:
        """Add a node with one output, and return the output's name."""
        return self.node(op_type, inputs, 1, **attributes)[0]

    def _check_operator(self, op_type: str) -> None:
        if op_type in self._known_operators:
            return
        try:
            self.onnx.defs.get_schema(op_type, self.opset, "")
        except self.onnx.defs.SchemaError:
            first = min(s.since_version for s in self.onnx.defs.get_all_schemas_with_history() if s.name == op_type)
            raise UnsupportedOperatorError(
                f"export: {f'layer {self.scope!r}' if self.scope else 'the model'} needs the operator {op_type}, which "
                f"exists since opset {first}; pass opset_version={first}"
            ) from None
        self._known_operators.add(op_type)

    # --- constants ---

    def constant(self, array: Array, dtype: DType | None = None) -> Value:
        """Return a constant. `dtype` is needed for bfloat16, whose values are float32 in `array`."""
        proto = self._tensor_proto(array, dtype)
        key = (str(proto.data_type), tuple(proto.dims), proto.raw_data)
        if key not in self._constants:
            self._constants[key] = self.op("Constant", value=proto)
        return self._constants[key]

    def number(self, value: bool | int | float | Size, dtype: DType) -> Value:
        """Return a constant without dimensions, or the value of a size."""
        if isinstance(value, Size):
            scalar = self.op("Squeeze", self.size(value), self.ints([0]))
            return self.cast(scalar, _INT64, dtype)
        if dtype.kind == "f":
            return self.constant(np.array(value, np.float32 if dtype.itemsize == 2 else dtype.numpy), dtype)
        return self.constant(np.array(value).astype(dtype.numpy), dtype)

    def ints(self, values: Iterable[int]) -> Value:
        """Return a constant vector of int64."""
        return self.constant(np.array(list(values), np.int64))

    def initializer(self, name: str, array: Array, dtype: DType, doc: str = "") -> Value:
        """Add the value of a parameter or buffer, and return its name."""
        unique_name = self.unique(name)
        proto = self._tensor_proto(array, dtype)
        proto.name = unique_name
        if doc:
            proto.doc_string = doc
        self.initializers[unique_name] = proto
        return unique_name

    def _tensor_proto(self, array: Array, dtype: DType | None) -> Any:  # TensorProto
        if dtype is not None and dtype is dtypes.bfloat16:
            from ...runtime.host_data import to_bfloat16  # lazy: rarely used

            bits = to_bfloat16(np.asarray(array, np.float32))
            return self.onnx.helper.make_tensor("", element_type(dtype), array.shape, bits.tobytes(), raw=True)
        if dtype is not None and array.dtype != dtype.numpy:
            array = array.astype(dtype.numpy)
        return self.onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape))

    # --- conversions ---

    def cast(self, value: Value, source: DType, target: DType) -> Value:
        """Convert a value from one dtype to another."""
        return value if source is target else self.op("Cast", value, to=element_type(target))

    # --- sizes ---

    def add_symbol(self, symbol: str, value: Value, position: int) -> None:
        """Note that a dynamic dimension is that of a value at a position."""
        self._symbols.setdefault(symbol, (value, position))

    def note_sizes(self, value: Value, shape: Sequence[Int]) -> None:
        """Note the shape of a value, from which sizes that have no formula can be read."""
        for position, size in enumerate(shape):
            if isinstance(size, Size) and size not in self._known_sizes and find_formula(size, self.dims) is None:
                self._known_sizes[size] = self._dim_of(value, position)

    def size(self, size: Int, shapes: Shapes = lambda: ()) -> Value:
        """Return a size as a vector of one int64.

        Args:
            size: The size.
            shapes: Returns values whose dimensions it may be the product of, with their shapes.

        Raises:
            DynamicSizeError: No expression for it is known.
        """
        if not isinstance(size, Size):
            return self.ints([size])
        formula = find_formula(size, self.dims)
        if formula is not None:
            return self._formula(formula)
        if size in self._known_sizes:
            return self._known_sizes[size]
        for value, shape in shapes():
            for first in range(len(shape)):
                for last in range(first + 1, len(shape) + 1):
                    if product(shape[first:last]) == size:
                        return self._product([self.size_of(value, shape, d) for d in range(first, last)])
        shown = " or ".join(map(str, size.values[:_MAX_SHOWN]))
        dims = " or ".join(", ".join(f"{k}={v}" for k, v in run.items()) for run in self.dims[:_MAX_SHOWN])
        raise DynamicSizeError(f"the size {shown}, for {dims}, is no sum or product of dynamic dimensions")

    def size_of(self, value: Value, shape: Sequence[Int], position: int) -> Value:
        """Return the size of one dimension of a value as a vector of one int64."""
        size = shape[position]
        if not isinstance(size, Size):
            return self.ints([size])
        formula = find_formula(size, self.dims)
        return self._dim_of(value, position) if formula is None else self._formula(formula)

    def shape(self, sizes: Sequence[Int], shapes: Shapes = lambda: ()) -> Value:
        """Return a vector of sizes (see `size`)."""
        if not any(isinstance(size, Size) for size in sizes):
            return self.ints(sizes)  # type: ignore[arg-type]  # all are ints
        parts = [self.size(size, shapes) for size in sizes]
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    def _formula(self, formula: Formula) -> Value:
        terms = []
        for factor, names in formula.terms:
            parts = [self._dim_of(*self._symbols[name]) for name in names]
            terms.append(self._product(parts if factor == 1 else [*parts, self.ints([factor])]))
        if formula.constant:
            terms.append(self.ints([formula.constant]))
        result = terms[0]
        for term in terms[1:]:
            result = self.op("Add", result, term)
        return result if formula.divisor == 1 else self.op("Div", result, self.ints([formula.divisor]))

    def _product(self, parts: Sequence[Value]) -> Value:
        result = parts[0]
        for part in parts[1:]:
            result = self.op("Mul", result, part)
        return result

    def _dim_of(self, value: Value, position: int) -> Value:
        return self.op("Shape", value, start=position, end=position + 1)

    # --- the finished graph ---

    def prune(self, outputs: Iterable[Value]) -> None:
        """Remove nodes and initializers that the outputs do not depend on."""
        needed = set(outputs)
        remaining = []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                remaining.append(node)
                needed.update(node.input)
        self.nodes = remaining[::-1]
        for node in self.nodes:
            while node.op_type in _OPTIONAL_OUTPUTS and len(node.output) > 1 and node.output[-1] not in needed:
                node.output.pop()
        self.initializers = {name: proto for name, proto in self.initializers.items() if name in needed}
