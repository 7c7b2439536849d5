"""Whether calls are recorded: contexts, which are decorators as well, for functions and for generators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any, Self

from ..runtime.context import state

__all__ = [
    "enable_grad", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled", "no_grad", "set_grad_enabled",
]  # fmt: skip


class _GradMode:
    """A context manager and decorator that sets gradient recording; `@no_grad` decorates as `@no_grad()` does.

    Of a generator function, what runs between two yields is inside, what its caller does meanwhile is not.
    """

    mode = True
    inference: bool | None = None  # what inference mode becomes; None: stays

    def __new__(cls, function: Any = None) -> Any:
        if callable(function):
            return cls()(function)
        return super().__new__(cls)

    def __init__(self, function: Any = None):
        self._before: list[tuple[bool, bool]] = []

    def __enter__(self) -> None:
        own = state()
        self._before.append((own.grad, own.inference))
        own.grad = self.mode
        if self.inference is not None:
            own.inference = self.inference

    def __exit__(self, *_: object) -> None:
        own = state()
        own.grad, own.inference = self._before.pop()

    def _again(self) -> Self:
        """A context as this one: a decorated function may call itself, in several threads."""
        again = type(self)()
        again.mode, again.inference = self.mode, self.inference
        return again

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, or generator function, whose calls are inside."""
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generating(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
                return (yield from _between_yields(function(*args, **kwargs), self._again))

            return generating

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                return function(*args, **kwargs)

        return wrapped


def _between_yields(generator: Generator[Any, Any, Any], context: Callable[[], Any]) -> Generator[Any, Any, Any]:
    """`generator`, every step of it within a `context()`, its caller's code outside (PEP 380 says what it forwards)."""
    step: Callable[[], Any] = functools.partial(next, generator)
    while True:
        try:
            with context():
                given = step()
        except StopIteration as stop:
            return stop.value
        try:
            sent = yield given
        except GeneratorExit:
            with context():
                generator.close()
            raise
        except BaseException as error:
            step = functools.partial(generator.throw, error)
        else:
            step = functools.partial(generator.send, sent)


class no_grad(_GradMode):
    """Calls inside are not recorded. Use as `with no_grad():` or `@no_grad()`."""

    mode = False


class enable_grad(_GradMode):
    """Calls inside are recorded, even within `no_grad`."""


class inference_mode(_GradMode):
    """As `no_grad`, told by `is_inference_mode_enabled`; `inference_mode(False)` is `enable_grad`.

    Tensors made inside are ordinary ones: what PyTorch forbids of them later, being saved for a backward, is allowed.
    """

    mode = False
    inference = True

    def __init__(self, mode: bool = True):
        super().__init__()
        if not mode:
            self.mode, self.inference = True, False


class set_grad_enabled(_GradMode):
    """Whether calls are recorded: as a function, as a context that restores what was, or as a decorator."""

    def __init__(self, mode: bool):
        super().__init__()
        self.mode = bool(mode)
        self._made = state().grad
        state().grad = self.mode

    def __enter__(self) -> None:
        super().__enter__()
        self._before[-1] = (self._made, self._before[-1][1])

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, in whose calls alone the mode holds."""
        state().grad = self._made
        return super().__call__(function)

    def _again(self) -> Any:
        return enable_grad() if self.mode else no_grad()


def is_grad_enabled() -> bool:
    """Whether calls of this thread are recorded."""
    return state().grad


def is_inference_mode_enabled() -> bool:
    """Whether this thread is in `inference_mode`."""
    return state().inference
