"""What programs call that is made of several ops: losses, layers, optimisers, indexing. For `weftgrad prebuild`.

A scene is a generator of functions without arguments, and names the ops that it is about: it is played where one of
them is asked for. As in `calls`, nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ..runtime import dtypes
from ..runtime.device import Device
from ..runtime.dtypes import DType
from .calls import SHAPES, Call, blank

__all__ = ["scenes"]

_SCENES: list[tuple[frozenset[str], Callable[[Device, DType], Iterator[Call]]]] = []
_REDUCTIONS = ("mean", "sum", "none")


def _scene(*ops: str) -> Callable[[Any], Any]:
    def add(function: Any) -> Any:
        _SCENES.append((frozenset(ops), function))
        return function

    return add


def scenes(place: Device, types: Sequence[DType], ops: Sequence[str] | None) -> Iterator[Call]:
    """The calls of every scene that is about one of `ops` (None: of all), for the floating ones of `types`."""
    for names, function in _SCENES:
        if ops is None or names & set(ops):
            for dtype in types:
                if dtype.kind == "f":
                    yield from function(place, dtype)


def _trained(function: Callable[..., Any], *inputs: Any, **arguments: Any) -> None:
    """Forward, and backward from the sum."""
    out = function(*inputs, **arguments)
    out = out[0] if isinstance(out, tuple) else out
    if out.requires_grad:
        (out if out.dim() == 0 else out.sum()).backward()


# Losses ---------------------------------------------------------------------------------------------------------------


@_scene("cross_entropy_row", "log_softmax")
def classes(place: Device, dtype: DType) -> Iterator[Call]:
    """Losses of classes: of a matrix and of images, with weights, smoothing and probabilities as targets."""
    from ..nn import functional as F

    for shape in ((5, 10), (64, 10), (256, 1000), (4, 5, 9, 9)):
        target = blank(place, shape[0], *shape[2:], dtype=dtypes.int64)
        weight = blank(place, shape[1], dtype=dtype)
        for reduction in _REDUCTIONS:
            for more in ({}, {"weight": weight}):
                yield partial(
                    _trained, F.nll_loss, blank(place, *shape, dtype=dtype, grad=True), target, reduction=reduction,
                    **more,
                )  # fmt: skip
                for smoothing in (0.0, 0.1):
                    logits = blank(place, *shape, dtype=dtype, grad=True)
                    given = {"reduction": reduction, "label_smoothing": smoothing, **more}
                    yield partial(_trained, F.cross_entropy, logits, target, **given)
            soft = blank(place, *shape, dtype=dtype)
            yield partial(_trained, F.cross_entropy, blank(place, *shape, dtype=dtype, grad=True), soft)


_PAIRS = {
    "squared_error": "mse_loss", "absolute_error": "l1_loss", "smooth_l1_error": "smooth_l1_loss",
    "huber_error": "huber_loss", "probability_error": "binary_cross_entropy",
    "logits_error": "binary_cross_entropy_with_logits", "divergence": "kl_div", "poisson_error": "poisson_nll_loss",
    "soft_margin_error": "soft_margin_loss",
}  # fmt: skip


@_scene(*_PAIRS)
def pairs(place: Device, dtype: DType) -> Iterator[Call]:
    """Losses of a prediction and a target of its shape."""
    from ..nn import functional as F

    for shape in SHAPES:
        for name in _PAIRS.values():
            for reduction in ("batchmean", "sum", "none") if name == "kl_div" else _REDUCTIONS:
                given, target = blank(place, *shape, dtype=dtype, grad=True), blank(place, *shape, dtype=dtype)
                yield partial(_trained, getattr(F, name), given, target, reduction=reduction)


# Layers ---------------------------------------------------------------------------------------------------------------


@_scene("convolution", "convolution_input", "convolution_weight")
def images(place: Device, dtype: DType) -> Iterator[Call]:
    """A network of images: convolution, normalisation, activation, dropout, a linear layer."""
    from .. import nn

    for batch in (1, 2, 64):
        for size in (8, 32):
            net = nn.Sequential(
                nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
                nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5),
                nn.Linear(32 * (size // 2) ** 2, 10),
            ).to(place, dtype)  # fmt: skip
            yield partial(_trained, net, blank(place, batch, 3, size, size, dtype=dtype))
            yield partial(_trained, net.eval(), blank(place, batch, 3, size, size, dtype=dtype))


@_scene("linear_product", "mm", "matmul_batched")
def perceptrons(place: Device, dtype: DType) -> Iterator[Call]:
    """Linear layers with activations, and attention."""
    from .. import nn
    from ..nn import functional as F

    for rows, width in ((5, 7), (64, 256)):
        for kind in (nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid):
            net = nn.Sequential(nn.Linear(width, 2 * width), kind(), nn.LayerNorm(2 * width), nn.Linear(2 * width, 10))
            yield partial(_trained, net.to(place, dtype), blank(place, rows, width, dtype=dtype))
    for rows in (28, 64, 300):  # few columns of short rows: panels of one and two vectors
        net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 10))
        yield partial(_trained, net.to(place, dtype), blank(place, rows, 12, dtype=dtype))
    for rows in (3, 300):  # a sum's gradient, one number repeated, is contiguous along no dimension
        yield partial(_trained, nn.Linear(12, 10).to(place, dtype), blank(place, rows, 12, dtype=dtype, grad=True))
    for length, width in ((6, 8), (128, 64)):
        heads = [blank(place, 2, 4, length, width, dtype=dtype, grad=True) for _ in range(3)]
        yield partial(_trained, F.scaled_dot_product_attention, *heads)
        yield partial(_trained, F.scaled_dot_product_attention, *heads, is_causal=True)


@_scene("rnn_tanh_gate", "rnn_relu_gate", "lstm_gates", "gru_gates")
def sequences(place: Device, dtype: DType) -> Iterator[Call]:
    """Recurrent networks, in one direction and in both."""
    from .. import nn

    for batch, width in ((1, 8), (16, 64)):
        for make in (nn.RNN, partial(nn.RNN, nonlinearity="relu"), nn.LSTM, nn.GRU):
            for both in (False, True):
                net = make(width, 2 * width, bidirectional=both).to(place, dtype)
                yield partial(_trained, net, blank(place, 3, batch, width, dtype=dtype))


# Optimisers -----------------------------------------------------------------------------------------------------------


@_scene(
    "sgd_step", "sgd_momentum_step", "sgd_nesterov_step", "adam_step", "amsgrad_step", "rmsprop_step",
    "rmsprop_momentum_step", "rmsprop_centred_step", "rmsprop_centred_momentum_step", "adagrad_step", "adadelta_step",
    "adamax_step", "nadam_step", "radam_step", "rprop_step", "asgd_step", "scale_step", "limit_step", "average_step",
)  # fmt: skip
def optimisers(place: Device, dtype: DType) -> Iterator[Call]:
    """Two steps of every optimiser, gradients clipped and set to zero, and averages of weights."""
    from .. import nn, optim

    makers: list[Callable[[Any], Any]] = [
        optim.SGD, partial(optim.SGD, momentum=0.9), partial(optim.SGD, momentum=0.9, nesterov=True), optim.Adam,
        partial(optim.Adam, amsgrad=True), optim.AdamW, optim.RMSprop, partial(optim.RMSprop, momentum=0.9),
        partial(optim.RMSprop, centered=True), partial(optim.RMSprop, centered=True, momentum=0.9), optim.Adagrad,
        optim.Adadelta, optim.Adamax, optim.NAdam, optim.RAdam, optim.Rprop, optim.ASGD,
    ]  # fmt: skip
    for make in makers:
        yield partial(_stepped, make, place, dtype)
    for clip in (nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_):
        yield partial(_clipped, clip, place, dtype)
    yield partial(_averaged, place, dtype)


@_scene("unscale_step")
def scaling(place: Device, dtype: DType) -> Iterator[Call]:
    """Gradients divided by a scaler's factor."""
    from ..amp._unscaling import Unscaling

    def unscaled() -> None:
        Unscaling()([blank(place, *shape, dtype=dtype) for shape in ((3,), (64, 64), (1000, 300))], 0.5)

    yield unscaled


