"""Plan reductions for Triton.

The kernel `tiles` takes a tile of results by elements. If there are too few results to fill the device, `partial`
reduces splits of the elements to partial states, and `finish` combines them. No kernel uses atomics, so the same call
gives the same bits.
"""

from __future__ import annotations

from ...backends.protocol import Slot, Step
from ...device import Meta
from ...layout import split
from .. import Request, slot
from ..reduction_states import IterationSpace, is_bool, schedule, state_bytes, state_slot
from . import Defines, Geometry, index_type, instance, limit_block, next_power, strided_extent

__all__ = ["LIGHT_FUNCTIONS", "LIMITS", "finish_step", "steps"]

# Functions of few instructions. Others need registers, so a thread computes 4 elements of a tile instead of 16.
LIGHT_FUNCTIONS = frozenset(
    ("abs", "bitwise_not", "ceil", "div", "floor", "isfinite", "isinf", "isnan", "maximum", "minimum", "neg",
     "reciprocal", "round", "rsqrt", "sign", "signbit", "sqrt", "square", "trunc")
)  # fmt: skip
_MIN_PROGRAM_ELEMENTS = 4096  # elements per program, at least, when elements are split
_MIN_LINE = 32  # elements of a line, at least, that a program reads by itself
_MIN_SPLITS = 4  # fewer do not pay for a second launch
_MIN_TILE_RESULTS = 64  # tile height where neighbouring results are contiguous: a warp reads full cache lines
LIMITS: dict[str, tuple[float, float]] = {
    "float": (float("-inf"), float("inf")),
    "double": (float("-inf"), float("inf")),
    "char": (-(2**7), 2**7 - 1),
    "uchar": (0, 2**8 - 1),
    "short": (-(2**15), 2**15 - 1),
    "int": (-(2**31), 2**31 - 1),
    "long": (-(2**63), 2**63 - 1),
}


