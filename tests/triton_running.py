"""Interpreter devices for tests, which keep what they launched and can forbid that the host looks at their memory; and
functions of arrays, complex ones included, that tests compare with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import weftgrad as wg
from weftgrad.runtime.backends.interpreter import InterpreterDriver
from weftgrad.runtime.backends.protocol import Step
from weftgrad.runtime.device import Device
from weftgrad.runtime.storage import Storage

__all__ = ["Watched", "added", "at", "convolved", "interpreter", "layer_norm", "peak", "softmax", "written"]

Array = Any


class Watched(InterpreterDriver):
    """The interpreter. launched: the steps that ran, in order. looks: how often the host read memory."""

    def __init__(self, place: Device, overrides: str):
        self.launched: list[Step] = []
        self.looks = 0
        self._closed = False
        super().__init__(place, overrides)

    def _prepare(self, step: Step) -> Callable[[list[Any], Sequence[Any]], None]:
        run = super()._prepare(step)

        def watched(tensors: list[Any], scalars: Sequence[Any]) -> None:
            run(tensors, scalars)
            self.launched.append(step)

        return watched

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """The host may not read memory."""
        before, self._closed = self._closed, True
        try:
            yield
        finally:
            self._closed = before

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """The host may read memory again."""
        before, self._closed = self._closed, False
        try:
            yield
        finally:
            self._closed = before

    def host_view(self, storage: Storage) -> Any:
        self.looks += 1
        assert not self._closed, "the host reads the device's memory"
        return super().host_view(storage)

    def write(self, storage: Storage, offset: int, array: Any, stream: Any) -> None:
        looks = self.looks
        with self.open():
            super().write(storage, offset, array, stream)
        self.looks = looks


def interpreter(overrides: str = "") -> tuple[Device, Watched]:
    """A device of its own, with capabilities as `overrides` says, and its driver."""
    place = Device("interpreter", None)
    driver = Watched(place, overrides)
    place._driver = driver  # type: ignore[assignment]
    return place, driver


def at(index: Array, like: Any) -> Any:
    """The index on the device of a tensor."""
    return wg.tensor(index, device=like.device)


# References


def softmax(x: Array, axis: int = -1) -> Array:
    e = np.exp(x)
    return e / e.sum(axis, keepdims=True)


def layer_norm(x: Array, w: Array, b: Array) -> Array:
    apart = x - x.mean(-1, keepdims=True)
    return apart / np.sqrt((apart * apart).mean(-1, keepdims=True) + 1e-5) * w + b


def peak(x: Array, axis: int) -> Array:
    """The largest element by its real part."""
    return np.take_along_axis(x, np.argmax(x.real, axis, keepdims=True), axis).squeeze(axis)


def added(x: Array, index: Array, y: Array) -> Array:
    """`x` with `y` added at rows `index`."""
    result = x + np.zeros_like(y, shape=x.shape)
    np.add.at(result, index, y)
    return result


def written(x: Array, index: Array, y: Array) -> Array:
    result = x + np.zeros_like(y, shape=x.shape)
    result[index] = y
    return result


def convolved(
    x: Array, w: Array, stride: int = 1, groups: int = 1, padding: int = 0, dilation: tuple[int, int] = (1, 1)
) -> Array:
    """By sums over windows, with weights between which a dilation leaves zeros."""
    rows, columns = ((n - 1) * d + 1 for n, d in zip(w.shape[2:], dilation, strict=True))
    wide = np.zeros((*w.shape[:2], rows, columns), w.dtype)
    wide[:, :, :: dilation[0], :: dilation[1]] = w
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (rows, columns), (2, 3))[:, :, ::stride, ::stride]
    ins, outs = w.shape[1], w.shape[0] // groups
    parts = [
        np.einsum("bcyxij,ocij->boyx", windows[:, g * ins : (g + 1) * ins], wide[g * outs : (g + 1) * outs])
        for g in range(groups)
    ]
    return np.concatenate(parts, 1)
