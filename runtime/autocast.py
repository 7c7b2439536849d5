"""Autocast at the choke point: what a spec's `autocast:` says of an op is done to the operands of its calls.

    lower     floating operands become the half type that the region asks for
    float32   half operands become float32, unless the call names a dtype of its own
    widest    floating operands become the widest dtype among them
    refuse    the call is an error: half types do not hold what lies between its operands and its result

The casts are calls like any other: they are recorded, so that gradients come back in the dtype of what was cast.
float64 is left alone, as are results that exist already (`out=`, in-place forms). A region belongs to a thread. Where
there is none, nothing of this is reached: `dispatch` tests the slot that it tests for every mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .context import state
from .dispatch import call
from .dtypes import DType, bfloat16, float16, float32, float64, promote
from .errors import DomainError
from .modes import Mode
from .records import OpRecord, registry
from .tensor import Tensor

__all__ = ["Region", "alike", "as_for", "enter", "leave"]

_LOWER = (float16, bfloat16)


class _Cast:
    """A cast that a region keeps: of which tensor, at which version, and what came of it."""

    __slots__ = ("made", "source", "version")

    def __init__(self, source: Tensor, made: Tensor):
        self.source, self.made = source, made
        self.version = source.storage.version

    def serves(self, source: Tensor, grad: bool) -> bool:
        """Whether the cast may be used once more: nothing was written since, and its history is there and whole."""
        node = self.made.node
        if self.source is not source or self.version != source.storage.version:
            return False
        return (node is not None and not node.freed) if grad else True


class Region(Mode):
    """One `with autocast(...)`: which half type each type of device computes in; innermost regions count alone.

    enabled: half types by device type; dtypes: those named so far, whether enabled or not; caching: whether casts of
    leaves that require gradients are kept until the outermost region ends.
    """

    def __init__(self, enabled: Mapping[str, DType], dtypes: Mapping[str, DType], caching: bool, outer: Region | None):
        self.enabled, self.dtypes, self.caching, self.outer = enabled, dtypes, caching, outer
        self.cache: dict[tuple[int, DType], _Cast] = {} if outer is None else outer.cache

    def call(
        self,
        record: OpRecord,
        operands: Sequence[Any],
        statics: tuple[Any, ...],
        outs: Sequence[Tensor] | None,
        in_place: bool,
    ) -> Any:
        """Cast the operands as the record's spec says, and go on."""
        own = state()
        if record.autocast and outs is None and own.autocast is self:
            target = self._target(record, operands, statics)
            if target is not None:
                operands = [self._cast(o, target, own.grad, self.proceed) for o in operands]
        return self.proceed(record, operands, statics, outs, in_place)

    def _target(self, record: OpRecord, operands: Sequence[Any], statics: tuple[Any, ...]) -> DType | None:
        """The dtype for the floating operands; None to leave them."""
        floats = [o.meta for o in operands if isinstance(o, Tensor) and o.meta.dtype.kind == "f"]
        lower = self.enabled.get(floats[0].device.type) if floats else None
        if lower is None:
            return None
        word = record.autocast[floats[0].device.type != "cpu"]
        given = [m.dtype for m in floats]
        if word == "refuse":
            raise DomainError(
                f"{record.name}: not safe under autocast, where its input may be a half type: "
                f"{' '.join(record.spec.get('doc', '').split())} Or leave autocast for it: with autocast(..., "
                "enabled=False), on float32 inputs"
            )
        if word == "float32":
            named = any(n == "dtype" and s is not None for n, s in zip(record.statics, statics, strict=False))
            return None if named or not any(d in _LOWER for d in given) else float32
        if word == "widest":
            target = given[0]
            for dtype in given[1:]:
                target = promote(target, dtype)
            return target if target is not float64 and any(d is not target for d in given) else None
        return lower if word == "lower" else None

    def _cast(self, operand: Any, dtype: DType, grad: bool, copy: Callable[..., Any]) -> Any:
        have = operand.meta.dtype if isinstance(operand, Tensor) else None
        if have is None or have is dtype or have.kind != "f" or have is float64:
            return operand
        arguments = (registry["copy"], (operand,), (dtype,), None, False)
        if not (self.caching and operand.needs and operand.node is None and dtype in _LOWER and have is float32):
            return copy(*arguments)
        found = self.cache.get((id(operand), dtype))
        if found is None or not found.serves(operand, grad):
            found = self.cache[id(operand), dtype] = _Cast(operand, copy(*arguments))
        return found.made


def enter(enabled: Mapping[str, DType], dtypes: Mapping[str, DType], caching: bool) -> Region:
    """Begin a region within the thread's, if any; end it with `leave`. Without any device enabled it is no mode."""
    own = state()
    region = Region(enabled, dtypes, caching, own.autocast)
    if enabled:
        region.__enter__()
    own.autocast = region
    return region


def leave(region: Region) -> None:
    """End a region, and with the outermost one the casts that were kept."""
    if region.enabled:
        region.__exit__()
    if region.outer is None:
        region.cache.clear()
    state().autocast = region.outer


def as_for(record: OpRecord, *operands: Any) -> Sequence[Any]:
    """`operands` as autocast would give them to `record`: for a function that calls other ops as well, or looks at
    dtypes before."""
    region = state().autocast
    if region is None or not record.autocast:
        return operands
    target = region._target(record, operands, ())
    if target is None:
        return operands
    return [region._cast(o, target, state().grad, _from_the_top) for o in operands]


def alike(operand: Any, like: Tensor) -> Any:
    """In a region that lowers: `operand` in the half type of `like`, for what is added to an op's result as a part of
    the same function (a bias). Anything else is returned as it is."""
    region = state().autocast
    if region is None or not isinstance(operand, Tensor) or operand.meta.dtype is like.meta.dtype:
        return operand
    if region.enabled.get(like.meta.device.type) is not like.meta.dtype:
        return operand
    return region._cast(operand, like.meta.dtype, state().grad, _from_the_top)


def _from_the_top(record: OpRecord, operands: Sequence[Any], statics: tuple[Any, ...], *_: Any) -> Any:
    return call(record, operands, statics)
