"""Combine samples into a batch by copies on the host. No kernel is launched and no driver opened.

A worker sets `allocate` so that batches are written directly into the shared memory that the parent reads (`worker`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import TypeVar

import numpy as np

from ... import autograd
from ...creation.from_data import tensor
from ...runtime import dtypes, host_data
from ...runtime.device import default_device, device, meta
from ...runtime.dispatch import empty
from ...runtime.dtypes import Array, DType
from ...runtime.errors import ArgumentError, DTypeError, IndexOutOfRange, ShapeError
from ...runtime.tensor import Tensor
from ...shape.joining import stack
from ._types import Batch, CollateFunctions, Sample, SampleIndex

__all__ = ["collate", "default_collate", "default_collate_fn_map", "default_convert", "select_rows", "wrap_bytes"]

_Text = TypeVar("_Text", str, bytes)

allocate: Callable[[int], Array | None] | None = None
"""Set in a worker: returns an array of so many bytes of shared memory, or None if there is not enough left."""


def wrap_bytes(flat: Array, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    """Return a `cpu` tensor over the bytes of an array, without a copy.

    Args:
        flat: The bytes, uint8 of shape `(N,)`.
        dtype: Dtype of the tensor.
        shape: Shape of the tensor.

    Returns:
        Tensor that shares the array's memory.

    Example:
        >>> import numpy as np
        >>> from weftgrad.utils.data.collate import wrap_bytes
        >>> wrap_bytes(np.array([1, 0, 2, 0], np.uint8), wg.int16, (2,))
        tensor([1, 2], dtype=weftgrad.int16)
    """
    cpu = device("cpu")
    storage = cpu.driver.adopt(flat)
    return Tensor(storage, meta(dtype, shape, None, cpu), storage.start)


def _new(dtype: DType, shape: tuple[int, ...]) -> tuple[Tensor, Array]:
    """Return a new `cpu` tensor, and its memory as an array."""
    layout = meta(dtype, shape, None, device("cpu"))
    if allocate is not None and layout.numel:
        flat = allocate(layout.nbytes)
        if flat is None:
            flat = np.empty(layout.nbytes, np.uint8)
        return wrap_bytes(flat, dtype, shape), flat.view(dtype.numpy).reshape(shape)
    batch = empty(layout)
    return batch, host_data.to_host(batch)


def _stack_arrays(arrays: Sequence[Array], dtype: DType) -> Tensor:
    shape = arrays[0].shape
    batch, out = _new(dtype, (len(arrays), *shape))
    for i, array in enumerate(arrays):
        if array.shape != shape:
            raise ShapeError(
                f"default_collate: the samples of a batch must have one shape: number 0 has {list(shape)}, number {i} "
                f"{list(array.shape)}; pad them in a collate_fn of your own"
            )
        out[i] = array
    return batch


def _to_tensor(array: Array) -> Tensor:
    batch, out = _new(dtypes.from_numpy(array.dtype), array.shape)
    out[...] = array
    return batch


def _tensors(batch: Sequence[Tensor], *, collate_fn_map: object = None) -> Tensor:
    grad = autograd.is_grad_enabled()
    if any(t.meta.device.type != "cpu" or (t.needs_grad and grad) for t in batch):
        return stack(list(batch))
    dtype = batch[0].meta.dtype
    for sample in batch:
        if sample.meta.dtype is not dtype:
            dtype = dtypes.promote(dtype, sample.meta.dtype)
    read = host_data.to_host if all(t.meta.dtype is dtype for t in batch) else host_data.host_array
    arrays = [read(t) for t in batch]
    if dtype is dtypes.bfloat16 and read is host_data.host_array:
        arrays = [host_data.to_bfloat16(a) for a in arrays]
    return _stack_arrays(arrays, dtype)


def _arrays(batch: Sequence[Array], *, collate_fn_map: object = None) -> Tensor:
    first = batch[0].dtype
    if first.kind in "USOV":
        raise DTypeError(f"default_collate: arrays of {first} have no tensor's dtype; pass collate_fn=")
    common = first if all(a.dtype == first for a in batch) else np.result_type(*[a.dtype for a in batch])
    return _to_default_device(_stack_arrays(batch, dtypes.from_numpy(common)))


def _scalars(batch: Sequence[np.generic], *, collate_fn_map: object = None) -> Tensor:
    return _to_default_device(_to_tensor(np.array(batch)))


def _floats(batch: Sequence[float], *, collate_fn_map: object = None) -> Tensor:
    return _to_default_device(_to_tensor(np.array(batch, np.float64)))


def _ints(batch: Sequence[int], *, collate_fn_map: object = None) -> Tensor:
    values = np.array(batch)
    if values.dtype.kind not in "bif" or not all(isinstance(v, (int, float, np.number)) for v in batch):
        return tensor(list(batch))  # values beyond int64, or no numbers: `tensor` raises the error
    if values.dtype.kind == "f":  # a mix with floats: the default float dtype
        return tensor(list(batch))
    return _to_default_device(_to_tensor(values))


def _to_default_device(tensor: Tensor) -> Tensor:
    """Move a tensor to the default device, as `tensor` would create it; in a worker that is `cpu`."""
    return tensor if allocate is not None else tensor.to(device=default_device())


def _unchanged(batch: Sequence[_Text], *, collate_fn_map: object = None) -> Sequence[_Text]:
    return batch


default_collate_fn_map: dict[type | tuple[type, ...], Callable[..., object]] = {
    Tensor: _tensors, np.ndarray: _arrays, (np.bool_, np.number): _scalars, float: _floats, int: _ints, str: _unchanged,
    bytes: _unchanged,
}  # fmt: skip
"""The collate function of each sample type: `function(batch, *, collate_fn_map)`. Add entries for your own types."""


def collate(batch: Sequence[Sample], *, collate_fn_map: CollateFunctions | None = None) -> Batch:
    """Combine samples into a batch with the functions of `collate_fn_map`.

    Containers are collated recursively and keep their type. As in PyTorch, a tuple becomes a list, unless it is a
    named tuple.

    Args:
        batch: Nonempty list of samples.
        collate_fn_map: Functions by sample type; None: no functions, so that only containers can be collated.

    Returns:
        Batch.

    Raises:
        ShapeError: Samples are sequences of different lengths.
        ArgumentError: There is no function for the type of the samples.

    Example:
        >>> from weftgrad.utils.data.collate import collate
        >>> collate([{'word': 'a'}, {'word': 'b'}], collate_fn_map={str: lambda batch, collate_fn_map: '+'.join(batch)})
        {'word': 'a+b'}
    """
    first = batch[0]
    kind = type(first)
    functions: CollateFunctions = collate_fn_map or {}
    collate_fn = functions.get(kind)
    if collate_fn is None:
        collate_fn = next((function for each, function in functions.items() if isinstance(first, each)), None)
    if collate_fn is not None:
        return collate_fn(batch, collate_fn_map=functions)

    def inner(samples: Sequence[Sample]) -> Batch:
        return collate(samples, collate_fn_map=functions)

    if isinstance(first, Mapping):
        return _make_container(first, {key: inner([sample[key] for sample in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return kind(*(inner(part) for part in zip(*batch, strict=True)))
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise ShapeError(
                f"default_collate: samples of a batch must have as many parts each, not {[len(s) for s in batch]}"
            )
        parts = [inner(part) for part in zip(*batch, strict=True)]
        return parts if isinstance(first, tuple) else _make_container(first, parts)
    raise ArgumentError(
        f"default_collate: cannot make a batch of {kind.__name__}: it takes tensors, arrays, numbers, strings, and "
        "mappings and sequences of these; pass collate_fn="
    )


def _make_container(sample: Sample, parts: dict[object, Batch] | list[Batch]) -> Batch:
    """Convert `parts`, a dict or a list, to the type of `sample`; return it unchanged if that is not possible."""
    kind = type(sample)
    if kind in (dict, list):
        return parts
    try:
        if isinstance(sample, (MutableMapping, MutableSequence)):
            container: Batch = copy.copy(sample)  # keeps attributes beside the items
            for key, part in parts.items() if isinstance(parts, dict) else enumerate(parts):
                container[key] = part
            return container
        return kind(parts)
    except TypeError:
        return parts


def default_collate(batch: list[Sample]) -> Batch:
    """Combine samples into a batch, with a new first dimension.

    Tensors and arrays of one shape are stacked and keep their dtype. Ints become int64, floats float64, bools bool.
    Strings and bytes stay a list. Mappings and sequences are collated recursively. Arrays and numbers become tensors on
    the default device, in a loader's worker on `cpu`.

    Args:
        batch: Nonempty list of samples.

    Returns:
        Batch.

    Raises:
        ShapeError: Samples differ in shape or length.
        ArgumentError: Samples have another type.

    Example:
        >>> wg.utils.data.default_collate([(1, 0.5), (2, 1.5)])
        [tensor([1, 2]), tensor([0.5000, 1.5000], dtype=weftgrad.float64)]
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def default_convert(data: Sample) -> Sample:
    """Convert the arrays and NumPy scalars of a sample to tensors. All else, also Python numbers, stays as it is.

    Args:
        data: A sample: an array, a tensor, or mappings and sequences of them.

    Returns:
        The sample with tensors; a tuple becomes a list.

    Example:
        >>> import numpy as np
        >>> wg.utils.data.default_convert({'x': np.array([1, 2]), 'name': 'a'})
        {'x': tensor([1, 2]), 'name': 'a'}
    """
    if isinstance(data, Tensor):
        return data
    if isinstance(data, (np.ndarray, np.generic)):
        array = np.asarray(data)
        if array.dtype.kind in "USOV":
            return data
        return _to_default_device(_to_tensor(array))
    if isinstance(data, Mapping):
        return _make_container(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(part) for part in data))
    if isinstance(data, tuple):
        return [default_convert(part) for part in data]
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _make_container(data, [default_convert(part) for part in data])
    return data


