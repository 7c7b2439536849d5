"""Sample calls of ops with planners of their own, for `weftgrad prebuild` and `weftgrad compile`.

The ops are padding, triangles, concatenation, pairwise distances, CTC, resampling, grid sampling, group norm,
permutations, factorizations and linear systems. As in `calls`, nothing is computed, so tensors stay uninitialised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from ..runtime import dtypes
from ..runtime.device import Device
from ..runtime.dtypes import DType
from ..runtime.records import OpRecord
from ..runtime.tensor import Tensor
from .types import Call

__all__ = ["PLANS", "shape_calls"]

# The planners whose ops are called here:
PLANS = (
    "batch_statistics", "ctc", "factorization", "group_norm", "jacobi", "join", "linear_solve", "pad", "pairs", "qr",
    "resample", "sampling", "shuffle", "triangle",
)  # fmt: skip

Arguments: TypeAlias = tuple[Sequence[object], tuple[object, ...]]  # operands and static arguments of one call
MakeTensor: TypeAlias = partial[Tensor]  # from sizes to a tensor; its keywords have the dtype

_MODES = ("constant", "reflect", "replicate", "circular")
_POWERS = (("1", 1.0), ("2", 2.0), ("any", 3.0), ("max", 1.0), ("count", 1.0))


def shape_calls(
    record: OpRecord,
    make_tensor: Callable[..., Tensor],
    call_with_backward: Callable[[OpRecord, Sequence[object], tuple[object, ...]], None],
    device: Device,
    dtype: DType,
) -> Iterator[Call]:
    """Yield calls of one op, small and large, with their first derivatives.

    Args:
        record: The op; its planner is one of `PLANS`.
        make_tensor: `calls.blank`.
        call_with_backward: `calls.call_with_backward`.
        device: The device of the tensors.
        dtype: The dtype of value tensors.
    """
    calls_by_plan = {
        "batch_statistics": _batch_statistics_calls, "ctc": _ctc_calls, "factorization": _factorization_calls,
        "group_norm": _group_norm_calls, "jacobi": _factorization_calls, "join": _join_calls,
        "linear_solve": _linear_solve_calls, "pad": _pad_calls, "pairs": _pair_calls, "qr": _factorization_calls,
        "resample": _resample_calls, "sampling": _sampling_calls, "shuffle": _shuffle_calls,
        "triangle": _triangle_calls,
    }[str(record.detail["plan"])]  # fmt: skip
    for grad in (False, True) if dtype.kind == "f" else (False,):
        for operands, statics in calls_by_plan(record.name, partial(make_tensor, device, dtype=dtype, grad=grad)):
            yield partial(call_with_backward, record, operands, statics)


def _pad_calls(name: str, make_tensor: MakeTensor) -> Iterator[Arguments]:
    """Yield padding of images and signals."""
    for shape, width in (((2, 3, 9, 12), 1), ((16, 16, 32, 32), 3), ((4, 3, 300), 2)):
        count = len(shape) - 2
        padding = (0, 0, *(width,) * count)
        for mode in _MODES:
            if name == "pad_copy":
                yield [make_tensor(*shape), None], (padding, padding, mode)
            elif mode != "constant":
                padded_shape = tuple(n + 2 * b for n, b in zip(shape, padding, strict=True))
                yield [make_tensor(*padded_shape)], (shape, padding, mode)
    if name == "pad_copy":
        yield [make_tensor(2, 3, 9, 12), make_tensor(1).detach()], ((0, 0, 1, 1), (0, 0, 1, 1), "constant")


def _ctc_calls(name: str, make_tensor: MakeTensor) -> Iterator[Arguments]:
    """Yield CTC calls with few and with many labels."""
    if make_tensor.keywords["dtype"] not in (dtypes.float32, dtypes.float64):
        return
    make_integers = partial(make_tensor, dtype=dtypes.int64, grad=False)
    for times, samples, classes, states in ((10, 3, 5, 9), (100, 16, 300, 61)):
        times += name == "ctc_gradient"  # another layout than in the derivative of ctc_alpha
        operands = [make_tensor(times, samples, classes), make_integers(samples * states), make_integers(samples, 3)]
        if name == "ctc_alpha":
            yield operands, (states, 0)
        else:
            losses, alpha = make_tensor(samples).detach(), make_tensor(samples, times, states).detach()
            yield [losses, operands[0].detach(), *operands[1:], losses, alpha], (0,)


def _factorization_calls(name: str, make_tensor: MakeTensor) -> Iterator[Arguments]:
    """Yield factorizations of many small matrices and of a large one, determinants, and Jacobi rotations."""
    if name != "pivot_permutation" and make_tensor.keywords["dtype"] not in (dtypes.float32, dtypes.float64):
        return
    for batch, n in ((64, 32), (1, 512)):
        pivots = make_tensor(batch, n, dtype=dtypes.int32, grad=False)
        if name == "pivot_permutation":
            yield [pivots], (n,)
        elif name == "determinants":
            yield [make_tensor(batch, n, n), make_tensor(batch, n, n).detach(), pivots], ()
        else:
            yield [make_tensor(batch, n, n)], (n,) if name == "qr_factorize" else ()


def _linear_solve_calls(name: str, make_tensor: MakeTensor) -> Iterator[Arguments]:
    """Yield systems with one right-hand side and with many, for many small matrices and for a large one."""
    if make_tensor.keywords["dtype"] not in (dtypes.float32, dtypes.float64):
        return
    for batch, n, k in ((64, 32, 1), (64, 32, 32), (1, 512, 512)):
        matrices, right = make_tensor(batch, n, n), make_tensor(batch, n, k)
        permutation = make_tensor(batch, n, dtype=dtypes.int64, grad=False)
        for flag in (False, True):
            if name == "factored_solve":
                yield [matrices, make_tensor(batch, n, n).detach(), permutation, right], (flag,)
            else:
                for unit in (False, True):
                    yield [matrices, right], (flag, unit)


def _resample_calls(name: str, make_tensor: MakeTensor) -> Iterator[Arguments]:
    """Yield resampling along each of the last two dimensions, with one to five weights per output element."""
    dtype = make_tensor.keywords["dtype"]
    weight_dtype = dtypes.float32 if dtype.itemsize == 2 else dtype
    for shape, dim in (((2, 3, 9, 12), 3), ((16, 16, 32, 32), 3), ((16, 16, 32, 32), 2)):
        for taps in (1, 2, 3, 4, 5):
            first = make_tensor(2 * shape[dim], dtype=dtypes.int64, grad=False)
            weights = make_tensor(taps, 2 * shape[dim], dtype=weight_dtype).detach()
            for result_dtype in sorted({dtype, weight_dtype}, key=str):
                yield [make_tensor(*shape).detach(), first, weights], (dim, result_dtype)


def _sampling_calls(name: str, make_tensor: MakeTensor) -> Iterator[Arguments]:
    """Yield grid sampling of images and volumes, in every mode."""
    for image, output_size in (((2, 3, 30, 40), (30, 30)), ((1, 2, 8, 8, 8), (8, 8, 8))):
        grid, grad = (
            make_tensor(image[0], *output_size, len(output_size)),
            make_tensor(*image[:2], *output_size).detach(),
        )
        for mode in ("bilinear", "nearest", "bicubic")[: 5 - len(output_size)]:
            for padding in ("zeros", "border", "reflection"):
                for align_corners in (False, True):
                    statics = (mode, padding, align_corners)
                    if name == "sample_grid":
                        yield [make_tensor(*image), grid], statics
                    elif name == "sample_grid_input":
                        yield [grad, grid.detach()], (image, *statics)
                    else:
                        yield [grad, make_tensor(*image).detach(), grid.detach()], statics


def _triangle_calls(name: str, make_tensor: MakeTensor) -> Iterator[Arguments]:
    for shape in ((5, 7), (300, 260), (8, 64, 64)):
        for lower in (True, False):
            yield [make_tensor(*shape)], (0, lower)


def _join_calls(name: str, make_tensor: MakeTensor) -> Iterator[Arguments]:
    """Yield concatenations of 2 and 16 tensors, the smallest and largest kernel."""
    for count in (2, 16):
        for dim in (0, 1):
            yield [make_tensor(8, 64).detach() for _ in range(count)], (dim, False)


def _pair_calls(name: str, make_tensor: MakeTensor) -> Iterator[Arguments]:
    for x_rows, y_rows, length in ((5, 7, 3), (300, 260, 64)):
        x, y, matrix = (1, x_rows, length), (1, y_rows, length), (1, x_rows, y_rows)
        if name == "pair_norms":
            for power, order in _POWERS:
                yield [make_tensor(*x), make_tensor(*y), order], (power,)
        elif name == "pair_dots":
            yield [make_tensor(*x), make_tensor(*y), make_tensor(*x), None, None, 1.0], ("1", True)
        else:
            yield [make_tensor(*matrix), make_tensor(*x), make_tensor(*y), None, None, 1.0], ("1", True)


def _group_norm_calls(name: str, make_tensor: MakeTensor) -> Iterator[Arguments]:
    """Yield group norms of images of which a channel fills a vector, and of vectors."""
    if make_tensor.keywords["dtype"].itemsize > 4:
        return
    for shape in ((4, 32, 8, 8), (4, 32)):
        yield [make_tensor(*shape).detach(), *(make_tensor(shape[1]).detach() for _ in range(2)), 1e-5], (8,)


def _batch_statistics_calls(name: str, make_tensor: MakeTensor) -> Iterator[Arguments]:
    """Yield statistics of batches of vectors and of images."""
    if make_tensor.keywords["dtype"].itemsize > 4:
        return
    batches = make_tensor(1, dtype=dtypes.int64, grad=False)
    for shape in ((8, 6), (300, 24), (8, 6, 5), (64, 16, 8, 8)):
        running = (make_tensor(shape[1]).detach() for _ in range(2))
        yield [make_tensor(*shape).detach(), *running, batches, 0.1, 0.9, 0.1, 1e-5], ()


def _shuffle_calls(name: str, make_tensor: MakeTensor) -> Iterator[Arguments]:
    """Yield permutations of few and of many elements, by 32-bit and by 64-bit partners."""
    for size, dtype in ((100, dtypes.int32), (100_000, dtypes.int32), (1 << 21, dtypes.int64)):
        yield [make_tensor(size, dtype=dtype, grad=False)], ()
