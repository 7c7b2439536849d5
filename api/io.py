"""Saving and loading: pickles in which nothing but tensors, containers and numbers may appear."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any, BinaryIO

from .runtime.errors import ArgumentError

__all__ = ["load", "save"]

_SAFE = {
    ("collections", "OrderedDict"), ("builtins", "set"), ("builtins", "frozenset"), ("builtins", "complex"),
    ("builtins", "slice"), ("builtins", "bytearray"), ("weftgrad.runtime.dtypes", "parse"),
    ("weftgrad.runtime.device", "device"), ("weftgrad.conversion", "_unpickle"), ("weftgrad.methods", "Size"),
    ("weftgrad.runtime.tensor", "Tensor"), ("weftgrad.nn.parameter", "Parameter"), ("numpy", "ndarray"),
    ("numpy", "dtype"), ("numpy._core.multiarray", "_reconstruct"), ("numpy._core.numeric", "_frombuffer"),
    ("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "scalar"), ("copyreg", "_reconstructor"),
}  # fmt: skip


def save(value: Any, file: str | Path | BinaryIO) -> None:
    """Write `value` (tensors, state dicts, nested containers) to a path or an open binary file."""
    if isinstance(file, (str, Path)):
        partial = Path(f"{file}.part")
        with partial.open("wb") as opened:  # a crash while saving leaves the old file whole
            pickle.dump(value, opened, protocol=5)
        partial.replace(file)
    else:
        pickle.dump(value, file, protocol=5)


def load(file: str | Path | BinaryIO, map_location: Any = None, *, weights_only: bool = True) -> Any:
    """Read what `save` wrote.

    `map_location` names the device for its tensors. Unless `weights_only=False`, a file with anything but tensors,
    containers and numbers is refused with `ArgumentError`: a pickle can run code. Load what you trust.
    """
    if isinstance(file, (str, Path)):
        with Path(file).open("rb") as opened:
            return load(opened, map_location, weights_only=weights_only)
    data = file.read()
    reader = _Reader(io.BytesIO(data)) if weights_only else pickle.Unpickler(io.BytesIO(data))
    try:
        value = reader.load()
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError) as error:
        raise ArgumentError(f"load: cannot read the file: {error}") from error
    return value if map_location is None else _moved(value, map_location)


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _SAFE:
            raise pickle.UnpicklingError(
                f"it holds {module}.{name}, which is no tensor or container; pass weights_only=False if you trust it"
            )
        return super().find_class(module, name)


def _moved(value: Any, place: Any) -> Any:
    from .runtime.tensor import Tensor

    if isinstance(value, Tensor):
        return value.to(device=place)  # type: ignore[attr-defined]
    if isinstance(value, (dict, OrderedDict)):
        return type(value)((k, _moved(v, place)) for k, v in value.items())
    if isinstance(value, (list, tuple, set)):
        return type(value)(_moved(v, place) for v in value)
    return value
