"""Read and write safetensors files and their shards, with the package `safetensors` (the extra of this name).

The package checks a file's header when it is opened, and writes files. Tensors are mapped from the file here, because
the package returns bfloat16 only as a tensor of PyTorch.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime import dtypes, host_data
from ..runtime.context import current_stream
from ..runtime.device import Device, DeviceLike, meta
from ..runtime.device import device as to_device
from ..runtime.dispatch import empty
from ..runtime.dtypes import Array, DType, named_dtype
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor

__all__ = ["SafetensorsFile", "load_safetensors", "save_safetensors"]

_DTYPES: dict[str, DType] = {
    "F64": dtypes.float64, "F32": dtypes.float32, "F16": dtypes.float16, "BF16": dtypes.bfloat16,
    "I64": dtypes.int64, "I32": dtypes.int32, "I16": dtypes.int16, "I8": dtypes.int8, "U8": dtypes.uint8,
    "BOOL": dtypes.bool_,
}  # fmt: skip
_UNSUPPORTED_DTYPES = {
    "U16": "uint16", "U32": "uint32", "U64": "uint64", "C64": "complex64", "F8_E4M3": "float8_e4m3fn",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2": "float8_e5m2", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu", "F4": "float4_e2m1fn_x2",
}  # fmt: skip
_INDEX_SUFFIX = ".index.json"
_INDEX_NAME, _FILE_NAME = "model.safetensors.index.json", "model.safetensors"
_MAX_JSON_BYTES = 100_000_000  # the package's limit for a header


@dataclass(frozen=True)
class _Entry:
    """A tensor in a file.

    Attributes:
        dtype: Its dtype; a `NamedDType` if there are no tensors of it here.
        shape: Its shape.
        begin: Position of its first byte in the file.
        nbytes: Its size.
    """

    dtype: DType
    shape: tuple[int, ...]
    begin: int
    nbytes: int


class _Shard:
    """One file, mapped into memory. Writes to its tensors stay in this process.

    Args:
        path: Its path.
    """

    def __init__(self, path: Path):
        _check_header(path)
        with path.open("rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self.content: Array = np.frombuffer(mapping, np.uint8)
        size = int.from_bytes(mapping[:8], "little")
        header = _parse_json(mapping[8 : 8 + size], path)
        self.metadata: dict[str, str] = header.pop("__metadata__", None) or {}
        try:  # a header with a name twice is another one for the package than for Python
            self.entries = {name: self._parse_entry(8 + size, fields) for name, fields in header.items()}
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ArgumentError(f"safetensors: cannot read {path.name}: {error}") from error

    def _parse_entry(self, start: int, fields: dict[str, Any]) -> _Entry:
        begin, end = fields["data_offsets"]
        code = fields["dtype"]
        dtype = _DTYPES.get(code) or named_dtype(_UNSUPPORTED_DTYPES.get(code, code), "f", 1)
        return _Entry(dtype, tuple(fields["shape"]), start + begin, end - begin)

    def read(self, name: str, device: Device) -> Tensor:
        """Return a tensor on `device`; on `cpu`, it is the mapped bytes if they are aligned."""
        entry = self.entries[name]
        if isinstance(entry.dtype, dtypes.NamedDType):
            error = entry.dtype.unsupported()
            error.args = (f"safetensors: {name}: {error}",)
            raise error
        content = self.content[entry.begin : entry.begin + entry.nbytes]
        layout = meta(entry.dtype, entry.shape, None, device)
        if not layout.numel or device.type == "meta":
            return empty(layout)
        if layout.nbytes != content.nbytes or entry.begin < 0:
            raise ArgumentError(
                f"safetensors: {name} has {content.nbytes} bytes, and its shape {list(entry.shape)} "
                f"needs {layout.nbytes}"
            )
        if device.type == "cpu" and content.ctypes.data % entry.dtype.itemsize == 0:
            storage = device.driver.adopt(content)
            return Tensor(storage, layout, storage.start)
        output = empty(layout)
        device.driver.write(output.storage, 0, np.ascontiguousarray(content), current_stream(device))
        return output


class SafetensorsFile(Mapping[str, Tensor]):
    """The tensors of a safetensors file, or of all shards of a model, by name. Each is read when it is looked up.

    Args:
        path: A file, the index of shards (`model.safetensors.index.json`), or a folder that has
            `model.safetensors.index.json` or `model.safetensors`.
        device: Device of the tensors. On `cpu` they are the mapped pages of the file: these are read when they are
            used, and writes to the tensors stay in this process.

    Attributes:
        device: The device.

    Raises:
        ImportError: The package `safetensors` is not installed.
        ArgumentError: A file is damaged, or a shard is missing or lies in another folder.
        UnsupportedDType: On a look-up: there are no tensors of the dtype; the message names both.

    Example:
        >>> import importlib.util, tempfile
        >>> if importlib.util.find_spec('safetensors'):
        ...     with tempfile.TemporaryDirectory() as folder:
        ...         wg.serialization.save_safetensors({'w': wg.ones(2)}, f'{folder}/model.safetensors')
        ...         file = wg.serialization.SafetensorsFile(folder)
        ...         assert list(file) == ['w'] and file['w'].tolist() == [1, 1]
        ...
    """

    def __init__(self, path: str | os.PathLike[str], device: DeviceLike = "cpu"):
        self.device = to_device(device)
        path = Path(path)
        if path.is_dir():
            path = path / (_INDEX_NAME if (path / _INDEX_NAME).exists() else _FILE_NAME)
        self._shards: dict[Path, _Shard] = {}
        self._paths = _read_index(path) if path.suffix == ".json" else {}
        if path.suffix != ".json":
            shard = self._open(path)
            self._paths = dict.fromkeys(shard.entries, path)

    def __getitem__(self, name: str) -> Tensor:
        path = self._paths[name]
        shard = self._open(path)
        if name not in shard.entries:
            raise ArgumentError(f"safetensors: {path.name} has no tensor {name}, which the index says")
        return shard.read(name, self.device)

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def metadata(self) -> dict[str, str]:
        """Return the texts that the first file has beside its tensors.

        Returns:
            Dict of texts.
        """
        path = next(iter(self._paths.values()), None)
        return {} if path is None else dict(self._open(path).metadata)

    def _open(self, path: Path) -> _Shard:
        if path not in self._shards:
            self._shards[path] = _Shard(path)
        return self._shards[path]


def load_safetensors(path: str | os.PathLike[str], device: DeviceLike = "cpu") -> dict[str, Tensor]:
    """Read all tensors of a safetensors file, or of all shards of a model.

    Args:
        path: A file, the index of shards, or a folder, as in `SafetensorsFile`.
        device: Device of the tensors. On `cpu` they are the mapped pages of the file: these are read when they are
            used, and writes to the tensors stay in this process.

    Returns:
        Dict from names to tensors.

    Raises:
        ImportError: The package `safetensors` is not installed.
        ArgumentError: A file is damaged, or a shard is missing or lies in another folder.
        UnsupportedDType: There are no tensors of a dtype in the file; the message names the tensor.

    Example:
        >>> import importlib.util, tempfile
        >>> if importlib.util.find_spec('safetensors'):
        ...     with tempfile.TemporaryDirectory() as folder:
        ...         wg.serialization.save_safetensors({'w': wg.ones(2)}, f'{folder}/model.safetensors')
        ...         assert wg.serialization.load_safetensors(folder)['w'].tolist() == [1, 1]
        ...
    """
    return dict(SafetensorsFile(path, device))


def save_safetensors(
    tensors: Mapping[str, Tensor], path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None,
    max_shard_bytes: int | None = None,
) -> None:  # fmt: skip
    """Write tensors to a safetensors file, or to several with an index. Existing files are replaced at the end.

    Tensors that share memory are written separately.

    Args:
        tensors: Tensors by name, such as a state dict.
        path: Path of the file, which ends in `.safetensors`.
        metadata: Texts to store beside the tensors; None: `{"format": "pt"}`, by which other libraries know that the
            names and layouts are PyTorch's.
        max_shard_bytes: Begin another file before a file's tensors have more bytes. The files are then
            `model-00001-of-00002.safetensors` …, and the index is `model.safetensors.index.json`. None: one file.

    Raises:
        ImportError: The package `safetensors` is not installed.
        ArgumentError: A value is no tensor, or a name or the metadata no text.

    Example:
        >>> import importlib.util, tempfile
        >>> if importlib.util.find_spec('safetensors'):
        ...     with tempfile.TemporaryDirectory() as folder:
        ...         state = wg.nn.Linear(2, 3).state_dict()
        ...         wg.serialization.save_safetensors(state, f'{folder}/model.safetensors')
        ...
    """
    path = Path(path)
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ArgumentError(
                f"save_safetensors: takes tensors by name, not a {type(tensor).__name__} under {name!r}"
            )
    texts = {"format": "pt"} if metadata is None else dict(metadata)
    for key, content in texts.items():
        if not isinstance(key, str) or not isinstance(content, str):
            raise ArgumentError(f"save_safetensors: metadata are texts by name, not {content!r} under {key!r}")
    index_path = path.with_name(path.name + _INDEX_SUFFIX)
    shards = _split(tensors, max_shard_bytes)
    if len(shards) == 1:
        _write(shards[0], path, texts)
        index_path.unlink(missing_ok=True)  # of earlier shards, which a folder would be read by
        return
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        shard_path = path.with_name(f"{path.stem}-{number:05d}-of-{len(shards):05d}{path.suffix}")
        _write(shard, shard_path, texts)
        weight_map |= dict.fromkeys(shard, shard_path.name)
    total = sum(tensor.meta.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    import json  # lazy: start-up

    part = index_path.with_name(f"{index_path.name}.part{os.getpid()}")
    try:
        part.write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
        part.replace(index_path)
    finally:
        part.unlink(missing_ok=True)


def _split(tensors: Mapping[str, Tensor], max_bytes: int | None) -> list[dict[str, Tensor]]:
    """Return the tensors of each file, in their order."""
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if max_bytes is not None and shards[-1] and size + tensor.meta.nbytes > max_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.meta.nbytes
    return shards


def _write(tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    package = _import_package()
    arrays = {name: host_data.to_host(tensor.detach().contiguous()) for name, tensor in tensors.items()}
    specs = {
        name: package.TensorSpec(
            dtype=tensors[name].meta.dtype.name, shape=list(array.shape), data_ptr=array.ctypes.data,
            data_len=array.nbytes,
        )
        for name, array in arrays.items()
    }  # fmt: skip
    part = path.with_name(f"{path.name}.part{os.getpid()}")
    try:
        package.serialize_file(specs, part, metadata)
        part.replace(path)  # another process may have mapped the old file
    except package.SafetensorError as error:
        raise ArgumentError(f"save_safetensors: cannot write {path.name}: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def _import_package() -> Any:
    try:
        import safetensors  # lazy: optional
    except ImportError as error:
        raise ImportError(
            "safetensors files need the package safetensors: pip install 'weftgrad[safetensors]'", name="safetensors"
        ) from error
    return safetensors


def _check_header(path: Path) -> None:
    """Let the package check sizes, offsets and overlaps in a file's header."""
    package = _import_package()
    try:
        with package.safe_open(path, framework="numpy"):
            pass
    except package.SafetensorError as error:
        raise ArgumentError(f"safetensors: cannot read {path.name}: {error}") from error


