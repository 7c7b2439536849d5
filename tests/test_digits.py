"""Check that the packaged digits equal the published ones, and that the split into training and test is fixed."""

import hashlib
from pathlib import Path

import numpy as np

from weftgrad.demo import digits

PER_CLASS = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def sha256(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def test_shapes_types_and_range():
    train_images, train_labels, test_images, test_labels = digits.load()
    assert train_images.shape == (1437, 1, 8, 8)
    assert test_images.shape == (360, 1, 8, 8)
    assert train_labels.shape == (1437,)
    assert test_labels.shape == (360,)
    for images, labels in ((train_images, train_labels), (test_images, test_labels)):
        assert images.dtype == np.float32
        assert labels.dtype == np.int64
        assert images.flags.c_contiguous
        assert images.flags.writeable
        assert images.min() == 0
        assert images.max() == 1
        assert np.array_equal(images * 16, np.rint(images * 16))
        assert set(labels.tolist()) == set(range(10))


def test_the_table_is_the_published_one():
    with np.load(Path(digits.__file__).with_name("digits.npz"), allow_pickle=False) as stored:
        images, labels, order = stored["images"], stored["labels"], stored["order"]
    # Digests of scikit-learn's copy of optdigits.tes; counts per class from the UCI description.
    assert sha256(images) == "8f26b2bd9d135c256808f68f14fdabddde6d9c7f869ae419704b051f0f14b3b3"
    assert sha256(labels) == "8ba4f891220f5e4c9c819638d1602d74b83618f167043c6da52a2a247841ddf0"
    assert np.bincount(labels).tolist() == PER_CLASS
    assert np.array_equal(np.sort(order), np.arange(1797))
    # The first row of optdigits.tes is a zero with this top line of pixels.
    assert images[0, 0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    assert labels[0] == 0


def test_the_split_is_fixed_and_covers_every_image_once():
    train_images, train_labels, test_images, test_labels = digits.load()
    second_load = digits.load()
    for first, second in zip(digits.load(), second_load, strict=True):
        assert np.array_equal(first, second)
        assert not np.shares_memory(first, second)
    counts = np.bincount(train_labels) + np.bincount(test_labels)
    assert counts.tolist() == PER_CLASS
    assert np.bincount(test_labels).min() >= 25
    assert train_labels[:8].tolist() == [3, 3, 8, 8, 7, 2, 2, 4]
    assert test_labels[-8:].tolist() == [6, 8, 9, 2, 9, 4, 7, 4]
    total = int(np.rint(train_images.sum() * 16)) + int(np.rint(test_images.sum() * 16))
    assert total == 561718


def test_a_nearest_neighbour_reads_them():
    train_images, train_labels, test_images, test_labels = digits.load()
    train, test = train_images.reshape(1437, 64), test_images.reshape(360, 64)
    distances = (test**2).sum(1)[:, None] - 2 * test @ train.T + (train**2).sum(1)
    guesses = train_labels[distances.argmin(1)]
    assert (guesses == test_labels).mean() > 0.97
