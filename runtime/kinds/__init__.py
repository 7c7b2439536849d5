"""Planners, one module for each kind of op: they turn operands' layouts into results' layouts and launches.

A planner is a pure function of a `Request`. It runs for the first few combinations of layouts of an op. After that,
`runtime.plan_families` plans further sizes, and `runtime.dispatch` finds known ones by one look-up. `runtime.planners`
finds the planner of a kind. `custom.py` is the shortest example, `triangle.py` a typical one.

Planners compute with sizes and compare them. They do not hash sizes, test their type, or compare layouts by `is`, `==`
or `in`, because sizes may be `traced_sizes.Size` objects, and layouts of them are not interned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..backends.protocol import Capabilities, Slot, Step
from ..device import Device, Meta
from ..dtypes import DType
from ..errors import NotSupported
from ..records import Operand, OpRecord, Text

if TYPE_CHECKING:
    from ..call_types import Static

__all__ = ["Planned", "Request", "compute_element", "slot"]


@dataclass(frozen=True, slots=True)
class Request:
    """One call, without its data.

    Attributes:
        record: The op.
        operands: In the record's order, a `Meta` for a tensor, a Python type for a number, None if absent.
        statics: Values of the record's static arguments, in its order.
        device: Where the op runs.
        into: Layouts of results that exist already (`out=`, in place), or None.
    """

    record: OpRecord
    operands: tuple[Meta | type | None, ...]
    statics: tuple[object, ...]
    device: Device
    into: tuple[Meta, ...] | None = None

    @property
    def capabilities(self) -> Capabilities:
        return self.device.driver.capabilities

    @property
    def text(self) -> Text:
        """The op's kernels in the language of the device.

        Raises:
            NotSupported: The op has none.
        """
        target = self.device.driver.target
        text = self.record.texts.get(target)
        if text is None:
            raise NotSupported(
                f"{self.where()}: {self.record.name} has no {target} kernel; move its operands with .to('cpu')"
            )
        return text

    def static(self, name: str) -> Static:
        """Return the value of the static argument `name`."""
        return self.statics[self.record.statics.index(name)]

    def optional_static(self, name: str, default: object = None) -> Static:
        """Return the value of the static argument `name`, or `default` if the op does not have it."""
        return self.static(name) if name in self.record.statics else default

    @property
    def tensors(self) -> list[tuple[Operand, Meta]]:
        """Return the tensor operands that are present, with their roles."""
        return [(o, m) for o, m in zip(self.record.operands, self.operands, strict=False) if isinstance(m, Meta)]

    def where(self) -> str:
        """Return the call as error messages name it: the op, then dtype and shape of every tensor."""
        tensors = ", ".join(f"{o.name} {m.dtype.name}{list(m.shape)}" for o, m in self.tensors)
        return f"{self.record.called or self.record.name}({tensors})"


@dataclass(frozen=True, slots=True)
class Planned:
    """The result of a planner.

    Attributes:
        outputs: Layouts of the results.
        steps: Launches, in order.
        scratch: Bytes of each scratch buffer.
        view: For a view, the bytes from the operand's first element to its own; None for other ops.
    """

    outputs: tuple[Meta, ...]
    steps: tuple[Step, ...] = ()
    scratch: tuple[int, ...] = ()
    view: int | None = None


def slot(meta: Meta, type: str) -> Slot:
    """Return the slot with which a kernel reads a tensor of this layout."""
    return Slot(meta.dtype.name, type)


def compute_element(dtype: DType) -> str:
    """Return OpenCL's name of the type in which kernels compute results of `dtype`."""
    return dtype.compute
