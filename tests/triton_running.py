"""Interpreter devices for tests, and reference functions of real and complex arrays.

The devices record their launches, and can forbid the host to read their memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import weftgrad as wg
from weftgrad.runtime.backends.interpreter import InterpreterDriver
from weftgrad.runtime.backends.protocol import Step
from weftgrad.runtime.device import Device, create_device
from weftgrad.runtime.storage import Storage

__all__ = [
    "RecordingInterpreter",
    "convolve",
    "index_add",
    "index_put",
    "index_tensor",
    "interpreter",
    "layer_norm",
    "max_by_real_part",
    "softmax",
]

Array = Any


class RecordingInterpreter(InterpreterDriver):
    """The interpreter driver, which records launches and reads by the host.

    Attributes:
        launched: the steps that ran, in order.
        host_reads: how often the host read memory.
    """

    def __init__(self, device: Device, overrides: str):
        self.launched: list[Step] = []
        self.host_reads = 0
        self._forbids_host_reads = False
        super().__init__(device, overrides)

    def _prepare(self, step: Step) -> Callable[..., None]:
        run = super()._prepare(step)

        def recording_run(tensors: list[Any], scalars: Sequence[Any], stream: Any) -> None:
            run(tensors, scalars, stream)
            self.launched.append(step)

        return recording_run

    @contextlib.contextmanager
    def no_host_reads(self) -> Iterator[None]:
        """Fail if the host reads memory inside the `with` block."""
        previous, self._forbids_host_reads = self._forbids_host_reads, True
        try:
            yield
        finally:
            self._forbids_host_reads = previous

    @contextlib.contextmanager
    def host_reads_allowed(self) -> Iterator[None]:
        """Allow the host to read memory inside the `with` block, also within `no_host_reads`."""
        previous, self._forbids_host_reads = self._forbids_host_reads, False
        try:
            yield
        finally:
            self._forbids_host_reads = previous

    def host_view(self, storage: Storage) -> Any:
        self.host_reads += 1
        assert not self._forbids_host_reads, "the host reads the device's memory"
        return super().host_view(storage)

    def write(self, storage: Storage, offset: int, array: Any, stream: Any) -> None:
        host_reads = self.host_reads
        with self.host_reads_allowed():
            super().write(storage, offset, array, stream)
        self.host_reads = host_reads


def interpreter(overrides: str = "") -> tuple[Device, RecordingInterpreter]:
    """Return a new device with these capabilities, and its driver."""
    device = create_device("interpreter")
    driver = RecordingInterpreter(device, overrides)
    device._driver = driver  # type: ignore[assignment]
    return device, driver


def index_tensor(index: Array, like: Any) -> Any:
    """Return the index as a tensor on the device of another tensor."""
    return wg.tensor(index, device=like.device)


# References: functions of real and complex NumPy arrays


def softmax(x: Array, axis: int = -1) -> Array:
    exponentials = np.exp(x)
    return exponentials / exponentials.sum(axis, keepdims=True)


def layer_norm(x: Array, w: Array, b: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * w + b


def max_by_real_part(x: Array, axis: int) -> Array:
    """Return the element with the largest real part."""
    return np.take_along_axis(x, np.argmax(x.real, axis, keepdims=True), axis).squeeze(axis)


def index_add(x: Array, index: Array, y: Array) -> Array:
    """Return `x` with `y` added to the rows `index`."""
    result = x + np.zeros_like(y, shape=x.shape)
    np.add.at(result, index, y)
    return result


def index_put(x: Array, index: Array, y: Array) -> Array:
    """Return `x` with the rows `index` replaced by `y`."""
    result = x + np.zeros_like(y, shape=x.shape)
    result[index] = y
    return result


def convolve(
    x: Array, w: Array, stride: int = 1, groups: int = 1, padding: int = 0, dilation: tuple[int, int] = (1, 1)
) -> Array:
    """Convolve images `(N, C, H, W)` by sums over windows; dilation inserts zeros between the weights."""
    rows, columns = ((n - 1) * d + 1 for n, d in zip(w.shape[2:], dilation, strict=True))
    dilated = np.zeros((*w.shape[:2], rows, columns), w.dtype)
    dilated[:, :, :: dilation[0], :: dilation[1]] = w
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (rows, columns), (2, 3))[:, :, ::stride, ::stride]
    in_channels, out_channels = w.shape[1], w.shape[0] // groups
    parts = [
        np.einsum(
            "bcyxij,ocij->boyx",
            windows[:, g * in_channels : (g + 1) * in_channels],
            dilated[g * out_channels : (g + 1) * out_channels],
        )
        for g in range(groups)
    ]
    return np.concatenate(parts, 1)