def select_rows(tensors: Iterable[Tensor], indices: Sequence[SampleIndex]) -> list[Tensor]:
    """Return the rows `indices` of every tensor: a batch of a `TensorDataset`, without building single samples.

    Args:
        tensors: Tensors with as many rows as the data set has samples.
        indices: Indices of the rows.

    Returns:
        One tensor per tensor of the data set, of shape `(len(indices), ...)`.

    Raises:
        IndexOutOfRange: If an index is out of range.

    Example:
        >>> from weftgrad.utils.data.collate import select_rows
        >>> select_rows([wg.tensor([10, 20, 30])], [2, 0])
        [tensor([30, 10])]
    """
    index = np.asarray(indices, np.int64)
    if allocate is None:
        return [t[index] for t in tensors]
    batches = []
    for column in tensors:
        count = column.meta.shape[0]
        if len(index) and not -count <= index.min() <= index.max() < count:
            raise IndexOutOfRange(f"indices {index.min()} to {index.max()} leave a data set of {count} samples")
        batch, out = _new(column.meta.dtype, (len(index), *column.meta.shape[1:]))
        # The mode "wrap" makes NumPy write to `out` without a buffer; the indices were checked above.
        np.take(host_data.to_host(column), index, axis=0, out=out, mode="wrap")
        batches.append(batch)
    return batches
