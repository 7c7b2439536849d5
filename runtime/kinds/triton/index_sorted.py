"""Plan writes by many indices for Triton: sort the indices, then combine the values of each run of equal indices.

`keys` copies the indices to int32, in contiguous lines, and `..sort`, which is stable, sorts them. If each element has
an index of its own, a line has the indices of one position along the other dimensions. If an index names a slice, such
as a row of an embedding, there is one line with all indices.

- `segments`, for an index per element: one lane owns each run of equal indices. It combines the run's first `_SERIAL`
  elements alone, and the whole program combines the rest. The element of the result is read and written once.
- `runs`, for an index per slice: a program adds up the slices of `_RUN_ROWS` sorted indices in registers. It writes the
  sums of runs that lie within them, and stores partial sums of runs that other programs share.
- `joins` adds these partial sums.

Nothing is atomic, and the order of additions depends only on the shapes and the indices, so the same call gives the
same bits. Half types are added in float32 and rounded once, also in runs that several programs share.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ... import dtypes
from ...backends.protocol import Slot, Step
from ...device import Meta, meta
from ...records import registry
from .. import Request, slot, sort
from ..index_access import Access, check_number, has_negatives, merge_in_order
from . import Defines, Geometry, index_type, instance, next_power, strided_extent

__all__ = ["should_sort_indices", "sorted_write_steps"]

Strides = tuple[int, ...]
_MIN_ELEMENT_INDICES = 256  # sorting pays from this number of indices in a line, if each element has an index
_MIN_SLICE_INDICES = 1024  # the same if an index names a slice
_SERIAL = 8  # elements of a run that its lane combines alone
_KEY_BLOCK = 1024  # indices that a program of `keys` copies
_BLOCK = 512  # sorted indices of a program of `segments`
_RUN_ROWS, _RUN_COLUMNS = 16, 256  # sorted indices, and elements of their slices, of a program of `runs`
_JOINED_CHUNKS = 8  # chunks, each the `_RUN_ROWS` indices of one program of `runs`, that `joins` adds at a time
# By the compute type in C.
_DTYPE_NAMES = {"float": "float32", "double": "float64", "long": "int64", "int": "int32", "short": "int16",
                "char": "int8", "uchar": "uint8"}  # fmt: skip


def should_sort_indices(request: Request, access: Access) -> bool:
    """Return True if sorting the indices of a write pays: there are enough, and int32 holds their positions."""
    index_count = prod(access.shape[d] for d in access.index_dims)
    if access.num_positions >= 2**31 or index_count >= 2**31:
        return False
    if _writes_elements(access):
        return index_count >= _MIN_ELEMENT_INDICES
    return request.record.detail["action"] == "add" and index_count >= _MIN_SLICE_INDICES


def _writes_elements(access: Access) -> bool:
    """Return True if each element has its own index: it varies along the other dimensions too, or there are none."""
    outer_dims = [d for d, n in enumerate(access.shape) if n > 1 and d not in access.index_dims]
    return not outer_dims or any(access.index_strides[d] for d in outer_dims)


def sorted_write_steps(
    request: Request,
    element: str,
    slots: tuple[Slot, ...],
    access: Access,
    index: Meta,
    sizes: tuple[int, ...],
    strides: list[Strides],
    target_layout: tuple[tuple[int, ...], Strides],
    index_layout: tuple[tuple[int, ...], Strides, Strides],
    buffers: tuple[int, ...],
    first_scratch: int,
    miss_buffer: int | None,
) -> tuple[list[Step], tuple[int, ...]]:
    """Plan the launches that copy the indices, sort them, and write.

    Args:
        request: the call.
        element: the compute type, by its name in C.
        slots: kernel parameters for index, source and result.
        access: where the elements of the source go.
        index: layout of the index.
        sizes: collapsed sizes outside the indexed dimensions.
        strides: strides of index, source and result along `sizes`, in elements.
        target_layout: sizes and result strides of the indexed dimensions.
        index_layout: sizes of the index's own dimensions, and strides of index and source along them.
        buffers: positions of index, source and result among the buffers of a launch.
        first_scratch: position of the first scratch buffer; the others follow it.
        miss_buffer: position of the miss word, where `keys` stores an index out of range. None: `keys` does not check.

    Returns:
        The launches, and the bytes of each scratch buffer.
    """
    is_per_element = _writes_elements(access)
    index_count, position_count = prod(index_layout[0]), access.num_positions
    lines = prod(sizes) if is_per_element else 1
    scratch: list[int] = []

    def allocate(nbytes: int) -> int:
        scratch.append(nbytes)
        return first_scratch + len(scratch) - 1

    key_bytes = lines * index_count * 4
    # Copied and sorted indices in int32, and where each of them was in its line, in int64.
    unsorted_keys, keys, order = allocate(key_bytes), allocate(key_bytes), allocate(2 * key_bytes)
    outer = (sizes, strides[0]) if is_per_element else ((), ())
    shape, index_strides = (*outer[0], *index_layout[0]), (*outer[1], *index_layout[1])
    miss_word = buffers[0] if miss_buffer is None else miss_buffer
    key_buffers = (buffers[0], unsorted_keys, miss_word)
    steps = [_keys_step(request, index, shape, index_strides, position_count, key_buffers, miss_buffer)]
    lines_layout = meta(dtypes.int32, (lines, index_count), None, request.device)
    sorting = sort.plan(Request(registry["sort_along"], (lines_layout,), (1, False), request.device))
    sort_buffers = (unsorted_keys, keys, order, *(allocate(nbytes) for nbytes in sorting.scratch))
    steps += [replace(s, buffers=tuple(sort_buffers[b] for b in s.buffers)) for s in sorting.steps]
    extents = [strided_extent(sizes, s) for s in strides[1:]]
    extents += [strided_extent(*target_layout), strided_extent(index_layout[0], index_layout[2])]
    defines: Defines = {"INDEXED_DIMS": len(target_layout[0]), "INDEX_DIMS": len(index_layout[0]), "OUTER": len(sizes)}
    key_slots = (Slot("int32", "index"), Slot("int64", "index"))
    common: Geometry = (sizes, strides[1], strides[2], *target_layout, index_layout[0], index_layout[2])
    work = prod(sizes) * index_count
    if is_per_element:
        block = min(_BLOCK, next_power(index_count))
        line_blocks = -(-index_count // block)
        defines |= {"INDEX": index_type([sum(extents) + lines * index_count]), "BLOCK": block, "SERIAL": _SERIAL}
        kernel = instance(request, "segments", element, (*key_slots, *slots[1:]), defines)
        geometry: Geometry = (index_count, line_blocks, position_count, *common)
        steps.append(Step(kernel, (keys, order, *buffers[1:]), geometry, (lines * line_blocks,), None, work))
        return steps, tuple(scratch)
    width, chunks = prod(sizes), -(-index_count // _RUN_ROWS)
    columns = min(_RUN_COLUMNS, next_power(width))
    width_tiles = -(-width // columns)
    partial_slot = Slot(_DTYPE_NAMES[element], "value")
    # Two partial sums for each chunk: of the run that began before it, and of the run that goes on after it.
    partial = allocate(2 * chunks * width * dtypes.parse(partial_slot.dtype).itemsize)
    defines |= {"INDEX": index_type([sum(extents) + (2 * chunks + _JOINED_CHUNKS) * width]), "ROWS": _RUN_ROWS,
                "COLUMNS": columns, "CLASS2": int(strides[2][-1] == 1)}  # fmt: skip
    run_defines = {**defines, "CLASS1": int(strides[1][-1] == 1), "num_warps": 2}
    kernel = instance(request, "runs", element, (*key_slots, *slots[1:], partial_slot), run_defines)
    geometry = (index_count, width, width_tiles, position_count, *common)
    steps.append(Step(kernel, (keys, order, *buffers[1:], partial), geometry, (chunks * width_tiles,), None, work))
    join_defines = {name: value for name, value in defines.items() if name != "INDEX_DIMS"} | {"CHUNKS": _JOINED_CHUNKS}
    kernel = instance(request, "joins", element, (key_slots[0], partial_slot, slots[2]), join_defines)
    geometry = (index_count, width, width_tiles, position_count, sizes, strides[2], *target_layout)
    steps.append(Step(kernel, (keys, partial, buffers[2]), geometry, (chunks * width_tiles,), None, work))
    return steps, tuple(scratch)


def _keys_step(
    request: Request, index: Meta, shape: tuple[int, ...], strides: Strides, total: int, buffers: tuple[int, ...],
    miss_buffer: int | None,
) -> Step:  # fmt: skip
    """Plan the launch that copies indices of `shape` to contiguous int32 keys; buffers: index, keys, miss word."""
    merged, (key_strides,) = merge_in_order(shape, [strides])
    count = prod(shape)
    defines: Defines = {
        "INDEX": index_type([count + strided_extent(merged, key_strides)]), "BLOCK": _KEY_BLOCK,
        "INDEX_DIMS": len(merged), "CHECK": int(miss_buffer is not None), "NEGATIVE": int(has_negatives(request)),
    }  # fmt: skip
    slots = (slot(index, "index"), Slot("int32", "index"), Slot("int64", "index"))
    kernel = instance(request, "keys", "long", slots, defines)
    number = 0 if miss_buffer is None else check_number(request)
    geometry: Geometry = (count, total, number, merged, key_strides)
    return Step(kernel, buffers, geometry, (-(-count // _KEY_BLOCK),), None, count)
