"""Differentiation as users call it: `backward`, `grad`, gradient modes, custom functions, anomaly detection."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from .._checks import only_tensors
from ..runtime.autograd import engine
from ..runtime.context import state
from ..runtime.errors import ArgumentError, GradientError
from ..runtime.modes import Mode
from ..runtime.tensor import Tensor

__all__ = [
    "Function", "Variable", "anomaly_mode", "backward", "detect_anomaly", "enable_grad", "grad", "gradcheck",
    "gradgradcheck", "inference_mode", "is_grad_enabled", "no_grad", "set_detect_anomaly", "set_grad_enabled",
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
    allow_unused: bool = False,
    **_: Any,
) -> tuple[Tensor | None, ...]:
    """Gradients of the sum of `outputs` with respect to `inputs`; no `grad` is touched.

    Raises `GradientError` for an input that the outputs do not depend on, unless `allow_unused`, which gives None.
    """
    roots, wanted = (
        list(given) if isinstance(given, Iterable) and not isinstance(given, Tensor) else [given]
        for given in (outputs, inputs)
    )
    only_tensors("grad", *roots, *wanted)
    for tensor in wanted:
        if not tensor.needs:
            raise GradientError("grad: one of the inputs does not require grad")
    found = engine.run(
        roots,
        _seeds(grad_outputs, len(roots)),
        retain=create_graph if retain_graph is None else retain_graph,
        create=create_graph,
        inputs=wanted,
    )
    if not allow_unused and any(f is None for f in found):
        raise GradientError("grad: an input is not used by the outputs; pass allow_unused=True to get None for it")
    return tuple(found)


def _seeds(given: Any, count: int) -> list[Tensor | None]:
    if given is None:
        return [None] * count
    seeds = [given] if isinstance(given, Tensor) else list(given)
    if len(seeds) != count:
        raise ArgumentError(f"backward: {count} tensors and {len(seeds)} gradients; there must be one for each")
    return seeds


class set_grad_enabled:
    """Whether calls are recorded: as a function, or as a context that restores what was."""

    def __init__(self, mode: bool):
        self.mode = bool(mode)
        self.before = state().grad
        state().grad = self.mode

    def __enter__(self) -> None:
        state().grad = self.mode

    def __exit__(self, *_: object) -> None:
        state().grad = self.before


class _GradMode:
    """A context manager and decorator that sets gradient recording."""

    mode = True

    def __init__(self, function: Callable[..., Any] | None = None):
        self._before: list[bool] = []
        self._function = function
        if function is not None:
            functools.update_wrapper(self, function)

    def __enter__(self) -> None:
        own = state()
        self._before.append(own.grad)
        own.grad = self.mode

    def __exit__(self, *_: object) -> None:
        state().grad = self._before.pop()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._function is not None:
            with type(self)():
                return self._function(*args, **kwargs)
        function = args[0]

        @functools.wraps(function)
        def wrapped(*inner: Any, **named: Any) -> Any:
            with type(self)():
                return function(*inner, **named)

        return wrapped


class no_grad(_GradMode):
    """Calls inside are not recorded. Use as `with no_grad():` or `@no_grad()`."""

    mode = False


class enable_grad(_GradMode):
    """Calls inside are recorded, even within `no_grad`."""


class inference_mode(_GradMode):
    """As `no_grad`; `inference_mode(False)` does nothing."""

    mode = False

    def __init__(self, mode: bool | Callable[..., Any] = True):
        super().__init__(None if isinstance(mode, bool) else mode)
        if mode is False:
            self.mode = state().grad


def is_grad_enabled() -> bool:
    """Whether calls of this thread are recorded."""
    return state().grad


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
