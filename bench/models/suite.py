"""The suite `models`: a training step of each model, at the sizes of its paper on a GPU, and smaller on host cores.

A step is forward, loss, backward and the optimizer of the model's paper, on random data that stay on the device. It is
checked on a small batch beside the same program on torch in float64: the loss, and the norm of each parameter's
gradient. Where torch is not installed, steps are timed without this check. `sizes` has the sizes, and `resident_memory`
measures what a process needs for the training.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from ...runtime.dtypes import Array
from ..cases import Case, Pairs, Work
from ..sites import NotOffered, Site
from .loading import load
from .resident_memory import peak_resident_bytes
from .sizes import GPU_SIZES, HOST_SIZES, ModelSize
from .training import RECIPES, step_of

if TYPE_CHECKING:
    from ..library_types import Model, Tensor

__all__ = ["batch_on", "cases"]

_CHECKED_COUNT = 2  # images or sentences of the check's batch
_TOLERANCE = 1e-2  # of gradients' norms: float32 rounding moves activations across the kinks of a ReLU


def cases(on_gpu: bool) -> Iterator[Case]:
    """Yield a row for each model, in float32: at the papers' sizes for a GPU, else at small ones."""
    for row in GPU_SIZES if on_gpu else HOST_SIZES:
        yield Case(
            "models", f"{row.name}, {row.size}", partial(_work, row), target={"torch": 1.0}, tolerance=_TOLERANCE,
            clock="wall", against="torch in float64", values=False, items=row.items, unit=RECIPES[row.recipe].unit,
            measures_compiling=False, resident=None if on_gpu else partial(_resident, row.name),
        )  # fmt: skip


def _resident(name: str, site: Site) -> int | None:
    """Return the peak resident bytes of a process that trains the model `name`; None for libraries without modules."""
    if site.gpu or not site.modules:
        return None
    return peak_resident_bytes(site.library.__name__, str(site.device), name)


def _work(row: ModelSize, site: Site) -> Work | None:
    """Return the work of training steps on one batch."""
    if not site.modules:
        return None
    recipe = RECIPES[row.recipe]
    try:
        model = row.build(load(recipe.module, site.library)).to(site.device)
        step = step_of(recipe, site.library, site.compile_model(model))
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


def _pairs(row: ModelSize, site: Site, model: Model) -> Pairs:
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


def _loss_and_norms(row: ModelSize, library: ModuleType, model: Model, batch: Mapping[str, Tensor]) -> Array:
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
