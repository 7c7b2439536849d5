"""Count how often a program executes each operation of Triton's intermediate code (`ttir`).

Bounds of loops and conditions of branches are scalar arithmetic on sizes and on the program's position in the grid. So
a few programs of the grid are run on scalars alone. Of a tensor only the pointer argument is known from which its
addresses come.

Values in memory are unknown. A loop whose bounds depend on them counts as `unknown_trips` iterations, a `while` loop as
one. If the condition of a branch does, both sides count, and the larger of two possible numbers is assumed.
`Execution.depends_on_data` tells whether any of this happened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod

from .program_text import Operation, Region, parse

__all__ = ["Access", "Execution", "Loop", "Product", "execute"]

_SAMPLES = 16  # programs of a grid that are run; a power of two
_LOOP_SAMPLES = 17  # iterations of a loop that are run if it has loops or branches inside, else 3
_MAX_WHILE_TRIPS = 64  # iterations of a `while` loop that are run
_ITEM_BITS = re.compile(r"^(?:[a-z]*?)(\d+)")  # of a dtype such as `f32` or `f8E4M3FN`
# A block's sizes (`64x32x`), `!tt.ptr<` if its elements are pointers, and its dtype.
_SHAPED = re.compile(r"(?:tensor<((?:\d+x)+)?)?(!tt\.ptr<)?((?:bf|f|i|u|fp)\d+\w*)")


@dataclass(frozen=True, slots=True)
class Access:
    """Loads or stores of one operation.

    Attributes:
        pointer: Index of the argument that is the pointer; None if the address comes from memory.
        nbytes: Bytes that all programs of the grid transfer together. Masked elements count as well.
        nbytes_per_program: The most bytes that one of the programs that were run transfers.
        line: Line of the operation in the source.
        is_store: Whether it writes.
    """

    pointer: int | None
    nbytes: float
    nbytes_per_program: float
    line: int
    is_store: bool


@dataclass(frozen=True, slots=True)
class Product:
    """Matrix products of one operation.

    Attributes:
        shape: M, N and K of one product of blocks.
        macs: Multiply-adds of all programs of the grid together.
        dtype: Dtype of the operands, such as `f16`.
        precision: Precision of float32 operands, such as `tf32`.
    """

    shape: tuple[int, ...]
    macs: float
    dtype: str
    precision: str


@dataclass(slots=True, eq=False)
class Loop:
    """A loop, and how often a program enters and executes it on average.

    Attributes:
        line: Line of its `for` in the source.
        parent: The loop around it.
        entries: How often an average program reaches it.
        iterations: Iterations of all these entries together.
        lines: By line of the source, executions of the operations that are directly in the loop. If a line has several
            operations, the largest number. Operations of the same name count with their mean: a line that was unrolled
            has copies of each, which may be under conditions of their own.
        load_depth: Length of the longest chain of loads in an iteration. Each needs the value of the one before.
    """

    line: int
    parent: Loop | None
    entries: float = 0.0
    iterations: float = 0.0
    lines: dict[int, float] = field(default_factory=dict)
    load_depth: int = 0

    def is_or_is_inside(self, other: Loop) -> bool:
        """Return True if `other` is this loop or one around it."""
        loop: Loop | None = self
        while loop is not None:
            if loop is other:
                return True
            loop = loop.parent
        return False


@dataclass(slots=True)
class Execution:
    """What a launch executes.

    Attributes:
        loops: The loops; the first stands for the whole kernel and is executed once.
        accesses: Loads and stores, an entry for each operation.
        products: Matrix products, an entry for each operation.
        programs: Number of programs in the grid.
        imbalance: Iterations of all loops in the busiest program, divided by those of the average one.
        depends_on_data: Whether a loop or a branch depends on data in memory, so that the counts are assumptions.
    """

    loops: list[Loop]
    accesses: list[Access]
    products: list[Product]
    programs: int
    imbalance: float
    depends_on_data: bool


@dataclass(frozen=True, slots=True)
class _Value:
    """What is known of a value.

    Attributes:
        number: The number of a scalar; None if it is unknown, or for a tensor.
        pointer: Index of the argument that a pointer, or a tensor of pointers, comes from.
        depth: Length of the chain of loads in the current iteration that the value depends on.
    """

    number: int | None = None
    pointer: int | None = None
    depth: int = 0


_UNKNOWN = _Value()


def execute(text: str, arguments: Sequence[int | None], grid: Sequence[int], unknown_trips: int = 1) -> Execution:
    """Run a kernel's scalar arithmetic for some programs of the grid, and extrapolate to the grid.

    Args:
        text: The kernel's `ttir`.
        arguments: A number for each parameter; None for pointers and for unknown numbers.
        grid: Number of programs along each axis.
        unknown_trips: Iterations that a `for` loop counts as if its bounds depend on data.

    Raises:
        ValueError: There are more or fewer arguments than parameters.
    """
    parameters, body = parse(text)
    if len(parameters) != len(arguments):
        raise ValueError(f"the kernel has {len(parameters)} parameters, but got {len(arguments)} arguments")
    runs = [_Run(parameters, arguments, body, grid, ids, unknown_trips) for ids in _sample_programs(grid)]
    return _average(runs, prod(grid))


def _sample_programs(grid: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the positions in the grid of the programs to run.

    Work often grows along the first axis, for example in causal attention. This axis is divided into `_SAMPLES` parts.
    Even parts contribute their first position and odd ones their last, so that the mean position is that of the grid.
    Positions along other axes are spread evenly, in bit-reversed order so that they do not grow with the first.
    """
    samples: set[tuple[int, ...]] = set()
    for i in range(_SAMPLES):
        first = i * grid[0] // _SAMPLES if i % 2 == 0 else -(-(i + 1) * grid[0] // _SAMPLES) - 1
        reversed_bits = int(f"{i:0{_SAMPLES.bit_length() - 1}b}"[::-1], 2)
        samples.add((first, *(reversed_bits * size // _SAMPLES for size in grid[1:])))
    return sorted(samples)


class _Run:
    """One program's run.

    Attributes:
        loop_counts: By loop, its entries and iterations. The key None stands for the whole kernel, here and below.
        parents: By loop, the loop around it.
        executions: By loop, how often each operation directly in it is executed.
        depths: By loop, the length of the longest chain of loads in an iteration.
        counts: How often each load, store and matrix product is executed.
        pointers: By load or store, the index of its pointer argument.
        depends_on_data: Whether a loop or a branch depends on data in memory.
        loop: The loop that is being run.
        values: By name, what is known of the values that were computed so far.
    """

    def __init__(
        self, parameters: Sequence[str], arguments: Sequence[int | None], body: Region, grid: Sequence[int],
        ids: Sequence[int], unknown_trips: int,
    ):  # fmt: skip
        self.unknown_trips = unknown_trips
        self.grid = grid
        self.ids = ids
        self.loop_counts: dict[Operation | None, list[float]] = {None: [1.0, 1.0]}
        self.parents: dict[Operation, Operation | None] = {}
        self.executions: dict[Operation | None, dict[Operation, float]] = {None: {}}
        self.depths: dict[Operation | None, int] = {None: 0}
        self.counts: dict[Operation, float] = {}
        self.pointers: dict[Operation, int | None] = {}
        self.depends_on_data = False
        self.loop: Operation | None = None
        self.values = {
            name: _Value(number, index if number is None else None)
            for index, (name, number) in enumerate(zip(parameters, arguments, strict=True))
        }
        self._run(body.operations, 1.0)

    def _value(self, name: str) -> _Value:
        return self.values.get(name, _UNKNOWN)

    def _run(self, operations: Iterable[Operation], weight: float) -> tuple[_Value, ...]:
        """Run operations once and count them as `weight` executions.

        Returns:
            The values of the last `scf.yield` or `scf.condition`.
        """
        yielded: tuple[_Value, ...] = ()
        executions = self.executions[self.loop]
        for operation in operations:
            name = operation.name
            executions[operation] = executions.get(operation, 0.0) + weight
            if name == "scf.for":
                self._for(operation, weight)
            elif name == "scf.if":
                self._if(operation, weight)
            elif name == "scf.while":
                self._while(operation, weight)
            elif name in ("scf.yield", "scf.condition"):
                yielded = tuple(self._value(n) for n in operation.operands)
            else:
                self._evaluate(operation, weight)
        return yielded

    def _evaluate(self, operation: Operation, weight: float) -> None:
        """Record an operation without regions: its count, and what is known of its results."""
        operands = [self._value(n) for n in operation.operands]
        depth = max((v.depth for v in operands), default=0)
        pointer = next((v.pointer for v in operands if v.pointer is not None), None)
        if operation.name in _LOADS or operation.name in _STORES or operation.name.startswith("tt.dot"):
            self.counts[operation] = self.counts.get(operation, 0.0) + weight
            self.pointers[operation] = operands[0].pointer if operands else None
            if operation.name in _LOADS:
                depth, pointer = depth + 1, None
                self.depths[self.loop] = max(self.depths[self.loop], depth)
        if len(operation.results) == 1:
            number = self._number(operation, operands)
            is_pointer = "ptr" in operation.text or operation.name == "tt.make_tensor_descriptor"
            self.values[operation.results[0]] = _Value(number, pointer if is_pointer else None, depth)
        else:
            self.values.update(dict.fromkeys(operation.results, _Value(None, None, depth)))

    def _number(self, operation: Operation, operands: Sequence[_Value]) -> int | None:
        """Return the number that a scalar operation computes; None if it is unknown."""
        name = operation.name
        if name == "arith.constant":
            match = re.match(r" (-?\d+) : i\d+|\s*(true|false)", operation.text)
            return None if match is None else int(match[1]) if match[1] else int(match[2] == "true")
        if name in ("tt.get_program_id", "tt.get_num_programs"):
            axis = "xyz".index(operation.text.split()[0])
            values, default = (self.ids, 0) if name == "tt.get_program_id" else (self.grid, 1)
            return values[axis] if axis < len(values) else default
        if "tensor<" in operation.text or any(v.number is None for v in operands):
            return self._select(operands) if name == "arith.select" and "tensor<" not in operation.text else None
        numbers = [v.number for v in operands if v.number is not None]
        if name == "arith.cmpi":
            return int(_COMPARISONS[operation.text.split(",")[0].strip()](*numbers))
        if name == "arith.select":
            return self._select(operands)
        if name in _ARITHMETIC and len(numbers) == 2:
            return _ARITHMETIC[name](*numbers)
        return numbers[0] if name in _CONVERSIONS else None

    def _select(self, operands: Sequence[_Value]) -> int | None:
        """Return the number that `arith.select` chooses: the larger one if the condition is unknown."""
        condition, first, second = (v.number for v in operands)
        if condition is not None:
            return first if condition else second
        if first is None or second is None:
            return None
        self.depends_on_data = True
        return max(first, second)

    def _enter(self, operation: Operation, weight: float) -> Operation | None:
        """Make a loop the current one and count its entry. Return the loop around it."""
        outer, self.loop = self.loop, operation
        if operation not in self.loop_counts:
            self.loop_counts[operation], self.parents[operation] = [0.0, 0.0], outer
            self.executions[operation], self.depths[operation] = {}, 0
        self.loop_counts[operation][0] += weight
        return outer

    def _for(self, operation: Operation, weight: float) -> None:
        """Run sampled iterations of a `for` loop, each of which counts for its share of all iterations.

        If iterations were left out, a value that the loop carries is known afterwards only if it does not change.
        """
        header = re.match(r"(?: unsigned)? (%\w+) = (%[\w#]+) to (%[\w#]+) step (%[\w#]+)", operation.text)
        assert header is not None, operation.text
        begin, end, step = (self._value(header[k]).number for k in (2, 3, 4))
        carried_names = re.findall(r"(%\w+) = (%[\w#]+)", operation.text[header.end() :].split("->")[0])
        trips = self.unknown_trips
        if begin is None or end is None or not step:
            self.depends_on_data = True
        else:
            trips = max(0, -(-(end - begin) // step))
        outer = self._enter(operation, weight)
        self.loop_counts[operation][1] += weight * trips
        carried = [self._value(initial) for _, initial in carried_names]
        is_nested = any(inner.regions and inner.name.startswith("scf") for inner in operation.regions[0].operations)
        samples = _spread_evenly(trips, _LOOP_SAMPLES if is_nested else 3)
        for sample in samples:
            self.values[header[1]] = _Value(None if begin is None or not step else begin + sample * step)
            for (name, _), value in zip(carried_names, carried, strict=True):
                self.values[name] = _Value(value.number, value.pointer)  # loads of earlier iterations are over
            results = self._run(operation.regions[0].operations, weight * trips / len(samples))
            if len(results) == len(carried):
                carried = [
                    _Value(new.number if len(samples) == trips or new.number == old.number else None,
                           old.pointer if old.pointer is not None else new.pointer)
                    for old, new in zip(carried, results, strict=True)
                ]  # fmt: skip
        self.loop = outer
        self.values.update(zip(operation.results, carried, strict=False))

    def _if(self, operation: Operation, weight: float) -> None:
        """Run the side of a branch that the condition selects, or both if it is unknown."""
        condition = self._value(operation.operands[0]).number
        results: list[tuple[_Value, ...]] = []
        for index, region in enumerate(operation.regions):
            if condition is None or bool(condition) is (index == 0):
                results.append(self._run(region.operations, weight))
        if condition is None:
            self.depends_on_data = True
        for index, name in enumerate(operation.results):
            values = [r[index] for r in results if index < len(r)]
            numbers = [v.number for v in values if v.number is not None]
            number = max(numbers) if len(numbers) == len(values) > 0 else None
            pointer = next((v.pointer for v in values if v.pointer is not None), None)
            self.values[name] = _Value(number, pointer)

    def _while(self, operation: Operation, weight: float) -> None:
        """Run a `while` loop up to `_MAX_WHILE_TRIPS` times; once if its condition is unknown."""
        initial_names = re.findall(r"(%\w+) = (%[\w#]+)", operation.text.split(" : ")[0])
        carried = [self._value(initial) for _, initial in initial_names]
        before, after = operation.regions[0], operation.regions[1]
        outer = self._enter(operation, weight)
        for trip in range(_MAX_WHILE_TRIPS):
            for (name, _), value in zip(initial_names, carried, strict=True):
                self.values[name] = value
            results = self._run(before.operations, weight)
            condition, passed = (results[0].number if results else None), results[1:]
            if condition is None:
                self.depends_on_data = True
            if condition == 0 or (condition is None and trip):
                break
            self.loop_counts[operation][1] += weight
            self.values.update(zip(after.arguments, passed, strict=False))
            carried = list(self._run(after.operations, weight)) or carried
        self.loop = outer
        self.values.update(zip(operation.results, carried, strict=False))


_LOADS = frozenset(("tt.load", "tt.descriptor_load", "tt.descriptor_gather", "tt.atomic_rmw", "tt.atomic_cas"))
_STORES = frozenset(("tt.store", "tt.descriptor_store", "tt.descriptor_reduce", "tt.atomic_rmw", "tt.atomic_cas"))
_CONVERSIONS = frozenset(
    ("arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast", "arith.index_castui", "tt.bitcast")
)


def _truncating_quotient(a: int, b: int) -> int | None:
    return None if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int) -> int | None:
    quotient = _truncating_quotient(a, b)
    return None if quotient is None else a - quotient * b


_ARITHMETIC: dict[str, Callable[[int, int], int | None]] = {
    "arith.addi": lambda a, b: a + b, "arith.subi": lambda a, b: a - b, "arith.muli": lambda a, b: a * b,
    "arith.divsi": _truncating_quotient, "arith.divui": _truncating_quotient, "arith.remsi": _remainder,
    "arith.remui": _remainder, "arith.minsi": min, "arith.minui": min, "arith.maxsi": max, "arith.maxui": max,
    "arith.andi": lambda a, b: a & b, "arith.ori": lambda a, b: a | b, "arith.xori": lambda a, b: a ^ b,
    "arith.shli": lambda a, b: a << b, "arith.shrsi": lambda a, b: a >> b, "arith.shrui": lambda a, b: a >> b,
    "arith.ceildivsi": lambda a, b: None if b == 0 else -(-a // b),
    "arith.floordivsi": lambda a, b: None if b == 0 else a // b,
}  # fmt: skip
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": int.__eq__, "ne": int.__ne__, "slt": int.__lt__, "sle": int.__le__, "sgt": int.__gt__, "sge": int.__ge__,
    "ult": int.__lt__, "ule": int.__le__, "ugt": int.__gt__, "uge": int.__ge__,
}  # fmt: skip


def _spread_evenly(count: int, limit: int) -> list[int]:
    """Return up to `limit` numbers from 0 to `count - 1`, at about equal distances, with the first and the last."""
    if count <= limit:
        return list(range(count))
    return sorted({round(i * (count - 1) / (limit - 1)) for i in range(limit)})


def _average(runs: Sequence[_Run], programs: int) -> Execution:
    """Extrapolate from the programs that were run to a grid of `programs`."""
    order: list[Operation | None] = list(dict.fromkeys(key for run in runs for key in run.loop_counts))
    loops: dict[Operation | None, Loop] = {}
    for key in order:
        parent_key = next((run.parents[key] for run in runs if key in run.parents), None) if key else None
        loop = loops[key] = Loop(key.line if key else 0, loops[parent_key] if key else None)
        for run in runs:
            entries, iterations = run.loop_counts.get(key, (0.0, 0.0))
            loop.entries += entries / len(runs)
            loop.iterations += iterations / len(runs)
            loop.load_depth = max(loop.load_depth, run.depths.get(key, 0))
        copies: dict[tuple[int, str], list[float]] = {}
        for operation in dict.fromkeys(o for run in runs for o in run.executions.get(key, {})):
            mean = sum(run.executions.get(key, {}).get(operation, 0.0) for run in runs) / len(runs)
            copies.setdefault((operation.line, operation.name), []).append(mean)
        for (line, _), counts in copies.items():
            if line:
                loop.lines[line] = max(sum(counts) / len(counts), loop.lines.get(line, 0.0))
    accesses, products = [], []
    for operation in dict.fromkeys(operation for run in runs for operation in run.counts):
        counts = [run.counts.get(operation, 0.0) for run in runs]
        mean = sum(counts) / len(counts)
        if operation.name.startswith("tt.dot"):
            products.append(_product(operation, mean * programs))
            continue
        nbytes = _block_bytes(operation)
        pointer = next((run.pointers[operation] for run in runs if operation in run.pointers), None)
        for is_store, names in ((False, _LOADS), (True, _STORES)):
            if operation.name in names:
                accesses.append(
                    Access(pointer, nbytes * mean * programs, nbytes * max(counts), operation.line, is_store)
                )
    work = [sum(iterations for _, iterations in run.loop_counts.values()) for run in runs]
    imbalance = max(work) / (sum(work) / len(work))
    return Execution(list(loops.values()), accesses, products, programs, imbalance,
                     any(run.depends_on_data for run in runs))  # fmt: skip


def _block_bytes(operation: Operation) -> int:
    """Return the bytes that one execution of a load or a store transfers."""
    types = operation.text.split(" : ", 1)[1]
    if operation.name == "tt.descriptor_load" or operation.name == "tt.descriptor_gather":
        types = types.split("->")[1]
    match = _SHAPED.search(types.replace("!tt.tensordesc<", ""))
    if match is None:
        return 0
    elements = prod(int(size) for size in (match[1] or "").split("x") if size)
    bits = _ITEM_BITS.match(match[3])
    return elements * max(1, int(bits[1] if bits else 8) // 8)


def _product(operation: Operation, executions: float) -> Product:
    shapes = re.findall(r"tensor<((?:\d+x)+)(\w+)>", operation.text.split(" : ", 1)[1])
    first, second = ([int(size) for size in text.split("x") if size] for text, _ in shapes[:2])
    precision = re.search(r"inputPrecision = (\w+)", operation.text)
    shape = (first[-2], second[-1], first[-1])
    return Product(shape, executions * prod(first) * second[-1], shapes[0][1], precision[1] if precision else "tf32")
