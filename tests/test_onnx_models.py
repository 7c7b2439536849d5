"""Check exported models against ONNX Runtime and after a round trip, for two sizes of each dynamic dimension."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from onnx_running import Function, check_export, run_with_onnxruntime

import weftgrad as wg
from weftgrad import nn
from weftgrad.bench.models import alexnet, gnmt, mobilenet, ncf, resnet, vgg
from weftgrad.nn import functional as F

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

BATCH = {0: "batch"}


def images(count: int) -> wg.Tensor:
    return wg.randn(count, 3, 32, 32)


def draw_statistics(model: nn.Module) -> nn.Module:
    """Give batch norms statistics that matter."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return model


@pytest.mark.parametrize(
    "make_model",
    [
        lambda: vgg.VGG(depth=11, classes=10, width=4, hidden=16, batch_norm=True),
        lambda: resnet.ResNet((1, 1, 1, 1), classes=10, width=4),
        lambda: mobilenet.MobileNetV1(classes=10, multiplier=0.125),
        lambda: mobilenet.MobileNetV2(classes=10, multiplier=0.125),
    ],
    ids=["vgg", "resnet", "mobilenet_v1", "mobilenet_v2"],
)
def test_image_models(make_model) -> None:
    model = draw_statistics(make_model())
    program = check_export(model, [images(2)], [images(3)], dynamic_axes={"images": BATCH})
    kinds = {node.op_type for node in program.model_proto.graph.node}
    assert {"Conv", "BatchNormalization", "Gemm"} <= kinds
    assert kinds <= {
        "Add", "AveragePool", "BatchNormalization", "Clip", "Constant", "Conv", "Gemm", "MatMul", "MaxPool",
        "ReduceMean", "Relu", "Reshape", "Transpose",
    }  # fmt: skip
    loaded = wg.onnx.load(program.model_proto)
    expected = {name for name in model.state_dict() if not name.endswith("num_batches_tracked")}
    assert set(loaded.state_dict()) == expected
    assert {name for name, _ in loaded.named_parameters()} == {name for name, _ in model.named_parameters()}


def test_alexnet() -> None:
    pictures = [wg.randn(count, 3, 64, 64) for count in (1, 4)]  # a batch of one, which must not be taken for constant
    check_export(alexnet.AlexNet(10, width=4, hidden=16), *([p] for p in pictures), dynamic_axes={"images": BATCH})


def test_recommender() -> None:
    pairs = [(wg.tensor([1, 2]), wg.tensor([0, 3])), (wg.tensor([4, 0, 1]), wg.tensor([6, 6, 5]))]
    check_export(ncf.small_neumf(5, 7), *pairs, dynamic_axes={"users": BATCH, "items": BATCH})


def test_translation_with_packed_sequences() -> None:
    """Lengths are an input: packing becomes the sequence lengths of ONNX's recurrent operators."""

    def sentences(lengths, width, target_width):
        source = wg.randint(3, 12, (len(lengths), width))
        for row, length in enumerate(lengths):
            source[row, length:] = gnmt.PAD
        return source, wg.tensor(lengths), wg.randint(3, 12, (len(lengths), target_width))

    model = gnmt.GNMT(12, width=8, layers=3, dropout=0.0)
    axes = {"source": {0: "batch", 1: "steps"}, "lengths": BATCH, "target": {0: "batch", 1: "target_steps"}}
    calls = [sentences([5, 3], 5, 4), sentences([2, 6, 1], 7, 3)]
    program = check_export(model, *calls, dynamic_axes=axes)
    assert [node.op_type for node in program.model_proto.graph.node].count("LSTM") == 6
    whole = check_export(model, *calls, dynamic_axes=axes, do_constant_folding=False)
    names = {proto.name for proto in whole.model_proto.graph.initializer}
    assert {"decoder.attention.gain", "decoder.attention.vector"} <= names
    assert names >= {proto.name for proto in program.model_proto.graph.initializer if "." in proto.name}