def steps(
    request: Request, outputs: tuple[Meta, ...], space: IterationSpace, element: str
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Plan one launch, or two launches with partial states between them.

    Returns:
        The launches, and the bytes of each field of the partial states.
    """
    record, caps = request.record, request.capabilities
    inputs = tuple(slot(m, o.type) for o, m in request.tensors)
    output_slots = tuple(slot(m, o.type) for o, m in zip(record.outputs, outputs, strict=True))
    states = tuple(state_slot(t, element) for t in record.detail["fields"])
    numbers = _number_positions(request)
    heavy = set(request.text.functions) - LIGHT_FUNCTIONS
    params = schedule(request, space)
    light_block = params["blocks_per_tile"] * caps.block
    block = limit_block(caps.block // 2, heavy) if heavy else light_block
    max_tile = block // max(1, len(states) // 2)
    has_lines = _has_lines(space)
    length = space.reduced_sizes[-1] if has_lines else space.count
    tile_results, tile_elements = _tile(space, length, max_tile)
    if has_lines:
        tile_elements = _line_block(length, tile_elements)
    programs = -(-space.results // tile_results)
    target_splits = params["programs"] * caps.cores // programs
    target_splits = min(target_splits, tile_results * space.count // _MIN_PROGRAM_ELEMENTS)
    if programs == 1 and target_splits < _MIN_SPLITS:
        target_splits = 1
    if has_lines:
        line_blocks = space.count // length * -(-length // tile_elements)
        split_size, splits = split(line_blocks, max(1, target_splits))
    else:
        split_size, splits = split(max(space.count, 1), max(1, target_splits), tile_elements)
    lowest, highest = (0, 1) if element == "uchar" and is_bool(request) else LIMITS[element]
    extents = [space.results * max(space.count, splits)]
    extents += [strided_extent(space.outer_sizes, s) for s in space.outer_strides]
    extents += [strided_extent(space.reduced_sizes, s) for s in space.reduced_strides]
    defines: Defines = {
        "LOWEST": lowest, "HIGHEST": highest, "KEPT": len(space.outer_sizes), "REDUCED": len(space.reduced_sizes),
        "WG_BOOL": int(is_bool(request)), "INDEX": index_type([sum(extents)]), "LINES": int(has_lines),
    }  # fmt: skip
    if params["warps"] != 4:  # Triton's own default
        defines["num_warps"] = params["warps"]
    for k in range(len(inputs)):
        defines[f"BESIDE{k}"] = int(space.outer_strides[k] == (1,))
        strides = space.reduced_strides[k]
        defines[f"ALONG{k}"] = min(abs(strides[-1]), 2) if has_lines else int(strides == (1,))
    count = len(inputs) + len(outputs)
    # An empty tensor owns no memory. The kernel does not read it, so pass a result's buffer instead.
    sources = tuple(range(len(inputs))) if space.count else (len(inputs),) * len(inputs)
    work = space.results * max(space.count, 1)

    def step(
        entry: str, slots: tuple[Slot, ...], buffers: tuple[int, ...], geometry: Geometry,
        grid: tuple[int, ...], tile: tuple[int, int],
    ) -> Step:  # fmt: skip
        kernel = instance(request, entry, element, slots, {**defines, "RESULTS": tile[0], "BLOCK": tile[1]})
        return Step(kernel, buffers, geometry, grid, None, work, numbers)

    reduced_sizes, reduced_strides = space.reduced_sizes, space.reduced_strides
    if has_lines:
        # Kernels do not read these strides, and only compare positions with the first size: any size that is no smaller
        # will do. Zeros and multiples of 16, because a tuple counts as aligned if all of its values are.
        reduced_sizes = (-(-reduced_sizes[0] // 16) * 16, *reduced_sizes[1:])
        reduced_strides = tuple((*s[:-1], 0) if s[-1] == 1 else s for s in reduced_strides)
    sizes: Geometry = (space.results, space.count, split_size, space.outer_sizes, reduced_sizes)
    if splits == 1:
        buffers = (*sources, *range(len(inputs), count))
        geometry: Geometry = (*sizes, *space.outer_strides, *reduced_strides)
        return (
            step("tiles", inputs + output_slots, buffers, geometry, (programs,), (tile_results, tile_elements)),
        ), ()
    partial = tuple(range(count, count + len(states)))
    geometry = (*sizes, *space.outer_strides[: len(inputs)], *reduced_strides)
    first = step(
        "partial", inputs + states, (*sources, *partial), geometry, (programs, splits), (tile_results, tile_elements)
    )
    joined = (*partial, *range(len(inputs), count))
    second = finish_step(request, outputs, space, element, joined, splits, defines, 256)
    return (first, second), tuple(state_bytes(t, element) * splits * space.results for t in record.detail["fields"])


def finish_step(
    request: Request, outputs: tuple[Meta, ...], space: IterationSpace, element: str, buffers: tuple[int, ...],
    splits: int, defines: Defines, max_block: int,
) -> Step:  # fmt: skip
    """Plan the launch that combines `splits` partial states of each result.

    Args:
        buffers: positions of the states' buffers, then of the results'.
        defines: constants of `steps`.
        max_block: states that a program loads at a time, at most.
    """
    caps, record = request.capabilities, request.record
    states = tuple(state_slot(t, element) for t in record.detail["fields"])
    slots = states + tuple(slot(m, o.type) for o, m in zip(record.outputs, outputs, strict=True))
    block = min(next_power(splits), max_block)
    results = min(next_power(space.results), max(1, 2 * caps.block // block // len(states)))
    input_count = len(space.outer_strides) - len(outputs)
    geometry: Geometry = (
        space.results, space.count, splits, space.outer_sizes, *space.outer_strides[input_count:]
    )  # fmt: skip
    kernel = instance(request, "finish", element, slots, {**defines, "RESULTS": results, "BLOCK": block})
    grid, work = (-(-space.results // results),), space.results * max(space.count, 1)
    return Step(kernel, buffers, geometry, grid, None, work, _number_positions(request))


def _number_positions(request: Request) -> tuple[int, ...]:
    """Return the positions of the call's numbers."""
    return tuple(range(sum(1 for m in request.operands if m is not None and not isinstance(m, Meta))))


def _has_lines(space: IterationSpace) -> bool:
    """Return True if a program reads lines of the last reduced dimension: planes of images, summed for each channel."""
    is_contiguous = space.reduced_strides[space.main_input][-1] == 1
    return len(space.reduced_sizes) > 1 and is_contiguous and space.reduced_sizes[-1] >= _MIN_LINE


def _line_block(length: int, max_block: int) -> int:
    """Return the number of elements of a line that a program reads at a time: the fewest past the line's end."""
    blocks = [max_block >> shift for shift in range(3) if max_block >> shift >= _MIN_LINE]
    return min(blocks or [max_block], key=lambda block: (-(-length // block) * block, -block))


def _tile(space: IterationSpace, length: int, elements: int) -> tuple[int, int]:
    """Return the tile of a program: number of results, and elements of each. It is longest along contiguous memory.

    length: number of elements that a program may read at a time.
    """
    is_adjacent = space.outer_strides[space.main_input][-1] == 1 and space.outer_sizes[-1] > 1
    if is_adjacent and space.reduced_strides[space.main_input][-1] != 1:
        tile_results = min(next_power(space.outer_sizes[-1]), _MIN_TILE_RESULTS)
    else:
        tile_results = 1
    tile_elements = min(next_power(max(length, 1)), max(elements // tile_results, 1))
    tile_results = min(max(tile_results, elements // tile_elements), next_power(space.results))
    return tile_results, tile_elements
