"""What a row of the table of ops sees of a call: operands as values of the graph, static arguments, shapes, dtypes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ...runtime.dtypes import DType
from ...runtime.kinds import Request
from ...runtime.kinds.elementwise import compute_dtype
from ..errors import DynamicSizeError, UnsupportedOperatorError
from .dynamic_sizes import Int, Size, Varying, product
from .graph import Graph, Value
from .memory import Contents, Missing, Packed
from .program import Call, Number, Ref, call_text

if TYPE_CHECKING:
    from ...runtime.call_types import Static

__all__ = ["Conversion", "Row", "RowResult", "Rows"]

_MISSING = object()


class Conversion:
    """One call that becomes nodes.

    Args:
        call: The call.
        graph: Gets the nodes.
        contents: What the memories contain before the call.

    Attributes:
        results: The results of the call.
        contents: What the memories contain before the call.
    """

    def __init__(self, call: Call, graph: Graph, contents: Contents):
        self.call = call
        self.graph = graph
        self.results = call.results
        self.contents = contents
        self._positions = {operand.name: i for i, operand in enumerate(call.record.operands)}

    @property
    def where(self) -> str:
        """The op and its layer, for messages."""
        return call_text(self.call.record, self.call.layer)

    def unsupported(self, reason: str) -> UnsupportedOperatorError:
        """Return the error for a call that cannot be expressed."""
        return UnsupportedOperatorError(f"export: {self.where}: {reason}")

    # --- operands ---

    def position(self, operand: int | str) -> int:
        """Return the position of an operand."""
        return operand if isinstance(operand, int) else self._positions[operand]

    def has(self, operand: int | str) -> bool:
        """Return whether an optional operand is present."""
        position = self.position(operand)
        return position < len(self.call.operands) and self.call.operands[position] is not None

    def is_tensor(self, operand: int | str) -> bool:
        """Return whether an operand is a tensor, and not a number."""
        return self.has(operand) and isinstance(self.call.operands[self.position(operand)], Ref)

    def ref(self, operand: int | str = 0) -> Ref:
        """Return where an operand lies, which must be a tensor."""
        ref = self.call.operands[self.position(operand)]
        assert isinstance(ref, Ref)
        return ref

    def shape(self, operand: int | str = 0) -> tuple[Int, ...]:
        """Return the shape of an operand."""
        return self.ref(operand).shape

    def dtype(self, operand: int | str = 0) -> DType:
        """Return the dtype of an operand."""
        return self.ref(operand).dtype

    def number(self, operand: int | str) -> Number:
        """Return an operand that is a number."""
        value = self.call.operands[self.position(operand)]
        assert isinstance(value, (bool, int, float, Size, Varying))
        return value

    def constant_number(self, operand: int | str) -> bool | int | float:
        """Return an operand that is a number and the same for all sizes."""
        value = self.number(operand)
        if isinstance(value, (Size, Varying)):
            raise DynamicSizeError(f"the argument {operand!r} is {value}, which depends on a dynamic dimension")
        return value

    def number_value(self, operand: int | str, dtype: DType) -> Value:
        """Return an operand that is a number as a value: a constant, a size, or the root or the inverse of a size.

        Raises:
            DynamicSizeError: It depends on a dynamic dimension in another way.
        """
        number = self.number(operand)
        if not isinstance(number, Varying):
            return self.graph.number(number, dtype)
        for op_type, function in (("Sqrt", lambda v: v * v), ("Reciprocal", lambda v: 1 / v)):
            size = number.size(function)
            if isinstance(size, Size):
                return self.graph.op(op_type, self.graph.number(size, dtype))
        shown = " or ".join(map(str, number.values[:3]))
        raise DynamicSizeError(f"an argument is {shown}, depending on a dynamic dimension, which no node can compute")

    def read(self, operand: int | str = 0) -> Value | Packed:
        """Return the value of a tensor operand, or packed sequences."""
        position = self.position(operand)
        ref = self.ref(position)
        constant = self.call.constants.get(position)
        if constant is not None and constant.array is not None and not self.contents.is_computed(ref):
            if position in self.call.unstable:
                raise DynamicSizeError(
                    "an operand is made from Python numbers that depend on a dynamic dimension; make it with tensor "
                    "functions such as arange, full or zeros"
                )
            return self.graph.constant(constant.array, ref.dtype)
        value = self.contents.read(ref)
        if isinstance(value, str):
            self.graph.note_sizes(value, ref.shape)
        return value

    def input(self, operand: int | str = 0) -> Value:
        """Return the value of a tensor operand."""
        value = self.read(operand)
        if isinstance(value, Packed):
            raise self.unsupported("packed sequences can be read by recurrent layers and by pad_packed_sequence only")
        return value

    def vector(self, operand: int | str) -> Value:
        """Return an operand as a vector: the tensor that it is a view of, if that is one."""
        ref = self.ref(operand)
        source = self.contents.view_source(ref)
        constant = self.call.constants.get(self.position(operand))
        is_unnamed = constant is not None and constant.array is not None
        if not is_unnamed and source is not None and source.shape == (product(ref.shape),):
            value = self.contents.read(source)
            if isinstance(value, str):
                return value
        return self.graph.op("Reshape", self.input(operand), self.graph.ints([-1]))

    def inputs(self) -> list[Value]:
        """Return the values of all operands of a call whose operands are tensors."""
        return [self.input(i) for i in range(len(self.call.operands))]

    def cast_input(self, operand: int | str, dtype: DType) -> Value:
        """Return an operand, a tensor or a number, as a value of a dtype."""
        if not self.is_tensor(operand):
            return self.number_value(operand, dtype)
        return self.graph.cast(self.input(operand), self.dtype(operand), dtype)

    def sizes(self, shape: Sequence[Int]) -> Value:
        """Return a vector of sizes, which may be dimensions of the operands or products of these."""
        tensors = [p for p, operand in enumerate(self.call.operands) if isinstance(operand, Ref)]
        return self.graph.shape(shape, lambda: ((self.input(p), self.shape(p)) for p in tensors))

    # --- static arguments and dtypes ---

    def static(self, name: str, default: Static = _MISSING) -> Static:
        """Return a static argument; `default` if the op has none of that name."""
        names = self.call.record.statics
        if name in names and names.index(name) < len(self.call.statics):
            value = self.call.statics[names.index(name)]
            if isinstance(value, Varying):
                raise DynamicSizeError(f"the argument {name!r} depends on a dynamic dimension: {value.values[:3]}")
            return value
        if default is _MISSING:
            raise self.unsupported(f"it was called without {name!r}")
        return default

    def compute_dtype(self) -> DType:
        """Return the dtype to which the operands are promoted."""
        operands: list[object] = []
        for operand in self.call.operands:
            is_number = isinstance(operand, (bool, int, float, Size, Varying))
            number_type = int if isinstance(operand, Size) else float if isinstance(operand, Varying) else type(operand)
            operands.append(operand.meta if isinstance(operand, Ref) else number_type if is_number else None)
        device = (self.call.refs() or self.results)[0].meta.device
        return compute_dtype(Request(self.call.record, tuple(operands), self.call.statics, device))  # type: ignore[arg-type]


RowResult: TypeAlias = "Value | Packed | Missing | Sequence[Value | Packed | Missing | None]"
"""The value of the first result, or of each result; None for results that a row does not compute."""

Row: TypeAlias = Callable[[Conversion], RowResult]
"""Adds the nodes of a call to its graph."""

Rows: TypeAlias = "dict[str, Row]"
"""Rows of the table, by the name of the op."""
