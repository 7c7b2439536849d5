"""Choose and divide the CPU schedules of reductions, which `reduction.py` describes."""

from __future__ import annotations

from ..backends.protocol import Step
from ..device import Meta
from ..layout import split
from ..traced_sizes import recorded
from . import Request
from .elementwise import elementwise_parts
from .reduction_opencl import Finish, estimate_work, steps
from .reduction_states import WIDE, IterationSpace, schedule, vector_defines

__all__ = ["ROW_BLOCK", "cpu_finish", "cpu_steps"]

# Elements that a long sum adds before it adds their sum to the total. Without blocks the rounding error of a sum would
# grow with the number of its elements.
ROW_BLOCK = 4096  # along a row
_COLUMN_BLOCK = 256  # down a column
_SHORT_MAX_ELEMENTS = 15  # longest row of the schedule `short`
_MIN_ROWS = 256  # fewest rows of the schedules `short` and `interleaved`
_MIN_COLUMN_ELEMENTS = 64  # fewest elements of a column in each part, where the reduced elements are split


def cpu_steps(
    request: Request, outputs: tuple[Meta, ...], space: IterationSpace, element: str
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Choose a CPU schedule and build its launches.

    Args:
        request: the call.
        outputs: layouts of the results.
        space: the merged dimensions.
        element: the compute type, by its name in C.

    Returns:
        One launch or two, and the bytes of each field of the partial states; see `reduction_opencl.steps`.
    """
    lanes = _vector_lanes(request, space, element)
    params = schedule(request, space)
    min_elements = params["min_item_elements"]
    width, length = space.outer_sizes[-1], space.reduced_sizes[-1]
    is_adjacent = space.outer_strides[space.main_input][-1] == 1 and width >= lanes
    if _is_short(space):
        entry = "short"
    elif lanes == 1:
        entry = "general"
    elif _can_interleave_rows(request, space, lanes):
        entry = "interleaved"
    elif is_adjacent and space.count:
        entry = "columns"
    else:
        entry = "rows" if length >= lanes else "general"
    parts = elementwise_parts(estimate_work(request, space, entry), request.capabilities.cores, params["parts"])
    if entry == "short":
        chunk_size, items = split(space.results, parts)
        defines = [("ROW", str(space.count))]
        return steps(request, outputs, space, element, entry, (items,), (1,), (chunk_size, 0, 0), 1, defines, None, 1)
    if entry == "interleaved":
        chunk_size, items = split(space.results, parts, lanes)
        defines = vector_defines(lanes) + [(f"CLASS{i}", str(s)) for i, (s,) in enumerate(space.reduced_strides)]
        return steps(
            request, outputs, space, element, entry, (items,), (1,), (chunk_size, 0, 0), 1, defines, None, lanes
        )
    widened = _widen_rows(request, space, lanes) if lanes > 1 else None
    if widened is not None:
        entry, chunks, counts, vector_strides = "columns", *_split_columns(request, widened, lanes, parts)
    elif entry == "columns":
        chunks, counts, vector_strides = _split_columns(request, space, lanes, parts)
    elif entry == "rows":
        chunks, counts, vector_strides = _split_rows(space, parts, min_elements)
    else:
        vector_strides = None
        result_chunk, items = split(space.results, parts)
        target_parts = min(-(-parts // items), max(space.count // min_elements, 1))
        chunk_size, splits = split(max(space.count, 1), target_parts)
        chunks, counts = (result_chunk, 0, chunk_size), (items, 1, splits)
    splits = counts[2] if entry != "rows" else counts[1] * counts[2]
    if widened is not None:
        splits *= widened.results // space.results
    defines = [("BLOCK", str(ROW_BLOCK if entry == "rows" else _COLUMN_BLOCK))]
    if vector_strides is not None:
        defines += vector_defines(lanes)
        defines += [(f"CLASS{i}", str(s if s in (0, 1) else 2)) for i, s in enumerate(vector_strides)]
    finish = cpu_finish(request, outputs, space, lanes, splits) if splits > 1 else None
    local = (1, 1, 1)
    return steps(
        request, outputs, space, element, entry, counts, local, chunks, splits, defines, finish, lanes, widened=widened
    )


def _vector_lanes(request: Request, space: IterationSpace, element: str) -> int:
    """Return the vector width in elements; 1 if vectors cannot hold the states."""
    lanes = request.capabilities.lanes
    if element in ("double", "long"):
        lanes //= 2
    fields = request.record.detail["fields"]
    has_index = request.record.detail.get("has_index") or "index" in fields
    has_index = has_index or any(o.type == "index" for o, _ in request.tensors)
    if has_index and (element not in WIDE or space.count >= 2**31):
        return 1
    return lanes


def _is_short(space: IterationSpace) -> bool:
    """Return True if there are many short rows, and inputs and results are contiguous."""
    input_count = len(space.reduced_strides)
    return (
        1 < space.count <= _SHORT_MAX_ELEMENTS
        and space.results >= _MIN_ROWS
        and all(s == (space.count,) for s in space.outer_strides[:input_count])
        and all(s == (1,) for s in (*space.outer_strides[input_count:], *space.reduced_strides))
    )


def _can_interleave_rows(request: Request, space: IterationSpace, lanes: int) -> bool:
    """Return True if the schedule `interleaved` can run.

    It needs many rows of one to eight vectors, contiguous results, and a state that is a single value.
    """
    input_count = len(space.reduced_strides)
    return (
        lanes <= space.count <= 8 * lanes
        and space.results >= _MIN_ROWS
        and len(space.outer_sizes) == len(space.reduced_sizes) == 1
        and space.reduced_strides[space.main_input] == (1,)
        and space.outer_strides[space.main_input] != (1,)
        and all(s in ((0,), (1,)) for s in space.reduced_strides)
        and all(s == (1,) for s in space.outer_strides[input_count:])
        and set(request.record.detail["fields"]) == {"value"}
    )


def _widen_rows(request: Request, space: IterationSpace, lanes: int) -> IterationSpace | None:
    """Return a space in which several reduced rows are one wider row; None if that is impossible or useless.

    It helps if a row of results is narrower than the vectors of `columns`. Each column of the wide row gives a partial
    state. They are laid out like the partial states of that many splits, so the usual `finish` combines them.
    """
    if len(space.outer_sizes) > 1 or len(space.reduced_sizes) > 1 or request.record.detail.get("has_index"):
        return None
    (width,), (count,), input_strides = (
        space.outer_sizes, space.reduced_sizes, space.outer_strides[: len(space.reduced_strides)]
    )  # fmt: skip
    pairs = [(outer[0], reduced[0]) for outer, reduced in zip(input_strides, space.reduced_strides, strict=True)]
    if pairs[space.main_input] != (1, width) or any(pair not in ((1, width), (0, 0)) for pair in pairs):
        return None
    full_width = lanes * request.record.detail["column_vectors"]
    if width >= full_width:
        return None
    factor = _widening_factor(width, count, lanes, full_width)
    if factor == 1:
        return None
    strides = tuple((factor * reduced,) for _, reduced in pairs)
    return IterationSpace((factor * width,), space.outer_strides, (count // factor,), strides, space.main_input)


@recorded
def _widening_factor(width: int, count: int, lanes: int, full_width: int) -> int:
    """Return how many of `count` rows make a wide row: the best divisor of `count`, 1 if there is none.

    A wide row has at most `4 * full_width` elements. The best one is a multiple of `full_width`, the elements of the
    vectors that `columns` processes together; of several, the widest.
    """
    max_factor = min(4 * full_width // width, count // _MIN_COLUMN_ELEMENTS)
    factors = [k for k in range(2, max_factor + 1) if count % k == 0 and k * width >= lanes]
    return max(factors, key=lambda k: (k * width % full_width == 0, k), default=1)


def _split_rows(
    space: IterationSpace, parts: int, min_elements: int
) -> tuple[tuple[int, int, int], tuple[int, int, int], list[int]]:
    """Divide the schedule `rows` into about `parts` work-items of at least `min_elements` reduced elements.

    Returns:
        Sizes of the chunks of results, outer reduced rows and innermost reduced elements; the number of each; and the
        innermost reduced strides.
    """
    length = space.reduced_sizes[-1]
    outer = space.count // length
    result_chunk, items = split(space.results, parts)
    target_parts = min(-(-parts // items), max(space.count // min_elements, 1))
    row_chunk, row_items = split(outer, target_parts)
    chunk_size, run_items = split(length, min(-(-target_parts // row_items), max(length // min_elements, 1)), 64)
    return (result_chunk, row_chunk, chunk_size), (items, row_items, run_items), [s[-1] for s in space.reduced_strides]


def _split_columns(
    request: Request, space: IterationSpace, lanes: int, parts: int
) -> tuple[tuple[int, int, int], tuple[int, int, int], list[int]]:
    """Divide the schedule `columns` into about `parts` work-items.

    Returns:
        Sizes of the chunks of outer rows, columns and reduced elements; the number of each; and the columns' strides.
    """
    width = space.outer_sizes[-1]
    row_chunk, row_items = split(space.results // width, parts)
    target_parts = -(-parts // row_items)
    # Split the reduced elements before the columns: a complete row of columns is one sequential read.
    chunk_size, runs = split(space.count, min(target_parts, max(space.count // _MIN_COLUMN_ELEMENTS, 1)))
    quantum = lanes * request.record.detail["column_vectors"]
    column_chunk, column_items = split(width, -(-target_parts // runs), quantum)
    if width % column_chunk and width % column_chunk < lanes:  # the last chunk must fill a vector
        column_chunk, column_items = width, 1
    column_strides = [s[-1] for s in space.outer_strides]
    return (row_chunk, column_chunk, chunk_size), (row_items, column_items, runs), column_strides


def cpu_finish(request: Request, outputs: tuple[Meta, ...], space: IterationSpace, lanes: int, splits: int) -> Finish:
    """Divide the launch that combines partial states. Return the argument `finish` of `reduction_opencl.steps`."""
    parts = elementwise_parts(space.results * splits, request.capabilities.cores)
    chunk, items = split(space.results, parts, 64)
    is_flat = len(space.outer_sizes) == 1 and all(s == (1,) for s in space.outer_strides[-len(outputs) :])
    defines = vector_defines(lanes) if is_flat and lanes > 1 and space.results >= lanes else []
    return "finish", (items,), (1,), chunk, defines