def _parameters(place: Device, dtype: DType) -> list[Any]:
    found = []
    for shape in ((7,), *SHAPES, (16, 3, 3, 3)):
        made = blank(place, *shape, dtype=dtype, grad=True)
        made.grad = blank(place, *shape, dtype=dtype)
        found.append(made)
    return found


def _stepped(make: Callable[[Any], Any], place: Device, dtype: DType) -> None:
    for count in (None, 1):  # large work and small, which a device may have two compilers for
        optimizer = make(_parameters(place, dtype)[:count])
        for _ in range(2):
            optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def _clipped(clip: Callable[..., Any], place: Device, dtype: DType) -> None:
    clip(_parameters(place, dtype), 1.0)


def _averaged(place: Device, dtype: DType) -> None:
    from ..optim.swa_utils import get_ema_multi_avg_fn

    found = _parameters(place, dtype)
    get_ema_multi_avg_fn()([p.grad for p in found], [p.detach() for p in found])


# Indexing and reducing ------------------------------------------------------------------------------------------------


@_scene("gather", "take_at", "put_at", "put_add_at", "scatter", "scatter_add", "embedding_rows", "masked_fill")
def indexing(place: Device, dtype: DType) -> Iterator[Call]:
    """Rows taken, written and added by index, masks, one-hot classes."""
    from .. import functions, gathering, joining, scattering
    from ..nn import functional as F

    for rows, columns in SHAPES:
        index = blank(place, rows, dtype=dtypes.int64)
        made = partial(blank, place, rows, columns, dtype=dtype)
        mask = blank(place, rows, columns, dtype=dtypes.bool_)
        places = blank(place, rows, columns, dtype=dtypes.int64)

        def written(
            made: Any = made, index: Any = index, mask: Any = mask, number: Any = 1.0, columns: int = columns
        ) -> None:
            target = made()
            target[index] = number
            target[index] = made()
            target[:, index % columns] = number
            target[1:, 1:] = number
            target[index, index % columns] += number
            target.masked_fill_(mask, number)

        yield partial(_trained, lambda x, i: x[i], made(grad=True), index)
        yield partial(_trained, lambda x, i: x[:, i], made(grad=True), index)
        yield partial(_trained, lambda x, i, j: x[i, j], made(grad=True), index, index)
        yield written
        yield partial(_trained, gathering.gather, made(grad=True), 1, places)
        yield partial(_trained, scattering.scatter_add, made(grad=True), 0, places, made(grad=True))
        yield partial(_trained, scattering.index_add, made(grad=True), 0, index, made(grad=True))
        yield partial(_trained, scattering.scatter_reduce, made(grad=True), 0, places, made(grad=True), "mean")
        yield partial(_trained, gathering.index_select, made(grad=True), 1, index)
        yield partial(_trained, F.embedding, places, made(grad=True), padding_idx=0)
        yield partial(F.one_hot, index, 10)
        yield partial(_trained, F.embedding_bag, places, made(grad=True))
        yield partial(_trained, joining.cat, [made(grad=True), made(grad=True)], dim=1)
        yield partial(_trained, joining.stack, [made(grad=True), made(grad=True)])
        yield partial(_trained, functions.where, mask, made(grad=True), 0.0)
        yield partial(_trained, functions.where, mask, made(grad=True), made(grad=True))


