"""Compile a small language to programs of the register machine (Bunel et al. 2016, section 3.2).

    >>> countdown = "var x = 3; var zero = 0; loop: x = DEC(x); JEZ(x, end); JEZ(zero, loop); end: STOP();"
    >>> print(compile_source(7, countdown))
    registers 3 0 0 3 0
    0  r3 = DEC r3 r4
    1  r4 = JEZ r3 r0
    2  r4 = JEZ r2 r1
    3  r4 = STOP r4 r4

| statement | meaning |
| --- | --- |
| `var x = 3;` | a variable, that is a register, which is 3 at the start; emits no line |
| `var x = READ(y);` | a variable that a line assigns; it is 0 at the start |
| `x = ADD(x, y);` | a line that assigns an existing variable |
| `x = 3;` | nothing: constants exist only at the start |
| `WRITE(x, y);` | a line whose output goes into the junk register |
| `loop: ...` | a label: a register that holds the number of the next line, for `JEZ(x, loop);` |

The last declared variable or label is register 0, the junk register is the last one and stands for missing arguments.
`#` starts a comment. Labels and variables may be used in lines above their declaration.
"""

import difflib
import re
from dataclasses import dataclass

from .program import OPCODES, Line, Program, ProgramError

_NAME = r"[A-Za-z_]\w*"
_LABEL = re.compile(rf"({_NAME})\s*:\s*")
_CONSTANT = re.compile(rf"(var\s+)?({_NAME})\s*=\s*(\d+)")
_CALL = re.compile(rf"(?:(var\s+)?({_NAME})\s*=\s*)?({_NAME})\s*\(\s*(.*?)\s*\)", re.DOTALL)


@dataclass(frozen=True)
class _Call:
    """A statement that becomes a line; its names are resolved when all declarations are known."""

    line: int
    opcode: int
    arguments: list[str]
    target: str | None


class _Compiler:
    def __init__(self, cells):
        self.cells = cells
        self.initial = {}  # start value of each variable and label, in the order of their declaration
        self.calls = []

    def declare(self, name, value, line):
        if name in self.initial:
            raise ProgramError(f"line {line}: {name} is declared twice")
        if not value < self.cells:
            raise ProgramError(f"line {line}: {name} = {value} is above the largest value, {self.cells - 1}")
        self.initial[name] = value

    def read_target(self, var, name, value, line):
        """Declare the variable on the left of `=`, or check that it exists."""
        if var:
            self.declare(name, value, line)
        elif name not in self.initial:
            raise ProgramError(f"line {line}: {name} is not declared; write 'var {name} = ...'{self._suggest(name)}")

    def read_statement(self, text, line):
        while match := _LABEL.match(text):
            self.declare(match[1], len(self.calls), line)
            line += match[0].count("\n")
            text = text[match.end() :]
        if match := _CONSTANT.fullmatch(text):
            var, name, value = match.groups()
            self.read_target(var, name, int(value), line)
        elif match := _CALL.fullmatch(text):
            var, target, function, arguments = match.groups()
            if target:
                self.read_target(var, target, 0, line)
            self.calls.append(self._read_call(line, function, arguments, target))
        elif text:
            raise ProgramError(f"line {line}: {text!r} is not a statement; one is 'x = ADD(x, y);' or 'var x = 3;'")

    def _read_call(self, line, function, text, target):
        if function not in OPCODES:
            close = difflib.get_close_matches(function.upper(), OPCODES, 1)
            hint = f"; did you mean {close[0]}?" if close else f"; known are {', '.join(OPCODES)}"
            raise ProgramError(f"line {line}: unknown function {function}{hint}")
        arguments = [argument.strip() for argument in text.split(",")] if text else []
        if len(arguments) > 2:
            raise ProgramError(f"line {line}: {function} has {len(arguments)} arguments; at most 2 are possible")
        for argument in arguments:
            if not re.fullmatch(_NAME, argument):
                raise ProgramError(f"line {line}: argument {argument!r} of {function} is not the name of a variable")
        return _Call(line, OPCODES.index(function), arguments, target)

    def _suggest(self, name):
        close = difflib.get_close_matches(name, self.initial, 1)
        return f"; did you mean {close[0]}?" if close else ""

    def link(self):
        """Number the registers, and return the program."""
        names = list(reversed(self.initial))
        junk = len(names)
        numbers = {name: number for number, name in enumerate(names)}
        lines = []
        for call in self.calls:
            for name in call.arguments:
                if name not in numbers:
                    raise ProgramError(f"line {call.line}: {name} is not declared{self._suggest(name)}")
            first, second = [*(numbers[name] for name in call.arguments), junk, junk][:2]
            output = junk if call.target is None else numbers[call.target]
            lines.append(Line(call.opcode, first, second, output))
        return Program(self.cells, (*(self.initial[name] for name in names), 0), tuple(lines))


def compile_source(cells, source):
    """Return the program of a source text.

    Args:
        cells: Number of memory cells of the machine, which is also the largest number of lines.
        source: Statements of the language that this module describes.

    Raises:
        ProgramError: The text has a fault; the message starts with the number of its line, from 1.
    """
    source = re.sub(r"#.*", "", source)
    compiler = _Compiler(cells)
    *statements, rest = source.split(";")
    line = 1
    for statement in statements:
        text = statement.lstrip()
        compiler.read_statement(text.rstrip(), line + statement[: len(statement) - len(text)].count("\n"))
        line += statement.count("\n")
    if rest.strip():
        line += rest[: len(rest) - len(rest.lstrip())].count("\n")
        raise ProgramError(f"line {line}: ';' is missing after {rest.strip()!r}")
    return compiler.link()
