"""Check the models of `bench/models`: sizes, equality with the same programs on torch, and that each one learns.

Comparisons with torch in float64 are skipped where torch is not installed. Vision models run in float64, because batch
normalization amplifies the rounding of float32; GNMT and NCF in float32. One dtype each, for comparing and learning:
compiling kernels for two would take most of the time. A model learns at small size, with the optimizer of its paper, at
a rate that suits the size.
"""

from __future__ import annotations

import doctest
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.bench import plots, report, rows, tables
from weftgrad.bench.models import NAMES, data, load, resident_memory, sizes, suite, training
from weftgrad.bench.running import measure_case
from weftgrad.bench.sites import OurSite
from weftgrad.cli import main
from weftgrad.nn import init

CLASSES = 10
VISION = {
    "alexnet": ("alexnet", "small_alexnet", 64),
    "vgg": ("vgg", "small_vgg", 32),
    "resnet": ("resnet", "small_resnet", 32),
    "mobilenet-v1": ("mobilenet", "small_mobilenet_v1", 32),
    "mobilenet-v2": ("mobilenet", "small_mobilenet_v2", 32),
}
"""By name: module, function, and rows of the images."""


@dataclass(frozen=True)
class Setup:
    """A small model and a batch for it.

    Attributes:
        module: The module's name.
        function: The name of the function that builds the model.
        arguments: Its arguments.
        batch: Arrays by name, as the recipe's loss reads them.
    """

    module: str
    function: str
    arguments: dict[str, Any]
    batch: dict[str, np.ndarray]

    def build(self, library: Any) -> Any:
        library.manual_seed(0)
        return getattr(load(self.module, library), self.function)(**self.arguments)


def setup_of(name: str) -> Setup:
    if name in VISION:
        module, function, size = VISION[name]
        # Blocks that start as identities pass no gradient to their first convolutions, which would not be compared.
        arguments = {"classes": CLASSES} | ({"zero_init": False} if name == "resnet" else {})
        return Setup(module, function, arguments, training.random_images(4, size, CLASSES))
    if name == "gnmt":
        batch = data.spoken_numbers(6, max_digits=4, seed=1)._asdict()
        return Setup("gnmt", "small_gnmt", {"vocabulary": len(data.WORDS)}, batch)
    return Setup("ncf", "small_neumf", {"users": 30, "items": 40}, training.random_pairs(64, 30, 40))


MODELS = (*VISION, "gnmt", "ncf")


# --- Sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "function", "expected"),
    [
        ("alexnet", "alexnet", 61_100_840),
        ("vgg", "vgg19", 143_667_240),
        ("resnet", "resnet50", 25_557_032),
        ("mobilenet", "mobilenet_v1", 4_231_976),
        ("mobilenet", "mobilenet_v2", 3_504_872),
        ("gnmt", "gnmt", 160_665_150),
        ("ncf", "neumf", 31_832_577),
    ],
)
def test_the_full_model_has_the_parameters_of_its_paper(module, function, expected):
    with init.skip_initialization():  # memory that is never written takes no pages
        model = getattr(load(module), function)()
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_zero_init_makes_every_residual_block_an_identity():
    resnet = load("resnet")
    block = resnet.small_resnet(zero_init=True).layer1[0]
    assert not block.bn3.weight.detach().numpy().any()
    assert resnet.small_resnet(zero_init=False).layer1[0].bn3.weight.detach().numpy().all()


@pytest.mark.parametrize("name", [*NAMES, "data", "loading"])
def test_examples_of_docstrings_run(name):
    module = load(name) if name in NAMES else data if name == "data" else __import__(load.__module__, fromlist=["load"])
    assert doctest.testmod(module).failed == 0


def test_an_unknown_module_is_refused():
    with pytest.raises(ValueError, match="'lenet': there are alexnet, vgg"):
        load("lenet")


# --- Beside torch -----------------------------------------------------------------------------------------------------


def as_tensors(library, batch, dtype=np.float64):
    """Return a batch's arrays as tensors, real ones in `dtype`."""
    return {
        name: library.tensor(array.astype(dtype) if array.dtype.kind == "f" else array) for name, array in batch.items()
    }


