"""Check the models of `bench/models`: sizes, equality with the same programs on torch, and that each one learns.

Comparisons with torch are in float64 and skipped where torch is not installed. A model that learns does so at small
size and with the optimizer of its paper, at a rate that suits the small size.
"""

from __future__ import annotations

import doctest
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.bench.models import NAMES, data, load, training
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


def as_tensors(library, batch):
    """Return a batch's arrays as tensors, real ones in float64."""
    return {
        name: library.tensor(array.astype(np.float64) if array.dtype.kind == "f" else array)
        for name, array in batch.items()
    }


@pytest.mark.parametrize("name", MODELS)
def test_outputs_and_gradients_equal_torch(name):
    torch = pytest.importorskip("torch")
    setup = setup_of(name)
    recipe = training.RECIPES[setup.module]
    ours, theirs = (setup.build(library).double() for library in (wg, torch))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    theirs.load_state_dict({key: torch.tensor(value.numpy()) for key, value in ours.state_dict().items()})
    losses = []
    for library, model in ((wg, ours), (torch, theirs)):
        loss = recipe.loss(library, load(setup.module, library), model, as_tensors(library, setup.batch))
        loss.backward()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-10)
    expected = dict(theirs.named_parameters())
    for key, parameter in ours.named_parameters():
        gradient = expected[key].grad.numpy()
        assert np.abs(gradient).max() > 0, key
        np.testing.assert_allclose(parameter.grad.numpy(), gradient, rtol=1e-7, atol=1e-10, err_msg=key)
    for key, buffer in ours.named_buffers():
        statistic = dict(theirs.named_buffers())[key].numpy()
        np.testing.assert_allclose(buffer.numpy(), statistic, rtol=1e-9, atol=1e-12, err_msg=key)


def test_translations_equal_those_of_torch():
    torch = pytest.importorskip("torch")
    setup = setup_of("gnmt")
    ours, theirs = (setup.build(library).double().eval() for library in (wg, torch))
    theirs.load_state_dict({key: torch.tensor(value.numpy()) for key, value in ours.state_dict().items()})
    results = []
    for library, model in ((wg, ours), (torch, theirs)):
        search = load("translation", library)
        source, lengths = (library.tensor(setup.batch[key]) for key in ("source", "lengths"))
        results.append([
            part.numpy()
            for part in (
                *search.greedy(model, source, lengths, 6),
                *search.beam_search(model, source, lengths, 6, beams=3, alpha=0.6, beta=0.2),
            )
        ])  # fmt: skip
    for actual, expected in zip(*results, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
