"""The suite `train`: training steps of small models, data loading, optimizers over many small parameters.

A training step is forward, loss, backward and AdamW's step. It is checked by comparing the losses of the first steps
with the same training in float64 by NumPy. An optimizer is checked by its parameters after some steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..runtime.dtypes import Array
from . import train_references as references
from .cases import Case, Pairs, Work
from .sites import Site

if TYPE_CHECKING:
    from .library_types import Model, Tensor

__all__ = ["Samples", "cases", "convolutional", "transformer"]

_CHECKED_STEPS = 4  # that are checked
_RATE, _DECAY = 1e-3, 1e-2
_PARAMETERS = 100  # parameters
_SAMPLES = 2048


class Samples:
    """A dataset of images (1, 8, 8) with their indices: one array per sample, as from image files."""

    def __len__(self) -> int:
        return _SAMPLES

    def __getitem__(self, index: int) -> tuple[Array, int]:
        return np.full((1, 8, 8), index, np.float32), index


def cases() -> Iterator[Case]:
    """Yield all rows, in float32."""
    for batch in (64, 256):
        products = 64 * (9 * 32 + 9 * 32 * 64) + 64 * 16 * 10
        yield Case("training", f"step of a CNN, 8x8 digits, batch {batch}", partial(convolutional, batch),
                   flops=batch * (6 * products - 2 * 64 * 9 * 32), target={"torch": 0.8}, clock="wall")  # fmt: skip
    yield Case("training", "step of a transformer, 2 layers of 128, 16x64",
               partial(transformer, layers=2, width=128, heads=4, rows=64, batch=16, words=64),
               flops=6 * 16 * 64 * (2 * (12 * 128**2 + 2 * 64 * 128) + 64 * 128), target={"torch": 0.8},
               clock="wall")  # fmt: skip
    yield Case("data", f"an epoch of {_SAMPLES} samples, 2 workers", _loading, target={"torch": 1.0}, clock="wall")
    for name, options in (("SGD", {"momentum": 0.9}), ("Adam", {}), ("AdamW", {"weight_decay": _DECAY})):
        yield Case("optimizer", f"{name}, {_PARAMETERS} parameters of 64x10", partial(_optimizer, name, options),
                   target={"torch": 3.0}, tolerance=1e-3, clock="wall")  # fmt: skip


def convolutional(batch: int, site: Site, channels: Sequence[int] = (32, 64)) -> Work | None:
    """Return the work of training a CNN: two 3x3 convolutions with relu, 2x2 max pooling, a linear layer."""
    if not site.modules:
        return None
    nn = site.library.nn
    channels1, channels2 = channels
    model = nn.Sequential(
        nn.Conv2d(1, channels1, 3, padding=1), nn.ReLU(), nn.Conv2d(channels1, channels2, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(channels2 * 16, 10),
    ).to(site.device)  # fmt: skip
    rng = np.random.default_rng(0)
    image, target = rng.standard_normal((batch, 1, 8, 8), dtype=np.float32), rng.integers(0, 10, batch)
    image64 = image.astype(float)
    return _training(site, model, image, target, lambda p: references.convolutional(p, image64, target))


def transformer(
    site: Site, *, layers: int, width: int, heads: int, rows: int, batch: int, words: int
) -> Work | None:  # fmt: skip
    """Return the work of training a transformer: embedding, learned positions, causal encoder layers, linear head."""
    if not site.modules:
        return None
    library, nn = site.library, site.library.nn

    class Transformer(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(words, width)
            self.position = nn.Parameter(library.zeros(rows, width))
            layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, layers)
            self.head = nn.Linear(width, words)

        def forward(self, index: Tensor) -> Tensor:
            x = self.encoder(self.embedding(index) + self.position, mask=mask, is_causal=True)
            return self.head(x).reshape(-1, words)

    model: Model = Transformer().to(site.device)
    mask = nn.Transformer.generate_square_subsequent_mask(rows, device=site.device)
    rng = np.random.default_rng(0)
    index, target = rng.integers(0, words, (batch, rows)), rng.integers(0, words, batch * rows)
    reference = partial(references.transformer, index=index, target=target, layers=layers, heads=heads)
    return _training(site, model, index, target, reference)


def _training(
    site: Site, model: Model, inputs: Array, target: Array,
    reference: Callable[[Mapping[str, references.Value]], references.Value],
) -> Work:  # fmt: skip
    """Return the work of training steps of `model` from fixed initial parameters."""
    library = site.library
    rng = np.random.default_rng(1)
    start = {name: _scaled(rng, tuple(p.shape)) for name, p in model.named_parameters()}
    with library.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(site.tensor(start[name]))
    x, targets = site.tensor(inputs), site.tensor(target)
    optimizer = library.optim.AdamW(model.parameters(), lr=_RATE, weight_decay=_DECAY)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = library.nn.functional.cross_entropy(model(x), targets)
        loss.backward()
        optimizer.step()
        return loss

    def pairs() -> Pairs:
        losses = np.array([float(site.host(step())) for _ in range(_CHECKED_STEPS)])
        expected = np.array(references.losses(reference, start, references.Adam(_RATE, _DECAY), _CHECKED_STEPS))
        # Compare the changes of the loss too, because its initial value does not depend on training.
        return [(losses, expected), (np.diff(losses), np.diff(expected))]

    return Work(step, pairs, moves=True)


def _scaled(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return random weights scaled by 1 / sqrt(fan-in), so that activations stay near 1; vectors are near 1."""
    if len(shape) == 1:
        return 1 + 0.1 * rng.standard_normal(shape, dtype=np.float32)
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(np.prod(shape[1:]) ** -0.5)


