"""Automatic mixed precision: a mode that casts the operands of each call by the policy `autocast:` of the op's spec.

    lower     cast floating operands to the region's half type
    float32   cast half operands to float32, unless the call has a dtype argument
    widest    cast floating operands to the widest dtype among them
    refuse    raise an error: intermediate values of the op may overflow half types

The casts are ordinary calls and are recorded, so gradients come back in the dtypes of the original operands. float64 is
never cast, and calls that write to existing tensors (`out=`, in-place ops) are not changed. A region belongs to a
thread. Without a region none of this code runs: `dispatch` only tests whether any mode is active.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from .context import state
from .dispatch import call
from .dtypes import DType, bfloat16, float16, float32, float64, promote
from .errors import DomainError
from .modes import Mode
from .records import OpRecord, registry
from .tensor import Tensor

if TYPE_CHECKING:
    from .call_types import CallResult, Statics

__all__ = ["Region", "autocast_operands", "enter", "leave", "match_autocast_dtype"]

_LOWER = (float16, bfloat16)

_Operand = TypeVar("_Operand")
_Operands = TypeVarTuple("_Operands")


class _Cast:
    """A cached cast: the source tensor, its version, and the result."""

    __slots__ = ("result", "source", "version")

    def __init__(self, source: Tensor, result: Tensor):
        self.source, self.result = source, result
        self.version = source.storage.version

    def is_valid_for(self, source: Tensor, grad: bool) -> bool:
        """Return True if the cast can be reused for `source`.

        The source must not have been written since. If gradients are recorded (`grad`), the cast must have a history
        that was not freed.
        """
        node = self.result.node
        if self.source is not source or self.version != source.storage.version:
            return False
        return (node is not None and not node.freed) if grad else True


class Region(Mode):
    """One `with autocast(...)`. Only the innermost region counts.

    Attributes:
        enabled: The half type of each type of device for which autocast is enabled.
        dtypes: The half types set so far, by type of device, whether enabled or not.
        caching: Cache casts of leaves that require gradients until the outermost region ends.
        outer: The enclosing region.
    """

    def __init__(self, enabled: Mapping[str, DType], dtypes: Mapping[str, DType], caching: bool, outer: Region | None):
        self.enabled, self.dtypes, self.caching, self.outer = enabled, dtypes, caching, outer
        self.cache: dict[tuple[int, DType], _Cast] = {} if outer is None else outer.cache

    def call(
        self,
        record: OpRecord,
        operands: Sequence[object],
        statics: Statics,
        outs: Sequence[Tensor] | None,
        in_place: bool,
    ) -> CallResult:
        """Cast the operands by the record's policy, and run the call."""
        thread_state = state()
        if record.autocast and outs is None and thread_state.autocast is self:
            target = self._target(record, operands, statics)
            if target is not None:
                copy: Callable[..., Tensor] = self.proceed  # type: ignore[assignment]  # the op `copy` has one result
                operands = [self._cast(o, target, thread_state.grad, copy) for o in operands]
        return self.proceed(record, operands, statics, outs, in_place)

    def _target(self, record: OpRecord, operands: Sequence[object], statics: Statics) -> DType | None:
        """Return the dtype for the floating operands, or None to leave them unchanged."""
        floats = [o.meta for o in operands if isinstance(o, Tensor) and o.meta.dtype.kind == "f"]
        lower = self.enabled.get(floats[0].device.type) if floats else None
        if lower is None:
            return None
        policy = record.autocast[floats[0].device.type != "cpu"]
        dtypes = [m.dtype for m in floats]
        if policy == "refuse":
            raise DomainError(
                f"{record.name}: not safe under autocast, where its input may be a half type: "
                f"{' '.join(str(record.spec.get('doc', '')).split())} Or leave autocast for it: with autocast(..., "
                "enabled=False), on float32 inputs"
            )
        if policy == "float32":
            names_dtype = any(n == "dtype" and s is not None for n, s in zip(record.statics, statics, strict=False))
            return None if names_dtype or not any(d in _LOWER for d in dtypes) else float32
        if policy == "widest":
            target = dtypes[0]
            for dtype in dtypes[1:]:
                target = promote(target, dtype)
            return target if target is not float64 and any(d is not target for d in dtypes) else None
        return lower if policy == "lower" else None

    def _cast(self, operand: _Operand, dtype: DType, grad: bool, copy: Callable[..., Tensor]) -> _Operand | Tensor:
        if not isinstance(operand, Tensor):
            return operand
        operand_dtype = operand.meta.dtype
        if operand_dtype is dtype or operand_dtype.kind != "f" or operand_dtype is float64:
            return operand
        copy_args = (registry["copy"], (operand,), (dtype,), None, False)
        if not (
            self.caching
            and operand.needs_grad
            and operand.node is None
            and dtype in _LOWER
            and operand_dtype is float32
        ):
            return copy(*copy_args)
        cast = self.cache.get((id(operand), dtype))
        if cast is None or not cast.is_valid_for(operand, grad):
            cast = self.cache[id(operand), dtype] = _Cast(operand, copy(*copy_args))
        return cast.result


def enter(enabled: Mapping[str, DType], dtypes: Mapping[str, DType], caching: bool) -> Region:
    """Begin a region inside the thread's current one; end it with `leave`.

    Without an enabled device, the region is not pushed as a mode.
    """
    thread_state = state()
    region = Region(enabled, dtypes, caching, thread_state.autocast)
    if enabled:
        region.__enter__()
    thread_state.autocast = region
    return region


def leave(region: Region) -> None:
    """End a region. The outermost one clears the cached casts."""
    if region.enabled:
        region.__exit__()
    if region.outer is None:
        region.cache.clear()
    state().autocast = region.outer


def autocast_operands(record: OpRecord, *operands: *_Operands) -> tuple[*_Operands]:
    """Return `operands` as autocast would cast them for `record`.

    For functions that read dtypes or call other ops before they call `record`.
    """
    region = state().autocast
    if region is None or not record.autocast:
        return operands
    target = region._target(record, operands, ())
    if target is None:
        return operands
    casts = [region._cast(o, target, state().grad, _call_through_modes) for o in operands]
    return tuple(casts)  # type: ignore[return-value]  # tensors for tensors, and all others unchanged


def match_autocast_dtype(operand: _Operand, like: Tensor) -> _Operand | Tensor:
    """Cast `operand` to the dtype of `like` if that is the region's half type; else return it unchanged.

    For operands such as a bias that are added to the result of an op in the same function.
    """
    region = state().autocast
    if region is None or not isinstance(operand, Tensor) or operand.meta.dtype is like.meta.dtype:
        return operand
    if region.enabled.get(like.meta.device.type) is not like.meta.dtype:
        return operand
    return region._cast(operand, like.meta.dtype, state().grad, _call_through_modes)


def _call_through_modes(record: OpRecord, operands: Sequence[object], statics: Statics, *_: object) -> Tensor:
    return call(record, operands, statics)
