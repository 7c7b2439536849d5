"""The audited calls: ops of training steps at real sizes, forward and backward.

A case's function takes `Operands` and returns the call, so that what makes the operands, and the forward of a backward,
is not counted. A call returns its results. `measured` runs the program on
PyTorch as well, so it uses shared names alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import weftgrad as wg
from weftgrad.nn import functional as F

from .case import Call, Case

if TYPE_CHECKING:
    from ...runtime.tensor import Tensor
    from .operands import Operands

__all__ = ["cases"]

_M16 = 1 << 24
_ALL = ("float32", "bfloat16", "float16")
_TWO = ("float32", "bfloat16")
_PRODUCTS = ("float32", "tf32", "bfloat16", "float16")
_HALF = ("bfloat16",)


def cases() -> list[Case]:
    """Return all cases."""
    groups = (_elementwise, _copies, _reductions, _rows, _normalisation, _losses, _products, _convolutions, _attention,
              _indexing, _sorting, _windows, _optimizers)  # fmt: skip
    return [case for group in groups for case in group()]


def _each(
    precisions: tuple[str, ...], group: str, label: str, prepare: Callable[[Operands], Call], flops: float = 0.0
) -> Iterator[Case]:
    for precision in precisions:
        yield Case(group, label, precision, prepare, flops)


def _apply(function: Callable[..., object], *shapes: tuple[int, ...]) -> Callable[[Operands], Call]:
    """Return the preparation of `function` on tensors of `shapes`."""
    return lambda operands: partial(function, *(operands.tensor(*shape) for shape in shapes))


def _gradient(function: Callable[..., Tensor], *shapes: tuple[int, ...], first: int = 0) -> Callable[[Operands], Call]:
    """Return the preparation of the backward of `function` on tensors of `shapes`, to those from `first` on."""

    def prepare(operands: Operands) -> Call:
        inputs = [operands.tensor(*shape, grad=position >= first) for position, shape in enumerate(shapes)]
        return _backward(function(*inputs), inputs[first:], operands)

    return prepare


def _backward(output: Tensor, inputs: list[Tensor], operands: Operands) -> Call:
    gradient = operands.tensor(*output.shape, dtype=output.dtype)
    return lambda: wg.autograd.grad(output, inputs, grad_outputs=gradient, retain_graph=True)


def _elementwise() -> Iterator[Case]:
    each, vector = partial(_each, group="elementwise"), (_M16,)
    yield from each(_ALL, label="add 16M", prepare=_apply(lambda x, y: x + y, vector, vector))
    yield from each(_TWO, label="relu 16M", prepare=_apply(F.relu, vector))
    for name, function in (("exp", wg.exp), ("gelu", F.gelu), ("silu", F.silu), ("sigmoid", wg.sigmoid),
                           ("tanh", wg.tanh)):  # fmt: skip
        precisions = _ALL if name == "gelu" else _TWO
        yield from each(precisions, label=f"{name} 16M", prepare=_apply(function, vector))
    for name, gradient in (("gelu", F.gelu), ("silu", F.silu)):
        yield from each(_TWO, label=f"{name} backward 16M", prepare=_gradient(gradient, vector))
    yield from each(_HALF, label="pow 16M", prepare=_apply(lambda x: x**1.5, vector))
    yield from each(_HALF, label="softplus 16M", prepare=_apply(F.softplus, vector))
    yield from each(_HALF, label="sin 16M", prepare=_apply(wg.sin, vector))
    yield from each(_TWO, label="dropout 16M", prepare=_apply(partial(F.dropout, p=0.1, training=True), vector))
    yield from each(_TWO, label="bias 16384x1024 + 1024", prepare=_apply(lambda x, y: x + y, (16384, 1024), (1024,)))
    yield from each(_HALF, label="silu(x) * y, two launches 16M",
                    prepare=_apply(lambda x, y: F.silu(x) * y, vector, vector))  # fmt: skip
    yield from each(("float32",), label="randn 16M", prepare=lambda o: partial(
        wg.randn, _M16, device=o.device, dtype=o.dtype))  # fmt: skip


def _copies() -> Iterator[Case]:
    each = partial(_each, group="copies")
    square = (4096, 4096)
    yield from each(("float32",), label="cast to bf16 16M", prepare=_apply(lambda x: x.to(wg.bfloat16), (_M16,)))
    yield from each(_TWO, label="transpose copy 4096x4096", prepare=_apply(lambda x: x.T.contiguous(), square))
    yield from each(_TWO, label="x + y.T 4096x4096", prepare=_apply(lambda x, y: x + y.T, square, square))
    yield from each(_HALF, label="heads (8, 1024, 16, 64) to (8, 16, 1024, 64)",
                    prepare=_apply(lambda x: x.transpose(1, 2).contiguous(), (8, 1024, 16, 64)))  # fmt: skip
    yield from each(_HALF, label="cat 2 of 4096x4096, dim 1",
                    prepare=_apply(lambda x, y: wg.cat([x, y], 1), square, square))  # fmt: skip
    yield from each(_HALF, label="pad 32x64x56x56 by 1", prepare=_apply(lambda x: F.pad(x, (1, 1, 1, 1)),
                                                                         (32, 64, 56, 56)))  # fmt: skip


def _reductions() -> Iterator[Case]:
    each, matrix = partial(_each, group="reductions"), (8192, 4096)
    yield from each(_TWO, label="sum 16M", prepare=_apply(wg.sum, (_M16,)))
    for dim, label in ((1, "rows"), (0, "columns")):
        yield from each(_TWO, label=f"sum {label} 8192x4096", prepare=_apply(partial(wg.sum, dim=dim), matrix))
    yield from each(("float32",), label="argmax rows 8192x4096", prepare=_apply(partial(wg.argmax, dim=1), matrix))
    yield from each(("float32",), label="var rows 8192x4096", prepare=_apply(partial(wg.var, dim=1), matrix))
    for dim, label in ((1, "rows"), (0, "columns")):
        yield from each(("float32",), label=f"cumsum {label} 8192x4096",
                        prepare=_apply(partial(wg.cumsum, dim=dim), matrix))  # fmt: skip
    yield from each(("float32",), label="cumsum 16M", prepare=_apply(partial(wg.cumsum, dim=0), (_M16,)))


def _rows() -> Iterator[Case]:
    each = partial(_each, group="rows")
    softmax = partial(F.softmax, dim=-1)
    for width in (4096, 50257):
        yield from each(_TWO, label=f"softmax 8192x{width}", prepare=_apply(softmax, (8192, width)))
    yield from each(_TWO, label="softmax backward 8192x4096", prepare=_gradient(softmax, (8192, 4096)))
    yield from each(
        _HALF, label="log_softmax 8192x50257", prepare=_apply(partial(F.log_softmax, dim=-1), (8192, 50257))
    )


def _normalisation() -> Iterator[Case]:
    each = partial(_each, group="normalisation")
    shapes = ((8192, 4096), (4096,), (4096,))

    def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x, (4096,), weight, bias)

    def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (4096,), weight)

    def group_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.group_norm(x, 32, weight, bias)

    yield from each(_TWO, label="layer_norm 8192x4096", prepare=_apply(layer_norm, *shapes))
    yield from each(_TWO, label="layer_norm backward 8192x4096", prepare=_gradient(layer_norm, *shapes))
    yield from each(_HALF, label="rms_norm 8192x4096", prepare=_apply(rms_norm, *shapes[:2]))
    yield from each(_HALF, label="rms_norm backward 8192x4096", prepare=_gradient(rms_norm, *shapes[:2]))
    images = ((32, 64, 56, 56), (64,), (64,))
    yield from each(_HALF, label="group_norm 32x64x56x56", prepare=_apply(group_norm, *images))
    yield from each(_HALF, label="group_norm backward 32x64x56x56", prepare=_gradient(group_norm, *images))
    for precision in _TWO:
        yield Case("normalisation", "batch_norm 32x64x56x56", precision, partial(_batch_norm, is_backward=False))
        yield Case(
            "normalisation", "batch_norm backward 32x64x56x56", precision, partial(_batch_norm, is_backward=True)
        )


def _batch_norm(operands: Operands, is_backward: bool) -> Call:
    layer = wg.nn.BatchNorm2d(64).to(operands.device)
    x = operands.tensor(32, 64, 56, 56, grad=is_backward)
    if is_backward:
        return _backward(layer(x), [x, layer.weight, layer.bias], operands)
    return lambda: layer(x)


def _losses() -> Iterator[Case]:
    for precision in _TWO:
        for is_backward in (False, True):
            label = f"cross_entropy{' backward' if is_backward else ''} 8192x50257"
            yield Case("losses", label, precision, partial(_cross_entropy, is_backward=is_backward))
    yield Case("losses", "mse_loss 16M", "float32", _apply(F.mse_loss, (_M16,), (_M16,)))


def _cross_entropy(operands: Operands, is_backward: bool) -> Call:
    logits, target = operands.tensor(8192, 50257, grad=is_backward), operands.index(50257, 8192)
    if not is_backward:
        return lambda: F.cross_entropy(logits, target)
    return _backward(F.cross_entropy(logits, target), [logits], operands)


def _products() -> Iterator[Case]:
    each = partial(_each, group="products")
    for precision in _PRODUCTS:
        for layout in ("NN", "NT", "TN", "TT") if precision in ("tf32", "bfloat16") else ("NN",):
            yield Case("products", f"matmul 4096^3 {layout}", precision, partial(_matmul, layout, 4096, 4096, 4096),
                       2.0 * 4096**3)  # fmt: skip
    for m, n, k in ((8192, 8192, 8192), (4096, 4096, 11008), (8192, 50257, 1024), (4095, 4095, 4095),
                    (1000, 1000, 1000), (16, 4096, 4096), (1, 4096, 4096)):  # fmt: skip
        yield from each(_HALF, label=f"matmul {m}x{k} by {k}x{n}", prepare=partial(_matmul, "NN", m, n, k),
                        flops=2.0 * m * n * k)  # fmt: skip
    yield from each(("float32",), label="matmul 1000x1000 by 1000x1000",
                    prepare=partial(_matmul, "NN", 1000, 1000, 1000), flops=2e9)  # fmt: skip
    yield from each(_TWO, label="matmul 8192x200 by 200x4096", prepare=partial(_matmul, "NN", 8192, 4096, 200),
                    flops=2.0 * 8192 * 200 * 4096)  # fmt: skip
    for m, n, k in ((1024, 1024, 64), (1024, 64, 1024)):
        yield from each(_HALF, label=f"bmm 96 of {m}x{k} by {k}x{n}",
                        prepare=_apply(lambda x, y: x @ y, (96, m, k), (96, k, n)),
                        flops=2.0 * 96 * m * n * k)  # fmt: skip
    layer = ((8192, 1024), (4096, 1024), (4096,))
    flops = 2.0 * 8192 * 1024 * 4096
    yield from each(_PRODUCTS[1:3], label="linear 8192x1024 to 4096", prepare=_apply(F.linear, *layer), flops=flops)
    yield from each(_HALF, label="linear backward 8192x1024 to 4096", prepare=_gradient(F.linear, *layer),
                    flops=2 * flops)  # fmt: skip


def _matmul(layout: str, m: int, n: int, k: int, operands: Operands) -> Call:
    x = operands.tensor(k, m).T if layout[0] == "T" else operands.tensor(m, k)
    y = operands.tensor(n, k).T if layout[1] == "T" else operands.tensor(k, n)
    return lambda: x @ y


# Images, input and output channels, size, kernel, stride, padding, groups.
_CONVOLUTIONS = (
    (("tf32", "bfloat16", "float32"), 32, 64, 64, 56, 3, 1, 1, 1), (_HALF, 32, 256, 256, 14, 3, 1, 1, 1),
    (_HALF, 32, 512, 512, 7, 3, 1, 1, 1), (_HALF, 32, 128, 128, 56, 3, 2, 1, 1), (_HALF, 32, 256, 64, 56, 1, 1, 0, 1),
    (_HALF, 32, 256, 512, 28, 1, 2, 0, 1), (_HALF, 32, 3, 64, 224, 7, 2, 3, 1), (_HALF, 32, 128, 128, 56, 3, 1, 1, 128),
    (_HALF, 64, 3, 768, 224, 16, 16, 0, 1),
)  # fmt: skip


def _convolutions() -> Iterator[Case]:
    for precisions, images, inputs, outputs, size, kernel, stride, padding, groups in _CONVOLUTIONS:
        side = (size + 2 * padding - kernel) // stride + 1
        flops = 2.0 * images * outputs * side**2 * (inputs // groups) * kernel**2
        kind = f"{kernel}x{kernel}" + f" stride {stride}" * (stride > 1) + " depthwise" * (groups > 1)
        shapes = (images, inputs, size, size), (outputs, inputs // groups, kernel, kernel)
        function = partial(_convolve, stride=stride, padding=padding, groups=groups)
        sizes = f"{kind} {inputs} to {outputs}, {images}x{size}x{size}"
        yield from _each(precisions, "convolutions", f"conv {sizes}", _apply(function, *shapes), flops)
        is_first = inputs == 3  # of a network: images need no gradient
        label = f"conv {'weight gradient' if is_first else 'backward'} {sizes}"
        yield from _each(precisions, "convolutions", label, _gradient(function, *shapes, first=int(is_first)),
                         flops * (2 - is_first))  # fmt: skip


def _convolve(x: Tensor, weight: Tensor, *, stride: int, padding: int, groups: int) -> Tensor:
    return F.conv2d(x, weight, None, stride, padding, 1, groups)


def _attention() -> Iterator[Case]:
    for features in (64, 128):
        for is_causal in (False, True):
            shape = (4, 16, 4096, features)
            function = partial(F.scaled_dot_product_attention, is_causal=is_causal)
            flops = 4.0 * 4 * 16 * 4096**2 * features / (2 if is_causal else 1)
            label = f"4x16x4096x{features}{' causal' * is_causal}"
            precisions = ("bfloat16", "float16") if features == 64 and not is_causal else _HALF
            shapes = (shape, shape, shape)
            yield from _each(precisions, "attention", f"attention {label}", _apply(function, *shapes), flops)
            yield from _each(
                _HALF, "attention", f"attention backward {label}", _gradient(function, *shapes), 2.5 * flops
            )
    shape, flops = (4, 16, 1024, 64), 4.0 * 4 * 16 * 1024**2 * 64
    attend = F.scaled_dot_product_attention
    yield from _each(("float32",), "attention", "attention 4x16x1024x64", _apply(attend, shape, shape, shape), flops)


def _indexing() -> Iterator[Case]:
    for precision in _TWO:
        yield Case("indexing", "embedding 8192 of 50257x1024", precision, partial(_embedding, is_backward=False))
        yield Case("indexing", "embedding backward 8192 of 50257x1024", precision,
                   partial(_embedding, is_backward=True))  # fmt: skip

    def index_select(operands: Operands) -> Call:
        x, index = operands.tensor(32000, 1024), operands.index(32000, 16384)
        return lambda: wg.index_select(x, 0, index)

    def gather(operands: Operands) -> Call:
        x, index = operands.tensor(8192, 4096), operands.index(4096, 8192, 1024)
        return lambda: wg.gather(x, 1, index)

    def scatter_add(operands: Operands) -> Call:
        x, index, source = operands.tensor(8192, 4096), operands.index(4096, 8192, 4096), operands.tensor(8192, 4096)
        return lambda: x.scatter_add(1, index, source)

    def index_add(operands: Operands) -> Call:
        x, index, source = operands.tensor(32000, 1024), operands.index(32000, 16384), operands.tensor(16384, 1024)
        return lambda: x.index_add(0, index, source)

    def masked_fill(operands: Operands) -> Call:
        x, mask = operands.tensor(8192, 4096), operands.mask(8192, 4096)
        return lambda: x.masked_fill(mask, 0.0)

    for label, prepare in (("index_select 16384 of 32000x1024", index_select),
                           ("gather 8192x1024 of 8192x4096", gather), ("scatter_add 8192x4096", scatter_add),
                           ("index_add 16384 to 32000x1024", index_add),
                           ("masked_fill 8192x4096", masked_fill)):  # fmt: skip
        yield Case("indexing", label, "float32", prepare)


def _embedding(operands: Operands, is_backward: bool) -> Call:
    table, index = operands.tensor(50257, 1024, grad=is_backward), operands.index(50257, 8, 1024)
    return _backward(F.embedding(index, table), [table], operands) if is_backward else lambda: F.embedding(index, table)


def _sorting() -> Iterator[Case]:
    each = partial(_each, group="sorting")
    yield from each(("float32",), label="sort 16M", prepare=_apply(wg.sort, (_M16,)))
    yield from each(_TWO, label="sort rows 4096x4096", prepare=_apply(wg.sort, (4096, 4096)))
    yield from each(_TWO, label="topk 50 of 4096x32000", prepare=_apply(lambda x: wg.topk(x, 50), (4096, 32000)))


def _windows() -> Iterator[Case]:
    each, images = partial(_each, group="windows"), (32, 64, 112, 112)
    max_pool = partial(F.max_pool2d, kernel_size=3, stride=2, padding=1)
    yield from each(_TWO, label="max_pool 3x3 stride 2, 32x64x112x112", prepare=_apply(max_pool, images))
    yield from each(_TWO, label="max_pool backward 3x3 stride 2, 32x64x112x112", prepare=_gradient(max_pool, images))
    yield from each(_HALF, label="avg_pool 2x2, 32x64x112x112", prepare=_apply(partial(F.avg_pool2d, kernel_size=2),
                                                                             images))  # fmt: skip
    yield from each(_HALF, label="adaptive_avg_pool to 1x1, 32x2048x7x7",
                    prepare=_apply(partial(F.adaptive_avg_pool2d, output_size=1), (32, 2048, 7, 7)))  # fmt: skip
    yield from each(_HALF, label="interpolate bilinear 32x64x56x56 by 2", prepare=_apply(
        partial(F.interpolate, scale_factor=2, mode="bilinear"), (32, 64, 56, 56)))  # fmt: skip


def _optimizers() -> Iterator[Case]:
    for name, make in (("Adam", wg.optim.Adam), ("AdamW", wg.optim.AdamW),
                       ("SGD with momentum", partial(wg.optim.SGD, lr=0.1, momentum=0.9))):  # fmt: skip
        yield Case("optimizers", f"{name} 100 x 1M", "float32", partial(_optimizer_step, make))
    yield Case("optimizers", "clip_grad_norm_ 100 x 1M", "float32", _clip_norm)


def _parameters(operands: Operands) -> list[Tensor]:
    parameters: list[Tensor] = [wg.nn.Parameter(operands.tensor(1 << 20)) for _ in range(100)]
    for parameter in parameters:
        parameter.grad = operands.tensor(1 << 20)
    return parameters


def _optimizer_step(make: Callable[..., wg.optim.Optimizer], operands: Operands) -> Call:
    parameters = _parameters(operands)
    optimizer = make(parameters)
    optimizer.step()

    def step() -> object:
        optimizer.step()
        states = [value for state in optimizer.state.values() for value in state.values()]
        return [*parameters, *states]

    return step


def _clip_norm(operands: Operands) -> Call:
    parameters = _parameters(operands)

    def clip() -> object:
        wg.nn.utils.clip_grad_norm_(parameters, 1.0)
        return [parameter.grad for parameter in parameters]

    return clip
