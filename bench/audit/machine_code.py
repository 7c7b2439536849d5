"""Machine code of NVIDIA (as nvdisasm prints it) and AMD (assembly), read into instructions and loops."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ...runtime.triton.compile import Compiled, disassemble

__all__ = ["CodeLoop", "Instruction", "MachineCode", "load_bytes", "read", "tensor_shape"]

_NVIDIA_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]+)(.*)")
_NVIDIA_LABEL = re.compile(r"^(\.L_x_\d+):")
_NVIDIA_LINE = re.compile(r'//## File ".*?", line (\d+)')
_NVIDIA_TARGET = re.compile(r"`\((\.L_x_\d+)\)")
_AMD_INSTRUCTION = re.compile(r"^\t([sv]_\w+|ds_\w+|global_\w+|buffer_\w+|flat_\w+|scratch_\w+)(.*)")
_AMD_LABEL = re.compile(r"^(\.LBB\w+):")
_AMD_LINE = re.compile(r"^\s+\.loc\s+\d+\s+(\d+)")
_AMD_TARGET = re.compile(r"(\.LBB\w+)")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        opcode: With its modifiers, such as `LDG.E.128`.
        line: Of the kernel's source, 0 if unknown.
        operands: Text of the operands, the results first.
        guard: Predicate that decides whether it is executed, such as `@!P0`; "" if it always is.
    """

    opcode: str
    line: int
    operands: str = ""
    guard: str = ""


@dataclass(frozen=True, slots=True)
class CodeLoop:
    """The instructions from the target of a backward branch to the branch. line: of the branch."""

    first: int
    last: int
    line: int

    def holds(self, other: CodeLoop) -> bool:
        """Return True if `other` is another loop inside this one."""
        return other != self and self.first <= other.first and other.last <= self.last


@dataclass(frozen=True, slots=True)
class MachineCode:
    """A kernel's instructions without the functions that it calls and without code behind its end.

    calls: of functions (64-bit division, say), in the whole kernel.
    """

    instructions: tuple[Instruction, ...]
    loops: tuple[CodeLoop, ...]
    calls: int

    def within(self, loop: CodeLoop | None) -> tuple[Instruction, ...]:
        """Return the instructions of a loop; of the whole kernel for None."""
        return self.instructions if loop is None else self.instructions[loop.first : loop.last + 1]

    def largest_innermost(self) -> CodeLoop | None:
        """Return the largest loop that contains no other; None if there is no loop."""
        innermost = [a for a in self.loops if not any(a.holds(b) for b in self.loops)]
        return max(innermost, key=lambda loop: loop.last - loop.first, default=None)


def read(compiled: Compiled) -> MachineCode:
    """Disassemble a compiled kernel."""
    text = disassemble(compiled)
    return _read_nvidia(text) if compiled.target.backend == "cuda" else _read_amd(text)


def _read_nvidia(text: str) -> MachineCode:
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    branches: list[tuple[int, str]] = []
    end, line = 0, 0
    for row in text.splitlines():
        if position := _NVIDIA_LINE.search(row):
            line = int(position[1])
        elif label := _NVIDIA_LABEL.match(row):
            labels[label[1]] = len(instructions)
        elif (match := _NVIDIA_INSTRUCTION.match(row)) and match[2] != "NOP":
            target = _NVIDIA_TARGET.search(match[3])
            if match[2] == "BRA" and target:
                branches.append((len(instructions), target[1]))
            if match[2] == "EXIT" and not match[1]:
                end = len(instructions)  # functions and the waiting loops of barriers follow the last one
            instructions.append(Instruction(match[2], line, match[3].strip(" ;"), (match[1] or "").strip()))
    return _with_loops(instructions, labels, branches, end or len(instructions) - 1, "CALL")


def _read_amd(text: str) -> MachineCode:
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    branches: list[tuple[int, str]] = []
    line = 0
    for row in text.splitlines():
        if position := _AMD_LINE.match(row):
            line = int(position[1])
        elif label := _AMD_LABEL.match(row):
            labels[label[1]] = len(instructions)
        elif (match := _AMD_INSTRUCTION.match(row)) and match[1] != "s_nop":
            target = _AMD_TARGET.search(match[2])
            if match[1].startswith(("s_cbranch", "s_branch")) and target:
                branches.append((len(instructions), target[1]))
            instructions.append(Instruction(match[1], line, match[2].split(";")[0].strip()))
        if row.startswith(".Lfunc_end"):
            break
    return _with_loops(instructions, labels, branches, len(instructions) - 1, "s_swappc")


def _with_loops(
    instructions: list[Instruction], labels: dict[str, int], branches: Iterable[tuple[int, str]], end: int, call: str
) -> MachineCode:
    ends: dict[int, int] = {}
    for position, label in branches:
        first = labels.get(label, position + 1)
        if first <= position < end:
            ends[first] = max(position, ends.get(first, 0))
    loops = [CodeLoop(first, last, instructions[last].line) for first, last in sorted(ends.items())]
    nested = tuple(  # without those that overlap a larger one in part: they are jumps back from code out of line
        a for a in loops if not any(a.first < b.first <= a.last < b.last or b.first < a.first <= b.last < a.last
                                    for b in loops if b.last - b.first > a.last - a.first)
    )  # fmt: skip
    calls = sum(i.opcode.startswith(call) for i in instructions)
    return MachineCode(tuple(instructions[: end + 1]), nested, calls)


def load_bytes(opcode: str) -> int | None:
    """Return the bytes that a thread loads from global memory; 0: a block is loaded, by TMA; None: no load."""
    parts = opcode.split(".")
    if parts[0] in ("UTMALDG", "UBLKCP"):
        return 0
    if parts[0] in ("LDG", "LDGSTS"):
        widths = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
        return next((widths[part] for part in parts[1:] if part in widths), 4)
    if match := re.match(r"(?:global|buffer|flat)_load_(\w+)", opcode):
        name = match[1]
        for words, nbytes in ((("dwordx4", "b128"), 16), (("dwordx3", "b96"), 12), (("dwordx2", "b64"), 8),
                              (("short", "16"), 2), (("byte", "u8", "i8"), 1)):  # fmt: skip
            if any(word in name for word in words):
                return nbytes
        return 4
    return None


def tensor_shape(opcode: str) -> tuple[int, int, int] | None:
    """Return the rows, columns and depth that a matrix instruction multiplies; None for other instructions.

    (0, 0, 0): its shape is not in the opcode, as for the tensor memory of sm_100.
    """
    if opcode.startswith(("HGMMA", "IGMMA", "QGMMA", "v_mfma")):
        match = re.search(r"(\d+)x(\d+)x(\d+)", opcode)
        return (int(match[1]), int(match[2]), int(match[3])) if match else (0, 0, 0)
    if opcode.startswith(("HMMA", "IMMA", "DMMA")):
        match = re.search(r"\.(16|8)(8)(\d+)\b", opcode)
        return (int(match[1]), int(match[2]), int(match[3])) if match else (0, 0, 0)
    return (0, 0, 0) if re.match(r"UT[A-Z]*MMA", opcode) else None
