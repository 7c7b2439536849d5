"""`autocast`: regions in which ops choose the precision that their specs name, and what asks about them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from ..runtime import autocast as engine
from ..runtime.context import state
from ..runtime.dtypes import DType, bfloat16, float16
from ..runtime.errors import ArgumentError, UnknownDevice
from ..runtime.tensor import Tensor

__all__ = [
    "autocast", "clear_autocast_cache", "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype",
    "is_autocast_cache_enabled", "is_autocast_cpu_enabled", "is_autocast_enabled", "set_autocast_dtype",
]  # fmt: skip

_TYPES = ("cpu", "opencl", "cuda", "interpreter")
_defaults = {"cpu": bfloat16, "opencl": float16, "cuda": float16, "interpreter": float16}


def _device_type(given: Any) -> str:
    if not isinstance(given, str):
        raise ArgumentError(f"autocast: device_type is a string such as 'cpu', not {type(given).__name__}")
    if given not in _TYPES:
        hint = " (without an index)" if given.partition(":")[0] in _TYPES else ""
        raise UnknownDevice(f"autocast: device_type is one of {', '.join(_TYPES)}{hint}, not {given!r}")
    return given


def is_autocast_available(device_type: str) -> bool:
    """Whether there is autocast for devices of this type: for all that weftgrad has."""
    return device_type in _TYPES


def get_autocast_dtype(device_type: str) -> DType:
    """The half type that `autocast(device_type)` computes in here, where it names none itself."""
    device_type = _device_type(device_type)
    region = state().autocast
    found = None if region is None else region.dtypes.get(device_type)
    return found or _defaults[device_type]


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Choose the half type for regions that name none. PyTorch keeps this by thread; here it is the process's."""
    if dtype not in (float16, bfloat16):
        raise ArgumentError(f"set_autocast_dtype: float16 or bfloat16, not {dtype!r}")
    _defaults[_device_type(device_type)] = dtype


def get_autocast_cpu_dtype() -> DType:
    """`get_autocast_dtype("cpu")`."""
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> DType:
    """`get_autocast_dtype("cuda")`."""
    return get_autocast_dtype("cuda")


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether calls of this thread on devices of a type (None: `cuda`, as PyTorch has it) are autocast."""
    region = state().autocast
    return region is not None and _device_type("cuda" if device_type is None else device_type) in region.enabled


def is_autocast_cpu_enabled() -> bool:
    """`is_autocast_enabled("cpu")`."""
    return is_autocast_enabled("cpu")


def is_autocast_cache_enabled() -> bool:
    """Whether the region keeps the casts of weights."""
    region = state().autocast
    return region is None or region.caching


def clear_autocast_cache() -> None:
    """Forget the casts of weights that this thread's regions keep."""
    region = state().autocast
    if region is not None:
        region.cache.clear()


class autocast:
    """A region in which ops on devices of `device_type` choose their precision; a context manager or a decorator.

        with autocast("cpu", dtype=wg.bfloat16):
            loss = F.cross_entropy(net(x), y)
        loss.backward()

    Products (linear layers, convolutions, attention) take their operands in `dtype`, float16 or bfloat16 (default:
    bfloat16 on `cpu`, float16 elsewhere); what needs range or precision takes float32; the rest takes what it gets.
    Each op's spec says which (`autocast:`). Weights stay float32, and so do their gradients: casts are differentiated.
    The cast of a weight is made once and kept until the outermost region ends, unless `cache_enabled=False`.

    Regions nest, `enabled=False` making an exception inside another one, and belong to a thread. Forms in place and
    `out=` are not cast. Run backward outside of the region.

    Raises `ArgumentError`, `UnknownDevice` for a `device_type` that is none. Another dtype than the two, or `cuda`
    without a GPU, is warned of and disables the region, as in PyTorch.
    """

    def __init__(
        self, device_type: str, dtype: DType | None = None, enabled: bool = True, cache_enabled: bool | None = None
    ):
        self.device = _device_type(device_type)
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self._cache_enabled = is_autocast_cache_enabled() if cache_enabled is None else bool(cache_enabled)
        self._enabled = bool(enabled)
        self._regions: list[Any] = []
        if self._enabled and (reason := self._hindrance()):
            warnings.warn(f"autocast({self.device!r}): {reason}; it is disabled", UserWarning, stacklevel=2)
            self._enabled = False

    def _hindrance(self) -> str:
        if self.fast_dtype not in (float16, bfloat16):
            return f"dtype is float16 or bfloat16, not {self.fast_dtype!r}"
        if self.device == "cuda":
            from ..runtime.backends import cuda_devices

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

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with autocast(self.device, self.fast_dtype, self._enabled, self._cache_enabled):
                return func(*args, **kwargs)

        return wrapped


# Functions with a backward of their own -------------------------------------------------------------------------------


def _cast(value: Any, device_type: str, dtype: DType) -> Any:
    """`value` with the floating tensors in it, float64 excepted, in `dtype`."""
    if isinstance(value, Tensor):
        layout = value.meta
        eligible = layout.dtype.kind == "f" and layout.dtype.itemsize < 8 and layout.device.type == device_type
        return value.to(dtype) if eligible else value  # type: ignore[attr-defined]
    if isinstance(value, (str, bytes)):
        return value
    if isinstance(value, Mapping):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(v, device_type, dtype) for v in value)
    return value


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: DType | None = None
) -> Callable[..., Any]:
    """Decorates the `forward` of an `autograd.Function`, so that its backward runs under the same autocast.

    With `cast_inputs`, floating tensors come in that dtype and the body runs without autocast, where autocast is on;
    elsewhere it has no effect. Use with `custom_bwd`.
    """
    device_type = _device_type(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def wrapped(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        ctx._dtype = get_autocast_dtype(device_type)
        inside = is_autocast_enabled(device_type)
        ctx._fwd_used_autocast = inside and cast_inputs is None
        if not inside or cast_inputs is None:
            return fwd(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(ctx, *_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return wrapped


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorates the `backward` of an `autograd.Function` whose `forward` has `custom_fwd`."""
    device_type = _device_type(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def wrapped(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, ctx._dtype, ctx._fwd_used_autocast):
            return bwd(ctx, *args, **kwargs)

    return wrapped
