"""The suite `models`: a training step of each model, at the sizes of its paper on a GPU, and smaller on host cores.

A step is forward, loss, backward and the optimizer of the model's paper, on random data that stay on the device. It is
checked on a small batch beside the same program on torch in float64: the loss, and the norm of each parameter's
gradient. Where torch is not installed, steps are timed without this check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from ...runtime.dtypes import Array
from ..cases import Case, Pairs, Work
from ..sites import NotOffered, Site
from .loading import load
from .training import RECIPES, random_images, random_pairs, random_sentences, step_of

if TYPE_CHECKING:
    from ..library_types import Model, Tensor

__all__ = ["batch_on", "cases"]

_CHECKED_COUNT = 2  # images or sentences of the check's batch
_TOLERANCE = 1e-2  # of gradients' norms: float32 rounding moves activations across the kinks of a ReLU


@dataclass(frozen=True, slots=True)
class _Row:
    """A model at one size.

    recipe: The recipe's name in `RECIPES`.
    size: What the row's name says about the size.
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
_GPU_ROWS = (
    _Row("AlexNet", "alexnet", "224x224, batch 128", lambda m: m.alexnet(), _images(224), 128),
    _Row("VGG-19", "vgg", "224x224, batch 64", lambda m: m.vgg19(), _images(224), 64),
    _Row("ResNet-50", "resnet", "224x224, batch 64", lambda m: m.resnet50(), _images(224), 64),
    _Row("MobileNet", "mobilenet", "224x224, batch 64", lambda m: m.mobilenet_v1(), _images(224), 64),
    _Row("MobileNetV2", "mobilenet", "224x224, batch 64", lambda m: m.mobilenet_v2(), _images(224), 64),
    _Row("GNMTv2", "gnmt", "4+4 layers of 1024, batch 128x50", lambda m: m.gnmt(),
         lambda count: random_sentences(count, 50, 32_317), 128),
    _Row("NCF", "ncf", "MovieLens 20M, batch 65536", lambda m: m.neumf(),
         lambda count: random_pairs(count, 138_493, 26_744), 65_536),
)  # fmt: skip
_HOST_ROWS = (
    _Row("AlexNet", "alexnet", "100 classes, 127x127, batch 4", lambda m: m.AlexNet(100, hidden=1024),
         _images(127, 100), 4),
    _Row("VGG-19", "vgg", "100 classes, 32x32, batch 2", lambda m: m.VGG(19, 100, hidden=512), _images(32, 100), 2),
    _Row("ResNet-50", "resnet", "100 classes, 64x64, batch 2", lambda m: m.resnet50(100), _images(64, 100), 2),
    _Row("MobileNet", "mobilenet", "100 classes, 64x64, batch 4", lambda m: m.mobilenet_v1(100), _images(64, 100), 4),
    _Row("MobileNetV2", "mobilenet", "100 classes, 64x64, batch 4", lambda m: m.mobilenet_v2(100), _images(64, 100), 4),
    _Row("GNMTv2", "gnmt", "3+3 layers of 256, batch 8x16", lambda m: m.GNMT(2000, 256, 3),
         lambda count: random_sentences(count, 16, 2000), 8),
    _Row("NCF", "ncf", "6040 users, 3706 items, batch 2048", lambda m: m.neumf(6040, 3706),
         lambda count: random_pairs(count, 6040, 3706), 2048),
)  # fmt: skip


def cases(on_gpu: bool) -> Iterator[Case]:
    """Yield a row for each model, in float32: at the papers' sizes for a GPU, else at small ones."""
    for row in _GPU_ROWS if on_gpu else _HOST_ROWS:
        yield Case(
            "models", f"{row.name}, {row.size}", partial(_work, row), target={"torch": 1.0}, tolerance=_TOLERANCE,
            clock="wall", against="torch in float64", values=False, items=row.items, unit=RECIPES[row.recipe].unit,
            measures_compiling=False,
        )  # fmt: skip


def _work(row: _Row, site: Site) -> Work | None:
    """Return the work of training steps on one batch."""
    if not site.modules:
        return None
    recipe = RECIPES[row.recipe]
    try:
        model = row.build(load(recipe.module, site.library)).to(site.device)
        step = step_of(recipe, site.library, model)
    except (AttributeError, ImportError) as missing:  # a peer with few of PyTorch's modules
        if site.ours:
            raise
        raise NotOffered(str(missing)) from missing
    batch = batch_on(site, row.batch(row.count))
    return Work(lambda: step(batch), partial(_pairs, row, site, model), moves=True)


def batch_on(site: Site, batch: Mapping[str, Array]) -> dict[str, Tensor]:
    """Return a batch's tensors on a site. Lengths stay in host memory, where packing reads them."""
    return {
        name: site.library.tensor(array) if name == "lengths" else site.tensor(array) for name, array in batch.items()
    }


def _pairs(row: _Row, site: Site, model: Model) -> Pairs:
    """Return the loss and the gradients' norms of a small batch, and those of torch in float64; none without torch."""
    try:
        import torch  # lazy: optional dependency
    except ImportError:
        return []
    recipe = RECIPES[row.recipe]
    arrays = row.batch(_CHECKED_COUNT)
    twin = row.build(load(recipe.module, torch)).double()
    twin.load_state_dict({name: torch.tensor(value.cpu().numpy()) for name, value in model.state_dict().items()})
    in_float64 = {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in arrays.items()}
    batch = {name: torch.tensor(array) for name, array in in_float64.items()}
    actual = _loss_and_norms(row, site.library, model, batch_on(site, arrays))
    expected = _loss_and_norms(row, torch, twin, batch)
    model.zero_grad()
    return [(actual[:1], expected[:1]), (actual[1:], expected[1:])]


def _loss_and_norms(row: _Row, library: ModuleType, model: Model, batch: Mapping[str, Tensor]) -> Array:
    """Return the loss without dropout, and the norm of each parameter's gradient."""
    recipe = RECIPES[row.recipe]
    dropouts = [(module, module.p) for module in model.modules() if isinstance(module, library.nn.Dropout)]
    for module, _ in dropouts:
        module.p = 0.0
    loss = recipe.loss(library, load(recipe.module, library), model, batch)
    loss.backward()
    for module, probability in dropouts:
        module.p = probability
    norms = [float(parameter.grad.norm()) for parameter in model.parameters()]
    return np.array([float(loss.detach()), *norms])
