"""Styles of devices: how kernels divide work among work-items, and what planners therefore choose.

    cpu      a work-item processes a run of elements with vector registers; there are about as many as cores
    gpu      a work-item processes one element; work-groups of them share local memory
    triton   a program processes a block of elements

A kind of op has a `ByStyle` table of the functions that plan its launches. A backend whose kernels fit a style uses its
schedules. A backend with a style of its own registers the style, and adds its functions to the tables; for other kinds
the functions of its `fallback` serve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from ..errors import NotSupported
from .named import NamedTable

if TYPE_CHECKING:
    from .protocol import Capabilities, Driver

__all__ = ["CPU", "GPU", "TRITON", "ByStyle", "Style", "register_style", "style_named"]

Function = TypeVar("Function", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Style:
    """How kernels of a device divide work.

    Attributes:
        name: The value of `Capabilities.style`.
        target: The language of the kernels: a key of `OpRecord.texts`.
        spaces: The prefix of its schedule spaces in `schedules.yaml`.
        takes_runs: A work-item processes a run of elements with vector registers.
        has_work_groups: Work-items are launched in groups that share local memory.
        multiplies_half: Matrix units multiply half types as they are; other devices convert to float32 first.
        has_blocks: A program processes a block of `Capabilities.block` elements.
        fallback: The style whose functions serve where a table has none of this style; "" for none.
        device_class: Return the name of a driver's class of devices in `schedules.yaml`, or `fallback`.
    """

    name: str
    target: str
    spaces: str
    device_class: Callable[[Driver], str]
    takes_runs: bool = False
    has_work_groups: bool = False
    multiplies_half: bool = False
    has_blocks: bool = False
    fallback: str = ""

    def block_size(self, capabilities: Capabilities) -> int:
        """Return the elements per program of an elementwise kernel; 0 if the style has no blocks."""
        return capabilities.block if self.has_blocks else 0


_CPU_CLASSES = {"clang": "clang", "Portable": "pocl", "Intel": "intel_cpu"}  # by the beginning of a driver's identity


def _cpu_class(driver: Driver) -> str:
    identity = getattr(driver, "identity", "")
    return next((name for prefix, name in _CPU_CLASSES.items() if identity.startswith(prefix)), "fallback")


def _triton_class(driver: Driver) -> str:
    sm = driver.capabilities.sm
    return "sm_90" if sm >= 90 else "sm_80" if sm >= 80 else "fallback"


CPU = Style("cpu", "opencl", "opencl-cpu", _cpu_class, takes_runs=True)
GPU = Style("gpu", "opencl", "opencl-gpu", lambda driver: "opencl_gpu", has_work_groups=True)
TRITON = Style("triton", "triton", "triton", _triton_class, multiplies_half=True, has_blocks=True)
_styles = NamedTable("style", (CPU, GPU, TRITON))


def register_style(style: Style) -> Style:
    """Register a style of a backend's own, and return it. Raise ValueError if another style has its name."""
    return _styles.register(style)


def style_named(name: str) -> Style:
    """Return the style of a name. Raise ValueError if there is none; the message lists all names."""
    return _styles.find(name)


class ByStyle(Generic[Function]):
    """A function for each style of device, such as the one that plans the launches of a reduction.

        _LAUNCHES = ByStyle("reductions", cpu=_cpu, gpu=_gpu, triton=_triton)
        steps, scratch = _LAUNCHES[request.capabilities.style](request, outputs)

    Args:
        purpose: What the functions plan, for error messages: "reductions".
        functions: The function of each style.
    """

    def __init__(self, purpose: str, **functions: Function):
        self.purpose = purpose
        self._functions = functions

    def __getitem__(self, style: str) -> Function:
        function = self._find(style)
        if function is None:
            names = ", ".join(self._functions)
            raise NotSupported(f"{self.purpose}: no schedule for devices of style {style!r}; there are {names}")
        return function

    def __contains__(self, style: str) -> bool:
        return self._find(style) is not None

    def _find(self, style: str) -> Function | None:
        return self._functions.get(style) or self._functions.get(style_named(style).fallback)

    def add(self, style: str, function: Function) -> None:
        """Add the function of a style.

        Raises:
            ValueError: No style has this name, or it has a function already.
        """
        style_named(style)
        if style in self._functions:
            raise ValueError(f"{self.purpose}: style {style!r} has a function already")
        self._functions[style] = function
