"""Count the passes and bytes of a kernel's loads, stores and shuffles, from the addresses of a warp's 32 lanes.

Addresses are computed by integer arithmetic from the number of a lane in its program. So this module executes the
integer instructions of NVIDIA's machine code once, in order and without following branches, for the first warp of a
launch. A pointer counts as 0, because it moves the addresses of all lanes by the same amount. Other unknown values that
all lanes share count as 0, too, and so do results of unsupported instructions whose operands all lanes share. Values
that were loaded from memory are unknown. An access at an unknown address counts as one without bank conflicts.

AMD's instructions are not executed: their accesses count as free of conflicts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .machine_code import Instruction

__all__ = ["WarpAccess", "conflict_passes", "parameter_words", "warp_accesses"]

_LANES = 32
_BANKS = 32
_WORD_BYTES = 4
_PASS_BYTES = _BANKS * _WORD_BYTES  # also the bytes of a cache line
_SECTOR_BYTES = 32  # a part of a cache line that is transferred as a whole
_SECTORS_PER_CYCLE = 2  # that a core can send to the last cache
_PARAMETER_OFFSETS = {"sm_80": 0x160, "sm_90": 0x210, "sm_100": 0x380}  # in the constant bank
Lanes = NDArray[np.int64]  # one value for each lane of a warp
_MASK_32 = 0xFFFFFFFF
_CONSTANT = re.compile(r"c\[0x0\]\[(0x[0-9a-f]+)\]")
_COMPARISONS: dict[str, Callable[[Lanes, Lanes], Lanes]] = {
    "EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal,
}  # fmt: skip


def conflict_passes(addresses: Sequence[int], nbytes: int) -> int:
    """Return the number of passes in which a warp accesses shared memory.

    A pass moves at most 128 bytes, one word of each of 32 banks. Lanes that access the same word share it. Lanes that
    access 8 bytes each do so half a warp at a time; with 16 bytes each, a quarter of a warp at a time.

    Args:
        addresses: The byte address of each lane.
        nbytes: Bytes that each lane accesses.
    """
    group = min(_LANES, _PASS_BYTES // max(nbytes, _WORD_BYTES))
    passes = 0
    for first in range(0, len(addresses), group):
        words = {
            a // _WORD_BYTES + k for a in addresses[first : first + group] for k in range(max(1, nbytes // _WORD_BYTES))
        }
        words_by_bank: dict[int, int] = {}
        for word in words:
            words_by_bank[word % _BANKS] = words_by_bank.get(word % _BANKS, 0) + 1
        passes += max(words_by_bank.values())
    return passes


class WarpAccess(NamedTuple):
    """The cost of one execution of a load, store or shuffle by a warp.

    Attributes:
        passes: Cycles of the core's path to shared memory and the first cache, which moves 128 bytes a cycle.
        lane_bytes: Bytes that all lanes together load from or store to device memory.
        sector_bytes: Bytes of the 32-byte sectors that contain them. The last cache transfers whole sectors.
    """

    passes: float
    lane_bytes: int = 0
    sector_bytes: int = 0


def parameter_words(text: str, arguments: Sequence[int | None], target: str) -> dict[int, int]:
    """Return the constant bank of a kernel's arguments: the 32-bit word at each byte offset.

    Args:
        text: The kernel's intermediate code, whose header has the parameters' types.
        arguments: A number for each parameter; None for pointers and for unknown numbers, which count as 0.
        target: The architecture, such as `sm_90`.

    Returns:
        An empty dictionary if the layout of the arguments is unknown: for other targets than `_PARAMETER_OFFSETS` has,
        and for kernels with tensor descriptors.
    """
    header = next((line for line in text.splitlines() if "tt.func" in line), "")
    types = re.findall(r"%\w+: (!tt\.\w+|[a-z]+\d+)", header)
    offset = _PARAMETER_OFFSETS.get(target, 0)
    if not offset or len(types) != len(arguments) or "!tt.tensordesc" in types:
        return {}
    words: dict[int, int] = {}
    for type_name, argument in zip(types, arguments, strict=True):
        size = 8 if type_name.startswith("!") or type_name.endswith("64") else 4
        offset = -(-offset // size) * size
        for k in range(0, size, _WORD_BYTES):
            words[offset + k] = (argument or 0) >> 8 * k & _MASK_32
        offset += size
    return words


def warp_accesses(instructions: Sequence[Instruction], constants: Mapping[int, int]) -> list[WarpAccess]:
    """Return the cost of each instruction. A shuffle takes one pass, and instructions without an access take none.

    Args:
        instructions: The instructions of a kernel, in order.
        constants: Words of the constant bank by offset, as `parameter_words` returns them.
    """
    registers: dict[str, Lanes | None] = {f"c{offset}": np.full(_LANES, word) for offset, word in constants.items()}
    return [_warp_access(instruction, registers) for instruction in instructions]


def _warp_access(instruction: Instruction, registers: dict[str, Lanes | None]) -> WarpAccess:
    """Return the cost of an instruction, and execute it.

    Args:
        instruction: The instruction.
        registers: The values of registers, predicates and constants (`c528` for the one at offset 528) by name, which
            this function updates. None stands for an unknown value.
    """
    opcode, operands = instruction.opcode, [o.strip() for o in instruction.operands.split(",")]
    name = opcode.split(".")[0]
    nbytes = _access_bytes(opcode)
    passes, lane_bytes, sector_bytes = 0.0, 0, 0
    if name in ("LDS", "STS", "ATOMS", "LDGSTS"):
        addresses = _address(operands, 0 if name in ("STS", "LDGSTS") else 1, registers)
        passes = max(1, nbytes // _WORD_BYTES) if addresses is None else conflict_passes(addresses, nbytes)
    if name in ("LDG", "STG", "LDGSTS"):
        addresses = _address(operands, 0 if name == "STG" else 1, registers)
        if addresses is None:
            addresses = [nbytes * lane for lane in range(_LANES)]
        lines = {a // _PASS_BYTES for a in addresses}
        sectors = {a // _SECTOR_BYTES for a in addresses}
        # The first cache delivers loads by lines. Stores pass through it, and take the time of their sectors.
        passes = max(passes, len(lines), len(sectors) / _SECTORS_PER_CYCLE * (name == "STG"))
        lane_bytes, sector_bytes = _LANES * nbytes, len(sectors) * _SECTOR_BYTES
    elif name in ("LDSM", "STSM", "LD", "ST", "LDL", "STL", "RED", "ATOMG"):
        passes = max(1, nbytes // _WORD_BYTES)
    elif name == "SHFL":
        passes = 1
    elif opcode.startswith(("ds_", "global_", "buffer_", "flat_")):
        passes = 2 * max(1, nbytes // _WORD_BYTES)  # a wave has 64 lanes
    _execute(instruction, opcode, operands, registers)
    return WarpAccess(passes, lane_bytes, sector_bytes)


def _access_bytes(opcode: str) -> int:
    """Return the bytes that each lane accesses."""
    parts = opcode.split(".")
    if parts[0] in ("LDSM", "STSM"):
        return {"4": 16, "2": 8}.get(parts[-1], 4)
    widths = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
    if "_" in opcode:
        return 16 if "b128" in opcode or "x4" in opcode else 8 if "b64" in opcode or "x2" in opcode else 4
    return next((widths[part] for part in parts[1:] if part in widths), 4)


def _address(operands: list[str], position: int, registers: dict[str, Lanes | None]) -> list[int] | None:
    """Return each lane's address by an operand such as `[R21+UR4+0x30]`, `[R3.X4]` or `desc[UR4][R2.64+0x10]`.

    None if the address is unknown, or if there is no operand at `position`.
    """
    if position >= len(operands):
        return None
    total = np.zeros(_LANES, np.int64)
    for term in operands[position].rpartition("[")[2].strip("]").split("+"):
        name, *scale = term.split(".X")
        value = _value(name, registers)
        if value is None:
            return None
        total = total + value * (int(scale[0]) if scale else 1)
    return [int(address) for address in total]


def _value(text: str, registers: dict[str, Lanes | None]) -> Lanes | None:
    """Return the value of an operand: a number, a register or a constant, perhaps with `-` or `~`."""
    text = text.removesuffix(".reuse").removesuffix(".64")
    if text.startswith("-") and not re.match(r"-(0x)?\d", text):
        value = _value(text[1:], registers)
        return None if value is None else -value
    if text.startswith("~"):
        value = _value(text[1:], registers)
        return None if value is None else ~value
    if re.fullmatch(r"-?0x[0-9a-f]+|-?\d+", text):
        return np.full(_LANES, int(text, 0), np.int64)
    if text.startswith("R") and text != "RZ":
        return registers.get(text)
    if match := _CONSTANT.fullmatch(text):
        text = f"c{int(match[1], 16)}"
    # All lanes share uniform registers and constants, so unknown ones count as 0. RZ and URZ are 0.
    value = registers.get(text)
    return np.zeros(_LANES, np.int64) if value is None else value


def _predicate(text: str, registers: dict[str, Lanes | None]) -> Lanes | None:
    """Return 0 or 1 for each lane by a predicate such as `P0`, `!P0` or `@!P0`; None if it is unknown."""
    name = text.lstrip("@!")
    if name in ("PT", "UPT"):
        value: Lanes | None = np.ones(_LANES, np.int64)
    else:
        value = registers.get(name)
    return 1 - value if value is not None and "!" in text else value


def _execute(instruction: Instruction, opcode: str, operands: list[str], registers: dict[str, Lanes | None]) -> None:
    """Store an instruction's result in `registers`. An instruction whose guard is unknown counts as executed."""
    if not operands or not re.fullmatch(r"U?[RP]\d+", operands[0]):
        return
    result = _result(opcode, operands, registers)
    guard = _predicate(instruction.guard, registers) if instruction.guard else None
    old = registers.get(operands[0])
    if result is not None and guard is not None and old is not None:
        result = np.where(guard != 0, result, old)
    registers[operands[0]] = result
    match = re.fullmatch(r"(U?R)(\d+)", operands[0])
    for k in range(1, 4 if "128" in opcode else 2 if "64" in opcode or "WIDE" in opcode else 1):
        if match:
            registers[f"{match[1]}{int(match[2]) + k}"] = (
                _constant(operands[-1], k, registers) if "LDC" in opcode else None
            )
    if len(operands) > 1 and re.fullmatch(r"U?P\d", operands[1]):
        registers[operands[1]] = None


