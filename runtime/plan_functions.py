"""Write the function of a plan family: Python code that checks a trace's guards and builds what the planner built.

The function takes the distinct layouts of a call, and the sizes among its static arguments. It returns the planner's
result for these sizes, or the number of the first guard whose outcome differs from the trace:

    def fill(layouts, sizes):
        m0, = layouts
        m0s0, m0s1 = m0.shape
        v0 = m0s0 * m0s1
        if not v0 < 32769: return 0
        l0 = meta(c0, (m0s0,), None, c1)
        return Planned((l0,), (Step(c2, (0, 1), c3(v0, m0s1), (1,), (1,), v0, (), (), False),), (), None), None

Here `m0s1` is size 1 of layout 0, `v0` an expression, and `c0`, `c1`, … are constants: a dtype, a device, a kernel, the
method `pack` of a `struct.Struct`. In the real text, the classes `Planned` and `Step` are constants, too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from .autograd.node import Application, Recipe
from .backends.protocol import Instance, Step
from .device import Meta, contiguous_strides, meta
from .dtypes import DType
from .kinds import Planned
from .traced_sizes import Number, PackedSizes, Size, Trace, text_of

__all__ = ["Fill", "identity_of", "is_traced", "pin", "texts_of", "write_function"]

Fill = Callable[[Sequence[Meta], Sequence[int]], tuple[Planned, Recipe | None] | int]
"""The function of a family: from layouts and static sizes to the plan's parts, or the number of the failed guard."""

_DATACLASSES = (Planned, Step)
_SLOTTED = (Recipe, Application)  # built attribute by attribute: their constructors take other arguments


def write_function(
    trace: Trace, layouts: Sequence[Meta], sizes: Sequence[int], result: tuple[Planned, Recipe | None]
) -> Fill:
    """Return the function of a family.

    Args:
        trace: The guards and expressions of the planner's run.
        layouts: The traced layouts of the call's tensors, each once.
        sizes: The traced sizes among its static arguments.
        result: What the planner returned, with traced sizes.

    Returns:
        The function `fill(layouts, sizes)`.

    Raises:
        TypeError: The result holds traced sizes in an object of an unexpected class.
    """
    writer = _Writer(layouts)
    returned = writer.text(result)
    writer.write_guards(trace)
    lines = [*_arguments(layouts, sizes), *writer.lines, *writer.definitions_of_result(), f"return {returned}"]
    return _compile_at_first_call("def fill(layouts, sizes):\n " + "\n ".join(lines), writer.constants)


def _compile_at_first_call(code: str, constants: dict[str, object]) -> Fill:
    """Return the function `fill` of some code. If calls are planned in C, it is never called nor compiled."""
    function: Fill | None = None

    def fill(layouts: Sequence[Meta], sizes: Sequence[int]) -> tuple[Planned, Recipe | None] | int:
        nonlocal function
        if function is None:
            scope = dict(constants)
            exec(compile(code, "<plan family>", "exec"), scope)
            function = cast("Fill", scope["fill"])
        return function(layouts, sizes)

    return fill


def _arguments(layouts: Sequence[Meta], sizes: Sequence[int]) -> list[str]:
    """Return the lines that unpack the function's arguments."""
    lines = []
    if layouts:
        lines.append("".join(f"m{i}, " for i in range(len(layouts))) + "= layouts")
    if sizes:
        lines.append("".join(f"x{i}, " for i in range(len(sizes))) + "= sizes")
    for i, layout in enumerate(layouts):
        lines += _unpacking_line(f"m{i}.shape", f"m{i}s", layout.shape)
        lines += _unpacking_line(f"m{i}.strides", f"m{i}t", layout.strides)
    return lines


def _unpacking_line(text: str, prefix: str, values: Sequence[object]) -> list[str]:
    """Return the line that unpacks a shape or strides, or no line if there are no arguments among its values."""
    names = [v.name if isinstance(v, Size) and v.name.startswith(prefix) else "_" for v in values]
    is_needed = any(name != "_" for name in names)
    return ["".join(f"{name}, " for name in names) + f"= {text}"] if is_needed else []


