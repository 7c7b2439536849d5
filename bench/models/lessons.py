"""What each small model learns: real or rule-made data, a learning rate, and a score on data that it has not seen.

- Images: the demo's 1,797 handwritten digits (UCI). The score is the accuracy on 297 of them.
- GNMT: numbers, whose digits from last to first become English words. The score is the share of unseen numbers that
  greedy search reads without a mistake. Numbers of one and two digits come in batches of one shape; those of one to six
  digits come in batches of like length, each padded to its own longest number only.
- NCF: interactions planted by hidden factors. The score is the share of users whose held-out item is among the ten best
  of a hundred candidates, as in the paper.

A lesson runs on any library with PyTorch's names, from the same weights and batches. Read `learning` next, which runs
and draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from ...runtime.dtypes import Array
from . import data
from .loading import load

if TYPE_CHECKING:
    from ..library_types import Model, Tensor
    from ..sites import Site

__all__ = ["LESSONS", "Lesson"]

_CLASSES = 10
_TEST_DIGITS = 297
_UNSEEN_NUMBERS = 100
_MAX_WORDS = {2: 6, 6: 14}  # of translations, by the digits of the longest number, with a margin
_USERS, _ITEMS, _CANDIDATES = 200, 300, 100

Batch = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Lesson:
    """A small model and what it learns.

    Attributes:
        name: The model's name in tables.
        module: The model's module, and its recipe in `training.RECIPES`.
        build: Returns the model from the model's module.
        lr: Learning rate for the small size.
        batches: Yields a step's arrays by name, for as many steps as the lesson has.
        measure: Names the score.
        score: Returns it for a trained model, from 0 to 1.
    """

    name: str
    module: str
    build: Callable[[ModuleType], Model]
    lr: float
    batches: Callable[[], Iterator[Batch]]
    measure: str
    score: Callable[[Site, Model], float]


def _digit_lesson(name: str, module: str, function: str, size: int, lr: float, steps: int) -> Lesson:
    def batches() -> Iterator[Batch]:
        images, labels = _digits(size)
        order = np.random.default_rng(0).permutation(len(labels) - _TEST_DIGITS)
        for start in range(0, 32 * steps, 32):
            batch = order[np.arange(start, start + 32) % len(order)]
            yield {"images": images[batch], "labels": labels[batch]}

    def accuracy(site: Site, model: Model) -> float:
        images, labels = (part[-_TEST_DIGITS:] for part in _digits(size))
        return float((_in_host_memory(model(site.tensor(images))).argmax(1) == labels).mean())

    return Lesson(
        name, module, lambda m: getattr(m, function)(_CLASSES), lr, batches, "accuracy on unseen digits", accuracy
    )


@cache
def _digits(size: int) -> tuple[Array, Array]:
    return data.digits(size)


def _number_batches() -> Iterator[Batch]:
    sentences = data.spoken_numbers(2048, max_digits=2)._asdict()
    for start in range(0, 300 * 64, 64):
        batch = np.arange(start, start + 64) % 2048
        yield {name: part[batch] for name, part in sentences.items()}


def _long_number_batches() -> Iterator[Batch]:
    for batch in data.batches_by_length(data.spoken_numbers(8192, max_digits=6), 64, 1500, window=4):
        yield batch._asdict()


def _read_without_mistake(site: Site, model: Model, max_digits: int) -> float:
    unseen = data.spoken_numbers(_UNSEEN_NUMBERS, max_digits, seed=9)
    source, lengths = site.tensor(unseen.source), site.library.tensor(unseen.lengths)
    tokens, _ = load("translation", site.library).greedy(model, source, lengths, _MAX_WORDS[max_digits])
    words = _in_host_memory(tokens)
    length = max(words.shape[1], unseen.target.shape[1])
    actual, expected = (np.pad(part, ((0, 0), (0, length - part.shape[1]))) for part in (words, unseen.target))
    return float((actual == expected).all(1).mean())


@cache
def _interactions() -> data.Interactions:
    return data.interactions(_USERS, _ITEMS, negatives=_CANDIDATES - 1)


def _pair_batches() -> Iterator[Batch]:
    for epoch in range(4):
        pairs = data.training_pairs(_interactions(), seed=epoch)
        for start in range(0, len(pairs[0]) - 255, 256):
            yield {n: part[start : start + 256] for n, part in zip(("users", "items", "labels"), pairs, strict=True)}


def _hit_rate(site: Site, model: Model) -> float:
    table = _interactions()
    ranked = np.concatenate([table.held_out[:, None], table.negatives], axis=1)
    scores = model(site.tensor(np.repeat(np.arange(_USERS), _CANDIDATES)), site.tensor(ranked.ravel()))
    return data.hit_rate(_in_host_memory(scores).reshape(_USERS, _CANDIDATES))


def _in_host_memory(tensor: Tensor) -> Array:
    return tensor.detach().cpu().numpy()


LESSONS = (
    _digit_lesson("AlexNet", "alexnet", "small_alexnet", 64, 0.002, 150),
    _digit_lesson("VGG", "vgg", "small_vgg", 32, 0.01, 150),
    _digit_lesson("ResNet", "resnet", "small_resnet", 32, 0.05, 150),
    _digit_lesson("MobileNet", "mobilenet", "small_mobilenet_v1", 32, 0.1, 150),
    _digit_lesson("MobileNetV2", "mobilenet", "small_mobilenet_v2", 32, 0.1, 150),
    Lesson("GNMTv2", "gnmt", lambda m: m.small_gnmt(len(data.WORDS)), 2e-2, _number_batches,
           "share of unseen numbers that are read right", partial(_read_without_mistake, max_digits=2)),
    Lesson("GNMTv2, lengths as they come", "gnmt", lambda m: m.small_gnmt(len(data.WORDS)), 1.5e-2,
           _long_number_batches, "share of unseen numbers that are read right",
           partial(_read_without_mistake, max_digits=6)),
    Lesson("NCF", "ncf", lambda m: m.small_neumf(_USERS, _ITEMS), 1e-2, _pair_batches,
           "users whose held-out item is among the ten best", _hit_rate),
)  # fmt: skip
"""One for each model of the suite, at the model's small size."""