def _constant(operand: str, index: int, registers: dict[str, Lanes | None]) -> Lanes:
    """Return the word of the constant bank that is `index` words after the operand's address; 0 if it is unknown."""
    match = _CONSTANT.fullmatch(operand)
    word = registers.get(f"c{int(match[1], 16) + index * _WORD_BYTES}") if match else None
    return np.zeros(_LANES, np.int64) if word is None else word


def _result(opcode: str, operands: list[str], registers: dict[str, Lanes | None]) -> Lanes | None:
    """Return the 32-bit result of an instruction; None if it is unknown."""
    parts = opcode.split(".")
    name = parts[0][1:] if parts[0].startswith("U") and len(parts[0]) > 2 else parts[0]
    if name in ("S2R", "S2UR"):
        return np.arange(_LANES) if operands[1] == "SR_TID.X" else np.zeros(_LANES, np.int64)
    if name == "LDC":
        return _constant(operands[1], 0, registers)
    if name in ("LDG", "LDS", "SHFL", "LDL"):
        return None
    if name == "ISETP":
        return _compare(parts, operands, registers)
    sources = [_value(o, registers) for o in operands[1:] if not re.fullmatch(r"!?U?P[T\d]", o)]
    known = [value & _MASK_32 for value in sources if value is not None]
    if len(known) < len(sources):
        return None
    result = _arithmetic(name, parts, known)
    if name == "SEL" and (condition := _predicate(operands[-1], registers)) is not None:
        result = np.where(condition != 0, known[0], known[1])
    is_uniform = all((value == value[0]).all() for value in known)
    return np.zeros(_LANES, np.int64) if result is None and is_uniform else result