class _Writer:
    """Writes expressions for traced objects.

    Attributes:
        lines: The guards and the definitions that they need.
        constants: Objects that the code refers to, by name.
        _names: Names of constants, by `id`.
        _layouts: Names of layouts, by what equal layouts have in common.
        _result_sizes: The sizes in the result, which need definitions.
        _result_lines: The lines that build layouts and recipes of the result.
        _defined: Names of the sizes that have a definition.
    """

    def __init__(self, layouts: Sequence[Meta]):
        self.lines: list[str] = []
        self.constants: dict[str, object] = {"meta": meta, "new": object.__new__}
        self._names: dict[int, str] = {}
        self._layouts = {identity_of(layout): f"m{i}" for i, layout in enumerate(layouts)}
        self._result_sizes: list[Size] = []
        self._result_lines: list[str] = []
        self._defined: set[str] = set()

    # guards and expressions

    def write_guards(self, trace: Trace) -> None:
        """Write all guards of a trace, in order, and the expressions that they compare."""
        for number, (symbol, a, b, outcome) in enumerate(trace.guards):
            self._define(a, self.lines)
            self._define(b, self.lines)
            negation = "" if not outcome else "not "
            self.lines.append(f"if {negation}{text_of(a)} {symbol} {text_of(b)}: return {number}")

    def definitions_of_result(self) -> list[str]:
        """Return the lines after the guards: expressions that no guard has needed, new layouts and recipes."""
        lines: list[str] = []
        for size in self._result_sizes:
            self._define(size, lines)
        return [*lines, *self._result_lines]

    def _define(self, operand: Size | Number, lines: list[str]) -> None:
        """Append the definition of a size to `lines`, after those of its operands, unless it has one already."""
        if not isinstance(operand, Size) or operand.expression is None or operand.name in self._defined:
            return
        symbol, operands = operand.expression
        for item in operands:
            self._define(item, lines)
        self._defined.add(operand.name)
        texts = list(map(text_of, operands))
        if not isinstance(symbol, str):
            text = f"{self._constant(symbol)}({', '.join(texts)})"
        else:
            text = f"-{texts[0]}" if symbol == "neg" else f"{texts[0]} {symbol} {texts[1]}"
        lines.append(f"{operand.name} = {text}")

    # objects

    def text(self, value: object) -> str:
        """Return the Python expression of an object that may hold sizes."""
        if isinstance(value, Size):
            self._result_sizes.append(value)
            return value.name
        if not is_traced(value):
            return self._constant(value)
        if isinstance(value, tuple):
            return "(" + "".join(f"{self.text(item)}, " for item in value) + ")"
        if isinstance(value, Meta):
            return self._layout(value)
        if isinstance(value, PackedSizes):
            packer = struct.Struct(f"@{len(value.numbers)}q").pack
            return f"{self._constant(packer)}({', '.join(map(self.text, value.numbers))})"
        if isinstance(value, Instance):  # the key of the compiled kernel that all calls of a family share
            return self._constant(replace(value, lanes=pin(value.lanes), defines=pin(value.defines)))
        if isinstance(value, _DATACLASSES):
            arguments = ", ".join(self.text(getattr(value, name)) for name in type(value).__slots__)
            return f"{self._constant(type(value))}({arguments})"
        if isinstance(value, _SLOTTED):
            return self._slotted(value)
        raise TypeError(f"a {type(value).__name__} holds traced sizes")

    def _constant(self, value: object) -> str:
        if value is None or type(value) in (bool, int):
            return repr(value)
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"c{len(self._names)}"
            self.constants[name] = value
        return name

    def _layout(self, layout: Meta) -> str:
        """Return the name of an operand's layout, or of a new one."""
        identity = identity_of(layout)
        name = self._layouts.get(identity)
        if name is None:
            name = self._layouts[identity] = f"l{len(self._layouts)}"
            is_row_major = texts_of(layout.strides) == texts_of(contiguous_strides(layout.shape))
            strides = "None" if is_row_major else self.text(layout.strides)
            dtype, device = self._constant(layout.dtype), self._constant(layout.device)
            self._result_lines.append(f"{name} = meta({dtype}, {self.text(layout.shape)}, {strides}, {device})")
        return name

    def _slotted(self, value: Recipe | Application) -> str:
        texts = [(slot, self.text(getattr(value, slot))) for slot in type(value).__slots__]
        name = f"r{len(self._result_lines)}"
        self._result_lines.append(f"{name} = new({self._constant(type(value))})")
        self._result_lines.extend(f"{name}.{slot} = {text}" for slot, text in texts)
        return name


def identity_of(layout: Meta) -> tuple[DType, str, str, object]:
    """Return what equal traced layouts have in common."""
    return layout.dtype, texts_of(layout.shape), texts_of(layout.strides), layout.device


def texts_of(values: Sequence[Size | int]) -> str:
    """Return the expressions of sizes or strides, which are the same for equal ones."""
    return " ".join(map(text_of, values))


def pin(value: Any) -> Any:
    """Return an object whose sizes are pinned to their values."""
    if isinstance(value, Size):
        return value.trace.pin(value)
    return tuple(map(pin, value)) if isinstance(value, tuple) else value


def is_traced(value: object) -> bool:
    """Return True if an object holds traced sizes."""
    if isinstance(value, (Size, PackedSizes)):
        return True
    if isinstance(value, (tuple, list)):
        return any(map(is_traced, value))
    if isinstance(value, Meta):
        return is_traced(value.shape) or is_traced(value.strides)
    if isinstance(value, (*_DATACLASSES, *_SLOTTED, Instance)):
        return any(is_traced(getattr(value, slot)) for slot in type(value).__slots__)
    return False