def _optimizer(name: str, options: dict[str, float], site: Site) -> Work | None:
    """Time an optimizer step over many small parameters with fixed gradients; torch runs its single-tensor loop."""
    if not site.modules:
        return None
    rng = np.random.default_rng(0)
    start = {str(i): rng.standard_normal((64, 10), dtype=np.float32) for i in range(_PARAMETERS)}
    grads = {key: rng.standard_normal((64, 10), dtype=np.float32) for key in start}
    parameters = [site.tensor(array, grad=True) for array in start.values()]
    for parameter, grad in zip(parameters, grads.values(), strict=True):
        parameter.grad = site.tensor(grad)
    single_tensor = {} if site.ours else {"foreach": False}
    optimizer = getattr(site.library.optim, name)(parameters, lr=_RATE, **options, **single_tensor)

    def pairs() -> Pairs:
        for _ in range(_CHECKED_STEPS):
            optimizer.step()
        expected = {key: array.astype(np.float64) for key, array in start.items()}
        decay = options.get("weight_decay", 0.0)
        formula = references.Momentum(_RATE) if "momentum" in options else references.Adam(_RATE, decay)
        for _ in range(_CHECKED_STEPS):
            formula.step(expected, {key: grad.astype(np.float64) for key, grad in grads.items()})
        changes = [
            (site.host(p) - b, w - b) for p, b, w in zip(parameters, start.values(), expected.values(), strict=True)
        ]
        return [(np.stack([a for a, _ in changes]), np.stack([b for _, b in changes]))]

    return Work(optimizer.step, pairs, moves=True)


def _loading(site: Site) -> Work | None:
    """Load an epoch in batches of 64, collated by persistent workers."""
    if not site.modules:
        return None
    loader = site.library.utils.data.DataLoader(Samples(), batch_size=64, num_workers=2, persistent_workers=True)

    def epoch() -> list[tuple[Tensor, Tensor]]:
        return [(images, numbers) for images, numbers in loader]

    def pairs() -> Pairs:
        batches = [(site.host(images), site.host(numbers)) for images, numbers in epoch()]
        expected = np.arange(_SAMPLES)
        images, numbers = (np.concatenate(part) for part in zip(*batches, strict=True))
        return [(numbers, expected), (images, np.broadcast_to(expected[:, None, None, None], images.shape))]

    return Work(epoch, pairs)
