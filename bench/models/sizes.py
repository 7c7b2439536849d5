"""The sizes at which the suite `models` trains each model: those of the papers on a GPU, smaller ones on host cores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from ...runtime.dtypes import Array
from .training import RECIPES, random_images, random_pairs, random_sentences

if TYPE_CHECKING:
    from ..library_types import Model

__all__ = ["GPU_SIZES", "HOST_SIZES", "ModelSize"]


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A model at one size.

    name: The model, as reports name it.
    recipe: The recipe's name in `RECIPES`.
    size: Images and batch, as reports describe them.
    build: Returns the model from the model's module.
    batch: Returns arrays for a number of images, sentences or pairs.
    count: Images, sentences or pairs of a step.
    """

    name: str
    recipe: str
    size: str
    build: Callable[[ModuleType], Model]
    batch: Callable[[int], dict[str, Array]]
    count: int

    @property
    def items(self) -> int:
        """What a step processes, in the recipe's unit. Tokens are those of sources and targets without padding."""
        if RECIPES[self.recipe].unit != "tokens":
            return self.count
        batch = self.batch(self.count)
        return sum(int(np.count_nonzero(batch[name])) for name in ("source", "target"))


def _images(size: int, classes: int = 1000) -> Callable[[int], dict[str, Array]]:
    return lambda count: random_images(count, size, classes)


# On host cores the convolutions keep the papers' channels. Images are smaller, and so are hidden linear layers.
GPU_SIZES = (
    ModelSize("AlexNet", "alexnet", "224x224, batch 128", lambda m: m.alexnet(), _images(224), 128),
    ModelSize("VGG-19", "vgg", "224x224, batch 64", lambda m: m.vgg19(), _images(224), 64),
    ModelSize("ResNet-50", "resnet", "224x224, batch 64", lambda m: m.resnet50(), _images(224), 64),
    ModelSize("MobileNet", "mobilenet", "224x224, batch 64", lambda m: m.mobilenet_v1(), _images(224), 64),
    ModelSize("MobileNetV2", "mobilenet", "224x224, batch 64", lambda m: m.mobilenet_v2(), _images(224), 64),
    ModelSize("GNMTv2", "gnmt", "4+4 layers of 1024, batch 128x50", lambda m: m.gnmt(),
              lambda count: random_sentences(count, 50, 32_317), 128),
    ModelSize("NCF", "ncf", "MovieLens 20M, batch 65536", lambda m: m.neumf(),
              lambda count: random_pairs(count, 138_493, 26_744), 65_536),
)  # fmt: skip
HOST_SIZES = (
    ModelSize("AlexNet", "alexnet", "100 classes, 127x127, batch 4", lambda m: m.AlexNet(100, hidden=1024),
              _images(127, 100), 4),
    ModelSize("VGG-19", "vgg", "100 classes, 32x32, batch 2", lambda m: m.VGG(19, 100, hidden=512),
                   _images(32, 100), 2),
    ModelSize("ResNet-50", "resnet", "100 classes, 64x64, batch 2", lambda m: m.resnet50(100), _images(64, 100), 2),
    ModelSize("MobileNet", "mobilenet", "100 classes, 64x64, batch 4", lambda m: m.mobilenet_v1(100),
                   _images(64, 100), 4),
    ModelSize("MobileNetV2", "mobilenet", "100 classes, 64x64, batch 4", lambda m: m.mobilenet_v2(100),
                   _images(64, 100), 4),
    ModelSize("GNMTv2", "gnmt", "3+3 layers of 256, batch 8x16", lambda m: m.GNMT(2000, 256, 3),
              lambda count: random_sentences(count, 16, 2000), 8),
    ModelSize("NCF", "ncf", "6040 users, 3706 items, batch 2048", lambda m: m.neumf(6040, 3706),
              lambda count: random_pairs(count, 6040, 3706), 2048),
)  # fmt: skip
