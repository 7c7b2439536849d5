"""`weftgrad.cpu.amp`: `weftgrad.amp` for the device `cpu`."""

from __future__ import annotations

from ..amp import GradScaler as _GradScaler
from ..amp import autocast as _autocast
from ..runtime.dtypes import DType, bfloat16

__all__ = ["GradScaler", "autocast"]


class autocast(_autocast):
    """`amp.autocast("cpu", ...)`."""

    def __init__(self, enabled: bool = True, dtype: DType = bfloat16, cache_enabled: bool = True):
        super().__init__("cpu", dtype, enabled, cache_enabled)


class GradScaler(_GradScaler):
    """`amp.GradScaler("cpu", ...)`."""

    def __init__(
        self, init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ):  # fmt: skip
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
