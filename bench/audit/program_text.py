"""Triton's intermediate code (`ttir`), which is a text of MLIR, as operations in regions.

Each operation has a line and a name; a region is in braces. Lines that begin with `#loc` give positions in the source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["Operation", "Region", "parse"]

_LOCATION = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_TRAILING_LOCATION = re.compile(r"\s*loc\((#loc\d*|.*)\)\s*$")
_OPERATION = re.compile(r"^(?:((?:%[\w#]+(?::\d+)?(?:, )?)+) = )?\"?([a-z_]+\.[\w.]+)\"?(.*)$")
_NAME = re.compile(r"%[\w]+(?:#\d+)?")


@dataclass(slots=True, eq=False)
class Operation:
    """One operation. line: of the innermost source position, 0 if unknown. text: what follows the name."""

    name: str
    results: tuple[str, ...]
    text: str
    line: int = 0
    operands: tuple[str, ...] = ()
    regions: list[Region] = field(default_factory=list)


@dataclass(slots=True)
class Region:
    """The operations in braces, and the names of the values that they get."""

    arguments: tuple[str, ...] = ()
    operations: list[Operation] = field(default_factory=list)


def parse(text: str) -> tuple[list[str], Region]:
    """Return the names of the kernel's parameters and its body."""
    positions = {m[1]: m[2] for line in text.splitlines() if (m := _LOCATION.match(line))}
    lines_by_location: dict[str, int] = {}

    def source_line(location: str, depth: int = 0) -> int:
        if location in lines_by_location or depth > 50:
            return lines_by_location.get(location, 0)
        content = positions.get(location, location)
        if number := re.match(r'^"[^"]*":(\d+):', content):
            line = int(number[1])
        else:  # callsite(#loc1 at #loc2): the first is the innermost; "name"(#loc3)
            inner = re.search(r"#loc\d*", content)
            line = source_line(inner[0], depth + 1) if inner else 0
        lines_by_location[location] = line
        return line

    parameters: list[str] = []
    root = Region()
    regions = [root]
    owners: list[Operation] = []
    for raw in text.splitlines():
        location = _TRAILING_LOCATION.search(raw)
        line = (raw[: location.start()] if location else raw).strip()
        if line.startswith(("#loc", "module", "//")) or not line:
            continue
        if "tt.func" in line and not parameters:
            header = raw[raw.index("(") :]
            parameters = re.findall(r"(%\w+): ", header)
            continue
        if line.startswith("^bb"):
            regions[-1].arguments = tuple(re.findall(r"(%\w+): ", raw)) or regions[-1].arguments
            continue
        if line.startswith("}"):
            if not owners:
                break  # the end of the kernel
            if line.endswith("{"):  # `} else {` and `} do {`
                regions[-1] = Region()
                owners[-1].regions.append(regions[-1])
                continue
            owner = owners.pop()
            regions.pop()
            if location:
                owner.line = source_line(location[1]) or owner.line
            continue
        match = _OPERATION.match(line)
        if match is None:
            continue
        operation = Operation(match[2], _result_names(match[1] or ""), match[3])
        operation.operands = tuple(_NAME.findall(match[3].split(" : ")[0]))
        operation.line = source_line(location[1]) if location else 0
        regions[-1].operations.append(operation)
        if line.endswith("{"):
            operation.regions.append(Region())
            owners.append(operation)
            regions.append(operation.regions[0])
    return parameters, root


def _result_names(text: str) -> tuple[str, ...]:
    names: list[str] = []
    for part in filter(None, text.split(", ")):
        name, _, count = part.partition(":")
        names += [f"{name}#{i}" for i in range(int(count))] if count else [name]
    return tuple(names)
