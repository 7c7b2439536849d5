"""Differentiation as users call it: `backward`, `grad`, gradient modes, custom functions, anomaly detection."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Self

from .._checks import only_tensors
from ..runtime.autograd import engine
from ..runtime.context import state
from ..runtime.dispatch import freshen
from ..runtime.errors import ArgumentError, GradientError
from ..runtime.modes import Mode
from ..runtime.tensor import Tensor
from .grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)

__all__ = [
    "Function", "Variable", "anomaly_mode", "backward", "detect_anomaly", "enable_grad", "grad", "gradcheck",
    "gradgradcheck", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled", "no_grad", "set_detect_anomaly",
    "set_grad_enabled",
]  # fmt: skip


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
) -> None:
    """Add to the `grad` of every leaf the gradient of the sum of `tensors`, weighted by `grad_tensors`.

    Raises `GradientError` where nothing requires grad, a root is no scalar and has no gradient given, or the graph was
    freed by an earlier backward (`retain_graph=True` keeps it).
    """
    roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    engine.run(
        roots,
        _seeds(grad_tensors, len(roots)),
        retain=create_graph if retain_graph is None else retain_graph,
        create=create_graph,
    )


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Gradients of the sum of `outputs`, weighted by `grad_outputs`, with respect to `inputs`; no `grad` is touched.

    An input that the outputs do not depend on raises `GradientError`, unless `allow_unused`, which gives None for it,
    or `materialize_grads`, which gives zeros of its shape. is_grads_batched: every one of `grad_outputs` has one more
    dimension, the first, of the same size B, and so have the results: those of B calls, made one after the other.
    """
    if not only_inputs:
        warnings.warn(
            "grad: only_inputs=False does nothing; call backward() for the leaves' grad", FutureWarning, stacklevel=2
        )
    if materialize_grads and allow_unused is False:
        raise ArgumentError("grad: materialize_grads gives zeros for unused inputs; allow_unused=False contradicts it")
    roots, wanted = (
        list(given) if isinstance(given, Iterable) and not isinstance(given, Tensor) else [given]
        for given in (outputs, inputs)
    )
    only_tensors("grad", *roots, *wanted)
    freshen(*wanted)
    for tensor in wanted:
        if not tensor.needs:
            raise GradientError("grad: one of the inputs does not require grad")
    seeds = _seeds(grad_outputs, len(roots))
    retain = create_graph if retain_graph is None else retain_graph
    found: list[Tensor | None]
    if is_grads_batched:
        found = _each_of_batch(roots, seeds, wanted, retain, create_graph)
    else:
        found = list(engine.run(roots, seeds, retain=retain, create=create_graph, inputs=wanted))
    if materialize_grads:
        return tuple(
            w.new_zeros(w.shape).requires_grad_(create_graph) if f is None else f  # type: ignore[attr-defined]
            for f, w in zip(found, wanted, strict=True)
        )
    if not allow_unused and any(f is None for f in found):
        raise GradientError("grad: an input is not used by the outputs; pass allow_unused=True to get None for it")
    return tuple(found)


def _each_of_batch(
    roots: list[Tensor], seeds: list[Tensor | None], wanted: list[Tensor], retain: bool, create: bool
) -> list[Tensor | None]:
    """The gradients by every element of the seeds' first dimension, stacked."""
    from ..joining import stack

    sizes = {seed.meta.shape[:1] for seed in seeds if seed is not None}
    if len(sizes) != 1 or () in sizes:
        raise ArgumentError(
            "grad: with is_grads_batched, grad_outputs have one more dimension than outputs, first, of one size; not "
            f"{[None if s is None else list(s.meta.shape) for s in seeds]}"
        )
    ((count,),) = sizes
    if not count:
        return [w.new_zeros((0, *w.shape)) for w in wanted]  # type: ignore[attr-defined]
    runs = []
    for i in range(count):
        one = [None if seed is None else seed[i] for seed in seeds]  # type: ignore[index]
        runs.append(engine.run(roots, one, retain=retain or i + 1 < count, create=create, inputs=wanted))
    return [None if each[0] is None else stack(list(each)) for each in zip(*runs, strict=True)]


def _seeds(given: Any, count: int) -> list[Tensor | None]:
    if given is None:
        return [None] * count
    seeds = [given] if isinstance(given, Tensor) else list(given)
    if len(seeds) != count:
        raise ArgumentError(f"backward: {count} tensors and {len(seeds)} gradients; there must be one for each")
    return seeds


class detect_anomaly(Mode):
    """Inside, every node remembers where it was called, and a NaN in a gradient raises `AnomalyError` naming both.

    With `check_nan=False` only the places are remembered.
    """

    def __init__(self, check_nan: bool = True):
        self._check = check_nan
        self._before = False

    def __enter__(self) -> Self:
        own = state()
        self._before = own.anomaly
        own.anomaly = self._check
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        state().anomaly = self._before

    def call(self, record: Any, operands: Any, statics: Any, outs: Any, in_place: bool) -> Any:
        """Make the call, and note where it was made."""
        found = self.proceed(record, operands, statics, outs, in_place)
        for result in found if isinstance(found, tuple) else (found,):
            if result.node is not None and result.node.trace is None:
                result.node.trace = "".join(traceback.format_stack(limit=_FRAMES)[:-2])
        return found


_FRAMES = 12  # as much of the stack as an error shows
_everywhere: list[detect_anomaly] = []


class set_detect_anomaly:
    """Switch anomaly detection on or off for this thread, outside of any `with detect_anomaly()`; as a context, until
    its end."""

    def __init__(self, mode: bool, check_nan: bool = True):
        self._before = bool(_everywhere)
        self._switch(mode, check_nan)

    @staticmethod
    def _switch(mode: bool, check_nan: bool = True) -> None:
        if mode and not _everywhere:
            _everywhere.append(detect_anomaly(check_nan).__enter__())
        elif not mode and _everywhere:
            _everywhere.pop().__exit__()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._switch(self._before)


anomaly_mode = detect_anomaly


from ..gradcheck import GradcheckError, gradcheck, gradgradcheck  # noqa: E402, F401  (they are made of the above)
from . import functional  # noqa: E402, F401
from .function import Function  # noqa: E402
from .variable import Variable  # noqa: E402


def __getattr__(name: str) -> Any:
    if name == "profiler":
        from importlib import import_module

        return import_module(".profiler", __name__)
    raise AttributeError(f"module 'weftgrad.autograd' has no attribute {name!r}")
