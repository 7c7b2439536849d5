"""`GradScaler`: loss scaling, which keeps half-precision gradients from underflowing and skips steps that overflow.

The method is section 3.2 of Micikevicius et al. 2018, "Mixed Precision Training" (arXiv 1710.03740). As in PyTorch, the
scale is halved after a step with an infinite or NaN gradient, and doubled after a number of steps without one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

from ..runtime import dtypes
from ..runtime.errors import ScalerError
from ..runtime.tensor import Tensor

if TYPE_CHECKING:
    from ..optim.optimizer import Optimizer
    from ._unscaling import Unscaling

__all__ = ["GradScaler"]

_Outputs = TypeVar("_Outputs")
_StepResult: TypeAlias = Any
"""The result of an optimizer's `step`: None, or what the user's closure returns."""


@dataclass
class _OptimizerState:
    """The progress of one optimizer since the last `update`.

    Attributes:
        stage: What was called: nothing, `unscale_`, or `step`.
        non_finite: One tensor of one element per device, not 0 if a gradient there is not finite.
        skipped: Whether `step` skipped the update; None before `step`.
    """

    stage: Literal["ready", "unscaled", "stepped"] = "ready"
    non_finite: list[Tensor] = field(default_factory=list)
    skipped: bool | None = None


def _round_to_float32(value: float) -> float:
    """Return `value` rounded to float32, the dtype in which PyTorch stores the scale."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _any_non_finite(flags: Iterable[Tensor]) -> bool:
    """Return whether any one-element flag tensor is not 0. Waits for their devices."""
    return any(flag.item() for flag in flags)


