"""Check the table of a model's layers, drawings of autograd graphs, and event files for TensorBoard."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import weftgrad as wg
from weftgrad import nn
from weftgrad.bench.models import resnet
from weftgrad.utils.graphviz import make_dot


def test_summary_of_resnet_50() -> None:
    """The counts are those of He et al. (2016) and of torchvision: 25,557,032 parameters and 4.09 G multiplications."""
    with wg.device("meta"):
        statistics = wg.utils.summary(resnet.ResNet(), (1, 3, 224, 224), verbose=0)
    assert statistics.total_params == statistics.trainable_params == 25_557_032
    assert statistics.total_mult_adds == 4_089_184_256
    assert statistics.total_param_bytes == 4 * (25_557_032 + 2 * 26_560) + 8 * 53  # and statistics of 53 batch norms
    assert statistics.summary_list[1].output_shapes == [(1, 64, 112, 112)]


def test_summary_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    shared = nn.Linear(4, 4)
    model = nn.Sequential(nn.Sequential(shared, nn.ReLU()), shared, nn.LSTM(4, 3)).train()
    model[0][0].weight.requires_grad_(False)
    columns = ("input_size", "output_size", "num_params", "trainable", "memory", "mult_adds")
    statistics = wg.utils.summary(model, (5, 2, 4), col_names=columns)
    assert model.training
    text = capsys.readouterr().out
    assert text == f"{statistics}\n"
    lines = [re.split(r" {2,}", line.lstrip("│ ")) for line in text.splitlines()]
    assert lines[1] == [
        "Layer (type:depth-idx)",
        "Input Shape",
        "Output Shape",
        "Param #",
        "Trainable",
        "Memory",
        "Mult-Adds",
    ]
    cells = {line[0]: line[1:] for line in lines}
    assert cells["├─Linear (0): 2-1"] == ["[5, 2, 4]", "[5, 2, 4]", "20", "Partial", "240 B", "160"]
    assert cells["├─Linear (0): 1-2"][2] == "(recursive)"
    weights = 12 * 4 + 12 * 3
    assert cells["├─LSTM (2): 1-3"][-1] == str(10 * weights)
    assert cells["├─ReLU (1): 2-2"][2:4] == ["--", "--"]
    assert "Total params: 128" in text
    assert "Non-trainable params: 16" in text


def test_summary_arguments() -> None:
    embedding = nn.Embedding(5, 3)
    statistics = wg.utils.summary(embedding, (4,), batch_dim=0, dtypes=[wg.int64], verbose=0)
    assert statistics.summary_list[0].output_shapes == [(1, 4, 3)]
    assert wg.utils.summary(embedding, input_data=wg.tensor([1, 2]), verbose=0).summary_list[0].input_shapes == [(2,)]
    for options in ({"col_names": ["size"]}, {"mode": "fast"}, {"dtypes": [wg.int64] * 2}):
        with pytest.raises(ValueError, match="summary: "):
            wg.utils.summary(embedding, (4,), verbose=0, **options)
    with pytest.raises(ValueError, match="pass input_size"):
        wg.utils.summary(embedding)


def test_graph_of_a_model() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    normalized = nn.BatchNorm1d(1)(model(wg.ones(4, 2)))  # a node with a gradient function of its own
    assert "2.weight" in make_dot(normalized.sum(), dict(model.named_parameters())).source
    loss = model(wg.ones(4, 2)).sum()
    source = make_dot(loss, dict(model.named_parameters()), show_attrs=True, show_saved=True).source
    labels = dict(re.findall(r'(n\d+) \[label="(.*?)" ', source))
    edges = {(labels[a].split("\\n")[0], labels[b].split("\\n")[0]) for a, b in re.findall(r"(n\d+) -> (n\d+)", source)}
    assert {("0.weight", "linear_bias"), ("2.bias", "linear_bias"), ("linear_bias", "relu"), ("relu", "linear_bias"),
            ("linear_bias", "sum"), ("sum", "result"), ("saved", "relu")} <= edges  # fmt: skip
    assert "keepdim=False" in source
    assert source.count('"2.weight\\n(1, 3)"') == 1
    plain = make_dot(loss).source
    assert "keepdim" not in plain
    assert "saved" not in plain


def test_graphs_of_several_results_share_calls(tmp_path: Path) -> None:
    x = wg.ones(2, requires_grad=True)
    y = x * 2
    graph = make_dot([y.sum(), y.mean()])
    assert graph.source.count('label="mul"') == 1
    assert graph.source.count('label="result') == 2
    path = graph.save(tmp_path / "graph.gv")
    assert Path(path).read_text() == f"{graph}\n"
    long = x
    for _ in range(2000):  # no recursion
        long = long + 1
    assert make_dot(long).source.count('label="add"') == 2000
    with pytest.raises(ValueError, match="has no graph"):
        make_dot(wg.ones(2))


def test_pictures_need_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    graph = make_dot(wg.ones(2, requires_grad=True).sum())
    with pytest.raises(ImportError, match="program dot of Graphviz"):
        graph.pipe()
    assert graph._repr_svg_() is None


def test_event_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from weftgrad.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        assert writer.log_dir == str(tmp_path)
        writer.add_scalar("loss", wg.tensor(0.25), 3)
        writer.add_scalars("both", {"train": 1.0, "test": wg.tensor([2.0])}, 3)
        writer.add_histogram("weight", nn.Linear(3, 2).weight, 3)
        writer.add_image("picture", wg.rand(3, 4, 4), 3)
        writer.add_text("note", "a text", 3)
    events = read_events(next(tmp_path.glob("events*")))
    assert events["loss"].simple_value == 0.25
    assert events["weight"].histo.num == 6
    assert (events["picture"].image.height, events["picture"].image.width) == (4, 4)
    assert "note/text_summary" in events


def read_events(path: Path) -> dict:
    """Return the values of an event file by tag. A record is its length, a checksum, the event and a checksum."""
    from tensorboardX.proto.event_pb2 import Event

    data, position, result = path.read_bytes(), 0, {}
    while position < len(data):
        length = int.from_bytes(data[position : position + 8], "little")
        event = Event.FromString(data[position + 12 : position + 12 + length])
        result.update({value.tag: value for value in event.summary.value})
        position += 16 + length
    return result


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from weftgrad.utils.tensorboard import SummaryWriter

    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match=r"pip install 'weftgrad\[tensorboard\]'"):
        SummaryWriter("runs")
