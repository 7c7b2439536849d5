"""How often a program executes each instruction of its machine code.

A loop of the machine code is matched with a loop of the intermediate code by the source lines of its loads and
products; failing these, by the line of its branch; failing both, by the lines of all its instructions. An instruction
whose line has no count is executed once per iteration of its loop; a loop without a match has one iteration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .machine_code import CodeLoop, Instruction, MachineCode, load_bytes, tensor_shape
from .program_code import Execution, Loop

__all__ = ["Counts", "count_instructions"]


@dataclass(frozen=True, slots=True)
class Counts:
    """Executions in an average program.

    Attributes:
        by_instruction: Executions of each instruction.
        iterations: Iterations of each machine-code loop in an average program, of all its entries together.
        sources: The loop of the intermediate code that each loop of the machine code comes from.
        hot: The loop that executes most instructions, not counting those of loops inside; only loops with matrix
            instructions compete if there are any. None if, without these, the code outside of loops executes more.
    """

    by_instruction: tuple[float, ...]
    iterations: dict[CodeLoop, float]
    sources: dict[CodeLoop, Loop]
    hot: CodeLoop | None


def count_instructions(code: MachineCode, execution: Execution) -> Counts:
    """Return how often each instruction of `code` is executed."""
    line_counts: dict[int, float] = {}
    loops_by_line: dict[int, list[Loop]] = {}
    for loop in execution.loops:
        for line, count in loop.lines.items():
            line_counts[line] = max(count, line_counts.get(line, 0.0))
            loops_by_line.setdefault(line, []).append(loop)
    whole = execution.loops[0]
    sources: dict[CodeLoop, Loop] = {}
    for code_loop in sorted(code.loops, key=lambda c: c.last - c.first):  # inner ones first
        inner = [c for c in code.loops if code_loop.holds(c)]
        own = [
            instruction
            for position, instruction in enumerate(code.within(code_loop), code_loop.first)
            if not any(c.first <= position <= c.last for c in inner)
        ]
        inner_sources = [sources[c] for c in inner]
        source = _source_of(own, code_loop.line, execution.loops, loops_by_line, inner_sources)
        sources[code_loop] = source if source is not None else whole
    iterations = {c: source.iterations for c, source in sources.items()}
    _divide_among_copies(code, sources, iterations)
    innermost: list[CodeLoop | None] = [None] * len(code.instructions)
    for code_loop in sorted(code.loops, key=lambda c: c.first - c.last):  # inner ones last
        for position in range(code_loop.first, code_loop.last + 1):
            innermost[position] = code_loop
    counts = []
    shares: dict[CodeLoop | None, float] = {}
    multiplying: set[CodeLoop | None] = set()
    for instruction, around in zip(code.instructions, innermost, strict=True):
        count = 1.0 if around is None else iterations[around]
        # Code under a condition runs less often than its loop: the end of a tile, say, where two nested loops became
        # one.
        count = min(count, line_counts.get(instruction.line, count))
        counts.append(count)
        shares[around] = shares.get(around, 0.0) + count
        if around is not None and tensor_shape(instruction.opcode) is not None:
            multiplying.add(around)
    hot = max(multiplying or shares, key=lambda c: shares[c], default=None)
    return Counts(tuple(counts), iterations, sources, hot)


def _source_of(
    own: Sequence[Instruction], branch_line: int, loops: Sequence[Loop], loops_by_line: dict[int, list[Loop]],
    inner_sources: Sequence[Loop],
) -> Loop | None:  # fmt: skip
    """Return the loop of the intermediate code from which a loop's own instructions come.

    inner_sources: the loops of the intermediate code that loops inside were matched with, which this one must contain.
    """
    candidates = [
        loop for loop in loops[1:] if all(inner is not loop and inner.is_or_is_inside(loop) for inner in inner_sources)
    ]  # fmt: skip
    votes: list[Loop] = []
    for instruction in own:
        if load_bytes(instruction.opcode) is not None or tensor_shape(instruction.opcode) is not None:
            loops_of_line = loops_by_line.get(instruction.line, [])
            if len(loops_of_line) == 1 and loops_of_line[0] in candidates:
                votes.append(loops_of_line[0])
    by_branch = [loop for loop in candidates if loop.line == branch_line]
    if votes:
        return max(votes, key=lambda loop: loop.iterations)
    if by_branch:
        return max(by_branch, key=lambda loop: loop.iterations)
    by_lines = Counter(
        loop for instruction in own for loop in loops_by_line.get(instruction.line, ()) if loop in candidates
    )
    return by_lines.most_common(1)[0][0] if by_lines else None


def _divide_among_copies(code: MachineCode, sources: dict[CodeLoop, Loop], iterations: dict[CodeLoop, float]) -> None:
    """Divide a loop's iterations among its copies in machine code.

    These are an unrolled loop and its remainder, or alternatives.
    """
    groups: dict[int, list[CodeLoop]] = {}
    for code_loop, source in sources.items():
        groups.setdefault(id(source), []).append(code_loop)
    for group in groups.values():
        if len(group) < 2 or any(a.holds(b) for a in group for b in group):
            continue
        sizes = {c: max(1, _accesses(code.within(c))) for c in group}
        largest = max(group, key=lambda c: (sizes[c], c.last - c.first))
        smallest = min(group, key=lambda c: (sizes[c], c.last - c.first))
        factor = sizes[largest] / sizes[smallest]
        if factor < 2:
            factor = max(1.0, round((largest.last - largest.first) / max(1, smallest.last - smallest.first)))
        source = sources[largest]
        if factor >= 2:
            for code_loop in group:  # a remainder has 0 to factor - 1 iterations: the mean
                iterations[code_loop] = source.entries * (factor - 1) / 2 if code_loop is not largest else 0.0
            rest = sum(iterations[c] for c in group)
            iterations[largest] = max(0.0, source.iterations - rest) / factor
        else:  # alternatives, of which one runs
            for code_loop in group:
                iterations[code_loop] = source.iterations / len(group)


def _accesses(instructions: Sequence[Instruction]) -> int:
    return sum(load_bytes(i.opcode) is not None or i.opcode.startswith("STG") for i in instructions)
