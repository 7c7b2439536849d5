"""Samples as one batch, by plain copies on the host: no kernel is launched and no driver opened.

`room` is where a worker has batches put (see `worker`): straight into the memory that the parent reads them from.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from ... import _hosting, autograd
from ...factories import tensor
from ...joining import stack
from ...runtime import dtypes
from ...runtime.device import default_device, device, meta
from ...runtime.dispatch import empty
from ...runtime.dtypes import DType
from ...runtime.errors import ArgumentError, DTypeError, IndexOutOfRange, ShapeError
from ...runtime.tensor import Tensor

__all__ = ["adopted", "collate", "default_collate", "default_collate_fn_map", "default_convert", "rows"]

room: Callable[[int], np.ndarray[Any, Any] | None] | None = None
"""In a worker: so many bytes of the memory that is handed over, None where none are left."""


def adopted(flat: np.ndarray[Any, Any], dtype: DType, shape: tuple[int, ...]) -> Tensor:
    """A `cpu` tensor over the bytes of `flat`."""
    cpu = device("cpu")
    storage = cpu.driver.adopt(flat)
    return Tensor(storage, meta(dtype, shape, None, cpu), storage.start)


def _new(dtype: DType, shape: tuple[int, ...]) -> tuple[Tensor, np.ndarray[Any, Any]]:
    """A new `cpu` tensor, and its memory as an array."""
    layout = meta(dtype, shape, None, device("cpu"))
    if room is not None and layout.numel:
        flat = room(layout.nbytes)
        if flat is None:
            flat = np.empty(layout.nbytes, np.uint8)
        return adopted(flat, dtype, shape), flat.view(dtype.numpy).reshape(shape)
    made = empty(layout)
    return made, _hosting.to_host(made)


def _stacked(arrays: Sequence[np.ndarray[Any, Any]], dtype: DType) -> Tensor:
    shape = arrays[0].shape
    made, out = _new(dtype, (len(arrays), *shape))
    for i, array in enumerate(arrays):
        if array.shape != shape:
            raise ShapeError(
                f"default_collate: samples of one shape are wanted: number 0 has {list(shape)}, number {i} "
                f"{list(array.shape)}; pad them in a collate_fn of your own"
            )
        out[i] = array
    return made


def _whole(array: np.ndarray[Any, Any]) -> Tensor:
    made, out = _new(dtypes.from_numpy(array.dtype), array.shape)
    out[...] = array
    return made


def _tensors(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    grad = autograd.is_grad_enabled()
    if any(t.meta.device.type != "cpu" or (t.needs and grad) for t in batch):
        return stack(list(batch))
    dtype = batch[0].meta.dtype
    for other in batch:
        if other.meta.dtype is not dtype:
            dtype = dtypes.promote(dtype, other.meta.dtype)
    read = _hosting.to_host if all(t.meta.dtype is dtype for t in batch) else _hosting.host_array
    arrays = [read(t) for t in batch]
    if dtype is dtypes.bfloat16 and read is _hosting.host_array:
        arrays = [_hosting.to_bfloat16(a) for a in arrays]
    return _stacked(arrays, dtype)


def _arrays(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    first = batch[0].dtype
    if first.kind in "USOV":
        raise DTypeError(f"default_collate: arrays of {first} have no tensor's dtype; pass collate_fn=")
    common = first if all(a.dtype == first for a in batch) else np.result_type(*[a.dtype for a in batch])
    return _placed(_stacked(batch, dtypes.from_numpy(common)))


def _scalars(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    return _placed(_whole(np.array(batch)))


def _floats(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    return _placed(_whole(np.array(batch, np.float64)))


def _ints(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    values = np.array(batch)
    if values.dtype.kind not in "bif" or not all(isinstance(v, (int, float, np.number)) for v in batch):
        return tensor(list(batch))  # beyond int64, or no numbers: its errors
    return tensor(list(batch)) if values.dtype.kind == "f" else _placed(_whole(values))  # some floats: their default


def _placed(made: Tensor) -> Tensor:
    """On the default device, where `tensor` would have put it; in a worker that is `cpu`."""
    return made if room is not None else made.to(device=default_device())  # type: ignore[no-any-return]


def _same(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return batch


default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    Tensor: _tensors, np.ndarray: _arrays, (np.bool_, np.number): _scalars, float: _floats, int: _ints, str: _same,
    bytes: _same,
}  # fmt: skip
"""What makes a batch of samples of a type: `function(batch, *, collate_fn_map)`. Add entries for types of your own."""


def collate(batch: Any, *, collate_fn_map: dict[Any, Callable[..., Any]] | None = None) -> Any:
    """A batch of samples by the functions of `collate_fn_map`; containers are gone into, and keep their type (a tuple
    becomes a list, as in PyTorch, unless it is a named one)."""
    first = batch[0]
    kind = type(first)
    functions = collate_fn_map or {}
    found = functions.get(kind)
    if found is None:
        found = next((function for each, function in functions.items() if isinstance(first, each)), None)
    if found is not None:
        return found(batch, collate_fn_map=functions)

    def inner(samples: Any) -> Any:
        return collate(samples, collate_fn_map=functions)

    if isinstance(first, Mapping):
        return _like(first, {key: inner([sample[key] for sample in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return kind(*(inner(part) for part in zip(*batch, strict=True)))
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise ShapeError(
                f"default_collate: samples of a batch must have as many parts each, not {[len(s) for s in batch]}"
            )
        parts = [inner(part) for part in zip(*batch, strict=True)]
        return parts if isinstance(first, tuple) else _like(first, parts)
    raise ArgumentError(
        f"default_collate: cannot make a batch of {kind.__name__}: it takes tensors, arrays, numbers, strings, and "
        "mappings and sequences of these; pass collate_fn="
    )


def _like(sample: Any, parts: Any) -> Any:
    """`parts`, a dict or a list, as a container of the type of `sample`; as it is where that type cannot be made."""
    kind = type(sample)
    if kind in (dict, list):
        return parts
    try:
        if isinstance(sample, (MutableMapping, MutableSequence)):
            made: Any = copy.copy(sample)  # it may know more than its items
            for key, part in parts.items() if isinstance(parts, dict) else enumerate(parts):
                made[key] = part
            return made
        return kind(parts)
    except TypeError:
        return parts


def default_collate(batch: list[Any]) -> Any:
    """Samples as one batch, with a new dimension in front.

    Tensors and arrays of one shape are stacked and keep their dtype; ints become int64, floats float64, bools bool;
    strings and bytes stay a list. Mappings and sequences are gone into. Arrays and numbers become tensors on the
    default device, and in a loader's worker on `cpu`. Raises `ShapeError` where samples differ in shape or length,
    `ArgumentError` for other types.
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def default_convert(data: Any) -> Any:
    """A sample with its arrays and NumPy scalars as tensors; everything else, Python's numbers too, as it is."""
    if isinstance(data, Tensor):
        return data
    if isinstance(data, (np.ndarray, np.generic)):
        array = np.asarray(data)
        if array.dtype.kind in "USOV":
            return data
        return _placed(_whole(array))
    if isinstance(data, Mapping):
        return _like(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(part) for part in data))
    if isinstance(data, tuple):
        return [default_convert(part) for part in data]
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _like(data, [default_convert(part) for part in data])
    return data


def rows(tensors: Iterable[Tensor], indices: Sequence[int]) -> list[Tensor]:
    """The rows of these numbers of every tensor: a batch of a `TensorDataset` without its samples."""
    index = np.asarray(indices, np.int64)
    if room is None:
        return [t[index] for t in tensors]
    found = []
    for each in tensors:
        count = each.meta.shape[0]
        if len(index) and not -count <= index.min() <= index.max() < count:
            raise IndexOutOfRange(f"indices {index.min()} to {index.max()} leave a data set of {count} samples")
        made, out = _new(each.meta.dtype, (len(index), *each.meta.shape[1:]))
        np.take(_hosting.to_host(each), index, axis=0, out=out, mode="wrap")  # the mode that fills `out` directly
        found.append(made)
    return found