@_scene(
    "moments", "deviation", "standardize", "standardize_fixed", "standardize_sums", "standardize_slope",
    "standardize_slope_inside", "weighted_sums", "move_statistics",
)  # fmt: skip
def norms(place: Device, dtype: DType) -> Iterator[Call]:
    """Batch, group and instance norm of features, signals and images, in training and in evaluation."""
    from ..nn import functional as F

    for shape in ((8, 6), (8, 6, 5), (64, 16, 8, 8)):
        x = partial(blank, place, *shape, dtype=dtype, grad=True)
        one = partial(blank, place, shape[1], dtype=dtype)
        for training in (True, False):
            weights = {"weight": one(grad=True), "bias": one(grad=True), "training": training}
            yield partial(_trained, F.batch_norm, x(), one(), one(), **weights)
        yield partial(_trained, F.group_norm, x(), 2, one(grad=True), one(grad=True))
        if len(shape) > 2:
            yield partial(_trained, F.instance_norm, x(), weight=one(grad=True), bias=one(grad=True))
            yield partial(_trained, F.instance_norm, x(), one(), one())


@_scene(
    "fill", "uniform_fill", "normal_fill", "integer_fill", "arange_fill", "linspace_fill", "mask_counts",
    "mask_positions",
)  # fmt: skip
def made(place: Device, dtype: DType) -> Iterator[Call]:
    """New tensors, and the arithmetic behind `nonzero`, whose count nobody knows while nothing is computed."""
    from .. import factories, joining, random

    for shape in SHAPES:
        for each in (dtype, dtypes.int64, dtypes.bool_):
            yield partial(factories.full, shape, 1, dtype=each, device=place)
        yield partial(random.rand, *shape, dtype=dtype, device=place)
        yield partial(random.randn, *shape, dtype=dtype, device=place)
        yield partial(random.randint, 0, 10, shape, device=place)
        yield partial(factories.linspace, 0, 1, shape[0], dtype=dtype, device=place)
        for each in (dtype, dtypes.int64):
            yield partial(factories.arange, shape[0], dtype=each, device=place)
        places = blank(place, shape[0], dtype=dtypes.int64)
        yield partial(_paired, places)
        yield partial(joining.stack, [places, places], 1)


@_scene("sum", "mean", "max_dim", "argmax", "amax", "count_nonzero")
def counting(place: Device, dtype: DType) -> Iterator[Call]:
    """Moments, norms, and how many guesses were right."""
    from .. import reducing

    for shape in SHAPES:
        made = partial(blank, place, *shape, dtype=dtype)
        for dim in (None, 0, 1):
            yield partial(_trained, reducing.var, made(grad=True), dim)
            yield partial(_trained, reducing.std, made(grad=True), dim)
            yield partial(_trained, reducing.norm, made(grad=True), 2, dim)
        for dim in (0, 1):
            yield partial(_trained, reducing.logsumexp, made(grad=True), dim)
            yield partial(_trained, reducing.max, made(grad=True), dim)
        one = partial(blank, place, dtype=dtype, grad=True)
        yield partial(_trained, lambda a, b: (a + b) * 0.5 - b / 2, one(), one())
        labels = blank(place, shape[0], dtype=dtypes.int64)
        yield partial(lambda x, y: (x.argmax(1) == y).sum(), made(), labels)
        yield partial(lambda x, y: (x.argmax(1) == y).float().mean(), made(), labels)
        yield partial(lambda x: (x > 0).sum(), made())
        yield partial(lambda x: (x > 0).any(), made())
        yield partial(lambda x, own: x.to(dtypes.float64).to(own), made(), dtype)


def _paired(places: Any) -> Any:
    """Rows and columns of places in a table of three columns."""
    from .. import joining

    return joining.stack([places // 3, places % 3], 1)