def test_perceptron_and_its_file(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
    x = wg.randn(2, 4)
    file, buffer = tmp_path / "model.onnx", io.BytesIO()
    wg.onnx.export(model, x, file, input_names=["features"], output_names=["scores"], opset_version=20,
                   dynamic_axes={"features": [0]})  # fmt: skip
    proto = onnx.load(file)
    assert proto.opset_import[0].version == 20
    assert [node.op_type for node in proto.graph.node] == ["Gemm", "Gelu", "Gemm"]
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "features_dynamic_axes_0"
    wg.onnx.export(model, x, buffer)
    for source in (file, buffer.getvalue(), proto):
        assert wg.allclose(wg.onnx.load(source)(x), model(x), atol=1e-6)


def test_weights_in_a_file_of_their_own(tmp_path: Path) -> None:
    model, x = nn.Linear(64, 32), wg.randn(2, 64)
    program = wg.onnx.export(model, x)
    for name in ("first.onnx", "second.onnx"):  # saving does not take the weights out of the program
        program.save(tmp_path / name, external_data=True)
        assert os.path.getsize(tmp_path / f"{name}.data") >= 4 * 64 * 32
        assert os.path.getsize(tmp_path / name) < 4 * 64 * 32
        assert wg.allclose(wg.onnx.load(tmp_path / name)(x), model(x), atol=1e-5)
    with pytest.raises(wg.onnx.OnnxExporterError, match="needs a path"):
        program.save(io.BytesIO(), external_data=True)


class Block(nn.Module):
    """A layer of a GPT: fused and explicit causal attention, and a perceptron."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: wg.Tensor) -> wg.Tensor:
        batch, steps, width = x.shape
        q, k, v = (
            part.view(batch, steps, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, -1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).contiguous().view(batch, steps, width))
        scores = (q @ k.transpose(-2, -1)) * 0.5
        mask = wg.tril(wg.ones(steps, steps))
        weights = scores.masked_fill(mask == 0, float("-inf")).softmax(-1)
        x = x + (weights @ v).transpose(1, 2).reshape(batch, steps, width)
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary: int = 11, width: int = 8, steps: int = 12):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(steps, width)
        self.blocks = nn.Sequential(Block(width, 2), Block(width, 4))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: wg.Tensor) -> wg.Tensor:
        x = self.tokens(tokens) + self.positions(wg.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)))


@pytest.mark.parametrize("opset", [17, 18, 20, 23])
def test_transformer_with_dynamic_batch_and_length(opset: int) -> None:
    calls = [
        [wg.randint(0, 11, size)] for size in ((2, 12), (3, 5))
    ]  # 12 is the longest: the exporter runs shorter ones
    axes = {"tokens": {0: "batch", 1: "steps"}}
    program = check_export(GPT(), *calls, dynamic_axes=axes, opset_version=opset)
    dims = program.model_proto.graph.output[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == ["batch", "steps", 11]
    assert ("Gelu" in {node.op_type for node in program.model_proto.graph.node}) == (opset >= 20)
    weights = [proto.name for proto in program.model_proto.graph.initializer]
    assert "tokens.weight" in weights
    assert "head.weight" not in weights  # one tensor under two names


def test_encoder_layers() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    axes = {"src": {0: "batch", 1: "steps"}}
    check_export(nn.TransformerEncoder(layer, 2), [wg.randn(2, 6, 8)], [wg.randn(3, 4, 8)], dynamic_axes=axes)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True),
        lambda: nn.GRU(4, 3, bias=False, batch_first=True),
        lambda: nn.RNN(4, 3, nonlinearity="relu", batch_first=True, bidirectional=True),
    ],
    ids=["lstm", "gru", "rnn"],
)
def test_recurrent_layers(layer) -> None:
    axes = {"input": {0: "batch", 1: "steps"}}
    model = layer()
    program = check_export(model, [wg.randn(2, 5, 4)], [wg.randn(3, 7, 4)], dynamic_axes=axes)
    assert set(wg.onnx.load(program.model_proto).state_dict()) == set(model.state_dict())


def test_recurrent_layer_on_packed_sequences() -> None:
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LSTM(4, 3)

        def forward(self, x, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
            output, (hidden, _) = self.layer(packed)
            padded, steps = nn.utils.rnn.pad_packed_sequence(output)
            return padded, hidden, steps

    calls = [(wg.randn(5, 2, 4), wg.tensor([3, 5])), (wg.randn(6, 3, 4), wg.tensor([1, 4, 2]))]
    check_export(Last(), *calls, dynamic_axes={"x": {0: "steps", 1: "batch"}, "lengths": {0: "batch"}})


def test_loaded_models_can_be_trained() -> None:
    model = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 1)).eval()
    program = wg.onnx.export(model, wg.ones(4, 2), dynamic_axes={"input": {0: "batch"}})
    loaded = wg.onnx.load(program.model_proto, device="cpu").train()
    optimizer = wg.optim.Adam(loaded.parameters(), lr=0.05)
    x = wg.randn(64, 2)
    y = x[:, :1] * x[:, 1:]
    losses = []
    for _ in range(60):
        loss = F.mse_loss(loaded(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
    model.load_state_dict(loaded.state_dict(), strict=False)
    assert wg.allclose(model(x), loaded.eval()(x), atol=1e-5)


def test_training_mode_leaves_the_model_as_it_was() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = wg.randn(4, 1, 6, 6)
    program = wg.onnx.export(model, x, training=wg.onnx.TrainingMode.PRESERVE)
    assert model.training
    assert all(wg.equal(value, before[name]) for name, value in model.state_dict().items())
    (output,) = run_with_onnxruntime(program, [x])
    assert abs(output - model(x).detach().numpy()).max() < 1e-5  # normalized with the statistics of the batch


def test_other_arguments_and_outputs() -> None:
    class Model(nn.Module):
        def forward(self, a, b, *, scale=2.0, extra=None):
            return {"sum": a + b * scale, "same": (a, a), "extra": extra[0]["k"] * 2}

    args = (wg.ones(2, 3), wg.ones(2, 3), {"scale": 3.0, "extra": [{"k": wg.ones(2)}]})
    axes = {"a": {0: "n"}, "b": {0: "n"}, "sum": {0: "rows"}}
    program = wg.onnx.export(Model(), args, output_names=["sum"], dynamic_axes=axes)
    graph = program.model_proto.graph
    assert [entry.name for entry in graph.input] == ["a", "b", "extra_0"]
    assert [entry.name for entry in graph.output] == ["sum", "output_1", "output_2", "output_3"]
    assert graph.output[0].type.tensor_type.shape.dim[0].dim_param == "rows"
    loaded = wg.onnx.load(program.model_proto)
    total, first, second, extra = loaded(b=wg.ones(5, 3), a=wg.zeros(5, 3), extra_0=wg.ones(2))
    assert total.tolist() == [[3.0] * 3] * 5
    assert first.tolist() == second.tolist() == [[0.0] * 3] * 5
    assert extra.tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="takes the inputs"):
        loaded(wg.ones(5, 3))


def test_ops_of_users_are_exported_by_their_formulas(tmp_path: Path) -> None:
    """The op is nowhere in the exporter's table: its spec says what it computes."""
    spec = tmp_path / "ops.yaml"
    spec.write_text(
        '- op: "snake(input, alpha: Scalar = 1.0)"\n  kind: pointwise\n  doc: A wave on a slope.\n  dtypes: float\n'
        "  out: input + sin(alpha * input) ** 2 / alpha\n",
        encoding="utf-8",
    )
    ops = wg.ops.load(spec)
    model = Function(lambda x: ops.snake(x, 0.5))
    program = check_export(model, [wg.randn(2, 3)], [wg.randn(4, 3)], dynamic_axes={"input_0": {0: "batch"}})
    assert "Sin" in {node.op_type for node in program.model_proto.graph.node}
