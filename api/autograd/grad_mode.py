"""Switches for gradient recording: `no_grad`, `enable_grad`, `inference_mode`, `set_grad_enabled`.

Each is a context manager and a decorator for functions and generator functions. The setting belongs to the thread.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any, ParamSpec, Self, TypeVar, overload

from ..runtime.context import state

__all__ = [
    "enable_grad", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled", "no_grad", "set_grad_enabled",
]  # fmt: skip

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Yield = TypeVar("_Yield")
_Send = TypeVar("_Send")


class _GradMode:
    """Context manager and decorator that sets gradient recording.

    In a decorated generator function, the setting holds between two yields; the caller's code runs outside it.
    """

    mode = True
    inference: bool | None = None  # new value of inference mode; None leaves it
    _previous: list[tuple[bool, bool]]  # settings to restore, of the `with` blocks that are entered

    def __enter__(self) -> None:
        thread_state = state()
        self._previous.append((thread_state.grad, thread_state.inference))
        thread_state.grad = self.mode
        if self.inference is not None:
            thread_state.inference = self.inference

    def __exit__(self, *_: object) -> None:
        thread_state = state()
        thread_state.grad, thread_state.inference = self._previous.pop()

    def _clone(self) -> _GradMode:
        """Return a new context with the same setting. Recursive calls and threads each need their own."""
        clone = type(self)()
        clone.mode, clone.inference = self.mode, self.inference
        return clone

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Wrap a function or generator function so that its body runs in this mode."""
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generator_wrapper(*args: _P.args, **kwargs: _P.kwargs) -> Generator[object, object, object]:
                return (yield from _run_in_context(function(*args, **kwargs), self._clone))

            return generator_wrapper  # type: ignore[return-value]  # here _R is a generator

        @functools.wraps(function)
        def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with self._clone():
                return function(*args, **kwargs)

        return wrapper


class _BareDecorator(_GradMode):
    """A mode whose class itself is a decorator, too: `@no_grad` works like `@no_grad()`."""

    # A decorated function is no instance of the class, which type checkers expect of __new__.
    @overload
    def __new__(cls, function: None = None) -> Self: ...
    @overload
    def __new__(cls, function: Callable[_P, _R]) -> Callable[_P, _R]: ...  # type: ignore[misc]
    def __new__(cls, function: object = None) -> Any:
        if callable(function):
            return cls()(function)
        context = super().__new__(cls)
        context._previous = []
        return context


def _run_in_context(
    generator: Generator[_Yield, _Send, _R], context: Callable[[], _GradMode]
) -> Generator[_Yield, _Send, _R]:
    """Run each step of `generator` within a new `context()`, and its caller outside.

    Forward values as PEP 380 specifies.
    """
    step: Callable[[], _Yield] = functools.partial(next, generator)
    while True:
        try:
            with context():
                value = step()
        except StopIteration as stop:
            result: _R = stop.value
            return result
        try:
            sent_value = yield value
        except GeneratorExit:
            with context():
                generator.close()
            raise
        except BaseException as error:
            step = functools.partial(generator.throw, error)
        else:
            step = functools.partial(generator.send, sent_value)


class no_grad(_BareDecorator):
    """Do not record ops for backward. Use as `with no_grad():` or `@no_grad()`.

    Args:
        function: Function to decorate, when the class is used as `@no_grad`.

    Example:
        >>> x = wg.ones(1, requires_grad=True)
        >>> with wg.no_grad():
        ...     (x * 2).requires_grad
        ...
        False
    """

    mode = False


class enable_grad(_BareDecorator):
    """Record ops for backward, even inside `no_grad`.

    Args:
        function: Function to decorate, when the class is used as `@enable_grad`.

    Example:
        >>> x = wg.ones(1, requires_grad=True)
        >>> with wg.no_grad(), wg.enable_grad():
        ...     (x * 2).requires_grad
        ...
        True
    """


class inference_mode(_GradMode):
    """Like `no_grad`; in addition, `is_inference_mode_enabled()` is True. `inference_mode(False)` is `enable_grad`.

    Unlike PyTorch's, tensors created inside are ordinary ones: they may be saved for backward later.

    Args:
        mode: False records ops, as `enable_grad` does. Or the function to decorate, when the class is used as
            `@inference_mode`.

    Example:
        >>> x = wg.ones(1, requires_grad=True)
        >>> with wg.inference_mode():
        ...     (x * 2).requires_grad
        ...
        False
    """

    mode = False
    inference = True

    @overload
    def __new__(cls, mode: bool = True) -> Self: ...
    @overload
    def __new__(cls, mode: Callable[_P, _R]) -> Callable[_P, _R]: ...  # type: ignore[misc]  # as in _BareDecorator
    def __new__(cls, mode: object = True) -> Any:
        if callable(mode):
            return cls()(mode)
        context = super().__new__(cls)
        context._previous = []
        if not mode:
            context.mode, context.inference = True, False
        return context


class set_grad_enabled(_GradMode):
    """Switch gradient recording on or off.

    Works as a function call, as a context manager that restores the previous mode, and as a decorator.

    Args:
        mode: Whether ops are recorded.

    Example:
        >>> x = wg.ones(1, requires_grad=True)
        >>> with wg.set_grad_enabled(False):
        ...     (x * 2).requires_grad
        ...
        False
    """

    def __init__(self, mode: bool):
        self.mode = bool(mode)
        self._previous = []
        self._previous_grad = state().grad
        state().grad = self.mode  # now, for uses as a function call

    def __enter__(self) -> None:
        super().__enter__()
        self._previous[-1] = (self._previous_grad, self._previous[-1][1])  # `__init__` has switched already

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Decorate `function`. The mode then holds only during its calls."""
        state().grad = self._previous_grad
        return super().__call__(function)

    def _clone(self) -> _GradMode:
        return enable_grad() if self.mode else no_grad()


def is_grad_enabled() -> bool:
    """Return whether this thread records ops for backward.

    Returns:
        Python bool.

    Example:
        >>> with wg.no_grad():
        ...     print(wg.is_grad_enabled())
        ...
        False
    """
    return state().grad


def is_inference_mode_enabled() -> bool:
    """Return whether this thread is in `inference_mode`.

    Returns:
        Python bool.

    Example:
        >>> with wg.inference_mode():
        ...     print(wg.is_inference_mode_enabled())
        ...
        True
    """
    return state().inference
