"""`save` and `load` of nested dicts of tensors, each rank with its parts.

A checkpoint is a folder. `RANK.bin` has the bytes of the parts that a rank wrote, one after the other, and
`metadata.json`, which rank 0 writes last, has dtype, shape and the places of the parts of each tensor. Values that are
no tensors are in the metadata; they come from rank 0 and are JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ... import distributed as dist
from ...autograd import no_grad
from ...creation.from_data import from_numpy
from ...runtime import dtypes
from ...runtime.dtypes import Array
from ...runtime.errors import ArgumentError, ShapeError
from ...runtime.tensor import Tensor
from ..shards import ShardLayout, layout_of

__all__ = ["load", "save"]

_METADATA = "metadata.json"
_FORMAT = 1


def save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str], process_group: Any = None) -> None:
    """Write a checkpoint. Call it on all ranks, with the same keys.

    Sharded tensors are written by every rank, each its part; other tensors by one rank, because all have the same.

    Args:
        state_dict: Nested dicts and lists of tensors, numbers, strings, booleans and None, such as
            `checkpoint.state_dict.get_state_dict` returns them.
        checkpoint_id: The folder; it is created. A checkpoint in it becomes invalid when the writing begins.
        process_group: The group; None for all ranks.

    Raises:
        ArgumentError: A value is no tensor and cannot be written as JSON.
        TypeError: `state_dict` is no dict.
    """
    if not isinstance(state_dict, dict):
        raise TypeError(f"checkpoint.save: expects a dict, not {type(state_dict).__name__}")
    folder = Path(checkpoint_id)
    is_first = _rank(process_group) == 0
    error: str | None = None
    entries: dict[str, Any] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if is_first:
            (folder / _METADATA).unlink(missing_ok=True)
    except Exception as problem:  # all ranks must learn of it: they wait for each other below
        error = f"{type(problem).__name__}: {problem}"
    _gather(None, process_group)  # nobody may overwrite parts while the metadata says that they are complete
    try:
        if error is None:
            entries = _write_parts(folder, state_dict, _rank(process_group), _world_size(process_group))
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"
    of_ranks = _gather((error, entries), process_group)
    problems = [f"rank {rank}: {text}" for rank, (text, _) in enumerate(of_ranks) if text]
    if problems:
        raise ArgumentError(f"checkpoint.save to {folder}: {'; '.join(problems)}")
    if is_first:
        values = {path: value for path, value in _flatten(state_dict) if not isinstance(value, Tensor)}
        tensors: dict[str, Any] = {}
        for _, rank_entries in of_ranks:
            for path, entry in rank_entries.items():
                known = tensors.setdefault(path, {"dtype": entry["dtype"], "shape": entry["shape"], "parts": []})
                known["parts"] += entry["parts"]
        text = json.dumps({"format": _FORMAT, "tensors": tensors, "values": values})
        temporary = folder / (_METADATA + ".tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(folder / _METADATA)
    _gather(None, process_group)


def load(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str], process_group: Any = None) -> None:
    """Read a checkpoint into the tensors of a state dict, in place, each rank its parts.

    Args:
        state_dict: Nested dicts and lists as for `save`, whose tensors are overwritten and whose other values are
            replaced. The number of ranks and the division of the tensors may be others than at `save`.
        checkpoint_id: The folder.
        process_group: The group; None for all ranks.

    Raises:
        ArgumentError: There is no checkpoint, or it lacks a tensor or a part of it.
        ShapeError: A tensor's shape differs.
    """
    folder = Path(checkpoint_id)
    try:
        metadata = json.loads((folder / _METADATA).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArgumentError(f"checkpoint.load: {folder} has no complete checkpoint") from error
    if metadata.get("format") != _FORMAT:
        raise ArgumentError(
            f"checkpoint.load: {folder} has format {metadata.get('format')}, this version reads {_FORMAT}"
        )
    for path, value in _flatten(state_dict):
        if isinstance(value, Tensor):
            if path not in metadata["tensors"]:
                raise ArgumentError(f"checkpoint.load: {folder} has no tensor {path!r}")
            _read_tensor(folder, path, metadata["tensors"][path], value)
        elif path in metadata["values"]:
            _set(state_dict, path, metadata["values"][path])
    _gather(None, process_group)  # nobody may begin to write before all have read


def _rank(group: Any) -> int:
    return dist.get_rank(group) if dist.is_initialized() else 0


def _world_size(group: Any) -> int:
    return dist.get_world_size(group) if dist.is_initialized() else 1


def _gather(value: Any, group: Any) -> list[Any]:
    if not dist.is_initialized():
        return [value]
    values: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


def _flatten(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of the tensors and other values of nested dicts and lists. A path is a JSON list."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flatten(item, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            yield from _flatten(item, (*path, str(position)))
    else:
        yield json.dumps(path), value


def _set(state: Any, path: str, value: Any) -> None:
    """Replace the value at a path of nested dicts and lists."""
    *parents, last = json.loads(path)
    for name in parents:
        state = state[int(name)] if isinstance(state, list) else state[_key(state, name)]
    if isinstance(state, list):
        state[int(last)] = value
    elif isinstance(state, dict):
        state[_key(state, last)] = value


def _key(state: dict[Any, Any], name: str) -> Any:
    return name if name in state else next(key for key in state if str(key) == name)


def _write_parts(folder: Path, state: Any, rank: int, world_size: int) -> dict[str, Any]:
    """Write this rank's parts; return where they are, by path."""
    entries: dict[str, Any] = {}
    name, whole_count = f"{rank}.bin", 0
    with (folder / name).open("wb") as file:
        for path, value in _flatten(state):
            if not isinstance(value, Tensor):
                json.dumps(value)  # raises an error for what is no JSON
                continue
            layout = layout_of(value)
            is_whole = getattr(value, "shard_layout", None) is None
            if is_whole:
                whole_count += 1
                if whole_count % world_size != rank:  # the ranks take turns
                    continue
            array = _to_array(value)
            part = {"file": name, "offset": file.tell(), "dim": layout.dim, "start": layout.start, "stop": layout.stop}
            file.write(array.tobytes())
            entries[path] = {
                "dtype": value.meta.dtype.name, "shape": list(layout.full_shape), "parts": [part] if array.size else [],
            }  # fmt: skip
        file.flush()
        os.fsync(file.fileno())
    return entries