class GradScaler:
    """Scale losses, unscale gradients, and step optimizers whose gradients are finite.

        scaler.scale(loss).backward()
        scaler.step(optimizer)          # unscales; skips the step if a gradient is not finite
        scaler.update()                 # adapts the scale

    The scale is stored on the host. Gradients are checked on their device; `step` waits for that, once per optimizer.

    Args:
        device: Accepted for compatibility; gradients may be on any device.
        init_scale: First scale.
        growth_factor: Factor of the scale after `growth_interval` finite steps in a row; above 1.
        backoff_factor: Factor of the scale after a step with non-finite gradients; below 1.
        growth_interval: Finite steps in a row before the scale grows.
        enabled: False makes `scale` return its argument and `step` call the optimizer's; the other methods do nothing.

    Raises:
        ScalerError: If `growth_factor` is not above 1, or `backoff_factor` not below 1.

    Example:
        >>> weight = wg.tensor([1.0], requires_grad=True)
        >>> optimizer = wg.optim.SGD([weight], lr=0.5)
        >>> scaler = wg.amp.GradScaler('cpu')
        >>> scaler.scale(weight.sum()).backward()
        >>> scaler.step(optimizer)
        >>> scaler.update()
        >>> weight
        tensor([0.5000], requires_grad=True)
    """

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0,
        backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True,
    ):  # fmt: skip
        self._device = device
        self._enabled = bool(enabled)
        self._scale: float | None = None
        self._states: dict[int, _OptimizerState] = {}
        self._calls: dict[int, Unscaling] = {}
        if self._enabled:
            if not growth_factor > 1.0:
                raise ScalerError(f"GradScaler: growth_factor must be above 1, not {growth_factor}")
            if not backoff_factor < 1.0:
                raise ScalerError(f"GradScaler: backoff_factor must be below 1, not {backoff_factor}")
            self._init_scale = float(init_scale)
            self._growth_factor, self._backoff_factor = float(growth_factor), float(backoff_factor)
            self._growth_interval = int(growth_interval)
            self._growth_tracker = 0

    @overload
    def scale(self, outputs: Tensor) -> Tensor: ...
    @overload
    def scale(self, outputs: list[_Outputs]) -> list[_Outputs]: ...
    @overload
    def scale(self, outputs: tuple[_Outputs, ...]) -> tuple[_Outputs, ...]: ...
    @overload
    def scale(self, outputs: Iterable[_Outputs]) -> Iterable[_Outputs]: ...
    def scale(self, outputs: object) -> object:
        """Multiply `outputs` by the scale.

        Args:
            outputs: A tensor, or nested lists, tuples and iterables of tensors. 0-d half-precision tensors become
                float32.

        Returns:
            The scaled tensor, or containers of scaled tensors; a generator for an iterable that is no list or tuple.

        Raises:
            ScalerError: If `outputs` contains neither tensors nor iterables.

        Example:
            >>> wg.amp.GradScaler('cpu', init_scale=4.0).scale(wg.tensor([1.5]))
            tensor([6.])
        """
        if not self._enabled:
            return outputs
        if self._scale is None:
            self._scale = _round_to_float32(self._init_scale)
        return self._multiply(outputs, self._scale)

    def _multiply(self, value: object, factor: float) -> object:
        if isinstance(value, Tensor):
            is_half_scalar = value.meta.dtype in (dtypes.float16, dtypes.bfloat16) and not value.meta.ndim
            return (value.to(dtypes.float32) if is_half_scalar else value) * factor
        if isinstance(value, (list, tuple)):
            return type(value)(self._multiply(v, factor) for v in value)
        if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
            return (self._multiply(v, factor) for v in value)
        raise ScalerError(f"GradScaler.scale: takes a tensor or an iterable of them, not {type(value).__name__}")

    def _require_scale(self, method: str) -> float:
        if self._scale is None:
            raise ScalerError(f"GradScaler.{method}: nothing was scaled; call scale(loss) and backward before")
        return self._scale

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, in place, for example before clipping.

        Args:
            optimizer: Optimizer whose parameters have gradients.

        Raises:
            ScalerError: If called twice since `update`, after `step`, or with float16 gradients.

        Example:
            >>> weight = wg.tensor([1.0], requires_grad=True)
            >>> optimizer = wg.optim.SGD([weight])
            >>> scaler = wg.amp.GradScaler('cpu')
            >>> scaler.scale(weight.sum() * 3).backward()
            >>> scaler.unscale_(optimizer)
            >>> weight.grad
            tensor([3.])
        """
        if not self._enabled:
            return
        factor = self._require_scale("unscale_")
        state = self._states.setdefault(id(optimizer), _OptimizerState())
        if state.stage == "unscaled":
            raise ScalerError("GradScaler.unscale_: called already for this optimizer since the last update()")
        if state.stage == "stepped":
            raise ScalerError("GradScaler.unscale_: called after step(); call it before, or update() first")
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if any(g.meta.dtype is dtypes.float16 for g in grads):
            raise ScalerError(
                "GradScaler.unscale_: cannot unscale float16 gradients, they may be rounded to 0; keep the parameters "
                "in float32 and compute under autocast"
            )
        from ._unscaling import Unscaling  # lazy: start-up; it imports what only optimizers need

        unscale = self._calls.setdefault(id(optimizer), Unscaling())
        state.non_finite = unscale(grads, _round_to_float32(1.0 / factor))
        state.stage = "unscaled"

    def step(self, optimizer: Optimizer, *args: object, **kwargs: object) -> _StepResult:
        """Unscale the gradients if `unscale_` did not, and call `optimizer.step(*args, **kwargs)` if all are finite.

        Waits for the device.

        Args:
            optimizer: Optimizer whose parameters have gradients.
            *args: Positional arguments of `optimizer.step`.
            **kwargs: Keyword arguments of `optimizer.step`, except `closure`.

        Returns:
            The result of `optimizer.step`, or None if the step was skipped.

        Raises:
            ScalerError: If called twice since `update`, with a closure, or for an optimizer without any gradient.

        Example:
            >>> weight = wg.tensor([1.0], requires_grad=True)
            >>> optimizer = wg.optim.SGD([weight], lr=0.5)
            >>> scaler = wg.amp.GradScaler('cpu')
            >>> scaler.scale(weight.sum() * float('inf')).backward()
            >>> scaler.step(optimizer)
            >>> weight
            tensor([1.], requires_grad=True)
        """
        step: Callable[..., _StepResult] = optimizer.step
        if not self._enabled:
            return step(*args, **kwargs)
        if "closure" in kwargs:
            raise ScalerError("GradScaler.step: takes no closure")
        self._require_scale("step")
        state = self._states.setdefault(id(optimizer), _OptimizerState())
        if state.stage == "stepped":
            raise ScalerError("GradScaler.step: called already for this optimizer since the last update()")
        if state.stage == "ready":
            self.unscale_(optimizer)
        if not state.non_finite:
            raise ScalerError("GradScaler.step: no parameter of the optimizer has a gradient; call backward before")
        state.skipped = _any_non_finite(state.non_finite)
        state.stage = "stepped"
        return None if state.skipped else step(*args, **kwargs)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Set the scale for the next iteration.

        Args:
            new_scale: The new scale. None shrinks it after a step with non-finite gradients, and grows it
                after enough finite steps.

        Raises:
            ScalerError: If no gradients were checked since the last update.

        Example:
            >>> weight = wg.tensor([1.0], requires_grad=True)
            >>> optimizer = wg.optim.SGD([weight])
            >>> scaler = wg.amp.GradScaler('cpu', init_scale=8.0)
            >>> scaler.scale(weight.sum() * float('inf')).backward()
            >>> scaler.step(optimizer)
            >>> scaler.update()
            >>> scaler.get_scale()
            4.0
        """
        if not self._enabled:
            return
        factor = self._require_scale("update")
        if new_scale is not None:
            self._scale = _round_to_float32(new_scale.item() if isinstance(new_scale, Tensor) else float(new_scale))
            self._states.clear()
            return
        checked = [s for s in self._states.values() if s.non_finite]
        if not checked:
            raise ScalerError("GradScaler.update: no gradients were looked at; call step(optimizer) before")
        if any(_any_non_finite(s.non_finite) if s.skipped is None else s.skipped for s in checked):
            self._scale, self._growth_tracker = _round_to_float32(factor * self._backoff_factor), 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                grown = _round_to_float32(factor * self._growth_factor)
                self._scale, self._growth_tracker = grown if math.isfinite(grown) else factor, 0
        self._states.clear()

    def get_scale(self) -> float:
        """Return the scale; 1 if disabled.

        Returns:
            Python float.

        Example:
            >>> wg.amp.GradScaler('cpu').get_scale()
            65536.0
        """
        if not self._enabled:
            return 1.0
        return _round_to_float32(self._init_scale) if self._scale is None else self._scale

    def get_growth_factor(self) -> float:
        """Return the factor by which the scale grows.

        Returns:
            Python float.

        Example:
            >>> wg.amp.GradScaler('cpu').get_growth_factor()
            2.0
        """
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the factor by which the scale grows.

        Args:
            new_factor: Number above 1.

        Example:
            >>> scaler = wg.amp.GradScaler('cpu')
            >>> scaler.set_growth_factor(4.0)
            >>> scaler.get_growth_factor()
            4.0
        """
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """Return the factor of the scale after a step with non-finite gradients.

        Returns:
            Python float.

        Example:
            >>> wg.amp.GradScaler('cpu').get_backoff_factor()
            0.5
        """
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the factor of the scale after a step with non-finite gradients.

        Args:
            new_factor: Number below 1.

        Example:
            >>> scaler = wg.amp.GradScaler('cpu')
            >>> scaler.set_backoff_factor(0.25)
            >>> scaler.get_backoff_factor()
            0.25
        """
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """Return the number of finite steps in a row before the scale grows.

        Returns:
            Python int.

        Example:
            >>> wg.amp.GradScaler('cpu').get_growth_interval()
            2000
        """
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set the number of finite steps in a row before the scale grows.

        Args:
            new_interval: Number of steps.

        Example:
            >>> scaler = wg.amp.GradScaler('cpu')
            >>> scaler.set_growth_interval(100)
            >>> scaler.get_growth_interval()
            100
        """
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        """Return whether scaling is enabled.

        Returns:
            Python bool.

        Example:
            >>> wg.amp.GradScaler('cpu', enabled=False).is_enabled()
            False
        """
        return self._enabled

    def state_dict(self) -> dict[str, float]:
        """Return the scale and its options under PyTorch's names; empty if disabled. Call it after `update`.

        Returns:
            Dict of numbers.

        Example:
            >>> wg.amp.GradScaler('cpu').state_dict()['scale']
            65536.0
        """
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval, "_growth_tracker": self._growth_tracker,
        }  # fmt: skip

    def load_state_dict(self, state_dict: Mapping[str, float]) -> None:
        """Restore what `state_dict` returned.

        Args:
            state_dict: Result of `state_dict`.

        Raises:
            ScalerError: If `state_dict` is empty, that is, comes from a disabled scaler.

        Example:
            >>> scaler = wg.amp.GradScaler('cpu')
            >>> scaler.load_state_dict(wg.amp.GradScaler('cpu', init_scale=8.0).state_dict())
            >>> scaler.get_scale()
            8.0
        """
        if not self._enabled:
            return
        if not state_dict:
            raise ScalerError("GradScaler.load_state_dict: the state is empty; was it saved by a disabled scaler?")
        self._init_scale = float(state_dict["scale"])
        if self._scale is not None:
            self._scale = _round_to_float32(self._init_scale)
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = int(state_dict["growth_interval"])
        self._growth_tracker = int(state_dict["_growth_tracker"])

    def __getstate__(self) -> dict[str, object]:
        if self._states:
            raise ScalerError("GradScaler: can be pickled at the beginning of an iteration, or after update(), only")
        return {**self.__dict__, "_calls": {}}
