"""Targets: the languages of kernels, and what compiling and launching depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .named import NamedTable
from .protocol import Instance, Step

if TYPE_CHECKING:
    from .protocol import Driver

__all__ = ["OPENCL", "TRITON", "Target", "build_steps", "instances_of", "register_target", "target_named"]


@dataclass(frozen=True, slots=True)
class Target:
    """One language of kernels.

    Attributes:
        name: The value of `Driver.target`, and the key of `OpRecord.texts`.
        work_unit: What a launch has many of: work-items, or programs.
        compiles_geometry: A kernel is compiled for a step's geometry, so drivers build steps and not instances.
        follows_addresses: Kernels of many tensors read their addresses from a table; otherwise buffers are bound.
    """

    name: str
    work_unit: str
    compiles_geometry: bool = False
    follows_addresses: bool = False


OPENCL = Target("opencl", "work-items")
TRITON = Target("triton", "programs", compiles_geometry=True, follows_addresses=True)
_targets = NamedTable("target", (OPENCL, TRITON))


def register_target(target: Target) -> Target:
    """Register a backend's own kernel language, and return it. Raise ValueError if another target has its name."""
    return _targets.register(target)


def target_named(name: str) -> Target:
    """Return the target of a name. Raise ValueError if there is none; the message lists all names."""
    return _targets.find(name)


def build_steps(driver: Driver, steps: Sequence[Step]) -> int:
    """Build the kernels of `steps`, each once, and return their number."""
    if target_named(driver.target).compiles_geometry:
        return driver.build(list(dict.fromkeys(steps)))
    return driver.build(list(dict.fromkeys(step.instance for step in steps)))


def instances_of(planned: Sequence[Step | Instance]) -> list[Instance]:
    """Return the kernels of steps and instances, for drivers whose kernels do not depend on a step's geometry."""
    return [item.instance if isinstance(item, Step) else item for item in planned]
