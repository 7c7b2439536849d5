"""Programs of the register machine: a table of lines, and its listing as text.

    >>> program = from_listing(10, "0 0 _", "r1 = READ r0 _; r2 = WRITE r2 r1; r2 = STOP _ _")
    >>> print(program)
    registers 0 0 _
    0  r1 = READ r0 _
    1  r2 = WRITE r2 r1
    2  r2 = STOP _ _

`_` is a flat entry: the program does not care which register or value stands there.
"""

import re
from dataclasses import dataclass

OPCODES = ("STOP", "ZERO", "INC", "ADD", "SUB", "DEC", "MIN", "MAX", "READ", "WRITE", "JEZ")

_LINE = re.compile(r"(?:\d+\s+)?(r\d+|_)\s*=\s*([A-Z]+|_)((?:\s+(?:r\d+|_)){0,2})")


class ProgramError(ValueError):
    """A fault in the text of a program; the message names the line."""


@dataclass(frozen=True)
class Line:
    """One line: the numbers of an opcode, two argument registers and an output register; None is a flat entry."""

    opcode: int | None
    first: int | None
    second: int | None
    output: int | None

    def __str__(self):
        first, second, output = ("_" if r is None else f"r{r}" for r in (self.first, self.second, self.output))
        return f"{output} = {'_' if self.opcode is None else OPCODES[self.opcode]} {first} {second}"


@dataclass(frozen=True)
class Program:
    """A program for a machine of `cells` memory cells, which hold values from 0 to `cells` - 1.

    `registers` holds the registers' values at the start, None where the program does not care. `start` is the first
    line that runs.
    """

    cells: int
    registers: tuple[int | None, ...]
    lines: tuple[Line, ...]
    start: int | None = 0

    def __post_init__(self):
        if len(self.lines) > self.cells:
            raise ProgramError(f"{len(self.lines)} lines; a machine of {self.cells} cells can count {self.cells}")
        for register, value in enumerate(self.registers):
            if value is not None and not 0 <= value < self.cells:
                raise ProgramError(f"register {register} starts at {value}, which is not in 0..{self.cells - 1}")
        for number, line in enumerate(self.lines):
            for register in (line.first, line.second, line.output):
                if register is not None and not 0 <= register < len(self.registers):
                    raise ProgramError(f"line {number}: there is no register r{register}")

    def __str__(self):
        values = " ".join("_" if value is None else str(value) for value in self.registers)
        start = "" if self.start == 0 else f", start at {'_' if self.start is None else self.start}"
        width = len(str(len(self.lines) - 1))
        return "\n".join([f"registers {values}{start}", *(f"{i:{width}}  {line}" for i, line in enumerate(self.lines))])


def from_listing(cells, registers, listing):
    """Return the program that a listing describes.

    Args:
        cells: Number of memory cells.
        registers: Values of the registers at the start, separated by spaces; `_` for a flat one.
        listing: Lines `rO = OPCODE rA rB`, separated by `;` or line ends. A missing argument is flat.

    Raises:
        ProgramError: A line has another form, an unknown opcode or an unknown register.
    """
    lines = []
    for text in filter(None, map(str.strip, re.split(r"[;\n]", listing))):
        match = _LINE.fullmatch(text)
        if not match:
            raise ProgramError(f"line {len(lines)}: {text!r} is not of the form 'rO = OPCODE rA rB'")
        output, name, arguments = match.groups()
        if name != "_" and name not in OPCODES:
            raise ProgramError(f"line {len(lines)}: unknown opcode {name}; known are {', '.join(OPCODES)}")
        first, second, output = (
            None if word == "_" else int(word[1:]) for word in [*arguments.split(), "_", "_"][:2] + [output]
        )
        lines.append(Line(None if name == "_" else OPCODES.index(name), first, second, output))
    values = tuple(None if word == "_" else int(word) for word in registers.split())
    return Program(cells, values, tuple(lines))
