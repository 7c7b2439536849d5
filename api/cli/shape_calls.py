"""Calls of kernels for `weftgrad prebuild` and `weftgrad compile`: padding, triangles, joining, distances, sequences of
labels, samples of images.

As in `calls`, nothing is computed, so that tensors are left empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ..runtime import dtypes
from ..runtime.device import Device
from ..runtime.dtypes import DType
from ..runtime.records import OpRecord

__all__ = ["PLANS", "shape_calls"]

PLANS = ("ctc", "join", "pad", "pairs", "resample", "sampling", "triangle")  # the planners whose ops are called here

_MODES = ("constant", "reflect", "replicate", "circular")
_POWERS = (("1", 1.0), ("2", 2.0), ("any", 3.0), ("max", 1.0), ("count", 1.0))


def shape_calls(
    record: OpRecord, make: Callable[..., Any], differentiated: Callable[..., None], place: Device, dtype: DType
) -> Iterator[Callable[[], Any]]:
    """Calls of one op on few and on many elements, with their first derivatives. make: an uninitialised tensor;
    differentiated: the call with its derivative."""
    of = {
        "ctc": _sequences, "join": _joined, "pad": _pads, "pairs": _pairs, "resample": _resampled, "sampling": _sampled,
        "triangle": _triangles,
    }[str(record.detail["plan"])]  # fmt: skip
    for grad in (False, True) if dtype.kind == "f" else (False,):
        for operands, statics in of(record.name, partial(make, place, dtype=dtype, grad=grad)):
            yield partial(differentiated, record, operands, statics)


def _pads(name: str, made: Callable[..., Any]) -> Iterator[tuple[list[Any], tuple[Any, ...]]]:
    """Images with a border, and signals."""
    for shape, width in (((2, 3, 9, 12), 1), ((16, 16, 32, 32), 3), ((4, 3, 300), 2)):
        count = len(shape) - 2
        before = (0, 0, *(width,) * count)
        for mode in _MODES:
            if name == "pad_copy":
                yield [made(*shape), None], (before, before, mode)
            elif mode != "constant":
                wide = tuple(n + 2 * b for n, b in zip(shape, before, strict=True))
                yield [made(*wide)], (shape, before, mode)
    if name == "pad_copy":
        yield [made(2, 3, 9, 12), made(1).detach()], ((0, 0, 1, 1), (0, 0, 1, 1), "constant")


def _sequences(name: str, made: Any) -> Iterator[tuple[list[Any], tuple[Any, ...]]]:
    """Samples of few and of many labels."""
    if made.keywords["dtype"] not in (dtypes.float32, dtypes.float64):
        return
    whole = partial(made, dtype=dtypes.int64, grad=False)
    for times, samples, classes, states in ((10, 3, 5, 9), (100, 16, 300, 61)):
        times += name == "ctc_gradient"  # another layout than in the derivative of ctc_alpha
        given = [made(times, samples, classes), whole(samples * states), whole(samples, 3)]
        if name == "ctc_alpha":
            yield given, (states, 0)
        else:
            losses, alpha = made(samples).detach(), made(samples, times, states).detach()
            yield [losses, given[0].detach(), *given[1:], losses, alpha], (0,)


def _resampled(name: str, made: Any) -> Iterator[tuple[list[Any], tuple[Any, ...]]]:
    """Along the last dimension and the one before, with few weights an element and with many."""
    own = made.keywords["dtype"]
    wide = dtypes.float32 if own.itemsize == 2 else own
    for shape, dim in (((2, 3, 9, 12), 3), ((16, 16, 32, 32), 3), ((16, 16, 32, 32), 2)):
        for taps in (1, 2, 3, 4, 5):
            first = made(2 * shape[dim], dtype=dtypes.int64, grad=False)
            weights = made(taps, 2 * shape[dim], dtype=wide).detach()
            for result in sorted({own, wide}, key=str):
                yield [made(*shape).detach(), first, weights], (dim, result)


def _sampled(name: str, made: Any) -> Iterator[tuple[list[Any], tuple[Any, ...]]]:
    """Images and volumes, in every mode."""
    for image, places in (((2, 3, 30, 40), (30, 30)), ((1, 2, 8, 8, 8), (8, 8, 8))):
        grid, grad = made(image[0], *places, len(places)), made(*image[:2], *places).detach()
        for mode in ("bilinear", "nearest", "bicubic")[: 5 - len(places)]:
            for padding in ("zeros", "border", "reflection"):
                for align in (False, True):
                    how = (mode, padding, align)
                    if name == "sample_grid":
                        yield [made(*image), grid], how
                    elif name == "sample_grid_input":
                        yield [grad, grid.detach()], (image, *how)
                    else:
                        yield [grad, made(*image).detach(), grid.detach()], how


def _triangles(name: str, made: Callable[..., Any]) -> Iterator[tuple[list[Any], tuple[Any, ...]]]:
    for shape in ((5, 7), (300, 260), (8, 64, 64)):
        for lower in (True, False):
            yield [made(*shape)], (0, lower)


def _joined(name: str, made: Callable[..., Any]) -> Iterator[tuple[list[Any], tuple[Any, ...]]]:
    """As many tensors as there are kernels for."""
    for count in (2, 16):
        for dim in (0, 1):
            yield [made(8, 64).detach() for _ in range(count)], (dim, False)


def _pairs(name: str, made: Callable[..., Any]) -> Iterator[tuple[list[Any], tuple[Any, ...]]]:
    for rows, others, length in ((5, 7, 3), (300, 260, 64)):
        x, y, matrix = (1, rows, length), (1, others, length), (1, rows, others)
        if name == "pair_norms":
            for power, order in _POWERS:
                yield [made(*x), made(*y), order], (power,)
        elif name == "pair_dots":
            yield [made(*x), made(*y), made(*x), None, None, 1.0], ("1", True)
        else:
            yield [made(*matrix), made(*x), made(*y), None, None, 1.0], ("1", True)
