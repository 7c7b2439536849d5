"""`autocast`, regions in which each op selects the precision that its spec names, and functions that query them.

`runtime/autocast.py` applies the casts.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import ParamSpec, Protocol, TypeVar, overload

from ..runtime import autocast as engine
from ..runtime.backends import cuda_devices
from ..runtime.context import state
from ..runtime.dtypes import DType, bfloat16, float16
from ..runtime.errors import ArgumentError, UnknownDevice
from ..runtime.tensor import Tensor

__all__ = [
    "autocast", "clear_autocast_cache", "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype",
    "is_autocast_cache_enabled", "is_autocast_cpu_enabled", "is_autocast_enabled", "set_autocast_dtype",
]  # fmt: skip

_P = ParamSpec("_P")
_Result = TypeVar("_Result")
_DEVICE_TYPES = ("cpu", "opencl", "cuda", "interpreter")
_default_dtypes = {"cpu": bfloat16, "opencl": float16, "cuda": float16, "interpreter": float16}


def _check_device_type(device_type: object) -> str:
    if not isinstance(device_type, str):
        raise ArgumentError(f"autocast: device_type is a string such as 'cpu', not {type(device_type).__name__}")
    if device_type not in _DEVICE_TYPES:
        hint = " (without an index)" if device_type.partition(":")[0] in _DEVICE_TYPES else ""
        raise UnknownDevice(f"autocast: device_type is one of {', '.join(_DEVICE_TYPES)}{hint}, not {device_type!r}")
    return device_type


def is_autocast_available(device_type: str) -> bool:
    """Return whether devices of this type support autocast, which is true for all of weftgrad's.

    Args:
        device_type: Name such as `cpu`.

    Returns:
        Python bool.

    Example:
        >>> wg.amp.is_autocast_available('cpu')
        True
    """
    return device_type in _DEVICE_TYPES


def get_autocast_dtype(device_type: str) -> DType:
    """Return the half type that `autocast(device_type)` uses here unless it gets a dtype.

    Args:
        device_type: `"cpu"`, `"opencl"`, `"cuda"` or `"interpreter"`.

    Returns:
        float16 or bfloat16, or the dtype of the region that is active here.

    Raises:
        UnknownDevice: If there is no such device type.

    Example:
        >>> wg.get_autocast_dtype('cpu')
        weftgrad.bfloat16
    """
    device_type = _check_device_type(device_type)
    region = state().autocast
    dtype = None if region is None else region.dtypes.get(device_type)
    return dtype or _default_dtypes[device_type]


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Set the default half type of a device type. PyTorch stores it per thread; weftgrad stores it for the process.

    Args:
        device_type: `"cpu"`, `"opencl"`, `"cuda"` or `"interpreter"`.
        dtype: float16 or bfloat16.

    Raises:
        ArgumentError: For another dtype.
        UnknownDevice: If there is no such device type.

    Example:
        >>> wg.set_autocast_dtype('cpu', wg.bfloat16)
    """
    if dtype not in (float16, bfloat16):
        raise ArgumentError(f"set_autocast_dtype: float16 or bfloat16, not {dtype!r}")
    _default_dtypes[_check_device_type(device_type)] = dtype


