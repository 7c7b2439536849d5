"""The launches of a call that is planned but not run, and the buffers that they read and write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from ...cli.samples import capture_steps
from ...runtime.backends.protocol import Step
from ...runtime.context import forget_plans
from ...runtime.device import Device
from ...runtime.tensor import Tensor

__all__ = ["Buffer", "Launch", "capture", "footprint"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that a launch uses.

    key: the same for two buffers that are the same memory. nbytes: of the elements that a launch can reach.
    """

    key: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch: a planned step, and a buffer for each of its pointers.

    reached: buffers that the kernel finds by addresses in a table (`Step.reaches`).
    """

    step: Step
    buffers: tuple[Buffer, ...]
    reached: tuple[Buffer, ...] = ()


def footprint(tensor: Tensor) -> int:
    """Return the bytes of the distinct elements of a tensor: those of a broadcast dimension count once."""
    sizes = [size for size, stride in zip(tensor.meta.shape, tensor.meta.strides, strict=True) if stride]
    return prod(sizes) * tensor.meta.dtype.itemsize


def capture(device: Device, prepare: Callable[[], Callable[[], object]]) -> tuple[list[Launch], object]:
    """Prepare a call and plan it; return the launches that it would queue, and its result.

    Args:
        device: A device that plans and does not run.
        prepare: Makes the operands and returns the call. What `prepare` itself launches does not count.
    """
    forget_plans()  # cached plans have launchers of their own, which would not record
    launches: list[Launch] = []
    alive: list[object] = []  # storages, so that no later one gets the identity of one of these

    def launcher(steps: Sequence[Step], scratch: Sequence[int]) -> Callable[..., None]:
        def run(tensors: Sequence[Tensor | None], numbers: object, stream: object) -> None:
            scratch_keys = [object() for _ in scratch]
            alive.extend((scratch_keys, [t.storage for t in tensors if isinstance(t, Tensor)]))
            buffers = [_buffer(t) for t in tensors]
            buffers += [Buffer(id(key), nbytes) for key, nbytes in zip(scratch_keys, scratch, strict=True)]
            for step in steps:
                used = tuple(buffers[position] for position in step.buffers)
                launches.append(Launch(step, used, tuple(buffers) if step.reaches else ()))

        return run

    with capture_steps(device):
        # replaces the launcher of `capture_steps`, which deletes the attribute at its end
        vars(device.driver)["launcher"] = launcher
        call = prepare()
        launches.clear()
        result = call()
    return launches, result


def _buffer(tensor: object) -> Buffer:
    return Buffer(id(tensor.storage), footprint(tensor)) if isinstance(tensor, Tensor) else Buffer(id(tensor), 0)
