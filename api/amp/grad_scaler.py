"""`GradScaler`: losses times a factor, so that gradients in half types do not vanish, and steps left out that overflow.

The method is that of Micikevicius et al., "Mixed Precision Training" (2018), section 3.2, with the factor adapted as in
PyTorch: halved after a step whose gradients had an infinity or NaN, doubled after a number of steps without.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Any

from ..runtime import dtypes
from ..runtime.errors import ScalerError
from ..runtime.tensor import Tensor

__all__ = ["GradScaler"]


def _rounded(value: float) -> float:
    """`value` as float32 has it, which is what PyTorch keeps the factor in."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _any(found: Iterable[Any]) -> bool:
    """Whether any of these tensors of one element is not 0: waits for their devices."""
    return any(each.item() for each in found)


class GradScaler:
    """Scales losses, unscales gradients, and steps optimizers whose gradients are finite.

        scaler.scale(loss).backward()
        scaler.step(optimizer)          # unscales; does nothing where a gradient is not finite
        scaler.update()                 # the next factor

    device: accepted for PyTorch's sake; gradients may be on any. init_scale: the first factor. growth_factor,
    backoff_factor: what it is multiplied by after `growth_interval` good steps in a row, and after a bad one.
    enabled: if false, `scale` gives back what it is given, `step` is the optimizer's and the rest does nothing.

    The factor is kept on the host. Whether gradients are finite is computed on their device; `step` waits for it, once
    an optimizer.
    """

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0,
        backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True,
    ):  # fmt: skip
        self._device = device
        self._enabled = bool(enabled)
        self._scale: float | None = None
        self._states: dict[int, dict[str, Any]] = {}
        self._calls: dict[int, Any] = {}
        if self._enabled:
            if not growth_factor > 1.0:
                raise ScalerError(f"GradScaler: growth_factor must be above 1, not {growth_factor}")
            if not backoff_factor < 1.0:
                raise ScalerError(f"GradScaler: backoff_factor must be below 1, not {backoff_factor}")
            self._init_scale = float(init_scale)
            self._growth_factor, self._backoff_factor = float(growth_factor), float(backoff_factor)
            self._growth_interval = int(growth_interval)
            self._growth_tracker = 0

    def scale(self, outputs: Any) -> Any:
        """`outputs`, a tensor or tensors in (nested) lists and tuples, times the factor; 0-d half types in float32."""
        if not self._enabled:
            return outputs
        if self._scale is None:
            self._scale = _rounded(self._init_scale)
        return self._times(outputs, self._scale)

    def _times(self, value: Any, factor: float) -> Any:
        if isinstance(value, Tensor):
            small = value.meta.dtype in (dtypes.float16, dtypes.bfloat16) and not value.meta.ndim
            return (value.to(dtypes.float32) if small else value) * factor  # type: ignore[attr-defined,operator]
        if isinstance(value, (list, tuple)):
            return type(value)(self._times(v, factor) for v in value)
        if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
            return (self._times(v, factor) for v in value)
        raise ScalerError(f"GradScaler.scale: takes a tensor or an iterable of them, not {type(value).__name__}")

    def _ready(self, where: str) -> float:
        if self._scale is None:
            raise ScalerError(f"GradScaler.{where}: nothing was scaled; call scale(loss) and backward before")
        return self._scale

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of `optimizer`'s parameters by the factor, in place: before clipping them.

        Raises `ScalerError` the second time since `update`, after `step`, and for gradients of float16.
        """
        if not self._enabled:
            return
        factor = self._ready("unscale_")
        state = self._states.setdefault(id(optimizer), {"stage": "ready"})
        if state["stage"] == "unscaled":
            raise ScalerError("GradScaler.unscale_: called already for this optimizer since the last update()")
        if state["stage"] == "stepped":
            raise ScalerError("GradScaler.unscale_: called after step(); call it before, or update() first")
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if any(g.meta.dtype is dtypes.float16 for g in grads):
            raise ScalerError(
                "GradScaler.unscale_: cannot unscale float16 gradients, they may be rounded to 0; keep the parameters "
                "in float32 and compute under autocast"
            )
        from ._unscaling import Unscaling  # which imports what only optimizers need

        call = self._calls.setdefault(id(optimizer), Unscaling())
        state["found"] = call(grads, _rounded(1.0 / factor))
        state["stage"] = "unscaled"

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscale the gradients unless `unscale_` did, and call `optimizer.step(...)` if all are finite.

        Returns what that returns, or None. Waits for the device. Raises `ScalerError` the second time since `update`,
        for a closure, and for an optimizer without any gradient.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise ScalerError("GradScaler.step: takes no closure")
        self._ready("step")
        state = self._states.setdefault(id(optimizer), {"stage": "ready"})
        if state["stage"] == "stepped":
            raise ScalerError("GradScaler.step: called already for this optimizer since the last update()")
        if state["stage"] == "ready":
            self.unscale_(optimizer)
        if not state["found"]:
            raise ScalerError("GradScaler.step: no parameter of the optimizer has a gradient; call backward before")
        state["bad"] = _any(state["found"])
        state["stage"] = "stepped"
        return None if state["bad"] else optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Choose the next factor, by what steps since the last update found, or take `new_scale`.

        Raises `ScalerError` where no gradient was looked at.
        """
        if not self._enabled:
            return
        factor = self._ready("update")
        if new_scale is not None:
            self._scale = _rounded(new_scale.item() if isinstance(new_scale, Tensor) else float(new_scale))  # type: ignore[attr-defined]
            self._states.clear()
            return
        known = [s for s in self._states.values() if s.get("found")]
        if not known:
            raise ScalerError("GradScaler.update: no gradients were looked at; call step(optimizer) before")
        if any(s["bad"] if "bad" in s else _any(s["found"]) for s in known):
            self._scale, self._growth_tracker = _rounded(factor * self._backoff_factor), 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                grown = _rounded(factor * self._growth_factor)
                self._scale, self._growth_tracker = grown if math.isfinite(grown) else factor, 0
        self._states.clear()

    def get_scale(self) -> float:
        """The factor; 1 if disabled."""
        if not self._enabled:
            return 1.0
        return _rounded(self._init_scale) if self._scale is None else self._scale

    def get_growth_factor(self) -> float:
        """What the factor grows by."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Change what the factor grows by."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the factor is multiplied by after a bad step."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Change what the factor is multiplied by after a bad step."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many good steps in a row the factor grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Change after how many good steps in a row the factor grows."""
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """The factor and how it changes, under PyTorch's names; empty if disabled. Take it after `update`."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval, "_growth_tracker": self._growth_tracker,
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken. Raises `ScalerError` for that of a disabled scaler."""
        if not self._enabled:
            return
        if not state_dict:
            raise ScalerError("GradScaler.load_state_dict: the state is empty; was it taken of a disabled scaler?")
        self._init_scale = float(state_dict["scale"])
        if self._scale is not None:
            self._scale = _rounded(self._init_scale)
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval, self._growth_tracker = state_dict["growth_interval"], state_dict["_growth_tracker"]

    def __getstate__(self) -> dict[str, Any]:
        if self._states:
            raise ScalerError("GradScaler: can be pickled at the beginning of an iteration, or after update(), only")
        return {**self.__dict__, "_calls": {}}
