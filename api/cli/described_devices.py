"""Find the device for which a command plans calls: one of this machine, or a described one that it need not have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..runtime.backends.cpu import CpuDriver
from ..runtime.backends.overrides import override
from ..runtime.backends.protocol import Capabilities, Step
from ..runtime.device import Device, create_device
from ..runtime.device import device as to_device
from ..runtime.errors import ArgumentError, DeviceError, DriverNotFound, UnknownDevice
from .compile import TARGETS

__all__ = ["DESCRIPTIONS", "find_device"]

# Name: kernel language (`c`: OpenCL C as the device `cpu` compiles it), capabilities.
DESCRIPTIONS: dict[str, tuple[str, str]] = {
    **{name: ("triton", f"style=triton,lanes=4,fp16=1,{text}") for name, text in TARGETS.items()},
    "x86-avx2": ("c", "style=cpu,cores=4,lanes=8,registers=16"),
    "opencl-gpu": ("opencl", "style=gpu,cores=32,lanes=4,max_group=256,local_memory=65536,builtins=1"),
}
# The description to use for a type of device that the machine does not have.
_SUBSTITUTES = {"cuda": "sm_90", "interpreter": "sm_90", "opencl": "opencl-gpu"}


class PlanningDriver(CpuDriver):
    """A driver with the capabilities of a described device: it plans calls and has host memory, but runs nothing.

    Args:
        device: The device.
        target: The kernel language, `opencl` or `triton`.
        capabilities: Fields of `Capabilities`, as in `style=gpu,lanes=4`.
    """

    def __init__(self, device: Device, target: str, capabilities: str):
        super().__init__(device)
        self.target = target
        self._capabilities = override(Capabilities(style="gpu", cores=1), capabilities)

    @property
    def identity(self) -> str:
        """No identity: no timings are stored for a description, and the defaults of its class of device apply."""
        return ""

    def launcher(self, steps: Sequence[Step], scratch: Sequence[int]) -> Callable[..., None]:
        """Raise `DeviceError`: there is no device to launch on."""
        raise DeviceError(f"{self.device} is a description of a device, which runs nothing")


def find_device(name: str | None) -> tuple[Device, str]:
    """Return a device and the name to show for it.

    Args:
        name: A device of this machine, a key of `DESCRIPTIONS`, or None for the default device. Where the machine has
            no device of a type, the type's name means a described one: `cuda` is `sm_90`, `opencl` is `opencl-gpu`.

    Returns:
        The device, and its name as users know it. For a substitute the name says so.

    Raises:
        ArgumentError: `name` is neither a device nor a description.
        DriverNotFound: `name` is a device with an index, such as `cuda:0`, and its driver is not installed.
        UnknownDevice: `name` is a device with an index, and the machine does not have that many.
    """
    if name in DESCRIPTIONS:
        return _describe(name), name
    try:
        device = to_device(name)
    except UnknownDevice as error:
        raise ArgumentError(f"{error}; descriptions of devices: {', '.join(DESCRIPTIONS)}") from None
    try:
        device.driver.capabilities  # noqa: B018  (opens the device)
    except (DriverNotFound, UnknownDevice):
        if name not in _SUBSTITUTES:
            raise
        substitute = _SUBSTITUTES[name]
        return _describe(substitute), f"{substitute}, as this machine has no {name} device"
    return device, str(device)


def _describe(name: str) -> Device:
    """Return a new device with a `PlanningDriver` for a key of `DESCRIPTIONS`."""
    target, capabilities = DESCRIPTIONS[name]
    device = create_device({"triton": "cuda", "c": "cpu"}.get(target, target))
    device._driver = PlanningDriver(device, "opencl" if target == "c" else target, capabilities)
    return device
