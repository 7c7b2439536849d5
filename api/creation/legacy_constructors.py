"""PyTorch's legacy constructors: `Tensor(...)`, `FloatTensor(...)`, `LongTensor(...)`, one for each dtype."""

from __future__ import annotations

from collections.abc import Sequence

from ..arguments.descriptions import Docstring
from ..runtime import dtypes
from ..runtime.device import DeviceLike, Meta
from ..runtime.dtypes import DType, DTypeLike
from ..runtime.errors import ArgumentError
from ..runtime.storage import Storage
from ..runtime.tensor import Tensor
from ..tensor_methods.size import Size
from . import factories, from_data

__all__ = [
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor",
    "IntTensor", "LongTensor", "ShortTensor", "set_default_tensor_type",
]  # fmt: skip


def build(args: Sequence[object], dtype: DType, device: DeviceLike | None = None) -> Tensor:
    """Create a tensor from data or, uninitialised, from sizes.

    Data is a sequence, an array or a tensor; sizes are ints or a `Size`.
    """
    if not args:
        return factories.empty(0, dtype=dtype, device=device)
    sizes = [a for a in args if isinstance(a, int) and not isinstance(a, bool)]
    if len(sizes) == len(args):
        return factories.empty(*sizes, dtype=dtype, device=device)
    if len(args) > 1 or isinstance(args[0], (bool, float)):
        raise ArgumentError("a tensor's constructor takes sizes (ints) or one sequence; use tensor(data) for a number")
    if isinstance(args[0], Size):
        return factories.empty(args[0], dtype=dtype, device=device)
    if isinstance(args[0], Tensor):
        if args[0].dtype is not dtype:
            raise ArgumentError(
                f"a constructor of {dtype.name} got a tensor of {args[0].dtype.name}; use .to({dtype!r})"
            )
        return args[0].detach()
    return from_data.tensor(args[0], dtype=dtype, device=device)


def install() -> None:
    """Let `Tensor(...)` accept sizes or data; the result has the default dtype and device."""

    def read(*values: object) -> tuple[Storage, Meta, int]:
        """Return storage, layout and start of the tensor that `Tensor(*values)` creates.

        Args:
            *values: Sizes or data; unused parameters of `Tensor.__init__` have their default values.

        Returns:
            Storage, layout, and offset of the first element in bytes.
        """
        args = [a for a, absent in zip(values, _INIT_DEFAULTS, strict=True) if a is not absent]
        tensor = build(args, dtypes.default_dtype())
        return tensor.storage, tensor.meta, tensor.start

    Tensor.read = staticmethod(read)  # type: ignore[method-assign]


_INIT_DEFAULTS = Tensor.__init__.__defaults__ or ()


class LegacyType(type):
    """Metaclass of `FloatTensor` and the others: a call creates a tensor; `isinstance` tests dtype and device."""

    dtype: DType

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, object]):
        super().__init__(name, bases, namespace)
        if cls.__doc__ is not None:  # None: python -OO
            docstring = Docstring(cls.__doc__)
            docstring.add_row(
                "Args",
                "args: Sizes of a tensor with undefined elements, as ints or one `Size`; or data: a sequence, an\n"
                "array or a tensor of this dtype.",
            )
            docstring.add_row("Args", "device: Device of the result; None: `cpu`.")
            docstring.add_row("Raises", "ArgumentError: If `args` are neither, or a tensor has another dtype.")
            cls.__doc__ = str(docstring)

    def __call__(cls, *args: object, device: DeviceLike | None = None) -> Tensor:
        return build(args, cls.dtype, "cpu" if device is None else device)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor) and value.dtype is cls.dtype and value.device.type == "cpu"


class FloatTensor(metaclass=LegacyType):
    """A float32 tensor on the host.

    Example:
        >>> wg.FloatTensor([1, 2])
        tensor([1., 2.])
    """

    dtype = dtypes.float32


class DoubleTensor(metaclass=LegacyType):
    """A float64 tensor on the host.

    Example:
        >>> wg.DoubleTensor([1, 2])
        tensor([1., 2.], dtype=weftgrad.float64)
    """

    dtype = dtypes.float64


class HalfTensor(metaclass=LegacyType):
    """A float16 tensor on the host.

    Example:
        >>> wg.HalfTensor([1, 2])
        tensor([1., 2.], dtype=weftgrad.float16)
    """

    dtype = dtypes.float16


class BFloat16Tensor(metaclass=LegacyType):
    """A bfloat16 tensor on the host.

    Example:
        >>> wg.BFloat16Tensor([1, 2])
        tensor([1., 2.], dtype=weftgrad.bfloat16)
    """

    dtype = dtypes.bfloat16


class ByteTensor(metaclass=LegacyType):
    """A uint8 tensor on the host.

    Example:
        >>> wg.ByteTensor([1, 2])
        tensor([1, 2], dtype=weftgrad.uint8)
    """

    dtype = dtypes.uint8


class CharTensor(metaclass=LegacyType):
    """An int8 tensor on the host.

    Example:
        >>> wg.CharTensor([1, 2])
        tensor([1, 2], dtype=weftgrad.int8)
    """

    dtype = dtypes.int8


class ShortTensor(metaclass=LegacyType):
    """An int16 tensor on the host.

    Example:
        >>> wg.ShortTensor([1, 2])
        tensor([1, 2], dtype=weftgrad.int16)
    """

    dtype = dtypes.int16


class IntTensor(metaclass=LegacyType):
    """An int32 tensor on the host.

    Example:
        >>> wg.IntTensor([1, 2])
        tensor([1, 2], dtype=weftgrad.int32)
    """

    dtype = dtypes.int32


class LongTensor(metaclass=LegacyType):
    """An int64 tensor on the host.

    Example:
        >>> wg.LongTensor([1, 2])
        tensor([1, 2])
    """

    dtype = dtypes.int64


class BoolTensor(metaclass=LegacyType):
    """A bool tensor on the host.

    Example:
        >>> wg.BoolTensor([True, False])
        tensor([ True, False])
    """

    dtype = dtypes.bool_


_CLASSES: dict[str, LegacyType] = {name: globals()[name] for name in __all__ if name.endswith("Tensor")}


def type_name(tensor: Tensor) -> str:
    """Return the legacy type name of a tensor, such as `weftgrad.FloatTensor` or `weftgrad.cuda.FloatTensor`."""
    device_type = tensor.meta.device.type
    name = next(name for name, tensor_class in _CLASSES.items() if tensor_class.dtype is tensor.meta.dtype)
    return f"weftgrad.{name}" if device_type == "cpu" else f"weftgrad.{device_type}.{name}"


def set_default_tensor_type(t: LegacyType | str) -> None:
    """Set the default dtype to that of a legacy class, such as `DoubleTensor`. PyTorch advises `set_default_dtype`.

    Args:
        t: A legacy class of a floating dtype, or its name, such as `"torch.DoubleTensor"`.

    Raises:
        DTypeError: The class is not of a floating dtype.

    Example:
        >>> wg.set_default_tensor_type(wg.FloatTensor)
        >>> wg.get_default_dtype()
        weftgrad.float32
    """
    dtypes.set_default_dtype(dtype_of(t))


def dtype_of(type_or_name: DTypeLike | LegacyType) -> DType:
    """Return the dtype of a legacy class or of its name, or of what else names a dtype."""
    resolved: object = type_or_name
    if isinstance(type_or_name, str):
        resolved = _CLASSES.get(type_or_name.rpartition(".")[2], type_or_name)
    return resolved.dtype if isinstance(resolved, LegacyType) else dtypes.parse(resolved)
