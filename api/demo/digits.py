"""Handwritten digits: 1,797 images of 8 x 8 pixels, small enough to ship inside the package.

The data are the test set of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, 1998, UCI Machine
Learning Repository, CC BY 4.0); `DIGITS.md` beside this file says how `digits.npz` was created.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CLASSES = 10
SIDE = 8
"""Height and width of an image, in pixels."""
MAX_GREY_LEVEL = 16
"""The highest grey level of the file, whose levels run from 0 (white) to 16."""
TRAINING_IMAGES = 1437
"""Number of images for training (80 %): the first ones of the shuffled order. The other 360 are for testing."""

Images = NDArray[np.float32]
Labels = NDArray[np.int64]


def load() -> tuple[Images, Labels, Images, Labels]:
    """Return `(train_images, train_labels, test_images, test_labels)`, always the same split in the same order.

    Images are float32 in [0, 1], of shape (1437, 1, 8, 8) and (360, 1, 8, 8); labels are int64 in 0..9, of shape
    (1437,) and (360,). The arrays are fresh and C-contiguous: the caller may write into them. The file stores the
    shuffled order of the images, so the split is the same with every version of NumPy's random number generator.
    """
    with np.load(Path(__file__).with_name("digits.npz"), allow_pickle=False) as file:
        order = file["order"]
        images = file["images"][order].astype(np.float32) / np.float32(MAX_GREY_LEVEL)
        labels = file["labels"][order].astype(np.int64)
    images = images.reshape(-1, 1, SIDE, SIDE)
    train, test = slice(None, TRAINING_IMAGES), slice(TRAINING_IMAGES, None)
    return images[train].copy(), labels[train].copy(), images[test].copy(), labels[test].copy()
