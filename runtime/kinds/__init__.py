"""Planners, one module a kind: from layouts to results' layouts and the steps that compute them.

A planner is a pure function of a `Request`. It runs once per combination of layouts and thread; the plan it gives is
then found by one look-up (`runtime.dispatch`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from ..backends.protocol import Capabilities, Slot, Step
from ..device import Device, Meta
from ..dtypes import DType
from ..records import Operand, OpRecord

__all__ = ["Planned", "Request", "planner"]


@dataclass(frozen=True, slots=True)
class Request:
    """One call, without its data.

    operands: a `Meta` for a tensor, a Python type for a number, None for an absent optional, in the record's order.
    into: layouts of results that exist already (`out=`, in place), or None.

    """

    record: OpRecord
    operands: tuple[Meta | type | None, ...]
    statics: tuple[object, ...]
    device: Device
    into: tuple[Meta, ...] | None = None

    @property
    def capabilities(self) -> Capabilities:
        return self.device.driver.capabilities

    def static(self, name: str) -> object:
        """The value of the static argument `name`."""
        return self.statics[self.record.statics.index(name)]

    @property
    def tensors(self) -> list[tuple[Operand, Meta]]:
        """Tensor operands that are present, with their roles."""
        return [(o, m) for o, m in zip(self.record.operands, self.operands, strict=False) if isinstance(m, Meta)]

    def where(self) -> str:
        """The call as errors name it: op, then shape and dtype of every tensor."""
        shown = ", ".join(f"{o.name} {m.dtype.name}{list(m.shape)}" for o, m in self.tensors)
        return f"{self.record.called or self.record.name}({shown})"


@dataclass(frozen=True, slots=True)
class Planned:
    """What a planner gives: results' layouts, launches, bytes of scratch, and for a view, how far it starts."""

    outputs: tuple[Meta, ...]
    steps: tuple[Step, ...] = ()
    scratch: tuple[int, ...] = ()
    view: int | None = None


_planners: dict[str, Callable[[Request], Planned]] = {}


def planner(kind: str) -> Callable[[Request], Planned]:
    """The planner of `kind`: the function `plan` of the module of that name."""
    found = _planners.get(kind)
    if found is None:
        found = _planners[kind] = import_module(f".{kind}", __name__).plan
    return found


def slot(meta: Meta, type: str) -> Slot:
    """How a kernel reads a tensor of this layout."""
    return Slot(meta.dtype.name, type)


def compute_element(dtype: DType) -> str:
    """OpenCL's name of the type in which kernels calculate for results of `dtype`."""
    return dtype.compute