def pair_of(torch, name):
    """Return a small model and its twin on torch with the same parameters."""
    setup = setup_of(name)
    ours, theirs = setup.build(wg), setup.build(torch).double()
    if name in VISION:
        ours = ours.double()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    theirs.load_state_dict({key: torch.tensor(value.numpy()) for key, value in ours.state_dict().items()})
    return ours, theirs


@pytest.fixture
def torch():
    """Torch with one thread: where others use the cores, its threads spin for each other many times longer."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", MODELS)
def test_outputs_and_gradients_equal_torch(torch, name):
    setup = setup_of(name)
    recipe = training.RECIPES[setup.module]
    ours, theirs = pair_of(torch, name)
    dtype, rtol, atol = (np.float64, 1e-7, 1e-10) if name in VISION else (np.float32, 1e-3, 1e-6)
    losses = []
    for library, model, kind in ((wg, ours, dtype), (torch, theirs, np.float64)):
        loss = recipe.loss(library, load(setup.module, library), model, as_tensors(library, setup.batch, kind))
        loss.backward()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-10 if name in VISION else 1e-6)
    expected = dict(theirs.named_parameters())
    for key, parameter in ours.named_parameters():
        gradient = expected[key].grad.numpy()
        assert np.abs(gradient).max() > 0, key
        np.testing.assert_allclose(parameter.grad.numpy(), gradient, rtol=rtol, atol=atol, err_msg=key)
    for key, buffer in ours.named_buffers():
        statistic = dict(theirs.named_buffers())[key].numpy()
        np.testing.assert_allclose(buffer.numpy(), statistic, rtol=1e-9, atol=1e-12, err_msg=key)


def test_translations_equal_those_of_torch(torch):
    batch = setup_of("gnmt").batch
    results = []
    for library, model in zip((wg, torch), pair_of(torch, "gnmt"), strict=True):
        search = load("translation", library)
        source, lengths = library.tensor(batch["source"]), library.tensor(batch["lengths"])
        greedy = search.greedy(model.eval(), source, lengths, 6)
        beams = search.beam_search(model, source, lengths, 6, beams=3, alpha=0.6, beta=0.2)
        results.append([part.numpy() for part in (*greedy, *beams)])
    for actual, expected in zip(*results, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


# --- Learning ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def translator():
    """A small GNMT after 300 steps on numbers of one and two digits, and the mean loss of the first and last ten."""
    wg.manual_seed(0)
    model = load("gnmt").small_gnmt(len(data.WORDS))
    step = training.step_of(training.RECIPES["gnmt"], wg, model, {"lr": 2e-2})
    sentences = data.spoken_numbers(2048, max_digits=2)
    losses = []
    for start in range(0, 300 * 64, 64):
        batch = np.arange(start, start + 64) % 2048
        losses.append(step({name: wg.tensor(part[batch]) for name, part in sentences._asdict().items()}).item())
    return model.eval(), np.mean(losses[:10]), np.mean(losses[-10:])


@pytest.mark.parametrize(
    ("name", "options", "steps", "highest"),
    [
        ("alexnet", {"lr": 0.002}, 50, 1.7),
        ("vgg", {"lr": 0.01}, 40, 1.5),
        ("resnet", {"lr": 0.05}, 40, 1.8),
        ("mobilenet-v1", {"lr": 0.1}, 40, 1.9),
        ("mobilenet-v2", {"lr": 0.1}, 60, 1.9),  # rounding changes its first steps: three seeds reach 1.05 to 1.6
    ],
)
def test_a_vision_model_learns_digits(name, options, steps, highest):
    """The mean loss of the last eight steps is below a limit; a guess has log(10) = 2.30."""
    module, function, size = VISION[name]
    wg.manual_seed(0)
    model = getattr(load(module), function)(CLASSES).double()
    step = training.step_of(training.RECIPES[module], wg, model, options)
    images, labels = data.digits(size)
    losses = []
    for start in range(0, 32 * steps, 32):
        batch = np.arange(start, start + 32) % len(labels)
        losses.append(step(as_tensors(wg, {"images": images[batch], "labels": labels[batch]})).item())
    assert np.mean(losses[-8:]) < highest, losses


def test_gnmt_learns_to_read_numbers(translator):
    """The loss falls by 2. With smoothed labels its least value is the entropy of a label, 0.69 for 43 words."""
    model, first, last = translator
    assert first > 2.9
    assert last < 0.9
    unseen = data.spoken_numbers(24, max_digits=2, seed=9)
    tokens, _ = load("translation").greedy(model, wg.tensor(unseen.source), wg.tensor(unseen.lengths), 5)
    length = min(tokens.shape[1], unseen.target.shape[1])
    assert (tokens.numpy()[:, :length] == unseen.target[:, :length]).all(1).mean() > 0.7


def test_beam_search_finds_at_least_the_greedy_score(translator):
    model, *_ = translator
    search = load("translation")
    sentences = data.spoken_numbers(24, max_digits=2, seed=9)
    source, lengths = wg.tensor(sentences.source), wg.tensor(sentences.lengths)
    tokens, score = search.greedy(model, source, lengths, 5)
    _, log_probability, beam_score = search.beam_search(model, source, lengths, 5, beams=4, alpha=0.0)
    assert (log_probability.numpy() >= score.numpy() - 1e-4).all()
    np.testing.assert_allclose(beam_score.numpy(), log_probability.numpy())
    one_beam, log_probability, _ = search.beam_search(model, source, lengths, 5, beams=1)
    assert one_beam.tolist() == tokens.tolist()
    np.testing.assert_allclose(log_probability.numpy(), score.numpy(), rtol=1e-4)


def test_penalties_change_the_score_as_in_the_paper(translator):
    model, *_ = translator
    search = load("translation")
    sentences = data.spoken_numbers(24, max_digits=2, seed=9)
    operands = (model, wg.tensor(sentences.source), wg.tensor(sentences.lengths), 5)
    tokens, log_probability, score = search.beam_search(*operands, beams=1, alpha=0.6)
    lengths = (tokens.numpy() != 0).sum(1)
    np.testing.assert_allclose(score.numpy(), log_probability.numpy() / ((5 + lengths) / 6) ** 0.6, rtol=1e-5)
    _, _, covered = search.beam_search(*operands, beams=1, alpha=0.6, beta=0.2)
    assert (covered.numpy() <= score.numpy() + 1e-6).all()
    assert (covered.numpy() < score.numpy()).any()


def test_ncf_finds_held_out_items():
    """The hit rate at 10 of 100 candidates is 0.1 by chance; the planted factors make more than 0.5 possible."""
    users, items, candidates = 200, 300, 100
    table = data.interactions(users, items, negatives=candidates - 1)
    wg.manual_seed(0)
    model = load("ncf").small_neumf(users, items)
    step = training.step_of(training.RECIPES["ncf"], wg, model, {"lr": 1e-2})
    ranked = np.concatenate([table.held_out[:, None], table.negatives], axis=1)

    def hit_rate():
        with wg.no_grad():
            scores = model(wg.tensor(np.repeat(np.arange(users), candidates)), wg.tensor(ranked.ravel()))
        return data.hit_rate(scores.numpy().reshape(users, candidates))

    assert hit_rate() < 0.25
    for epoch in range(4):
        pairs = data.training_pairs(table, seed=epoch)
        for start in range(0, len(pairs[0]) - 255, 256):
            batch = zip(("users", "items", "labels"), pairs, strict=True)
            step({name: wg.tensor(part[start : start + 256]) for name, part in batch})
    assert hit_rate() > 0.5


def test_the_command_keeps_and_draws_learning_curves(tmp_path, capsys):
    arguments = ["bench", "--curves", str(tmp_path), "--only", "NCF", "--device", "cpu", "--peers", "none"]
    if not plots.available():
        assert main(arguments) == 2
        assert "needs matplotlib" in capsys.readouterr().err
        return
    assert main(arguments) == 0
    assert "NCF on cpu: loss 0.7" in capsys.readouterr().out
    (row,) = json.loads((tmp_path / "learning.json").read_text())["learning"]
    assert len(row["scores"]) == 11
    assert row["scores"][0] < 0.25
    assert row["scores"][-1] > 0.5
    assert np.mean(row["losses"][-10:]) < 0.8 * row["losses"][0]
    assert (tmp_path / "ncf-learns.png").stat().st_size > 10_000
    assert main([*arguments[:3], "--only", "Xception"]) == 2
    assert "no model has 'Xception' in its name: there are AlexNet" in capsys.readouterr().err


# --- Data -------------------------------------------------------------------------------------------------------------


def test_digits_are_standardized_and_resized():
    images, labels = data.digits(16)
    assert images.shape == (1797, 3, 16, 16)
    assert images.dtype == np.float32
    assert abs(images.mean()) < 1e-4
    assert images.std() == pytest.approx(1, abs=1e-3)
    assert np.array_equal(images[:, :, ::2, ::2], images[:, :, 1::2, 1::2])
    assert np.bincount(labels).min() >= 174


def test_shapes_can_be_told_apart_by_the_share_of_bright_pixels():
    images, labels = data.shapes(400, 24)
    assert set(labels.tolist()) == {0, 1, 2, 3}
    bright = (images.mean(1) > 0.4).mean((1, 2))
    means = [bright[labels == label].mean() for label in range(4)]
    assert means[1] > means[0] > means[2] > 0.05  # square, disc, ring
    assert np.array_equal(images, data.shapes(400, 24)[0])


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"), (13, "thirteen"), (20, "twenty"), (47, "forty seven"), (300, "three hundred"),
        (512, "five hundred twelve"), (1000, "one thousand"), (21_040, "twenty one thousand forty"),
        (999_999, "nine hundred ninety nine thousand nine hundred ninety nine"),
    ],
)  # fmt: skip
def test_numbers_are_read(number, words):
    assert " ".join(data.read_words(number)) == words


def test_sentences_are_padded_and_shifted_by_one():
    sentences = data.spoken_numbers(50, max_digits=6)
    assert ((sentences.source != 0).sum(1) == sentences.lengths).all()
    for source, inputs, target in zip(sentences.source, sentences.inputs, sentences.target, strict=True):
        words = [data.WORDS[token] for token in target if token]
        number = int("".join(data.WORDS[token] for token in source[::-1] if token))
        assert words == [*data.read_words(number), "<end>"]
        assert [data.WORDS[token] for token in inputs if token] == ["<begin>", *words[:-1]]
    with pytest.raises(ValueError, match="1 to 6, not 7"):
        data.spoken_numbers(1, max_digits=7)


@pytest.mark.parametrize(("count", "size", "batches", "window"), [(100, 8, 21, 4), (5, 8, 3, 2), (64, 64, 2, 8)])
def test_batches_of_like_length_have_no_needless_padding(count, size, batches, window):
    sentences = data.spoken_numbers(count, max_digits=6)
    drawn = list(data.batches_by_length(sentences, size, batches, window, seed=1))
    assert len(drawn) == batches
    for batch in drawn:
        assert batch.source.shape == (size, batch.lengths.max())
        assert batch.inputs.shape == batch.target.shape == (size, (batch.target != 0).sum(1).max())
        np.testing.assert_array_equal((batch.source != 0).sum(1), batch.lengths)
    translations = {tuple(row[row != 0]) for row in sentences.target}
    assert all(tuple(row[row != 0]) in translations for batch in drawn for row in batch.target)
    if count == 100:
        assert {tuple(row[row != 0]) for batch in drawn for row in batch.target} == translations  # each is used
        assert len({batch.source.shape for batch in drawn}) > 3


def test_interactions_hold_one_item_of_each_user_out():
    table = data.interactions(20, 60, each=6, negatives=30)
    assert len(table.users) == len(table.items) == 20 * 5
    assert (table.known.sum(1) == 6).all()
    assert table.known[np.arange(20), table.held_out].all()
    assert table.known[table.users, table.items].all()
    assert not (table.items == table.held_out[table.users]).any()
    for user in range(20):
        assert len(set(table.negatives[user].tolist())) == 30
        assert not table.known[user, table.negatives[user]].any()
    users, items, labels = data.training_pairs(table, negatives=3)
    assert len(users) == 100 * 4
    assert np.array_equal(table.known[users, items], labels == 1)


def test_the_hit_rate_counts_better_candidates():
    scores = np.array([[0.5, 0.6, 0.7, 0.1], [0.9, 0.1, 0.2, 0.3], [0.0, 0.1, 0.2, 0.3]])
    assert [data.hit_rate(scores, top) for top in (1, 2, 3, 4)] == pytest.approx([1 / 3, 1 / 3, 2 / 3, 1.0])


# --- The suite --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_gpu", [False, True])
def test_the_suite_has_a_row_for_each_model(on_gpu):
    cases = list(suite.cases(on_gpu))
    assert [case.name.partition(",")[0] for case in cases] == [
        "AlexNet", "VGG-19", "ResNet-50", "MobileNet", "MobileNetV2", "GNMTv2", "NCF",
    ]  # fmt: skip
    assert [case.unit for case in cases] == ["images"] * 5 + ["tokens", "samples"]
    assert all(case.items > 0 for case in cases)


def test_a_row_is_checked_and_has_a_throughput(monkeypatch):
    small = sizes.ModelSize(
        "tiny", "ncf", "", lambda m: m.small_neumf(5, 7), lambda count: training.random_pairs(count, 5, 7), 32
    )
    original, suite.HOST_SIZES = suite.HOST_SIZES, (small,)
    try:
        (case,) = suite.cases(False)
        sizes_by_name = {"weftgrad cpu tiny": 12345}
        monkeypatch.setattr(suite, "peak_resident_bytes", lambda *words: sizes_by_name[" ".join(words)])
    finally:
        suite.HOST_SIZES = original
    site = OurSite("cpu")
    row = measure_case(case, [site], 1, ())
    assert "problem" not in row
    assert row["errors"]["cpu"] < 1e-4
    assert row["facts"]["cpu"]["driver_allocations"] == 0  # of a later step
    assert row["facts"]["cpu"]["peak_bytes"] > 0
    assert "cold_ms" not in row["facts"]["cpu"]
    time = row["times"]["cpu"]
    assert time["least"] <= time["mean"]
    rate = rows.throughput(32, time)
    assert f"cpu {rows.throughput_text(rate, 'samples')}" in report.kernel_line(row)
    head = {"date": "2026-01-01T00:00", "devices": [{"device": "cpu", "name": "Cores"}], "torch": None}
    (entry,) = rows.entries([{"suite": "models", "machine": head, "host": [], "kernels": [row]}])
    assert entry.throughput() == rate
    assert entry.throughput("torch") is None
    (record,) = tables.records([entry])
    assert record["resident_bytes"] == 12345
    assert (record["items"], record["unit"]) == (32, "samples")
    assert (record["items_per_s"], record["items_per_s_deviation"]) == rate


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
def test_resident_memory_of_training_is_measured():
    (size,) = (size for size in sizes.HOST_SIZES if size.name == "NCF")
    parameters = 4 * sum(parameter.numel() for parameter in size.build(load("ncf")).parameters())
    peak = resident_memory.peak_resident_bytes("weftgrad", "cpu", "NCF")
    assert 4 * parameters <= peak < 16 * parameters  # parameters, gradients and two moments; pages of activations


def test_a_throughput_is_mean_and_deviation():
    assert rows.throughput(64, {"mean": 0.5, "deviation": 0.05}) == pytest.approx((128, 12.8))
    assert rows.throughput(0, {"mean": 0.5, "deviation": 0.05}) is None
    assert rows.throughput(64, {"median": 0.5}) is None  # a report of an older version
    assert rows.throughput_text((128.0, 12.8), "images") == "128 ± 12.8 images/s"