def get_autocast_cpu_dtype() -> DType:
    """Return `get_autocast_dtype("cpu")`.

    Returns:
        float16 or bfloat16.

    Example:
        >>> wg.get_autocast_cpu_dtype()
        weftgrad.bfloat16
    """
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> DType:
    """Return `get_autocast_dtype("cuda")`.

    Returns:
        float16 or bfloat16.

    Example:
        >>> wg.get_autocast_gpu_dtype()
        weftgrad.float16
    """
    return get_autocast_dtype("cuda")


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Return whether autocast is active in this thread for a device type. None means `cuda`, as in PyTorch.

    Args:
        device_type: Name such as `cpu`.

    Returns:
        Python bool.

    Example:
        >>> with wg.autocast('cpu'):
        ...     wg.is_autocast_enabled('cpu')
        ...
        True
    """
    region = state().autocast
    return region is not None and _check_device_type("cuda" if device_type is None else device_type) in region.enabled


def is_autocast_cpu_enabled() -> bool:
    """Return `is_autocast_enabled("cpu")`.

    Returns:
        Python bool.

    Example:
        >>> wg.is_autocast_cpu_enabled()
        False
    """
    return is_autocast_enabled("cpu")


def is_autocast_cache_enabled() -> bool:
    """Return whether the current region caches casts of weights.

    Returns:
        Python bool; True outside of regions.

    Example:
        >>> wg.is_autocast_cache_enabled()
        True
    """
    region = state().autocast
    return region is None or region.caching


def clear_autocast_cache() -> None:
    """Clear the cached casts of weights of this thread's regions.

    Example:
        >>> wg.clear_autocast_cache()
    """
    region = state().autocast
    if region is not None:
        region.cache.clear()


class autocast:
    """A region in which ops on devices of `device_type` select their precision; a context manager or a decorator.

        with autocast("cpu", dtype=wg.bfloat16):
            loss = F.cross_entropy(net(x), y)
        loss.backward()

    Matrix products (linear layers, convolutions, attention) cast their operands to `dtype`. Ops that need range or
    precision, such as losses, cast to float32. Other ops keep their operands' dtype. Each op's spec says
    which (`autocast:`). Weights and their gradients stay float32, because the casts are differentiated.

    Regions nest, and `enabled=False` makes an exception inside another region. A region belongs to one thread. In-place
    ops and ops with `out=` are not cast. Call backward outside the region.

    Args:
        device_type: `"cpu"`, `"opencl"`, `"cuda"` or `"interpreter"`.
        dtype: float16 or bfloat16. None means bfloat16 on `cpu` and float16 elsewhere (see `set_autocast_dtype`).
            Another dtype disables the region with a warning, as in PyTorch; so does `cuda` without a GPU.
        enabled: False disables autocast inside.
        cache_enabled: Cast each weight once and keep the result until the outermost region ends. None means True, or
            the outer region's setting.

    Raises:
        ArgumentError: If `device_type` is not a string.
        UnknownDevice: If there is no such device type.

    Example:
        >>> with wg.autocast('cpu'):
        ...     (wg.ones(2, 2, device='cpu') @ wg.ones(2, 2, device='cpu')).dtype
        ...
        weftgrad.bfloat16
    """

    def __init__(
        self, device_type: str, dtype: DType | None = None, enabled: bool = True, cache_enabled: bool | None = None
    ):
        self.device = _check_device_type(device_type)
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self._cache_enabled = is_autocast_cache_enabled() if cache_enabled is None else bool(cache_enabled)
        self._enabled = bool(enabled)
        self._regions: list[engine.Region] = []
        if self._enabled and (reason := self._disabled_reason()):
            warnings.warn(f"autocast({self.device!r}): {reason}; it is disabled", UserWarning, stacklevel=2)
            self._enabled = False

    def _disabled_reason(self) -> str:
        if self.fast_dtype not in (float16, bfloat16):
            return f"dtype is float16 or bfloat16, not {self.fast_dtype!r}"
        if self.device == "cuda":
            return "" if cuda_devices() else "there is no GPU"
        return ""

    def __enter__(self) -> autocast:
        outer = state().autocast
        enabled: dict[str, DType] = {} if outer is None else dict(outer.enabled)
        dtypes: dict[str, DType] = {} if outer is None else dict(outer.dtypes)
        enabled.pop(self.device, None)
        if self._enabled:
            enabled[self.device] = self.fast_dtype
        dtypes[self.device] = self.fast_dtype
        self._regions.append(engine.enter(enabled, dtypes, self._cache_enabled))
        return self

    def __exit__(self, *_: object) -> None:
        engine.leave(self._regions.pop())

    def __call__(self, func: Callable[_P, _Result]) -> Callable[_P, _Result]:
        @functools.wraps(func)
        def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _Result:
            with autocast(self.device, self.fast_dtype, self._enabled, self._cache_enabled):
                return func(*args, **kwargs)

        return wrapper


# Custom autograd functions --------------------------------------------------------------------------------------------


class _AutocastContext(Protocol):
    """The context of a `Function` call: what `custom_fwd` stores for `custom_bwd`."""

    _dtype: DType
    _fwd_used_autocast: bool


def _cast_floating(value: object, device_type: str, dtype: DType) -> object:
    """Return `value` with the floating-point tensors in it cast to `dtype`.

    float64 tensors and tensors on other devices stay as they are.
    """
    if isinstance(value, Tensor):
        layout = value.meta
        is_castable = layout.dtype.kind == "f" and layout.dtype.itemsize < 8 and layout.device.type == device_type
        return value.to(dtype) if is_castable else value
    if isinstance(value, (str, bytes)):
        return value
    if isinstance(value, Mapping):
        return {_cast_floating(k, device_type, dtype): _cast_floating(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cast_floating(v, device_type, dtype) for v in value)
    return value


@overload
def custom_fwd(
    fwd: Callable[_P, _Result], *, device_type: str, cast_inputs: DType | None = None
) -> Callable[_P, _Result]: ...
@overload
def custom_fwd(
    fwd: None = None, *, device_type: str, cast_inputs: DType | None = None
) -> Callable[[Callable[_P, _Result]], Callable[_P, _Result]]: ...
def custom_fwd(
    fwd: Callable[..., object] | None = None, *, device_type: str, cast_inputs: DType | None = None
) -> Callable[..., object]:
    """Decorate the `forward` of an `autograd.Function`, so that its backward runs under the same autocast setting.

    Use it together with `custom_bwd`.

    Args:
        fwd: The method to decorate.
        device_type: Device type whose autocast setting is stored.
        cast_inputs: If autocast is active, cast floating-point tensors to this dtype and run the body without autocast.

    Returns:
        The decorated method, or a decorator if `fwd` is None.

    Example:
        >>> from weftgrad.amp import custom_bwd, custom_fwd
        >>> class Double(wg.autograd.Function):
        ...     @staticmethod
        ...     @custom_fwd(device_type='cpu')
        ...     def forward(ctx, x):
        ...         return x * 2
        ...     @staticmethod
        ...     @custom_bwd(device_type='cpu')
        ...     def backward(ctx, grad):
        ...         return grad * 2
        ...
        >>> Double.apply(wg.tensor(3.0))
        tensor(6.)
    """
    device_type = _check_device_type(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def wrapper(ctx: _AutocastContext, *args: object, **kwargs: object) -> object:
        ctx._dtype = get_autocast_dtype(device_type)
        is_autocast = is_autocast_enabled(device_type)
        ctx._fwd_used_autocast = is_autocast and cast_inputs is None
        if not is_autocast or cast_inputs is None:
            return fwd(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            cast_args = [_cast_floating(value, device_type, cast_inputs) for value in args]
            cast_kwargs = {name: _cast_floating(value, device_type, cast_inputs) for name, value in kwargs.items()}
            return fwd(ctx, *cast_args, **cast_kwargs)

    return wrapper


@overload
def custom_bwd(bwd: Callable[_P, _Result], *, device_type: str) -> Callable[_P, _Result]: ...
@overload
def custom_bwd(bwd: None = None, *, device_type: str) -> Callable[[Callable[_P, _Result]], Callable[_P, _Result]]: ...
def custom_bwd(bwd: Callable[..., object] | None = None, *, device_type: str) -> Callable[..., object]:
    """Decorate the `backward` of an `autograd.Function` whose `forward` has `custom_fwd`.

    Args:
        bwd: The method to decorate.
        device_type: Device type whose autocast setting is restored.

    Returns:
        The decorated method, or a decorator if `bwd` is None.

    Example:
        >>> from weftgrad.amp import custom_bwd
        >>> callable(custom_bwd(device_type='cpu'))
        True
    """
    device_type = _check_device_type(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def wrapper(ctx: _AutocastContext, *args: object, **kwargs: object) -> object:
        with autocast(device_type, ctx._dtype, ctx._fwd_used_autocast):
            return bwd(ctx, *args, **kwargs)

    return wrapper