def _parse_json(text: bytes, path: Path) -> dict[str, Any]:
    import json  # lazy: start-up

    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"safetensors: cannot read {path.name}: {error}") from error
    if not isinstance(value, dict):
        raise ArgumentError(f"safetensors: cannot read {path.name}: it holds no JSON object")
    return value


def _read_index(path: Path) -> dict[str, Path]:
    """Return the path of each tensor's shard. Shards lie beside the index."""
    with path.open("rb") as file:
        text = file.read(_MAX_JSON_BYTES + 1)
    if len(text) > _MAX_JSON_BYTES:
        raise ArgumentError(f"safetensors: the index {path.name} has more than {_MAX_JSON_BYTES} bytes")
    weight_map = _parse_json(text, path).get("weight_map")
    if not isinstance(weight_map, dict):
        raise ArgumentError(f"safetensors: the index {path.name} has no weight_map")
    paths = {}
    for name, file_name in weight_map.items():
        if not isinstance(file_name, str) or not file_name or file_name != Path(file_name).name or "\\" in file_name:
            raise ArgumentError(f"safetensors: the index {path.name} has no file beside it for {name}")
        paths[name] = path.with_name(file_name)
        if not paths[name].is_file():
            raise ArgumentError(f"safetensors: {file_name} is missing, which the index {path.name} names for {name}")
    return paths