def _arithmetic(name: str, parts: list[str], sources: list[Lanes]) -> Lanes | None:
    """Return the result of an operation on unsigned 32-bit integers; None for operations that addresses do not need.

    Args:
        name: The operation, without the prefix `U` of the uniform unit.
        parts: The opcode, split at its dots.
        sources: The operands that are not predicates.
    """
    a, b, c, d = [*sources, *[np.zeros(_LANES, np.int64)] * 4][:4]
    is_high = "HI" in parts
    if name in ("MOV", "R2UR", "SEL"):
        result = a
    elif name == "SGXT":
        value = a & ((1 << b) - 1)
        result = value if "U32" in parts else np.where(value >> (b - 1), value - (1 << b), value)
    elif name == "PRMT":
        result = _permute(a, int(b[0]), c)
    elif name == "IMAD":
        result = ((a.astype(object) * b >> 32) + c).astype(np.int64) if is_high else a * b + c
    elif name in ("IADD3", "VIADD"):
        result = a + b + c
    elif name == "IABS":
        result = np.abs((a ^ 0x80000000) - 0x80000000)
    elif name == "LEA":
        bits = int(sources[-1][0])
        result = ((c << 32 | a) << bits >> 32) + b if is_high and len(sources) > 3 else (a << bits) + b
        if is_high and len(sources) < 4:
            result = (a >> (32 - bits)) + b
    elif name == "LOP3":
        result = _logic(a, b, c, int(d[0]))
    elif name == "SHF":
        shift = b & 31
        result = a << shift if "L" in parts and not is_high else (c if is_high else a) >> shift
    else:
        return None
    return result & _MASK_32


