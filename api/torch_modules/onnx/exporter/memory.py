"""The values of tensors at a point of the program.

Values of a graph do not change, but tensors do: ops write in place, and into views of other tensors. `Contents` has for
each memory a list of writes: the tensor that was written, and the value in the graph. A read finds the last write that
has any of the tensor's elements:

- it wrote exactly this tensor: its value is the result;
- else, if the tensor is the result of a recorded view: that view of what its source contains now;
- else the memory's root, the tensor with all elements, is put together from parts of the writes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from ...runtime.dtypes import Array
from ..errors import DynamicSizeError, OnnxExporterError, UnsupportedOperatorError
from .boxes import Box, Region, choose_root, covers, cut_points, find_box, intersects, whole
from .dynamic_sizes import Int, Size, as_int, product
from .graph import Graph, Value
from .program import Call, Ref

__all__ = ["Contents", "Missing", "Packed", "Written"]

_LAST = np.iinfo(np.int64).max


class Missing:
    """Stands for a value that cannot be expressed. Reading it raises the error."""

    def __init__(self, error: OnnxExporterError):
        self.error = error


@dataclass(frozen=True, slots=True)
class Packed:
    """Sequences of different lengths, which PyTorch packs and ONNX pads.

    Attributes:
        padded: `(length, batch, ...)`.
        lengths: Length of each sequence, an int32 vector.
    """

    padded: Value
    lengths: Value


Written: TypeAlias = "Value | Missing | Packed | Callable[[], Value]"
"""What a write stores: a value, or a function that adds it to the graph when it is read."""


@dataclass(slots=True, eq=False)
class _Write:
    ref: Ref | None  # None: the box, with the root's dimensions
    value: Written
    box: Box | None


class Contents:
    """What the memories contain.

    Args:
        graph: Gets the nodes that put values together.
        refs: All tensors of the program.
        convert_view: Adds the nodes of a view call: from the call and its operand's value to the result's value.
        computed: Memories whose contents depend on inputs or on dynamic dimensions.
    """

    def __init__(
        self, graph: Graph, refs: Iterable[Ref], convert_view: Callable[[Call, Value], Value], computed: Container[int]
    ):
        self._graph = graph
        self._computed = computed
        self._convert_view = convert_view
        self._writes: dict[int, list[_Write]] = {}
        self._views: dict[Ref, Call] = {}
        self._read_views: dict[tuple[Ref, int], Value] = {}
        self._counts: dict[int, int] = {}  # of all writes to a memory, also those that are gone from the list
        by_memory: dict[int, dict[Ref, None]] = {}
        for ref in refs:
            by_memory.setdefault(ref.memory, {})[ref] = None
        self._roots = {memory: root for memory, group in by_memory.items() if (root := choose_root(group))}
        self._boxes: dict[Ref, Box | None] = {}

    def is_computed(self, ref: Ref) -> bool:
        """Return whether the contents of a memory depend on inputs or on dynamic dimensions."""
        return ref.memory in self._computed

    def add_view(self, call: Call) -> None:
        """Note that the result of `call` is a view of its operand."""
        if call.results[0] != call.operands[0]:
            self._views.setdefault(call.results[0], call)

    def view_source(self, ref: Ref) -> Ref | None:
        """Return the tensor that `ref` is a recorded view of, or None."""
        view = self._views.get(ref)
        source = None if view is None else view.operands[0]
        return source if isinstance(source, Ref) else None

    def write(self, ref: Ref, value: Written) -> None:
        """Note that a call has written `ref`."""
        writes = self._writes.setdefault(ref.memory, [])
        self._counts[ref.memory] = self._counts.get(ref.memory, 0) + 1
        root, box = self._roots.get(ref.memory), self._box(ref)
        if root is None or ref == root:
            writes[:] = [_Write(ref, value, box)]
        elif isinstance(value, str) and _is_reshaped(ref, root):
            writes[:] = [_Write(root, self._graph.op("Reshape", value, self._graph.shape(root.shape)), self._box(root))]
        elif box is not None and box.is_dense:
            writes.append(_Write(ref, value, box))
        elif isinstance(value, str) and box is not None and (stepped := self._fill_steps(ref, value, box)) is not None:
            writes.append(stepped)
        elif isinstance(value, str):
            writes[:] = [_Write(root, self._scatter(root, ref, value), self._box(root))]
        else:
            raise OnnxExporterError("a result that has no value in the graph is written to a part of another tensor")

    def write_initial(self, ref: Ref, value: Written) -> None:
        """Note what a memory contains before the program runs."""
        self._writes.setdefault(ref.memory, []).append(_Write(ref, value, self._box(ref)))

    def read(self, ref: Ref) -> Value | Packed:
        """Return the value that `ref` has now.

        Raises:
            OnnxExporterError: It cannot be expressed, or no recorded call has written it.
        """
        last = self._last_write(ref)
        if last is not None and last.ref == ref:
            return self._resolve(last)
        if last is None and ref.memory not in self._writes:
            raise OnnxExporterError("a tensor is read that no recorded op has written, for example a copy from another "
                                    "device; export the model with its inputs on one device")  # fmt: skip
        key = (ref, self._counts.get(ref.memory, 0))
        if key not in self._read_views:
            self._read_views[key] = self._read_part(ref)
        return self._read_views[key]

    def _last_write(self, ref: Ref) -> _Write | None:
        box = self._box(ref)
        for write in reversed(self._writes.get(ref.memory, ())):
            if write.ref == ref or box is None or write.box is None or intersects(box.region, write.box.region):
                return write
        return None

    def _resolve(self, write: _Write) -> Value | Packed:
        if isinstance(write.value, Missing):
            raise write.value.error
        if isinstance(write.value, (str, Packed)):
            return write.value
        write.value = write.value()
        return write.value

    def _plain_value(self, write: _Write) -> Value:
        value = self._resolve(write)
        if isinstance(value, Packed):
            raise UnsupportedOperatorError(
                "packed sequences can be read by recurrent layers and by pad_packed_sequence only"
            )
        return value

    def _read_part(self, ref: Ref) -> Value:
        view = self._views.get(ref)
        if view is not None and isinstance(view.operands[0], Ref):
            source = self.read(view.operands[0])
            if isinstance(source, Packed):
                raise UnsupportedOperatorError("packed sequences can be read by recurrent layers only")
            return self._convert_view(view, source)
        root = self._roots[ref.memory]
        if ref.dtype is not root.dtype:
            raise UnsupportedOperatorError(f"the bits of a tensor of {root.dtype.name} are read as {ref.dtype.name}")
        if _is_reshaped(ref, root):
            return self._graph.op("Reshape", self._region(ref.memory, whole(root)), self._graph.shape(ref.shape))
        box = self._box(ref)
        if box is None:
            return self._gather(root, ref)
        return self._from_root(self._region(ref.memory, box.region), box)

    # --- parts of roots ---

    def _box(self, ref: Ref) -> Box | None:
        if ref not in self._boxes:
            root = self._roots.get(ref.memory)
            self._boxes[ref] = None if root is None else find_box(ref, root)
        return self._boxes[ref]

    def _region(self, memory: int, region: Region) -> Value:
        """Return the elements of a region of the root, with the root's number of dimensions."""
        writes: list[_Write] = []
        for write in reversed(self._writes.get(memory, ())):
            if write.box is not None and intersects(region, write.box.region):
                writes.append(write)
                if covers(write.box.region, region):
                    break
        if not writes:  # memory that nobody has written: any values are right
            root = self._roots[memory]
            shape = self._graph.shape([stop - start for start, stop in region])
            zero = self._graph.number(0, root.dtype)
            return self._graph.op("Expand", zero, shape)
        if covers(writes[0].box.region, region):  # type: ignore[union-attr]
            return self._slice_of_write(writes[0], region)
        boxes = [write.box.region for write in writes if write.box is not None]
        for dim in range(len(region)):
            points = cut_points(region, dim, boxes)
            if len(points) > 2:
                return self._join_slabs(memory, region, dim, points, writes)
        raise DynamicSizeError("which elements of a tensor an op writes depends on a dynamic dimension")

    def _join_slabs(self, memory: int, region: Region, dim: int, points: Sequence[Int], writes: list[_Write]) -> Value:
        slabs: list[tuple[_Write | None, Region]] = []
        for start, stop in pairwise(points):
            slab = (*region[:dim], (start, stop), *region[dim + 1 :])
            top = next((w for w in writes if w.box is not None and intersects(w.box.region, slab)), None)
            if top is not None and top.box is not None and not covers(top.box.region, slab):
                top = None
            if slabs and top is not None and slabs[-1][0] is top:
                previous = slabs.pop()[1]
                slab = (*region[:dim], (previous[dim][0], stop), *region[dim + 1 :])
            slabs.append((top, slab))
        values = [self._region(memory, slab) for _, slab in slabs]
        return values[0] if len(values) == 1 else self._graph.op("Concat", *values, axis=dim)

    def _slice_of_write(self, write: _Write, region: Region) -> Value:
        assert write.box is not None
        value = self._to_root(self._plain_value(write), write.box)
        own = write.box.region
        dims = [d for d in range(len(region)) if region[d] != own[d]]
        if not dims:
            return value
        starts = [region[d][0] - own[d][0] for d in dims]
        stops = [_LAST if region[d][1] == own[d][1] else region[d][1] - own[d][0] for d in dims]
        graph = self._graph
        return graph.op("Slice", value, graph.shape(starts), graph.shape(stops), graph.ints(dims))

    def _to_root(self, value: Value, box: Box) -> Value:
        """Give a view's value the root's dimensions and their order."""
        graph, rank = self._graph, len(box.region)
        dims = [dim for dim in box.dims if dim is not None]
        if list(box.dims) == list(range(rank)):
            return value
        squeezed = [j for j, dim in enumerate(box.dims) if dim is None]
        if squeezed:
            value = graph.op("Squeeze", value, graph.ints(squeezed))
        if dims != sorted(dims):
            value = graph.op("Transpose", value, perm=sorted(range(len(dims)), key=dims.__getitem__))
        missing = [d for d in range(rank) if d not in dims]
        return graph.op("Unsqueeze", value, graph.ints(missing)) if missing else value

    def _from_root(self, value: Value, box: Box) -> Value:
        """Give a region of the root a view's steps, and its dimensions and their order."""
        graph, rank = self._graph, len(box.region)
        steps = {dim: step for dim, step in zip(box.dims, box.steps, strict=True) if dim is not None and step != 1}
        if steps:
            firsts, lasts = graph.ints([0] * len(steps)), graph.ints([_LAST] * len(steps))
            value = graph.op("Slice", value, firsts, lasts, graph.ints(steps), graph.ints(steps.values()))
        dims = [dim for dim in box.dims if dim is not None]
        if list(box.dims) == list(range(rank)):
            return value
        missing = [d for d in range(rank) if d not in dims]
        if missing:
            value = graph.op("Squeeze", value, graph.ints(missing))
        if dims != sorted(dims):
            order = sorted(dims)
            value = graph.op("Transpose", value, perm=[order.index(dim) for dim in dims])
        inserted = [j for j, dim in enumerate(box.dims) if dim is None]
        return graph.op("Unsqueeze", value, graph.ints(inserted)) if inserted else value

    def _fill_steps(self, ref: Ref, value: Value, box: Box) -> _Write | None:
        """Return the write of a box in which every n-th element is new; None if that is impossible."""
        steps = [(dim, step) for dim, step in zip(box.dims, box.steps, strict=True) if step != 1]
        dim, step = steps[0]
        start, stop = box.region[dim] if dim is not None else (0, 0)
        length = stop - start
        if len(steps) > 1 or dim is None or not isinstance(length, int):
            return None
        old = self._region(ref.memory, box.region)
        both = self._graph.op("Concat", old, self._to_root(value, box), axis=dim)
        positions = np.arange(length)
        positions[::step] = length + np.arange(len(positions[::step]))
        new = self._graph.op("Gather", both, self._graph.constant(positions.astype(np.int64)), axis=dim)
        rank = len(box.region)
        return _Write(None, new, Box(box.region, tuple(range(rank)), (1,) * rank))

    # --- views that are no boxes ---

    def _gather(self, root: Ref, ref: Ref) -> Value:
        graph = self._graph
        flat = graph.op("Reshape", self._region(ref.memory, whole(root)), graph.ints([-1]))
        return graph.op("Gather", flat, graph.constant(self._positions(root, ref)), axis=0)

    def _scatter(self, root: Ref, ref: Ref, value: Value) -> Value:
        graph = self._graph
        positions = self._positions(root, ref)
        old = self._region(ref.memory, whole(root))
        flat = graph.op("Reshape", old, graph.ints([-1]))
        updates = graph.op("Reshape", value, graph.ints([-1]))
        new = graph.op("ScatterElements", flat, graph.constant(positions.reshape(-1)), updates, axis=0)
        return graph.op("Reshape", new, graph.shape(root.shape))

    def _positions(self, root: Ref, ref: Ref) -> Array:
        """Return the row-major position in the root of each element of a view."""
        if any(isinstance(n, Size) for n in (*root.shape, *root.strides, *ref.shape, *ref.strides, ref.start)):
            raise DynamicSizeError("which elements of a tensor a view shows depends on a dynamic dimension")
        distance = as_int((ref.start - root.start) // root.dtype.itemsize, "the first element of a view")
        root_offsets, offsets = _offsets(root), _offsets(ref) + distance
        order = np.argsort(root_offsets.reshape(-1))
        ranks = np.searchsorted(root_offsets.reshape(-1)[order], offsets)
        return np.asarray(order[ranks], np.int64)


def _is_reshaped(ref: Ref, root: Ref) -> bool:
    """Return whether a view has all elements of the root in row-major order, in another shape."""
    return (
        ref.start == root.start
        and ref.dtype is root.dtype
        and product(ref.shape) == product(root.shape)
        and _is_contiguous(ref)
        and _is_contiguous(root)
    )


def _is_contiguous(ref: Ref) -> bool:
    step: Int = 1
    for size, stride in zip(reversed(ref.shape), reversed(ref.strides), strict=True):
        if size != 1 and stride != step:
            return False
        step = step * size
    return True


def _offsets(ref: Ref) -> Array:
    """Return the distance in elements of each element of a tensor from its first one."""
    offsets = np.zeros(ref.meta.shape, np.int64)
    for dim, (size, stride) in enumerate(zip(ref.meta.shape, ref.meta.strides, strict=True)):
        shape = [1] * len(ref.shape)
        shape[dim] = size
        offsets += (np.arange(size) * stride).reshape(shape)
    return offsets
