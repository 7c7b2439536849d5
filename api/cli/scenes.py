"""Sample calls of public functions that combine several ops, for `weftgrad prebuild`: losses, layers, optimisers.

A scene is a generator of calls: functions without arguments. Its decorator names the ops that it covers, and `prebuild`
runs the scene if one of them is requested. As in `calls`, the launches of a call are only listed, so that their kernels
can be compiled. Nothing is computed, and tensors stay uninitialised.

`nn`, `optim` and `amp` are imported inside scenes: other commands need none of them, and `nn` takes 0.1 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from .. import random
from ..creation import factories
from ..creation import sequences as number_sequences
from ..indexing import gathering, index_writes, scattering
from ..pointwise.comparison import where
from ..reductions import extrema, statistics
from ..runtime import dtypes
from ..runtime.device import Device
from ..runtime.dtypes import DType
from ..runtime.tensor import Tensor
from ..shape import joining
from .calls import SHAPES, blank
from .types import Call

if TYPE_CHECKING:
    from ..optim import Optimizer

__all__ = ["scenes"]

Scene: TypeAlias = Callable[[Device, DType], Iterator[Call]]
_SCENES: list[tuple[frozenset[str], Scene]] = []
_REDUCTIONS = ("mean", "sum", "none")


def _scene(*ops: str) -> Callable[[Scene], Scene]:
    def add(function: Scene) -> Scene:
        _SCENES.append((frozenset(ops), function))
        return function

    return add


def scenes(device: Device, value_dtypes: Sequence[DType], ops: Sequence[str] | None) -> Iterator[Call]:
    """Yield the calls of every scene that uses one of `ops` (None: all scenes), for the floating dtypes."""
    for names, function in _SCENES:
        if ops is None or names & set(ops):
            for dtype in value_dtypes:
                if dtype.kind == "f":
                    yield from function(device, dtype)


def _run_backward(function: Callable[..., object], *inputs: object, **arguments: object) -> None:
    """Call `function`, and run backward from the sum of its first result."""
    output = function(*inputs, **arguments)
    output = output[0] if isinstance(output, tuple) else output
    if isinstance(output, Tensor) and output.requires_grad:
        (output if output.dim() == 0 else output.sum()).backward()


# Losses ---------------------------------------------------------------------------------------------------------------


@_scene("cross_entropy_row", "log_softmax")
def classes(device: Device, dtype: DType) -> Iterator[Call]:
    """Yield classification losses of matrices and images, with weights, label smoothing and probability targets."""
    from ..nn import functional as F

    for shape in ((5, 10), (64, 10), (256, 1000), (4, 5, 9, 9)):
        target = blank(device, shape[0], *shape[2:], dtype=dtypes.int64)
        weight = blank(device, shape[1], dtype=dtype)
        for reduction in _REDUCTIONS:
            for weighting in ({}, {"weight": weight}):
                yield partial(
                    _run_backward, F.nll_loss, blank(device, *shape, dtype=dtype, grad=True), target,
                    reduction=reduction,
                    **weighting,
                )  # fmt: skip
                for smoothing in (0.0, 0.1):
                    logits = blank(device, *shape, dtype=dtype, grad=True)
                    options = {"reduction": reduction, "label_smoothing": smoothing, **weighting}
                    yield partial(_run_backward, F.cross_entropy, logits, target, **options)
            probabilities = blank(device, *shape, dtype=dtype)
            yield partial(_run_backward, F.cross_entropy, blank(device, *shape, dtype=dtype, grad=True), probabilities)


_PAIR_LOSSES = {  # op: the loss of `nn.functional` that calls it
    "squared_error": "mse_loss", "absolute_error": "l1_loss", "smooth_l1_error": "smooth_l1_loss",
    "huber_error": "huber_loss", "probability_error": "binary_cross_entropy",
    "logits_error": "binary_cross_entropy_with_logits", "divergence": "kl_div", "poisson_error": "poisson_nll_loss",
    "soft_margin_error": "soft_margin_loss",
}  # fmt: skip


@_scene(*_PAIR_LOSSES)
def pairs(device: Device, dtype: DType) -> Iterator[Call]:
    """Yield losses of a prediction and a target of the same shape."""
    from ..nn import functional as F

    for shape in SHAPES:
        for name in _PAIR_LOSSES.values():
            for reduction in ("batchmean", "sum", "none") if name == "kl_div" else _REDUCTIONS:
                prediction, target = blank(device, *shape, dtype=dtype, grad=True), blank(device, *shape, dtype=dtype)
                yield partial(_run_backward, getattr(F, name), prediction, target, reduction=reduction)


# Layers ---------------------------------------------------------------------------------------------------------------


@_scene("convolution", "convolution_input", "convolution_weight")
def images(device: Device, dtype: DType) -> Iterator[Call]:
    """Yield an image network of convolutions, batch norm, activations, dropout and a linear layer."""
    from .. import nn

    for batch in (1, 2, 64):
        for size in (8, 32):
            net = nn.Sequential(
                nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
                nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5),
                nn.Linear(32 * (size // 2) ** 2, 10),
            ).to(device, dtype)  # fmt: skip
            yield partial(_run_backward, net, blank(device, batch, 3, size, size, dtype=dtype))
            yield partial(_run_backward, net.eval(), blank(device, batch, 3, size, size, dtype=dtype))


@_scene("linear_product", "mm", "matmul_batched")
def perceptrons(device: Device, dtype: DType) -> Iterator[Call]:
    """Yield linear layers with activations, and attention."""
    from .. import nn
    from ..nn import functional as F

    for rows, width in ((5, 7), (64, 256)):
        for activation in (nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid):
            net = nn.Sequential(
                nn.Linear(width, 2 * width), activation(), nn.LayerNorm(2 * width), nn.Linear(2 * width, 10)
            )
            yield partial(_run_backward, net.to(device, dtype), blank(device, rows, width, dtype=dtype))
    for rows in (28, 64, 300):  # narrow outputs: GEMM panels of one and two vectors
        net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 10))
        yield partial(_run_backward, net.to(device, dtype), blank(device, rows, 12, dtype=dtype))
    for rows in (3, 300):  # the gradient of a sum is an expanded scalar, contiguous along no dimension
        yield partial(
            _run_backward, nn.Linear(12, 10).to(device, dtype), blank(device, rows, 12, dtype=dtype, grad=True)
        )
    for length, width in ((6, 8), (128, 64)):
        heads = [blank(device, 2, 4, length, width, dtype=dtype, grad=True) for _ in range(3)]
        yield partial(_run_backward, F.scaled_dot_product_attention, *heads)
        yield partial(_run_backward, F.scaled_dot_product_attention, *heads, is_causal=True)


@_scene("rnn_tanh_gate", "rnn_relu_gate", "lstm_gates", "gru_gates")
def sequences(device: Device, dtype: DType) -> Iterator[Call]:
    """Yield recurrent networks, unidirectional and bidirectional."""
    from .. import nn

    for batch, width in ((1, 8), (16, 64)):
        for make in (nn.RNN, partial(nn.RNN, nonlinearity="relu"), nn.LSTM, nn.GRU):
            for is_bidirectional in (False, True):
                net = make(width, 2 * width, bidirectional=is_bidirectional).to(device, dtype)
                yield partial(_run_backward, net, blank(device, 3, batch, width, dtype=dtype))


# Optimisers -----------------------------------------------------------------------------------------------------------


@_scene(
    "sgd_step", "sgd_momentum_step", "sgd_nesterov_step", "adam_step", "amsgrad_step", "rmsprop_step",
    "rmsprop_momentum_step", "rmsprop_centred_step", "rmsprop_centred_momentum_step", "adagrad_step", "adadelta_step",
    "adamax_step", "nadam_step", "radam_step", "rprop_step", "asgd_step", "scale_step", "limit_step", "average_step",
)  # fmt: skip
def optimisers(device: Device, dtype: DType) -> Iterator[Call]:
    """Yield two steps of every optimiser, gradient clipping, zeroing of gradients, and averages of weights."""
    from .. import nn, optim

    makers: list[Callable[[list[Tensor]], Optimizer]] = [
        optim.SGD, partial(optim.SGD, momentum=0.9), partial(optim.SGD, momentum=0.9, nesterov=True), optim.Adam,
        partial(optim.Adam, amsgrad=True), optim.AdamW, optim.RMSprop, partial(optim.RMSprop, momentum=0.9),
        partial(optim.RMSprop, centered=True), partial(optim.RMSprop, centered=True, momentum=0.9), optim.Adagrad,
        optim.Adadelta, optim.Adamax, optim.NAdam, optim.RAdam, optim.Rprop, optim.ASGD,
    ]  # fmt: skip
    for make in makers:
        yield partial(_run_optimizer, make, device, dtype)
    for clip in (nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_):
        yield partial(_clip_gradients, clip, device, dtype)
    yield partial(_average_parameters, device, dtype)


@_scene("unscale_step")
def scaling(device: Device, dtype: DType) -> Iterator[Call]:
    """Yield gradient unscaling, as `GradScaler` does it."""
    from ..amp._unscaling import Unscaling

    def unscale() -> None:
        Unscaling()([blank(device, *shape, dtype=dtype) for shape in ((3,), (64, 64), (1000, 300))], 0.5)

    yield unscale


def _parameters(device: Device, dtype: DType) -> list[Tensor]:
    parameters = []
    for shape in ((7,), *SHAPES, (16, 3, 3, 3)):
        parameter = blank(device, *shape, dtype=dtype, grad=True)
        parameter.grad = blank(device, *shape, dtype=dtype)
        parameters.append(parameter)
    return parameters


def _run_optimizer(make: Callable[[list[Tensor]], Optimizer], device: Device, dtype: DType) -> None:
    for count in (None, 1):  # a device may compile large and small steps differently
        optimizer = make(_parameters(device, dtype)[:count])
        for _ in range(2):
            optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def _clip_gradients(clip: Callable[..., object], device: Device, dtype: DType) -> None:
    clip(_parameters(device, dtype), 1.0)


def _average_parameters(device: Device, dtype: DType) -> None:
    from ..optim.swa_utils import get_ema_multi_avg_fn

    parameters = _parameters(device, dtype)
    gradients = [p.grad for p in parameters if p.grad is not None]
    get_ema_multi_avg_fn()(gradients, [p.detach() for p in parameters])


# Indexing and reducing ------------------------------------------------------------------------------------------------


@_scene("gather", "take_at", "put_at", "put_add_at", "scatter", "scatter_add", "embedding_rows", "masked_fill")
def indexing(device: Device, dtype: DType) -> Iterator[Call]:
    """Yield reads, writes and additions by index, embeddings, masks, one-hot encoding, and concatenation."""
    from ..nn import functional as F

    for rows, columns in SHAPES:
        index = blank(device, rows, dtype=dtypes.int64)
        make_tensor = partial(blank, device, rows, columns, dtype=dtype)
        mask = blank(device, rows, columns, dtype=dtypes.bool_)
        positions = blank(device, rows, columns, dtype=dtypes.int64)

        def write_by_index(  # defaults, because the variables of the loop change before the call runs
            make_tensor: partial[Tensor] = make_tensor,
            index: Tensor = index,
            mask: Tensor = mask,
            value: float = 1.0,
            columns: int = columns,
        ) -> None:
            target = make_tensor()
            target[index] = value
            target[index] = make_tensor()
            target[:, index % columns] = value
            target[1:, 1:] = value
            target[index, index % columns] += value
            target.masked_fill_(mask, value)

        yield partial(_run_backward, lambda x, i: x[i], make_tensor(grad=True), index)
        yield partial(_run_backward, lambda x, i: x[:, i], make_tensor(grad=True), index)
        yield partial(_run_backward, lambda x, i, j: x[i, j], make_tensor(grad=True), index, index)
        yield write_by_index
        yield partial(_run_backward, gathering.gather, make_tensor(grad=True), 1, positions)
        yield partial(
            _run_backward, scattering.scatter_add, make_tensor(grad=True), 0, positions, make_tensor(grad=True)
        )
        yield partial(_run_backward, index_writes.index_add, make_tensor(grad=True), 0, index, make_tensor(grad=True))
        yield partial(
            _run_backward,
            scattering.scatter_reduce,
            make_tensor(grad=True),
            0,
            positions,
            make_tensor(grad=True),
            "mean",
        )
        yield partial(_run_backward, gathering.index_select, make_tensor(grad=True), 1, index)
        yield partial(_run_backward, F.embedding, positions, make_tensor(grad=True), padding_idx=0)
        yield partial(F.one_hot, index, 10)
        yield partial(_run_backward, F.embedding_bag, positions, make_tensor(grad=True))
        yield partial(_run_backward, joining.cat, [make_tensor(grad=True), make_tensor(grad=True)], dim=1)
        yield partial(_run_backward, joining.stack, [make_tensor(grad=True), make_tensor(grad=True)])
        yield partial(_run_backward, where, mask, make_tensor(grad=True), 0.0)
        yield partial(_run_backward, where, mask, make_tensor(grad=True), make_tensor(grad=True))


@_scene(
    "moments", "deviation", "standardize", "standardize_fixed", "standardize_sums", "standardize_slope",
    "standardize_slope_inside", "weighted_sums", "move_statistics",
)  # fmt: skip
def norms(device: Device, dtype: DType) -> Iterator[Call]:
    """Yield batch, group and instance norm of `(N, C)`, `(N, C, L)` and `(N, C, H, W)`, in training and evaluation."""
    from ..nn import functional as F

    for shape in ((8, 6), (8, 6, 5), (64, 16, 8, 8)):
        make_input = partial(blank, device, *shape, dtype=dtype, grad=True)
        make_vector = partial(blank, device, shape[1], dtype=dtype)
        for training in (True, False):
            weights = {"weight": make_vector(grad=True), "bias": make_vector(grad=True), "training": training}
            yield partial(_run_backward, F.batch_norm, make_input(), make_vector(), make_vector(), **weights)
        yield partial(_run_backward, F.group_norm, make_input(), 2, make_vector(grad=True), make_vector(grad=True))
        if len(shape) > 2:
            yield partial(
                _run_backward, F.instance_norm, make_input(), weight=make_vector(grad=True), bias=make_vector(grad=True)
            )
            yield partial(_run_backward, F.instance_norm, make_input(), make_vector(), make_vector())


@_scene(
    "fill", "uniform_fill", "normal_fill", "integer_fill", "arange_fill", "linspace_fill", "mask_counts",
    "mask_positions",
)  # fmt: skip
def creation(device: Device, dtype: DType) -> Iterator[Call]:
    """Yield factories, random numbers, and the index arithmetic of `nonzero`, which itself needs computed values."""
    for shape in SHAPES:
        for fill_dtype in (dtype, dtypes.int64, dtypes.bool_):
            yield partial(factories.full, shape, 1, dtype=fill_dtype, device=device)
        yield partial(random.rand, *shape, dtype=dtype, device=device)
        yield partial(random.randn, *shape, dtype=dtype, device=device)
        yield partial(random.randint, 0, 10, shape, device=device)
        yield partial(number_sequences.linspace, 0, 1, shape[0], dtype=dtype, device=device)
        for fill_dtype in (dtype, dtypes.int64):
            yield partial(number_sequences.arange, shape[0], dtype=fill_dtype, device=device)
        positions = blank(device, shape[0], dtype=dtypes.int64)
        yield partial(_row_column_pairs, positions)
        yield partial(joining.stack, [positions, positions], 1)


@_scene("sum", "mean", "max_dim", "argmax", "amax", "count_nonzero")
def counting(device: Device, dtype: DType) -> Iterator[Call]:
    """Yield reductions: variance, norm, maximum, and the counts of an accuracy or a mask."""
    for shape in SHAPES:
        make_tensor = partial(blank, device, *shape, dtype=dtype)
        for dim in (None, 0, 1):
            yield partial(_run_backward, statistics.var, make_tensor(grad=True), dim)
            yield partial(_run_backward, statistics.std, make_tensor(grad=True), dim)
            yield partial(_run_backward, statistics.norm, make_tensor(grad=True), 2, dim)
        for dim in (0, 1):
            yield partial(_run_backward, statistics.logsumexp, make_tensor(grad=True), dim)
            yield partial(_run_backward, extrema.max, make_tensor(grad=True), dim)
        make_scalar = partial(blank, device, dtype=dtype, grad=True)
        yield partial(_run_backward, lambda a, b: (a + b) * 0.5 - b / 2, make_scalar(), make_scalar())
        labels = blank(device, shape[0], dtype=dtypes.int64)
        yield partial(lambda x, y: (x.argmax(1) == y).sum(), make_tensor(), labels)
        yield partial(lambda x, y: (x.argmax(1) == y).float().mean(), make_tensor(), labels)
        yield partial(lambda x: (x > 0).sum(), make_tensor())
        yield partial(lambda x: (x > 0).any(), make_tensor())
        yield partial(lambda x, own_dtype: x.to(dtypes.float64).to(own_dtype), make_tensor(), dtype)


def _row_column_pairs(positions: Tensor) -> Tensor:
    """Return the (row, column) of flat positions in a table with three columns, as `nonzero` computes them."""
    return joining.stack([positions // 3, positions % 3], 1)