def _compare(parts: list[str], operands: list[str], registers: dict[str, Lanes | None]) -> Lanes | None:
    """Return the result of `ISETP.LT.AND P0, PT, a, b, P1`, here `(a < b) & P1`; None if it is unknown."""
    a, b = _value(operands[2], registers), _value(operands[3], registers)
    comparison = next((_COMPARISONS[part] for part in parts if part in _COMPARISONS), None)
    if a is None or b is None or comparison is None or "EX" in parts:
        return None
    second_condition = _predicate(operands[4], registers)
    if second_condition is None:
        return None
    if "U32" not in parts:
        a, b = ((value & _MASK_32 ^ 0x80000000) - 0x80000000 for value in (a, b))
    result = comparison(a, b).astype(np.int64)
    return result & second_condition if "AND" in parts else result | second_condition


def _logic(a: Lanes, b: Lanes, c: Lanes, table: int) -> Lanes:
    """Return the bitwise function of three values whose truth table is the 8 bits of `table`."""
    result = np.zeros(_LANES, np.int64)
    for index in range(8):
        if table >> index & 1:
            result |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
    return result & _MASK_32


def _permute(a: Lanes, selector: int, b: Lanes) -> Lanes:
    """Return the result of `PRMT`: each hexadecimal digit of `selector` selects a byte of `b:a`.

    PRMT can also replicate the sign of a byte. Addresses do not need that, so the digit's highest bit is ignored.
    """
    result = np.zeros(_LANES, np.int64)
    joined = a | b << 32
    for k in range(4):
        result |= (joined >> 8 * (selector >> 4 * k & 7) & 0xFF) << 8 * k
    return result
