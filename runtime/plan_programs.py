"""Write the function of a plan family as a program for C, which plans in a fraction of the time of Python code.

`csrc/program.c` runs programs, and `plan_functions` writes the same function in Python. A program has registers, which
hold 64-bit integers or doubles: sizes and strides of the call, results, and constants. Instructions compute registers
and compare them, in the order of the Python function. Other instructions, `parts`, build the outputs, the recipe, the
view and the launcher of a plan on a stack of objects.

An instruction is four numbers of 16 bits: its code, a target, and two operands a and b. The target is a register; of a
comparison it is the number of the guard, and parts have none. Operands are registers, counts, or positions: in the
lists, or among objects, layouts and classes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from . import native
from .autograd.node import Application, Recipe
from .backends.protocol import Instance, Step
from .device import Device, Meta, contiguous_strides
from .kinds import Planned
from .plan_functions import identity_of, is_traced, pin, texts_of
from .traced_sizes import Number, PackedSizes, Size, Trace, value_of

if TYPE_CHECKING:
    from .backends.protocol import Driver
    from .call_types import Launcher
    from .native import Program

__all__ = ["write_program"]

# The codes of instructions are positions in these tuples, and `enum`s of csrc/program.c.
CODES = (
    "+", "-", "*", "//", "%", "<<", ">>", "&", "|", "neg", "to real", "+ real", "- real", "* real", "/ real",
    "neg real", "==", "not ==", "<", "not <", "== real", "not == real", "< real", "not < real", "call",
)  # fmt: skip
PARTS = (
    "object", "layout", "integer", "real", "tuple", "bytes", "meta", "fields", "save", "push saved", "launch",
    "launch host", "sequence",
)  # fmt: skip
SOURCES = ("shape", "strides", "static sizes")  # of registers that a program loads
_CLASSES_WITH_FIELDS = (Recipe, Application, Step)
_MAX_REGISTERS = 1024
_MIN_INT64, _MAX_INT64 = -(1 << 63), (1 << 63) - 1
_MAX_EXACT = 1 << 53  # the largest integer up to which doubles hold all integers
_ERRORS = (IndexError, KeyError, RecursionError, TypeError, ValueError, struct.error)


class _Unsupported(TypeError):
    """C cannot compute this as Python does."""


def write_program(
    trace: Trace, layouts: Sequence[Meta], sizes: Sequence[int], planned: Planned, recipe: Recipe | None,
    run: Launcher | None, device: Device, concrete_steps: Sequence[Step] = (),
) -> Program | None:  # fmt: skip
    """Return the program of a family.

    Args:
        trace: The guards and expressions of the planner's run, after `plan_functions.write_function` has pinned sizes.
        layouts: The traced layouts of the call's tensors, each once.
        sizes: The traced sizes among its static arguments.
        planned: What the planner returned, with traced sizes.
        recipe: The recipe, with traced sizes.
        run: The launcher of a plan of the family.
        device: The device of the calls.
        concrete_steps: The steps that `run` launches.

    Returns:
        The program, or None if C is missing or cannot compute what the planner did.
    """
    if not native.present:
        return None
    writer = _Writer(layouts, sizes)
    try:
        for number, guard in enumerate(trace.guards):
            writer.write_guard(number, *guard)
        writer.write_object(tuple(planned.outputs))  # a registered planner may return lists
        writer.write_object(recipe)
        writer.write_object(planned.view)
        writer.write_launcher(planned, run, device, concrete_steps)
        return writer.program(device.driver)
    except _ERRORS:
        return None


class _Writer:
    """Collects a program's instructions.

    Attributes:
        _registers: By name, the registers of sizes, and of sizes that were converted to doubles.
        _constants: Registers of constants, from the last register downwards, by type and value.
        _lists: Operands of instructions that have many.
        _objects: Objects to which instructions refer.
        _positions: Positions among the objects, by `id`.
        _new_layouts: Positions of built layouts among the saved objects, by what equal layouts have in common.
    """

    def __init__(self, layouts: Sequence[Meta], sizes: Sequence[int]):
        self._counts = len(layouts), len(sizes)
        self._layouts = {identity_of(layout): i for i, layout in enumerate(layouts)}
        self._registers: dict[str, int] = {}
        self._constants: dict[tuple[type, str], tuple[int, Number]] = {}
        self._loads: list[int] = []
        self._instructions: list[int] = []
        self._parts: list[int] = []
        self._lists: list[int] = []
        self._objects: list[object] = []
        self._positions: dict[int, int] = {}
        self._classes: list[type] = []
        self._new_layouts: dict[tuple[object, ...], int] = {}
        for i, layout in enumerate(layouts):
            self._load("shape", i, layout.shape, f"m{i}s")
            self._load("strides", i, layout.strides, f"m{i}t")
        self._load("static sizes", 0, sizes, "x")

    def program(self, driver: Driver) -> Program:
        """Return the program."""
        if len(self._registers) + len(self._constants) > _MAX_REGISTERS:
            raise _Unsupported("too many sizes")
        constants = tuple([value for _, value in self._constants.values()])
        tables = (self._loads, self._instructions, self._parts, self._lists)
        loads, instructions, parts, lists = [struct.pack(f"@{len(table)}H", *table) for table in tables]
        layout_count, size_count = self._counts
        return native.program(
            layout_count, size_count, constants, loads, instructions, parts, lists, tuple(self._objects),
            tuple(self._classes), driver,
        )  # fmt: skip

    # registers

    def _load(self, source: str, position: int, values: Sequence[object], prefix: str) -> None:
        """Write a load for each of `values` that is an argument of the family's function.

        The others are constants, or repeat an argument.
        """
        for dim, value in enumerate(values):
            if isinstance(value, Size) and value.name == f"{prefix}{dim}":
                self._loads += (SOURCES.index(source), self._new_register(value.name), position, dim)

    def _new_register(self, name: str) -> int:
        return self._registers.setdefault(name, len(self._registers))

    def _constant(self, value: Number) -> int:
        """Return the register of a constant."""
        number = value if isinstance(value, float) else int(value)
        if isinstance(number, int) and not _MIN_INT64 <= number <= _MAX_INT64:
            raise _Unsupported(f"{number} has more than 64 bits")
        key = type(number), repr(number)  # by `repr`, because 0.0 equals -0.0
        return self._constants.setdefault(key, (_MAX_REGISTERS - 1 - len(self._constants), number))[0]

    def _integer(self, operand: Size | Number) -> int:
        """Return the register of an integer, after the instructions that compute it."""
        if isinstance(value_of(operand), float):
            raise _Unsupported("an integer is expected")
        return self._compute(operand) if isinstance(operand, Size) else self._constant(operand)

    def _real(self, operand: Size | Number) -> int:
        """Return the register of a double, converted from an integer if necessary."""
        if not isinstance(operand, Size):
            if isinstance(operand, int) and abs(operand) > _MAX_EXACT:
                raise _Unsupported(f"{operand} is beyond 2**53")
            return self._constant(float(operand))
        register = self._compute(operand)
        if isinstance(operand.value, float):
            return register
        name = f"real {operand.name}"
        if name not in self._registers:
            self._instruct("to real", self._new_register(name), register)
        return self._registers[name]

    def _compute(self, size: Size) -> int:
        """Return the register of a size, after the instructions that compute it."""
        register = self._registers.get(size.name)
        if register is not None:
            return register
        if size.expression is None:
            raise _Unsupported(f"{size.name} is no argument")
        symbol, operands = size.expression
        is_real = any(isinstance(value_of(item), float) for item in (size, *operands))
        if not isinstance(symbol, str):
            registers = [self._integer(item) for item in operands]
            if is_real:
                raise _Unsupported("functions of doubles")
            position = self._append_list((len(registers), *registers))
            register = self._new_register(size.name)
            self._instruct("call", register, position, self._position(symbol))
            return register
        registers = [self._real(item) if is_real else self._integer(item) for item in operands]
        code = f"{symbol} real" if is_real else symbol
        if code not in CODES:
            raise _Unsupported(f"no instruction {code}")
        register = self._new_register(size.name)
        self._instruct(code, register, *registers)
        return register

    def _instruct(self, code: str, target: int, a: int, b: int = 0) -> None:
        self._instructions += (CODES.index(code), target, a, b)

    def write_guard(self, number: int, symbol: str, a: Size | Number, b: Size | Number, outcome: bool) -> None:
        """Write the instructions of a guard and of what it compares."""
        for item, other, is_right in ((a, b, False), (b, a, True)):
            if isinstance(item, int) and not _MIN_INT64 <= item <= _MAX_INT64:
                # The outcome is the same for all integers of 64 bits, and C gives up at others.
                if outcome != (symbol == "<" and (item > 0) == is_right):
                    raise _Unsupported("sizes of more than 64 bits")
                self._integer(other)
                return
        is_real = isinstance(value_of(a), float) or isinstance(value_of(b), float)
        registers = [self._real(item) if is_real else self._integer(item) for item in (a, b)]
        code = f"{'' if outcome else 'not '}{symbol}{' real' if is_real else ''}"
        self._instruct(code, number, *registers)

    # objects

    def _append_list(self, numbers: Sequence[int]) -> int:
        """Append numbers to the lists, and return their position."""
        self._lists += numbers
        return len(self._lists) - len(numbers)

    def _position(self, value: object) -> int:
        """Return the position of an object, which is appended if it is new."""
        if id(value) not in self._positions:
            self._positions[id(value)] = len(self._objects)
            self._objects.append(value)  # which also keeps its `id` from being another object's
        return self._positions[id(value)]

    def _part(self, code: str, a: int = 0, b: int = 0) -> None:
        self._parts += (PARTS.index(code), 0, a, b)

    def write_object(self, value: object) -> None:
        """Write the instructions that build an object."""
        if isinstance(value, Size):
            is_real = isinstance(value.value, float)
            self._part("real" if is_real else "integer", self._real(value) if is_real else self._integer(value))
        elif not is_traced(value):
            self._part("object", self._position(value))
        elif isinstance(value, tuple):
            for item in value:
                self.write_object(item)
            self._part("tuple", len(value))
        elif isinstance(value, Meta):
            self._write_layout(value)
        elif isinstance(value, PackedSizes):
            registers = list(map(self._integer, value.numbers))
            self._part("bytes", self._append_list(registers), len(registers))
        elif isinstance(value, Instance):  # the key of the compiled kernel that all calls of a family share
            instance = replace(value, lanes=pin(value.lanes), defines=pin(value.defines))
            self._part("object", self._position(instance))
        elif isinstance(value, _CLASSES_WITH_FIELDS):
            for name in type(value).__slots__:
                self.write_object(getattr(value, name))
            if type(value) not in self._classes:
                self._classes.append(type(value))
            self._part("fields", self._classes.index(type(value)))
        else:
            raise _Unsupported(f"a {type(value).__name__} holds traced sizes")

    def _write_layout(self, layout: Meta) -> None:
        """Write the instructions that push a layout: one of the call's, one that was built before, or a new one."""
        identity = identity_of(layout)
        if identity in self._layouts:
            self._part("layout", self._layouts[identity])
        elif identity in self._new_layouts:
            self._part("push saved", self._new_layouts[identity])
        else:
            is_row_major = texts_of(layout.strides) == texts_of(contiguous_strides(layout.shape))
            self.write_object(layout.shape)
            self.write_object(None if is_row_major else layout.strides)
            self._part("meta", self._position(layout.dtype), self._position(layout.device))
            self._part("save")
            self._new_layouts[identity] = len(self._new_layouts)

    def write_launcher(
        self, planned: Planned, run: Launcher | None, device: Device, concrete_steps: Sequence[Step]
    ) -> None:
        """Write the instructions that make the launcher.

        It comes from the templates of `run` if all its launchers are C launchers on `cpu`, else from the driver's
        `launcher`.
        """
        templates = native.host_templates_of(run)
        scratch = tuple(planned.scratch)
        if not planned.steps:
            self.write_object(None)
        elif len(templates) == len(planned.steps):
            for step, concrete_step, template in zip(planned.steps, concrete_steps, templates, strict=True):
                if not _has_same_template(step, concrete_step):
                    raise _Unsupported("the planner chose other kernels or operands when it was traced")
                registers = list(map(self._integer, ((*step.global_size, 1, 1)[:3] + (step.work,))))
                self.write_object(step.geometry)
                self._part("launch host", self._position(template), self._append_list(registers))
            if len(templates) > 1 or scratch:
                self._part("tuple", len(templates))
                self.write_object(scratch)
                self._part("sequence", self._position(device))
        else:
            self.write_object(tuple(planned.steps))
            self.write_object(scratch)
            self._part("launch")


def _has_same_template(traced: Step, concrete: Step) -> bool:
    """Return whether two steps differ at most in what a template's launches differ in: geometry, sizes and work."""
    parts = [
        (replace(step.instance, lanes=pin(step.instance.lanes), defines=pin(step.instance.defines)),
         tuple(step.buffers), tuple(step.scalars), tuple(step.integers), step.reaches, step.wraps)
        for step in (traced, concrete)
    ]  # fmt: skip
    # Comparing a size would record a guard, and the guards are written already.
    return not is_traced(parts[0]) and parts[0] == parts[1]
