"""Data on which the models learn something within seconds, all generated or inside the package.

`digits` and `shapes` are images for the vision models, `spoken_numbers` a translation task that a rule solves, and
`interactions` a table of users and items with hidden factors. All functions return NumPy arrays, the same for the same
seed, so that each library can be trained on the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...demo import digits as packaged_digits
from ...runtime.dtypes import Array

__all__ = [
    "WORDS",
    "Interactions",
    "Sentences",
    "batches_by_length",
    "digits",
    "hit_rate",
    "interactions",
    "read_words",
    "shapes",
    "spoken_numbers",
    "training_pairs",
]


_ONES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
         "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
WORDS = ("<pad>", "<begin>", "<end>", *"0123456789", *_ONES, *_TENS, "hundred", "thousand")
"""The vocabulary of `spoken_numbers`: the first three are the tokens `PAD`, `BEGIN` and `END` of `gnmt`."""
_TOKEN = {word: token for token, word in enumerate(WORDS)}
_MAX_DIGITS = 6


def digits(size: int, channels: int = 3) -> tuple[Array, Array]:
    """Return the 1797 handwritten digits of `weftgrad.demo`, resized and standardized.

    Args:
        size: Rows and columns, a multiple of 8: pixels are repeated.
        channels: Channels, which all have the same values.

    Returns:
        Images float32 `(1797, channels, size, size)` of mean 0 and variance 1, and labels int64 `(1797,)` in 0..9.
    """
    train_images, train_labels, test_images, test_labels = packaged_digits.load()
    images = np.concatenate([train_images, test_images])
    images = (images - images.mean()) / images.std()
    images = images.repeat(size // packaged_digits.SIDE, axis=2).repeat(size // packaged_digits.SIDE, axis=3)
    return images.repeat(channels, axis=1), np.concatenate([train_labels, test_labels])


def shapes(count: int, size: int, seed: int = 0) -> tuple[Array, Array]:
    """Draw a disc, a square, a ring or a cross of any colour, size and position on a noisy background.

    Args:
        count: Number of images.
        size: Rows and columns.
        seed: Seed of the random numbers.

    Returns:
        Images float32 `(count, 3, size, size)`, and labels int64 `(count,)` in 0..3, in the order of the first line.
    """
    rng = np.random.default_rng(seed)
    images = rng.normal(0.0, 0.2, (count, 3, size, size)).astype(np.float32)
    labels = rng.integers(0, 4, count)
    rows, columns = np.mgrid[:size, :size]
    for image, label in zip(images, labels, strict=True):
        radius = rng.uniform(size / 6, size / 3)
        y, x = rng.uniform(radius, size - radius, 2)
        vertical, horizontal = np.abs(rows - y), np.abs(columns - x)
        distance = np.hypot(vertical, horizontal)
        mask = (
            distance <= radius,
            np.maximum(vertical, horizontal) <= radius,
            np.abs(distance - 0.8 * radius) <= 0.2 * radius,
            (np.minimum(vertical, horizontal) <= 0.25 * radius) & (np.maximum(vertical, horizontal) <= radius),
        )[label]
        image[:, mask] += rng.uniform(0.5, 1.5, (3, 1)).astype(np.float32)
    return images, labels


class Sentences(NamedTuple):
    """A padded batch of sentences and their translations, as int64 tokens.

    source: `(N, S)`. lengths: of the sources `(N,)`. inputs: what the decoder reads `(N, T)`, beginning with `BEGIN`.
    target: what it should predict `(N, T)`, closing with `END`.
    """

    source: Array
    lengths: Array
    inputs: Array
    target: Array


def spoken_numbers(count: int, max_digits: int = 3, seed: int = 0) -> Sentences:
    """Return numbers whose digits are written from last to first, to be translated into English words.

    The source `2 4 3` becomes `three hundred forty two`: a network has to reverse the order, and a word depends on the
    digit's position and sometimes on its neighbour.

    Args:
        count: Number of sentences.
        max_digits: Largest number of digits, up to 6. All numbers of digits are equally frequent.
        seed: Seed of the random numbers.
    """
    if not 1 <= max_digits <= _MAX_DIGITS:
        raise ValueError(f"max_digits is 1 to {_MAX_DIGITS}, not {max_digits}")
    rng = np.random.default_rng(seed)
    numbers = [int(rng.integers(10 ** (n - 1) if n > 1 else 0, 10**n)) for n in rng.integers(1, max_digits + 1, count)]
    sources = [[_TOKEN[digit] for digit in reversed(str(number))] for number in numbers]
    translations = [[_TOKEN[word] for word in read_words(number)] for number in numbers]
    return Sentences(
        _padded(sources),
        np.array([len(source) for source in sources]),
        _padded([[_TOKEN["<begin>"], *words] for words in translations]),
        _padded([[*words, _TOKEN["<end>"]] for words in translations]),
    )


def batches_by_length(
    sentences: Sentences, size: int, batches: int, window: int = 8, seed: int = 0
) -> Iterator[Sentences]:
    """Yield batches of sentences of like length, without padding beyond each batch's own longest source and target.

    Sentences are shuffled, those of `window` consecutive batches are sorted by length, and the batches of a window come
    in random order, so that shapes change from step to step, as in the training of translators on text.

    Args:
        sentences: The sentences; they are used as often as it takes.
        size: Sentences of a batch.
        batches: Number of batches.
        window: Batches whose sentences are sorted together.
        seed: Seed of the order.
    """
    rng = np.random.default_rng(seed)
    words = (sentences.target != 0).sum(1)
    windows = -(-batches // window)
    repeats = -(-windows * window * size // len(words))
    order = np.concatenate([rng.permutation(len(words)) for _ in range(repeats)])
    for number in range(windows):
        rows = order[number * window * size :][: window * size]
        rows = rows[np.lexsort((words[rows], sentences.lengths[rows]))].reshape(window, size)
        for batch in rng.permutation(rows)[: batches - number * window]:
            source, target = sentences.lengths[batch].max(), words[batch].max()
            yield Sentences(
                sentences.source[batch, :source],
                sentences.lengths[batch],
                sentences.inputs[batch, :target],
                sentences.target[batch, :target],
            )


def read_words(number: int) -> list[str]:
    """Return the English words of a number below a million.

    >>> read_words(12_342)
    ['twelve', 'thousand', 'three', 'hundred', 'forty', 'two']
    """
    if number >= 1000:
        return [*read_words(number // 1000), "thousand", *(read_words(number % 1000) if number % 1000 else [])]
    if number >= 100:
        return [_ONES[number // 100], "hundred", *(read_words(number % 100) if number % 100 else [])]
    if number >= 20:
        return [_TENS[number // 10 - 2], *([_ONES[number % 10]] if number % 10 else [])]
    return [_ONES[number]]


def _padded(sentences: list[list[int]]) -> Array:
    """Return sentences as rows of one array, filled up with zeros."""
    tokens = np.zeros((len(sentences), max(map(len, sentences))), np.int64)
    for row, sentence in zip(tokens, sentences, strict=True):
        row[: len(sentence)] = sentence
    return tokens


class Interactions(NamedTuple):
    """Users' interactions with items, of which one of each user is held out for evaluation.

    users, items: the interactions for training `(M,)` each. held_out: one item of each user `(users,)`.
    negatives: items that a user has not interacted with `(users, count)`. known: all interactions as a table of
    Booleans `(users, items)`.
    """

    users: Array
    items: Array
    held_out: Array
    negatives: Array
    known: Array


def interactions(
    users: int, items: int, each: int = 20, rank: int = 4, negatives: int = 99, seed: int = 0
) -> Interactions:  # fmt: skip
    """Draw interactions by hidden factors: a user takes the items whose factors resemble the user's, with some noise.

    The evaluation is that of the paper of `ncf`: the held-out item is ranked among items that the user does not know.

    Args:
        users: Number of users.
        items: Number of items, more than `each + negatives`.
        each: Interactions of each user.
        rank: Number of hidden factors.
        negatives: Unknown items of each user, for evaluation.
        seed: Seed of the random numbers.
    """
    rng = np.random.default_rng(seed)
    affinity = rng.standard_normal((users, rank)) @ rng.standard_normal((rank, items))
    # The largest values after adding Gumbel noise are a sample without replacement with the softmax's probabilities.
    order = np.argsort(-(3.0 * affinity / rank**0.5 + rng.gumbel(size=affinity.shape)), axis=1)
    known_items, unknown_items = order[:, :each], order[:, each:]
    held_out = rng.integers(0, each, users)
    is_training = np.arange(each) != held_out[:, None]
    known = np.zeros((users, items), bool)
    np.put_along_axis(known, known_items, True, axis=1)
    return Interactions(
        np.repeat(np.arange(users), each - 1),
        known_items[is_training],
        known_items[np.arange(users), held_out],
        rng.permuted(unknown_items, axis=1)[:, :negatives],
        known,
    )


def training_pairs(table: Interactions, negatives: int = 4, seed: int = 0) -> tuple[Array, Array, Array]:
    """Return an epoch of shuffled pairs: each interaction, and items drawn from those that the user does not know.

    Args:
        table: The interactions.
        negatives: Unknown items per interaction.
        seed: Seed of the random numbers.

    Returns:
        Users and items, int64 `(M * (1 + negatives),)`, and labels float32, 1 for interactions.
    """
    rng = np.random.default_rng(seed)
    users = np.repeat(table.users, negatives)
    items = rng.integers(0, table.known.shape[1], len(users))
    while (is_known := table.known[users, items]).any():
        items[is_known] = rng.integers(0, table.known.shape[1], int(is_known.sum()))
    labels = np.concatenate([np.ones(len(table.users), np.float32), np.zeros(len(users), np.float32)])
    order = rng.permutation(len(labels))
    return np.concatenate([table.users, users])[order], np.concatenate([table.items, items])[order], labels[order]


def hit_rate(scores: Array, top: int = 10) -> float:
    """Return the share of users whose held-out item is among the `top` best of their candidates.

    Args:
        scores: `(users, candidates)`; column 0 is the held-out item.
        top: Number of items that count as recommended.
    """
    return float(((scores[:, 1:] > scores[:, :1]).sum(1) < top).mean())