def _to_array(tensor: Tensor) -> Array:
    """Return the elements on the host; those of bfloat16 as their bits."""
    host = tensor.detach().to("cpu").contiguous()
    if host.meta.dtype is dtypes.bfloat16:
        host = host.view(dtypes.int16)
    return host.numpy()


def _read_tensor(folder: Path, path: str, entry: dict[str, Any], tensor: Tensor) -> None:
    """Read the part of a tensor that this rank needs."""
    layout = layout_of(tensor)
    shape = tuple(entry["shape"])
    if shape != layout.full_shape:
        raise ShapeError(f"checkpoint.load: {path} has shape {list(shape)}, the tensor {list(layout.full_shape)}")
    saved_dtype = next(d for d in vars(dtypes).values() if isinstance(d, dtypes.DType) and d.name == entry["dtype"])
    numpy_dtype = np.dtype(np.int16) if saved_dtype is dtypes.bfloat16 else np.dtype(saved_dtype.numpy)
    own = _read_own_part(folder, path, entry, layout, numpy_dtype)
    values = from_numpy(np.ascontiguousarray(own))
    if saved_dtype is dtypes.bfloat16:
        values = values.view(dtypes.bfloat16)
    with no_grad():
        tensor.detach().copy_(values.view(tensor.shape))


def _read_own_part(folder: Path, path: str, entry: dict[str, Any], layout: ShardLayout, dtype: np.dtype[Any]) -> Array:
    """Return the elements of `layout`. Parts that are ranges of flattened elements are read only as far as needed."""
    is_flat = layout.dim is None and all(part["dim"] is None for part in entry["parts"])
    count = layout.stop - layout.start
    if is_flat:
        own, filled = np.empty(count, dtype), 0
        for part in entry["parts"]:
            low, high = max(part["start"], layout.start), min(part["stop"], layout.stop)
            if low < high:
                offset = part["offset"] + (low - part["start"]) * dtype.itemsize
                own[low - layout.start : high - layout.start] = _read(folder, part, offset, high - low, dtype)
                filled += high - low
        missing = count - filled
    else:
        whole, filled = np.empty(layout.full_shape, dtype), 0
        for part in entry["parts"]:
            saved = ShardLayout(layout.full_shape, part["dim"], part["start"], part["stop"])
            size = saved.cut(whole).size
            saved.paste(whole, _read(folder, part, part["offset"], size, dtype))
            filled += size
        own, missing = layout.cut(whole), prod(layout.full_shape) - filled
    if missing > 0:
        raise ArgumentError(f"checkpoint.load: {folder} lacks {missing} elements of {path}")
    return own


def _read(folder: Path, part: dict[str, Any], offset: int, count: int, dtype: np.dtype[Any]) -> Array:
    values: Array = np.fromfile(folder / part["file"], dtype, count, offset=offset)
    if values.size != count:
        raise ArgumentError(f"checkpoint.load: {folder / part['file']} is shorter than its metadata says")
    return values
