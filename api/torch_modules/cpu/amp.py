"""`weftgrad.cpu.amp`: `weftgrad.amp` for the device `cpu`."""

from __future__ import annotations

from ..amp import GradScaler as _GradScaler
from ..amp import autocast as _autocast
from ..runtime.dtypes import DType, bfloat16

__all__ = ["GradScaler", "autocast"]


class autocast(_autocast):
    """`amp.autocast("cpu", ...)`.

    Args:
        enabled: False disables autocast inside.
        dtype: float16 or bfloat16.
        cache_enabled: Cast each weight once and keep the result until the outermost region ends.

    Example:
        >>> with wg.cpu.amp.autocast():
        ...     (wg.ones(2, 2, device='cpu') @ wg.ones(2, 2, device='cpu')).dtype
        ...
        weftgrad.bfloat16
    """

    def __init__(self, enabled: bool = True, dtype: DType = bfloat16, cache_enabled: bool = True):
        super().__init__("cpu", dtype, enabled, cache_enabled)


class GradScaler(_GradScaler):
    """`amp.GradScaler("cpu", ...)`.

    Args:
        init_scale: First scale.
        growth_factor: Factor of the scale after `growth_interval` finite steps in a row; above 1.
        backoff_factor: Factor of the scale after a step with non-finite gradients; below 1.
        growth_interval: Finite steps in a row before the scale grows.
        enabled: False disables scaling.

    Example:
        >>> wg.cpu.amp.GradScaler().get_scale()
        65536.0
    """

    def __init__(
        self, init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ):  # fmt: skip
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
