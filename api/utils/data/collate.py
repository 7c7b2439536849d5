"""Combine samples into a batch by copies on the host. No kernel is launched and no driver opened.

A worker process sets `allocate`, so that batches are written directly into the shared memory that its parent reads
(`worker.py`).
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
_KINDS_WITHOUT_TENSORS = "USOV"  # NumPy's kinds of strings, bytes, objects and records

allocate: Callable[[int], Array | None] | None = None
"""Set in a worker: returns a uint8 array of that many bytes of shared memory, or None if there is not enough left."""


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


def _allocate_tensor(dtype: DType, shape: tuple[int, ...]) -> tuple[Tensor, Array]:
    """Return a new `cpu` tensor, and an array of its shape that shares its memory (of bfloat16 the bits, as uint16)."""
    layout = meta(dtype, shape, None, device("cpu"))
    if allocate is not None and layout.numel:
        flat = allocate(layout.nbytes)
        if flat is None:
            flat = np.empty(layout.nbytes, np.uint8)
        return wrap_bytes(flat, dtype, shape), flat.view(dtype.numpy).reshape(shape)
    batch = empty(layout)
    return batch, host_data.to_host(batch)


def _stack_arrays(arrays: Sequence[Array], dtype: DType) -> Tensor:
    """Return the arrays, which must have one shape, as a `cpu` tensor of `dtype` with a new first dimension."""
    shape = arrays[0].shape
    batch, memory = _allocate_tensor(dtype, (len(arrays), *shape))
    for i, array in enumerate(arrays):
        if array.shape != shape:
            raise ShapeError(
                f"default_collate: the samples of a batch must have one shape: number 0 has {list(shape)}, number {i} "
                f"{list(array.shape)}; pad them in a collate_fn of your own"
            )
        memory[i] = array
    return batch


def _to_tensor(array: Array) -> Tensor:
    """Return a copy of an array as a `cpu` tensor."""
    tensor, memory = _allocate_tensor(dtypes.from_numpy(array.dtype), array.shape)
    memory[...] = array
    return tensor


def _collate_tensors(batch: Sequence[Tensor], *, collate_fn_map: object = None) -> Tensor:
    grad = autograd.is_grad_enabled()
    if any(t.meta.device.type != "cpu" or (t.needs_grad and grad) for t in batch):
        return stack(list(batch))
    dtype = batch[0].meta.dtype
    for sample in batch:
        if sample.meta.dtype is not dtype:
            dtype = dtypes.promote(dtype, sample.meta.dtype)
    if all(t.meta.dtype is dtype for t in batch):
        return _stack_arrays([host_data.to_host(t) for t in batch], dtype)
    arrays = [host_data.host_array(t) for t in batch]  # bfloat16 as float32, so that NumPy can convert it
    if dtype is dtypes.bfloat16:
        arrays = [host_data.to_bfloat16(array) for array in arrays]
    return _stack_arrays(arrays, dtype)


def _collate_arrays(batch: Sequence[Array], *, collate_fn_map: object = None) -> Tensor:
    dtype = batch[0].dtype
    if dtype.kind in _KINDS_WITHOUT_TENSORS:
        raise DTypeError(f"default_collate: arrays of {dtype} cannot become tensors; pass collate_fn=")
    if any(array.dtype != dtype for array in batch):
        dtype = np.result_type(*[array.dtype for array in batch])
    return _to_default_device(_stack_arrays(batch, dtypes.from_numpy(dtype)))


def _collate_numpy_scalars(batch: Sequence[np.generic], *, collate_fn_map: object = None) -> Tensor:
    return _to_default_device(_to_tensor(np.array(batch)))


def _collate_floats(batch: Sequence[float], *, collate_fn_map: object = None) -> Tensor:
    return _to_default_device(_to_tensor(np.array(batch, np.float64)))


def _collate_ints(batch: Sequence[int], *, collate_fn_map: object = None) -> Tensor:
    """Collate a batch whose first sample is an int or a bool."""
    values = np.array(batch)
    if values.dtype.kind in "bi" and all(isinstance(v, (int, np.number)) for v in batch):
        return _to_default_device(_to_tensor(values))
    # A mix with floats has the default dtype. For values beyond int64, and for other types, `tensor` raises the error.
    return tensor(list(batch))


def _to_default_device(tensor: Tensor) -> Tensor:
    """Move a tensor to the default device, as `tensor` would create it; in a worker that is `cpu`."""
    return tensor if allocate is not None else tensor.to(device=default_device())


def _keep_strings(batch: Sequence[_Text], *, collate_fn_map: object = None) -> Sequence[_Text]:
    return batch


default_collate_fn_map: dict[type | tuple[type, ...], Callable[..., object]] = {
    Tensor: _collate_tensors, np.ndarray: _collate_arrays, (np.bool_, np.number): _collate_numpy_scalars,
    float: _collate_floats, int: _collate_ints, str: _keep_strings, bytes: _keep_strings,
}  # fmt: skip
"""The collate function of each sample type: `function(batch, *, collate_fn_map)`. Add entries for your own types."""


def collate(batch: Sequence[Sample], *, collate_fn_map: CollateFunctions | None = None) -> Batch:
    """Combine samples into a batch with the functions of `collate_fn_map`.

    Containers are collated recursively and keep their type. As in PyTorch, a tuple becomes a list, unless it is a
    named tuple.

    Args:
        batch: Nonempty list of samples of one type.
        collate_fn_map: Functions by sample type, called as `function(batch, collate_fn_map=...)`. None: no functions,
            so that the leaves of containers raise.

    Returns:
        What the function of the samples' type returns. For containers, a container of batches: one for each key of a
        mapping, or for each position of a sequence.

    Raises:
        ShapeError: Samples are sequences of different lengths.
        ArgumentError: There is no function for the type of the samples.

    Example:
        >>> from weftgrad.utils.data.collate import collate
        >>> collate([{'word': 'a'}, {'word': 'b'}], collate_fn_map={str: lambda batch, collate_fn_map: '+'.join(batch)})
        {'word': 'a+b'}
    """
    first = batch[0]
    sample_type = type(first)
    functions: CollateFunctions = collate_fn_map or {}
    collate_fn = functions.get(sample_type)
    if collate_fn is None:
        collate_fn = next((function for types, function in functions.items() if isinstance(first, types)), None)
    if collate_fn is not None:
        return collate_fn(batch, collate_fn_map=functions)

    def collate_part(samples: Sequence[Sample]) -> Batch:
        return collate(samples, collate_fn_map=functions)

    if isinstance(first, Mapping):
        return _make_container(first, {key: collate_part([sample[key] for sample in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return sample_type(*(collate_part(part) for part in zip(*batch, strict=True)))
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise ShapeError(
                f"default_collate: samples of a batch must have as many parts each, not {[len(s) for s in batch]}"
            )
        parts = [collate_part(part) for part in zip(*batch, strict=True)]
        return parts if isinstance(first, tuple) else _make_container(first, parts)
    raise ArgumentError(
        f"default_collate: cannot make a batch of {sample_type.__name__}: it takes tensors, arrays, numbers, strings, "
        "and mappings and sequences of these; pass collate_fn="
    )


def _make_container(sample: Sample, parts: dict[object, Batch] | list[Batch]) -> Batch:
    """Convert `parts`, a dict or a list, to the type of `sample`; return it unchanged if that is not possible."""
    container_type = type(sample)
    if container_type in (dict, list):
        return parts
    try:
        if isinstance(sample, (MutableMapping, MutableSequence)):
            container: Batch = copy.copy(sample)  # keeps attributes beside the items
            for key, part in parts.items() if isinstance(parts, dict) else enumerate(parts):
                container[key] = part
            return container
        return container_type(parts)
    except TypeError:
        return parts


def default_collate(batch: list[Sample]) -> Batch:
    """Combine samples into a batch, with a new first dimension.

    Tensors and arrays of one shape are stacked; different dtypes are promoted. Ints become int64, floats float64, bools
    bool. Strings and bytes stay a list. Mappings and sequences are collated recursively. Arrays and numbers become
    tensors on the default device, in a loader's worker on `cpu`.

    Args:
        batch: Nonempty list of samples of one type.

    Returns:
        A tensor of shape `(len(batch), *shape)` for tensors and arrays of `shape`, of shape `(len(batch),)` for
        numbers. For containers, a container of batches: one for each key of a mapping, or for each position of a
        sequence; a tuple becomes a list.

    Raises:
        ShapeError: Samples differ in shape or length.
        DTypeError: Arrays of strings, objects or records.
        ArgumentError: Samples have another type.

    Example:
        >>> wg.utils.data.default_collate([(1, 0.5), (2, 1.5)])
        [tensor([1, 2]), tensor([0.5000, 1.5000], dtype=weftgrad.float64)]
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def default_convert(data: Sample) -> Sample:
    """Convert the arrays and NumPy scalars of a sample to tensors on the default device.

    All else stays as it is: tensors, Python numbers, strings, arrays of strings, objects or records.

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
        if array.dtype.kind in _KINDS_WITHOUT_TENSORS:
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
        tensors: Tensors of shape `(samples, ...)`; on `cpu` in a worker, else on any device.
        indices: Indices of the rows; negative ones count from the end.

    Returns:
        One tensor per tensor of the data set, of shape `(len(indices), ...)`.

    Raises:
        IndexOutOfRange: An index is not in the range of `samples`.

    Example:
        >>> from weftgrad.utils.data.collate import select_rows
        >>> select_rows([wg.tensor([10, 20, 30])], [2, 0])
        [tensor([30, 10])]
    """
    index = np.asarray(indices, np.int64)
    if allocate is None:
        return [t[index] for t in tensors]
    batches = []
    for source in tensors:
        count = source.meta.shape[0]
        if len(index) and not -count <= index.min() <= index.max() < count:
            raise IndexOutOfRange(f"a data set of {count} samples has no indices {index.min()} to {index.max()}")
        batch, memory = _allocate_tensor(source.meta.dtype, (len(index), *source.meta.shape[1:]))
        # The mode "wrap" makes NumPy write to `memory` without a buffer; the indices were checked above.
        np.take(host_data.to_host(source), index, axis=0, out=memory, mode="wrap")
        batches.append(batch)
    return batches
