"""`weftgrad.cuda.amp`: `weftgrad.amp` with the device type "cuda", under the signatures of `torch.cuda.amp`."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, overload

from ..amp import GradScaler as _GradScaler
from ..amp import autocast as _autocast
from ..amp import custom_bwd as _custom_bwd
from ..amp import custom_fwd as _custom_fwd
from ..runtime.dtypes import DType, float16

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]

_P = ParamSpec("_P")
_Result = TypeVar("_Result")


class autocast(_autocast):
    """`amp.autocast("cuda", ...)`.

    Args:
        enabled: False disables autocast inside.
        dtype: float16 or bfloat16.
        cache_enabled: Cast each weight once and keep the result until the outermost region ends.

    Example:
        >>> if wg.cuda.is_available():
        ...     x = wg.ones(2, 2, device='cuda')
        ...     with wg.cuda.amp.autocast():
        ...         y = x @ x
        ...
    """

    def __init__(self, enabled: bool = True, dtype: DType = float16, cache_enabled: bool = True):
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(_GradScaler):
    """`amp.GradScaler("cuda", ...)`.

    Args:
        init_scale: First scale.
        growth_factor: Factor of the scale after `growth_interval` finite steps in a row; above 1.
        backoff_factor: Factor of the scale after a step with non-finite gradients; below 1.
        growth_interval: Finite steps in a row before the scale grows.
        enabled: False disables scaling.

    Example:
        >>> wg.cuda.amp.GradScaler().get_scale()
        65536.0
    """

    def __init__(
        self, init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ):  # fmt: skip
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


@overload
def custom_fwd(fwd: Callable[_P, _Result], *, cast_inputs: DType | None = None) -> Callable[_P, _Result]: ...
@overload
def custom_fwd(
    fwd: None = None, *, cast_inputs: DType | None = None
) -> Callable[[Callable[_P, _Result]], Callable[_P, _Result]]: ...
def custom_fwd(fwd: Callable[..., object] | None = None, *, cast_inputs: DType | None = None) -> Callable[..., object]:
    """`amp.custom_fwd` with `device_type="cuda"`.

    Args:
        fwd: The method to decorate.
        cast_inputs: If autocast is active, cast floating-point tensors to this dtype and run the body without autocast.

    Returns:
        The decorated method, or a decorator if `fwd` is None.

    Example:
        >>> callable(wg.cuda.amp.custom_fwd(cast_inputs=wg.float32))
        True
    """
    if fwd is None:
        return _custom_fwd(device_type="cuda", cast_inputs=cast_inputs)
    return _custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[_P, _Result]) -> Callable[_P, _Result]:
    """`amp.custom_bwd` with `device_type="cuda"`.

    Args:
        bwd: The method to decorate.

    Returns:
        The decorated method.

    Example:
        >>> callable(wg.cuda.amp.custom_bwd(lambda ctx, grad: grad))
        True
    """
    return _custom_bwd(bwd, device_type="cuda")
