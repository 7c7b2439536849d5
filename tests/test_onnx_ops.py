"""Check each topic of the exporter's table against ONNX Runtime and after a round trip, with a dynamic dimension."""

from __future__ import annotations

import pytest
from onnx_running import Function, check_export

import weftgrad as wg
from weftgrad.nn import functional as F

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def _writes(x):
    z = x.clone()
    z[:, 0] = 1.0
    z[:, 1] += x.sum()
    z[:, :, 2:4] = x[:, :, 4:6] * 2
    row = z[1]
    row.mul_(3)
    z[0] = 3.0
    return z, row, z[:, 1:, 3]


def _stepped_writes(x):
    z = x.clone()
    z[:, :, ::2] = 0.0
    z[:, 1, 1::3] = x[:, 0, :3]
    return z


def _new_tensors(x):
    count = x.shape[0]
    return (
        x + wg.arange(count)[:, None, None], x * wg.linspace(0, 1, count)[:, None, None], wg.zeros(count, 3),
        wg.full((count, 2), 3.0), x.new_ones(x.shape), wg.eye(4) + x[:, :, :4], wg.ones(count, count).tril(), x / count,
        x.std(0), x[: count // 2], x[(count + 1) // 2 :], wg.arange(2, 2 + count, dtype=wg.int64),
    )  # fmt: skip


def _integers(x):
    n = (x * 5).to(wg.int64)
    return (
        n // 3, n % 3, wg.fmod(n, 3), wg.div(n, 3, rounding_mode="trunc"), n * 2 - 1, n / 2, -n, n.abs(), n == 1, n & 3,
        n | 4, n ^ 1, ~n, n.sum(1), n.max(1), n.to(wg.int32) * 2, n.sign(), n.clamp(-1, 1), n.prod(1), n.cumsum(1),
        (n > 0).sum(1), (n > 0).any(1), (n > 0).all(-1), (n > 0) & (n < 2), (n > 0) + (n < 2), wg.count_nonzero(n, 1),
    )  # fmt: skip


TOPICS = {
    "slices": lambda x: (x[:, 1:, ::2], x[..., -1], x[:, None, 1], x[:, -2:], x.narrow(2, 1, 3), x.select(1, -1)),
    "views": lambda x: (
        x.transpose(1, 2), x.movedim(1, 2), x.flatten(1), x.reshape(-1), x.unsqueeze(1).squeeze(1), x.flip(0, 2),
        x.diagonal(0, 1, 2), x.unfold(2, 3, 2), x[:, :1].expand(-1, 4, -1), wg.rot90(x, 1, (1, 2)),
    ),
    "joining": lambda x: (
        wg.stack([x * k for k in range(20)], 1), wg.cat([x] * 20, 0), x.chunk(2, 1), x.split(3, -1), x.roll(1, 0),
        x.roll((2, 1), (1, 2)), x.repeat(1, 2, 1), x.repeat_interleave(2, 1),
    ),
    "writes": lambda x: (*_writes(x), _stepped_writes(x)),
    "new tensors": _new_tensors,
    "reductions": lambda x: (
        x.sum(), x.mean((1, 2)), x.amax(1), x.amin(-1, keepdim=True), x.prod(1), x.std(1), x.var((1, 2)),
        x.var(1, unbiased=False), x.norm(), x.norm(dim=1), x.norm(p=1, dim=1), x.max(1), x.min(-1, keepdim=True),
        x.argmax(1), x.argmin(), x.argmax(2, keepdim=True), x.logsumexp(1), x.cumsum(1), x.sort(-1), x.topk(2),
        x.sort(1, descending=True), x.median(1),
    ),
    "arithmetic": lambda x: (
        x + 1, 2 - x, x * x, x / 3, x // 0.7, wg.remainder(x, 0.7), wg.fmod(x, 0.7), x**2, 2**x, -x, x.abs(),
        x.square(), wg.lerp(x, x + 1, 0.3), wg.addcmul(x, x, x, value=2), wg.hypot(x, x + 1), wg.copysign(x, x.flip(0)),
        wg.maximum(x, -x), wg.fmax(x, -x), x.clamp(0, 1), x.clamp(min=0), x.clamp(max=x.flip(0)), x.reciprocal(),
    ),
    "functions": lambda x: (
        *(f(x) for f in (wg.exp, wg.exp2, wg.expm1, wg.sin, wg.cos, wg.tan, wg.atan, wg.sinh, wg.cosh, wg.tanh,
                         wg.asinh, wg.erf, wg.erfc, wg.floor, wg.ceil, wg.trunc, wg.round, wg.frac, wg.sign, wg.sinc)),
        *(f(x.abs()) for f in (wg.log, wg.log1p, wg.log2, wg.log10, wg.sqrt, wg.rsqrt)), wg.atan2(x, x.flip(0)),
    ),
    "small arguments": lambda x: (wg.expm1(x * 1e-6) * 1e6, wg.log1p(x * 1e-6) * 1e6),
    "logic": lambda x: (
        x > 0, x <= 0, x == x, x != x, wg.isnan(x), wg.isinf(x / 0), wg.isfinite(x), wg.signbit(x * 0), ~(x > 0),
        wg.logical_xor(x > 0, x < 1), wg.where(x > 0, x, wg.zeros_like(x)), x.masked_fill(x > 0, -1.0), x.bool(),
    ),
    "integers": _integers,
    "casts": lambda x: (x.to(wg.float64), x.half().float(), x.to(wg.int32), (x > 0).float(), x.to(wg.float64).sin()),
    "activations": lambda x: (
        *(f(x) for f in (F.relu, F.elu, F.selu, F.celu, F.gelu, F.silu, F.mish, F.softplus, F.hardswish, F.hardsigmoid,
                         F.hardtanh, F.leaky_relu, F.softsign, F.logsigmoid, F.tanhshrink, F.softshrink, F.hardshrink,
                         F.relu6, F.sigmoid)),
        F.prelu(x, wg.tensor([0.1, 0.2, 0.3, 0.4])), F.gelu(x, approximate="tanh"), F.threshold(x, 0.1, 2.0), F.glu(x),
        F.softplus(x, 2.0, 1.0), x.softmax(1), x.log_softmax(-1), F.softmin(x, 1),
    ),
    "products": lambda x: (
        wg.einsum("bij,bkj->bik", x, x), x @ x.mT, wg.baddbmm(wg.ones(4, 4), x, x.mT, beta=0.5, alpha=2.0),
        x @ wg.arange(8.0), F.linear(x, wg.ones(3, 8), wg.arange(3.0)), wg.addmm(wg.ones(4), x[:, 0], wg.ones(8, 4)),
        F.linear(x[:, 0], wg.ones(3, 8)), wg.outer(x[0, 0], x[0, 1]), wg.dot(x[0, 0], x[0, 1]), x[0] @ x[0, 0],
    ),
    "convolutions": lambda x: (
        F.conv1d(x, wg.arange(24.0).view(2, 4, 3), padding=1), F.conv1d(x, wg.ones(4, 1, 3), groups=4, dilation=2),
        F.conv2d(x[:, None], wg.arange(12.0).view(2, 1, 2, 3), wg.ones(2), stride=2, padding=1),
        F.conv1d(x, wg.ones(2, 4, 4), padding="same"), F.conv_transpose1d(x, wg.ones(4, 2, 3), wg.ones(2)),
        F.conv_transpose2d(x[:, None], wg.arange(12.0).view(1, 3, 2, 2), stride=2, output_padding=1, padding=1),
        F.conv3d(x[:, None, None], wg.ones(2, 1, 1, 2, 2)),
    ),
    "pooling": lambda x: (
        F.max_pool2d(x[:, None], 2), F.max_pool2d(x[:, None], 3, 2, 1, ceil_mode=True), F.avg_pool2d(x[:, None], 2),
        F.avg_pool2d(x[:, None], 3, 2, 1, count_include_pad=False), F.avg_pool2d(x[:, None], 3, 2, ceil_mode=True),
        F.avg_pool2d(x[:, None], 2, divisor_override=3), F.max_pool1d(x, 2), F.avg_pool1d(x, 2),
        F.adaptive_avg_pool2d(x[:, None], 3), F.adaptive_avg_pool2d(x[:, None], 1),
        F.max_pool2d(x[:, None], 2, dilation=2),
        F.adaptive_max_pool2d(x[:, None], (2, 4)), F.max_pool2d(x[:, None], 2, return_indices=True),
    ),
    "padding": lambda x: (
        F.pad(x, (1, 2)), F.pad(x, (1, 2, 0, 1), value=3.0), F.pad(x, (1, 2), mode="reflect"), F.pad(x, (-1, -2)),
        F.pad(x, (1, 2), mode="replicate"), F.pad(x, (2, 1), mode="circular"),
    ),
    "normalization": lambda x: (
        F.group_norm(x, 2, wg.arange(4.0), wg.ones(4)), F.group_norm(x, 2), F.instance_norm(x), F.layer_norm(x, (4, 8)),
        F.layer_norm(x, (8,), wg.arange(8.0)), F.rms_norm(x, (8,)), F.rms_norm(x, (8,), wg.arange(8.0)), F.normalize(x),
        F.local_response_norm(x, 3), F.batch_norm(x, wg.arange(4.0), wg.ones(4) * 2),
        F.batch_norm(x, wg.arange(4.0), wg.ones(4), wg.ones(4) * 3, wg.ones(4)),
    ),
    "interpolation": lambda x: (
        *(F.interpolate(x[:, None], size=(7, 5), mode=m) for m in ("nearest", "nearest-exact", "bilinear", "bicubic")),
        F.interpolate(x[:, None], scale_factor=2), F.interpolate(x[:, None], scale_factor=1.5, mode="bilinear"),
        F.interpolate(x[:, None], size=(7, 5), mode="bilinear", align_corners=True),
        F.interpolate(x, size=5, mode="linear"),
        F.interpolate(x[:, None], size=(2, 3), mode="bilinear", antialias=True), F.interpolate(x, size=3, mode="area"),
    ),
    "attention": lambda x: (
        F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None]),
        F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=True),
        F.scaled_dot_product_attention(
            x[:, None], x[:, None], x[:, None], attn_mask=wg.arange(4)[:, None] > wg.arange(4)
        ),
        F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], attn_mask=wg.arange(16.0).view(4, 4)),
        F.scaled_dot_product_attention(
            x.view(-1, 4, 2, 4), x.view(-1, 4, 2, 4)[:, :2], x.view(-1, 4, 2, 4)[:, :2], enable_gqa=True
        ),
    ),
    "losses": lambda x: (
        F.mse_loss(x, x * 2), F.l1_loss(x, x * 2, reduction="none"), F.smooth_l1_loss(x, x * 2),
        F.binary_cross_entropy_with_logits(x, x.sigmoid()), F.cross_entropy(x, (x[:, 0] > 0).long()),
        F.cross_entropy(x, (x[:, 0] > 0).long(), reduction="none", label_smoothing=0.1),
        F.nll_loss(x.log_softmax(1), (x[:, 0] > 0).long()), F.cosine_similarity(x, x + 1, dim=1),
    ),
    "images": lambda x: (
        F.pixel_shuffle(x[..., None], 2), F.pixel_unshuffle(x[:, None], 2), F.one_hot((x > 0).long(), 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("topic", TOPICS)
def test_ops(topic: str) -> None:
    wg.manual_seed(1)
    check_export(
        Function(TOPICS[topic]), [wg.randn(2, 4, 8)], [wg.randn(5, 4, 8)], dynamic_axes={"input_0": {0: "batch"}}
    )


def test_indexing() -> None:
    def index(x, i):
        return (
            wg.gather(x, 1, i), x.index_select(1, i.flatten()[:2]), x[:, i[0, :, 0]], x[i[:, 0, 0] % 2],
            x[i[:, 0, 0] % 2, i[:, 1, 0]], x[:, i[0, 0], i[0, 1]], x.scatter(1, i, 1.0), x.scatter_add(1, i, x[:, :2]),
            x.index_add(1, i[0, :, 0], x[:, :2]), x.index_fill(1, i[0, :, 0], 2.0), wg.take_along_dim(x, i, 1),
            F.embedding(i, wg.arange(12.0).view(4, 3)), x.index_copy(1, wg.tensor([1, 3]), x[:, :2]),
            x[:, -i[0, :, 0] - 1], x[:, i[0, :, 0].to(wg.int8)], x.take(i.to(wg.int16)),
        )  # fmt: skip

    indices = [wg.tensor([[[0] * 8, [3] * 8]] * count) for count in (2, 3)]
    calls = [(wg.randn(count, 4, 8), i) for count, i in zip((2, 3), indices, strict=True)]
    check_export(Function(index), *calls, dynamic_axes={"input_0": {0: "n"}, "input_1": {0: "n"}})


@pytest.mark.parametrize("opset", [17, 19, 23])
def test_other_opsets(opset: int) -> None:
    """Axes of reductions are attributes before opset 18; circular padding is an operator since 19."""
    function = lambda x: (x.mean(1), x.amax(-1), F.pad(x, (2, 1), mode="circular"), F.gelu(x), x.sum(1))  # noqa: E731
    calls = [[wg.randn(2, 4, 8)], [wg.randn(3, 4, 8)]]
    check_export(Function(function), *calls, dynamic_axes={"input_0": {0: "n"}}, opset_version=opset)


def test_dynamic_images() -> None:
    """Sizes behind strided convolutions are no sums of the input's: they are read from the tensors."""

    def features(x):
        y = F.max_pool2d(F.conv2d(x, wg.ones(3, 1, 3, 3), stride=2, padding=1), 2)
        return y.flatten(2).transpose(1, 2), F.avg_pool2d(y, 2, ceil_mode=True), y.view(y.shape[0], -1).mean(1)

    axes = {"input_0": {0: "n", 2: "height", 3: "width"}}
    check_export(Function(features), [wg.randn(2, 1, 16, 24)], [wg.randn(3, 1, 19, 13)], dynamic_axes=axes)


def test_parameters_are_initializers_even_if_they_are_viewed() -> None:
    class Model(wg.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = wg.nn.Parameter(wg.randn(3, 4))
            self.register_buffer("scale", wg.arange(3.0))

        def forward(self, x):
            return x @ self.weight.t() * self.scale[None], self.weight[: x.shape[0]]

    program = check_export(Model(), [wg.randn(2, 4)], [wg.randn(3, 4)], dynamic_axes={"x": {0: "n"}})
    loaded = wg.onnx.load(program.model_proto)
    assert [name for name, _ in loaded.named_parameters()] == ["weight"]
    assert [name for name, _ in loaded.named_buffers() if not name.startswith("_constants")] == ["scale"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda x: wg.special.bessel_j0(x),
            "bessel_j0 in the model: ONNX has no operator for its function 'bessel_j0'",
        ),
        (lambda x: x[x > 0], "the exporter's table has no row for this op"),
        (lambda x: x + wg.randn(4, 8), "it draws random numbers"),
        (lambda x: F.dropout(x), "it draws random numbers"),
    ],
    ids=["function", "mask", "random", "dropout"],
)
@pytest.mark.filterwarnings("ignore:export. the model reads values")
def test_ops_without_a_row_are_named(function, message: str) -> None:
    with pytest.raises(wg.onnx.UnsupportedOperatorError) as caught:
        wg.onnx.export(Function(function), wg.randn(2, 4, 8))
    assert message in str(caught.value)


def test_the_layer_is_named() -> None:
    model = wg.nn.Sequential(wg.nn.Linear(8, 8), wg.nn.Sequential(Function(lambda x: x.cumprod(1))))
    with pytest.raises(wg.onnx.UnsupportedOperatorError, match=r"export: cumprod in layer '1.0': .* has no row"):
        wg.onnx.export(model, wg.randn(2, 8))


def test_ops_whose_results_are_not_used_need_no_row() -> None:
    program = wg.onnx.export(Function(lambda x: (x.cumprod(1), x + 1)[1]), wg.randn(2, 4))
    assert [node.op_type for node in program.model_proto.graph.node] == ["Constant", "Add"]
