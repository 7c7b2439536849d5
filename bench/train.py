"""The suite `train`: training steps of small models, loading, optimizers over many small parameters.

A training step is forward, loss, backward and AdamW's step. Its row counts if the losses of its first steps are those
of the same training in float64 by NumPy; an optimizer's if the parameters are, after some steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from . import train_references as right
from .cases import Case, Pairs, Work
from .sites import Site

__all__ = ["Samples", "cases", "convolutional", "transformer"]

Array = np.ndarray[Any, Any]
_STEPS = 4  # that are checked
_RATE, _DECAY = 1e-3, 1e-2
_MANY = 100  # parameters
_SAMPLES = 2048


class Samples:
    """A dataset of images, 1x8x8, and their numbers, as many loaders of files make them: an array a sample."""

    def __len__(self) -> int:
        return _SAMPLES

    def __getitem__(self, index: int) -> tuple[Array, int]:
        return np.full((1, 8, 8), index, np.float32), index


def cases() -> Iterator[Case]:
    """All rows, in float32."""
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
        yield Case("optimizer", f"{name}, {_MANY} parameters of 64x10", partial(_optimizer, name, options),
                   target={"torch": 3.0}, tolerance=1e-3, clock="wall")  # fmt: skip


def convolutional(batch: int, site: Site, channels: Sequence[int] = (32, 64)) -> Work | None:
    """Two convolutions of 3x3, each with relu, the largest of each 2x2, and a linear map to 10 classes."""
    if not site.modules:
        return None
    nn = site.library.nn
    one, two = channels
    model = nn.Sequential(
        nn.Conv2d(1, one, 3, padding=1), nn.ReLU(), nn.Conv2d(one, two, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(two * 16, 10),
    ).to(site.device)  # fmt: skip
    rng = np.random.default_rng(0)
    image, target = rng.standard_normal((batch, 1, 8, 8), dtype=np.float32), rng.integers(0, 10, batch)
    return _training(site, model, model, image, target, lambda p: right.convolutional(p, image.astype(float), target))


def transformer(
    site: Site, *, layers: int, width: int, heads: int, rows: int, batch: int, words: int
) -> Work | None:  # fmt: skip
    """An embedding, a learned position, causal encoder layers and a linear map to what comes next."""
    if not site.modules:
        return None
    library, nn = site.library, site.library.nn

    class Model(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(words, width)
            self.position = nn.Parameter(library.zeros(rows, width))
            layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, layers)
            self.head = nn.Linear(width, words)

        def forward(self, x: Any) -> Any:
            x = self.encoder(self.embedding(x) + self.position, mask=mask, is_causal=True)
            return self.head(x).reshape(-1, words)

    model = Model().to(site.device)
    mask = nn.Transformer.generate_square_subsequent_mask(rows, device=site.device)
    rng = np.random.default_rng(0)
    index, target = rng.integers(0, words, (batch, rows)), rng.integers(0, words, batch * rows)
    reference = partial(right.transformer, index=index, target=target, layers=layers, heads=heads)
    return _training(site, model, model, index, target, reference)


def _training(
    site: Site, model: Any, call: Callable[[Any], Any], given: Array, target: Array,
    reference: Callable[[Mapping[str, right.Value]], right.Value],
) -> Work:  # fmt: skip
    """Steps of training `model` from fixed parameters."""
    library = site.library
    rng = np.random.default_rng(1)
    begin = {name: _scaled(rng, tuple(p.shape)) for name, p in model.named_parameters()}
    with library.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(site.tensor(begin[name]))
    x, wanted = site.tensor(given), site.tensor(target)
    optimizer = library.optim.AdamW(model.parameters(), lr=_RATE, weight_decay=_DECAY)

    def step() -> Any:
        optimizer.zero_grad()
        loss = library.nn.functional.cross_entropy(call(x), wanted)
        loss.backward()
        optimizer.step()
        return loss

    def pairs() -> Pairs:
        found = np.array([float(site.host(step())) for _ in range(_STEPS)])
        expected = np.array(right.losses(reference, begin, right.Adam(_RATE, _DECAY), _STEPS))
        # What training changed counts, not the loss it began with.
        return [(found, expected), (np.diff(found), np.diff(expected))]

    return Work(step, pairs, moves=True)


def _scaled(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Numbers of a size that keeps what passes through near 1; of vectors, which are biases and scales, 1 and more."""
    if len(shape) == 1:
        return 1 + 0.1 * rng.standard_normal(shape, dtype=np.float32)
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(np.prod(shape[1:]) ** -0.5)


def _optimizer(name: str, options: dict[str, float], site: Site) -> Work | None:
    """A step over many small parameters whose gradients stay; torch's goes through them one by one."""
    if not site.modules:
        return None
    rng = np.random.default_rng(0)
    begin = {str(i): rng.standard_normal((64, 10), dtype=np.float32) for i in range(_MANY)}
    slopes = {key: rng.standard_normal((64, 10), dtype=np.float32) for key in begin}
    parameters = [site.tensor(array, grad=True) for array in begin.values()]
    for parameter, slope in zip(parameters, slopes.values(), strict=True):
        parameter.grad = site.tensor(slope)
    alone = {} if site.ours else {"foreach": False}
    optimizer = getattr(site.library.optim, name)(parameters, lr=_RATE, **options, **alone)

    def pairs() -> Pairs:
        for _ in range(_STEPS):
            optimizer.step()
        wide = {key: array.astype(np.float64) for key, array in begin.items()}
        decay = options.get("weight_decay", 0.0)
        formula = right.Momentum(_RATE) if "momentum" in options else right.Adam(_RATE, decay)
        for _ in range(_STEPS):
            formula.step(wide, {key: slope.astype(np.float64) for key, slope in slopes.items()})
        moved = [(site.host(p) - b, w - b) for p, b, w in zip(parameters, begin.values(), wide.values(), strict=True)]
        return [(np.stack([a for a, _ in moved]), np.stack([b for _, b in moved]))]

    return Work(optimizer.step, pairs, moves=True)


def _loading(site: Site) -> Work | None:
    """All batches of 64, collated by workers that stay."""
    if not site.modules:
        return None
    loader = site.library.utils.data.DataLoader(Samples(), batch_size=64, num_workers=2, persistent_workers=True)

    def epoch() -> list[Any]:
        return [(images, numbers) for images, numbers in loader]

    def pairs() -> Pairs:
        found = [(site.host(images), site.host(numbers)) for images, numbers in epoch()]
        right = np.arange(_SAMPLES)
        images, numbers = (np.concatenate(part) for part in zip(*found, strict=True))
        return [(numbers, right), (images, np.broadcast_to(right[:, None, None, None], images.shape))]

    return Work(epoch, pairs)
