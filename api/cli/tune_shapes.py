"""The usual calls that `weftgrad tune` tunes: what is called with which shapes, and with its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..runtime.device import Device
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError, WeftgradError

__all__ = ["OPS", "uses"]

Shape = tuple[int, ...]
_ELEMENTS: tuple[Shape, ...] = ((256, 256), (1024, 1024), (4096, 4096))
_PRODUCTS: tuple[Shape, ...] = (
    (64, 10, 512), (128, 128, 128), (8, 1024, 1024), (500, 500, 500), (1024, 1024, 1024), (32, 128, 128, 64),
)  # fmt: skip
_ROWS: tuple[Shape, ...] = ((512, 1000), (4096, 256), (64, 50257))


def _matmul(rand: Any, shape: Shape) -> None:
    """m x n x k, every transposition, and with a batch in front b x m x n x k."""
    *batch, m, n, k = shape
    for a in (rand(*batch, m, k), rand(*batch, k, m).transpose(-1, -2)):
        for b in (rand(*batch, k, n), rand(*batch, n, k).transpose(-1, -2)):
            a @ b


def _linear(rand: Any, shape: Shape) -> None:
    from ..nn import functional as F

    m, n, k = shape
    x, weight = rand(m, k, requires_grad=True), rand(n, k, requires_grad=True)
    F.linear(x, weight, rand(n, requires_grad=True)).sum().backward()


def _conv2d(rand: Any, shape: Shape) -> None:
    """batch x channels x channels of the result x side x side of the kernel x stride, and both gradients."""
    from ..nn import functional as F

    batch, ins, outs, side, taps, stride = shape
    x, weight = rand(batch, ins, side, side, requires_grad=True), rand(outs, ins, taps, taps, requires_grad=True)
    F.conv2d(x, weight, None, stride, taps // 2).sum().backward()


def _attention(rand: Any, shape: Shape) -> None:
    """batch x heads x positions x features, and the gradients."""
    from ..nn import functional as F

    q, k, v = (rand(*shape, requires_grad=True) for _ in range(3))
    F.scaled_dot_product_attention(q, k, v).sum().backward()


def _cross_entropy(rand: Any, shape: Shape) -> None:
    from ..factories import zeros
    from ..nn import functional as F

    x = rand(*shape, requires_grad=True)
    F.cross_entropy(x, zeros(shape[0], dtype="int64", device=x.device)).backward()


def _layer_norm(rand: Any, shape: Shape) -> None:
    from ..nn import functional as F

    x, weight = rand(*shape, requires_grad=True), rand(shape[-1], requires_grad=True)
    F.layer_norm(x, shape[-1:], weight, rand(shape[-1], requires_grad=True)).sum().backward()


def _of(call: Callable[..., Any], count: int = 1) -> Callable[[Any, Shape], None]:
    def made(rand: Any, shape: Shape) -> None:
        call(*(rand(*shape) for _ in range(count)))

    return made


OPS: dict[str, tuple[Callable[[Any, Shape], None], tuple[Shape, ...]]] = {
    "matmul": (_matmul, _PRODUCTS),
    "linear": (_linear, ((64, 512, 784), (256, 1024, 1024))),
    "conv2d": (_conv2d, ((16, 3, 32, 32, 3, 1), (16, 64, 64, 28, 3, 1), (8, 64, 128, 28, 3, 2), (8, 3, 64, 112, 7, 2))),
    "attention": (_attention, ((4, 8, 256, 64), (1, 8, 1024, 64))),
    "add": (_of(lambda x, y: x + y, 2), _ELEMENTS),
    "exp": (_of(lambda x: x.exp()), _ELEMENTS),
    "transpose": (_of(lambda x: x.t() + 1), _ELEMENTS),
    "sum": (_of(lambda x: (x.sum(), x.sum(0), x.sum(1))), _ELEMENTS),
    "softmax": (_of(lambda x: x.softmax(-1)), _ROWS),
    "layer_norm": (_layer_norm, _ROWS[:2]),
    "cross_entropy": (_cross_entropy, _ROWS),
    "cumsum": (_of(lambda x: (x.cumsum(0), x.cumsum(1))), _ELEMENTS[:2]),
    "sort": (_of(lambda x: x.sort(-1)), ((1000, 100), (1, 1 << 20))),
}


def uses(place: Device, ops: Sequence[str] | None, types: Sequence[DType], shapes: Sequence[Shape] | None) -> list[Any]:
    """What these ops come to on a device, each called a few times. Raises `ArgumentError` for an op that is not among
    `OPS`, and where none of the shapes fits one."""
    from ..random import rand
    from ..runtime.tuning.record import Recording

    unknown = sorted(set(ops or ()) - set(OPS))
    if unknown:
        raise ArgumentError(f"tune: no usual shapes are known for {', '.join(unknown)}; there are {', '.join(OPS)}")
    with Recording() as recording:
        for name in ops or OPS:
            call, usual = OPS[name]
            ran, last = 0, None
            for dtype in types:
                for shape in shapes or usual:
                    try:
                        for _ in range(3):  # the first time builds, or touches memory first
                            call(lambda *s, _d=dtype, **k: rand(*s, dtype=_d, device=place, **k), shape)
                        ran += 1
                    except (WeftgradError, ValueError) as error:  # that many sizes, or that dtype, the op does not take
                        last = error
            if not ran and last is not None:
                raise ArgumentError(f"tune: {name} takes none of these shapes: {last}")
    found = [use for use in recording.uses() if use.asked]
    return [use for use in found if use.call.record.name not in ("uniform_fill", "full_like_as", "fill")]
