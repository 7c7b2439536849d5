"""How each model is trained: its loss, its paper's optimizer, and batches of any size.

A `Recipe` is what a training step needs beside the model. `step_of` puts a model and its recipe together into a call
that trains one step, for any library with PyTorch's names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from ...runtime.dtypes import Array
from .loading import load

if TYPE_CHECKING:
    from ..library_types import Model, Tensor

__all__ = ["RECIPES", "Recipe", "step_of"]

_FIRST_WORD = 3  # tokens before it are PAD, BEGIN and END


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one model is trained.

    module: The module of this folder.
    unit: What throughput counts: `images`, `tokens` or `samples`.
    optimizer: The name of an optimizer class, and `options` its arguments, as in the model's paper.
    loss: A function of the library, the model's module, the model and a batch of tensors.
    max_norm: The norm to which all gradients together are clipped; 0 for none.
    """

    module: str
    unit: str
    optimizer: str
    options: Mapping[str, float]
    loss: Callable[[ModuleType, ModuleType, Model, Mapping[str, Tensor]], Tensor]
    max_norm: float = 0.0


def _classification_loss(library: ModuleType, module: ModuleType, model: Model, batch: Mapping[str, Tensor]) -> Tensor:
    loss: Tensor = library.nn.functional.cross_entropy(model(batch["images"]), batch["labels"])
    return loss


def _translation_loss(library: ModuleType, module: ModuleType, model: Model, batch: Mapping[str, Tensor]) -> Tensor:
    logits = model(batch["source"], batch["lengths"], batch["inputs"])
    loss: Tensor = module.smoothed_loss(logits, batch["target"])
    return loss


def _interaction_loss(library: ModuleType, module: ModuleType, model: Model, batch: Mapping[str, Tensor]) -> Tensor:
    logits = model(batch["users"], batch["items"])
    loss: Tensor = library.nn.functional.binary_cross_entropy_with_logits(logits, batch["labels"])
    return loss


_SGD = {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4}
_RMSPROP = {"lr": 0.045, "alpha": 0.9, "eps": 1.0, "momentum": 0.9, "weight_decay": 4e-5}
RECIPES = {
    "alexnet": Recipe("alexnet", "images", "SGD", _SGD, _classification_loss),
    "vgg": Recipe("vgg", "images", "SGD", _SGD, _classification_loss),
    "resnet": Recipe("resnet", "images", "SGD", _SGD | {"lr": 0.1, "weight_decay": 1e-4}, _classification_loss),
    "mobilenet": Recipe("mobilenet", "images", "RMSprop", _RMSPROP, _classification_loss),
    "gnmt": Recipe("gnmt", "tokens", "Adam", {"lr": 2e-4}, _translation_loss, max_norm=5.0),
    "ncf": Recipe("ncf", "samples", "Adam", {"lr": 1e-3}, _interaction_loss),
}
"""By module. MobileNet's epsilon is that of the RMSprop of its papers' TensorFlow programs."""


def step_of(
    recipe: Recipe, library: ModuleType, model: Model, options: Mapping[str, float] | None = None
) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """Return a function that trains `model` on one batch and returns the loss before the update.

    Args:
        recipe: How the model is trained.
        library: The library of the model's parameters.
        model: The model.
        options: Arguments of the optimizer that replace the recipe's.
    """
    module = load(recipe.module, library)
    optimizer = getattr(library.optim, recipe.optimizer)(model.parameters(), **{**recipe.options, **(options or {})})

    def step(batch: Mapping[str, Tensor]) -> Tensor:
        optimizer.zero_grad()
        loss = recipe.loss(library, module, model, batch)
        loss.backward()
        if recipe.max_norm:
            library.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_norm)
        optimizer.step()
        return loss

    return step


def random_images(count: int, size: int, classes: int) -> dict[str, Array]:
    """Return random images `(count, 3, size, size)` with random labels `(count,)`."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((count, 3, size, size), dtype=np.float32)
    return {"images": images, "labels": rng.integers(0, classes, count)}


def random_sentences(count: int, length: int, vocabulary: int) -> dict[str, Array]:
    """Return random sentences of half of `length` to `length` tokens, sources and targets alike, padded to `length`."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(length // 2, length + 1, count)
    lengths[0] = length
    source, inputs, target = (rng.integers(_FIRST_WORD, vocabulary, (count, length)) for _ in range(3))
    padding = np.arange(length) >= lengths[:, None]
    for tokens in (source, inputs, target):
        tokens[padding] = 0
    return {"source": source, "lengths": lengths, "inputs": inputs, "target": target}


def random_pairs(count: int, users: int, items: int) -> dict[str, Array]:
    """Return random pairs of users and items `(count,)`, of which a fifth are interactions."""
    rng = np.random.default_rng(0)
    labels = (rng.random(count) < 0.2).astype(np.float32)
    return {"users": rng.integers(0, users, count), "items": rng.integers(0, items, count), "labels": labels}
