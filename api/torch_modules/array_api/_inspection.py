"""`__array_namespace_info__`: what the namespace can do, its devices and dtypes."""

from __future__ import annotations

from ..runtime import dtypes
from ..runtime.backends import available
from ..runtime.device import Device, DeviceLike
from ..runtime.device import device as to_device
from ..runtime.dtypes import DType
from ._data_types import isdtype

__all__ = ["__array_namespace_info__"]

_DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "float32", "float64")  # those of the standard


class _NamespaceInfo:
    """What the namespace can do, its devices and dtypes."""

    def capabilities(self) -> dict[str, bool | int | None]:
        """Return what the standard leaves open.

        Returns:
            Dictionary: indexing by bool tensors and shapes that depend on data work; any number of dimensions does.

        Example:
            >>> wg.array_api.__array_namespace_info__().capabilities()["boolean indexing"]
            True
        """
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> Device:
        """Return the device on which functions create tensors by default.

        Returns:
            `Device`.

        Example:
            >>> wg.array_api.__array_namespace_info__().default_device() == wg.get_default_device()
            True
        """
        return to_device()

    def devices(self) -> list[Device]:
        """Return the available devices.

        Returns:
            List of `Device`.

        Example:
            >>> wg.device("cpu") in wg.array_api.__array_namespace_info__().devices()
            True
        """
        return available()

    def default_dtypes(self, *, device: DeviceLike | None = None) -> dict[str, DType]:
        """Return the dtypes of tensors that functions create from Python numbers.

        Args:
            device: Device; all have the same.

        Returns:
            Dictionary from `real floating`, `integral` and `indexing` to dtypes. There are no complex dtypes.

        Example:
            >>> wg.array_api.__array_namespace_info__().default_dtypes()["integral"]
            weftgrad.int64
        """
        return {"real floating": dtypes.default_dtype(), "integral": dtypes.int64, "indexing": dtypes.int64}

    def dtypes(
        self, *, device: DeviceLike | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """Return the standard's dtypes that exist.

        Args:
            device: Device; all have the same, except that some GPUs lack float64.
            kind: Return only dtypes of this kind, or these (see `isdtype`).

        Returns:
            Dictionary from names to dtypes.

        Example:
            >>> list(wg.array_api.__array_namespace_info__().dtypes(kind="real floating"))
            ['float32', 'float64']
        """
        named = {name: dtypes.BY_NAME[name] for name in _DTYPES}
        return {name: dtype for name, dtype in named.items() if kind is None or isdtype(dtype, kind)}


def __array_namespace_info__() -> _NamespaceInfo:
    """Return an object that says what the namespace can do, and which devices and dtypes there are.

    Returns:
        An object with the methods `capabilities`, `default_device`, `default_dtypes`, `devices` and `dtypes`.

    Example:
        >>> wg.array_api.__array_namespace_info__().default_dtypes()["indexing"]
        weftgrad.int64
    """
    return _NamespaceInfo()
