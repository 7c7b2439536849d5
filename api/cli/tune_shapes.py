"""The common calls that `weftgrad tune` tunes if no program is given: ops, shapes, and their gradients.

`nn` is imported inside functions: other commands do not need it, and it takes 0.1 s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from .. import random
from ..creation.factories import zeros
from ..runtime.device import Device
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError, WeftgradError
from ..runtime.tensor import Tensor
from .types import Shape

if TYPE_CHECKING:
    from ..runtime.tuning.record import Use

__all__ = ["OPS", "record_common_calls"]

_FILL_OPS = ("uniform_fill", "full_like_as", "fill")  # fill the inputs and constant gradients; not worth tuning
_POINTWISE_SHAPES: tuple[Shape, ...] = ((256, 256), (1024, 1024), (4096, 4096))
_PRODUCT_SHAPES: tuple[Shape, ...] = (  # (m, n, k) or (batch, m, n, k)
    (64, 10, 512), (128, 128, 128), (8, 1024, 1024), (500, 500, 500), (1024, 1024, 1024), (32, 128, 128, 64),
)  # fmt: skip
_ROW_SHAPES: tuple[Shape, ...] = ((512, 1000), (4096, 256), (64, 50257))


class Rand(Protocol):
    """`random.rand` for the dtype and the device to tune."""

    def __call__(self, *shape: int, requires_grad: bool = False) -> Tensor: ...


def _matmul(rand: Rand, shape: Shape) -> None:
    """Multiply `(m, k)` by `(k, n)` in every transposition. shape: (m, n, k) or (batch, m, n, k)."""
    *batch, m, n, k = shape
    for a in (rand(*batch, m, k), rand(*batch, k, m).transpose(-1, -2)):
        for b in (rand(*batch, k, n), rand(*batch, n, k).transpose(-1, -2)):
            a @ b


def _linear(rand: Rand, shape: Shape) -> None:
    """Call a linear layer with its gradients. shape: (m, n, k) for x `(m, k)` and weight `(n, k)`."""
    from ..nn import functional as F

    m, n, k = shape
    x, weight = rand(m, k, requires_grad=True), rand(n, k, requires_grad=True)
    F.linear(x, weight, rand(n, requires_grad=True)).sum().backward()


def _conv2d(rand: Rand, shape: Shape) -> None:
    """Convolve square images, with both gradients.

    shape: (batch, in_channels, out_channels, size, kernel_size, stride).
    """
    from ..nn import functional as F

    batch, in_channels, out_channels, size, kernel_size, stride = shape
    x, weight = (
        rand(batch, in_channels, size, size, requires_grad=True),
        rand(out_channels, in_channels, kernel_size, kernel_size, requires_grad=True),
    )
    F.conv2d(x, weight, None, stride, kernel_size // 2).sum().backward()


def _attention(rand: Rand, shape: Shape) -> None:
    """Call attention with its gradients. shape: (batch, heads, length, head dimension)."""
    from ..nn import functional as F

    q, k, v = (rand(*shape, requires_grad=True) for _ in range(3))
    F.scaled_dot_product_attention(q, k, v).sum().backward()


def _cross_entropy(rand: Rand, shape: Shape) -> None:
    """Call the loss with its gradient. shape: (batch, classes)."""
    from ..nn import functional as F

    x = rand(*shape, requires_grad=True)
    F.cross_entropy(x, zeros(shape[0], dtype="int64", device=x.device)).backward()


def _layer_norm(rand: Rand, shape: Shape) -> None:
    """Normalise over the last dimension, with all three gradients. shape: (rows, columns)."""
    from ..nn import functional as F

    x, weight = rand(*shape, requires_grad=True), rand(shape[-1], requires_grad=True)
    F.layer_norm(x, shape[-1:], weight, rand(shape[-1], requires_grad=True)).sum().backward()


def _with_random_inputs(call: Callable[..., object], count: int = 1) -> Callable[[Rand, Shape], None]:
    """Return a function that calls `call` on `count` random tensors of the given shape."""

    def call_with_inputs(rand: Rand, shape: Shape) -> None:
        call(*(rand(*shape) for _ in range(count)))

    return call_with_inputs


# For each op: a function that calls it on tensors from `rand`, and the common shapes.
OPS: dict[str, tuple[Callable[[Rand, Shape], None], tuple[Shape, ...]]] = {
    "matmul": (_matmul, _PRODUCT_SHAPES),
    "linear": (_linear, ((64, 512, 784), (256, 1024, 1024))),
    "conv2d": (_conv2d, ((16, 3, 32, 32, 3, 1), (16, 64, 64, 28, 3, 1), (8, 64, 128, 28, 3, 2), (8, 3, 64, 112, 7, 2))),
    "attention": (_attention, ((4, 8, 256, 64), (1, 8, 1024, 64))),
    "add": (_with_random_inputs(lambda x, y: x + y, 2), _POINTWISE_SHAPES),
    "exp": (_with_random_inputs(lambda x: x.exp()), _POINTWISE_SHAPES),
    "transpose": (_with_random_inputs(lambda x: x.t() + 1), _POINTWISE_SHAPES),
    "sum": (_with_random_inputs(lambda x: (x.sum(), x.sum(0), x.sum(1))), _POINTWISE_SHAPES),
    "softmax": (_with_random_inputs(lambda x: x.softmax(-1)), _ROW_SHAPES),
    "layer_norm": (_layer_norm, _ROW_SHAPES[:2]),
    "cross_entropy": (_cross_entropy, _ROW_SHAPES),
    "cumsum": (_with_random_inputs(lambda x: (x.cumsum(0), x.cumsum(1))), _POINTWISE_SHAPES[:2]),
    "sort": (_with_random_inputs(lambda x: x.sort(-1)), ((1000, 100), (1, 1 << 20))),
}


def record_common_calls(
    device: Device, ops: Sequence[str] | None, value_dtypes: Sequence[DType], shapes: Sequence[Shape] | None
) -> list[Use]:
    """Call ops on a device, and return the recorded uses whose schedule can be chosen.

    Args:
        device: The device.
        ops: Keys of `OPS`; None means all.
        value_dtypes: The dtypes of the tensors.
        shapes: Shapes to use instead of the common ones, each as the op's function above reads it.

    Returns:
        A `tuning.record.Use` for each distinct call, without those that fill tensors (`_FILL_OPS`).

    Raises:
        ArgumentError: An op is not in `OPS`, or takes none of the shapes.
    """
    from ..runtime.tuning.record import Recording  # lazy: start-up

    unknown = sorted(set(ops or ()) - set(OPS))
    if unknown:
        raise ArgumentError(f"tune: no common shapes are known for {', '.join(unknown)}; known are {', '.join(OPS)}")
    with Recording() as recording:
        for name in ops or OPS:
            call, common_shapes = OPS[name]
            success_count, last_error = 0, None
            for dtype in value_dtypes:
                for shape in shapes or common_shapes:
                    try:
                        for _ in range(3):  # the first call also compiles and takes page faults
                            call(partial(random.rand, dtype=dtype, device=device), shape)
                        success_count += 1
                    except (WeftgradError, ValueError) as error:  # the op does not take this shape or dtype
                        last_error = error
            if not success_count and last_error is not None:
                raise ArgumentError(f"tune: {name} takes none of these shapes: {last_error}")
    tunable_uses = [use for use in recording.uses() if use.questions]
    return [use for use in tunable_uses if use.call.record.name not in _FILL_OPS]
