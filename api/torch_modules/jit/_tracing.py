"""`jit.trace`: check a function or module by calling it once, and return a wrapper that calls it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..autograd.grad_mode import no_grad
from ..nn.module import Module
from ..runtime.errors import ArgumentError, NotSupported
from ..runtime.tensor import Tensor

__all__ = ["TracedModule", "trace"]


class TracedModule(Module):
    """A module that calls another one, and has its parameters, buffers, submodules and attributes.

    Args:
        original: The module to call.
    """

    _original: Module

    def __init__(self, original: Module):
        super().__init__()
        members = {name: vars(original)[name] for name in ("_parameters", "_buffers", "_modules")}
        vars(self).update(members, _original=original, training=original.training)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._original(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_original"], name)

    def train(self, mode: bool = True) -> TracedModule:
        self._original.train(mode)
        vars(self)["training"] = mode
        return self

    def save(self, f: object, **kwargs: object) -> None:
        """Raise `NotSupported`: there are no compiled programs to save."""
        raise NotSupported("jit.trace: nothing is compiled, so nothing can be saved; save the state_dict")

    def extra_repr(self) -> str:
        return f"original_name={type(self._original).__name__}"

    def _get_name(self) -> str:
        return type(self._original).__name__


def trace(
    func: Callable[..., Any], example_inputs: object = None, optimize: object = None, check_trace: bool = True,
    check_inputs: object = None, check_tolerance: float = 1e-5, strict: bool = True, _force_outplace: bool = False,
    _module_class: object = None, _compilation_unit: object = None,
    example_kwarg_inputs: Mapping[str, object] | None = None, _store_inputs: bool = True,
) -> Callable[..., Any]:  # fmt: skip
    """Call `func` once with the example inputs, and return a wrapper that calls it.

    Nothing is compiled, because calls already run compiled kernels. So branches of Python code are taken anew in each
    call, other than in PyTorch. The result cannot be saved: save the state_dict.

    Args:
        func: A function or a module.
        example_inputs: A tensor, or a sequence of arguments: tensors, and lists, tuples and dicts of them.
        optimize: Ignored.
        check_trace: Ignored.
        check_inputs: Ignored.
        check_tolerance: Ignored.
        strict: Ignored.
        example_kwarg_inputs: Keyword arguments, in place of `example_inputs`.

    Returns:
        A module with the parameters, buffers and attributes of `func`, or a function.

    Raises:
        ArgumentError: `func` is not callable, there are no example inputs, or `func` takes or returns other objects
            than tensors, lists, tuples and dicts of them.

    Example:
        >>> layer = wg.nn.Linear(2, 3)
        >>> traced = wg.jit.trace(layer, wg.ones(1, 2))
        >>> traced(wg.ones(4, 2)).shape, list(traced.state_dict())
        (weftgrad.Size([4, 3]), ['weight', 'bias'])
    """
    if not callable(func):
        raise ArgumentError(f"jit.trace: takes a function or a module, not {type(func).__name__}")
    args: tuple[object, ...] = ()
    kwargs: dict[str, object] = {}
    if example_inputs is None:
        if not isinstance(example_kwarg_inputs, Mapping):
            raise ArgumentError("jit.trace: needs example_inputs, or example_kwarg_inputs as a dict")
        kwargs = dict(example_kwarg_inputs)
    elif isinstance(example_inputs, Tensor):
        args = (example_inputs,)
    elif isinstance(example_inputs, Iterable) and not isinstance(example_inputs, str | Mapping):
        args = tuple(example_inputs)
    else:
        raise ArgumentError(
            f"jit.trace: example_inputs is a tensor or a sequence of arguments, not {type(example_inputs).__name__}"
        )
    for value in (*args, *kwargs.values()):
        _check_value(value, "an example input")
    with no_grad():
        _check_value(func(*args, **kwargs), "a result")
    if isinstance(func, Module):
        return TracedModule(func)

    @functools.wraps(func)
    def traced(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return traced


def _check_value(value: object, what: str) -> None:
    """Raise `ArgumentError` unless `value` is a tensor, or a list, tuple or dict of such values."""
    if isinstance(value, Mapping):
        for element in value.values():
            _check_value(element, what)
    elif isinstance(value, (list, tuple)):
        for element in value:
            _check_value(element, what)
    elif not isinstance(value, Tensor):
        raise ArgumentError(
            f"jit.trace: {what} is a {type(value).__name__}, not a tensor, or a list, tuple or dict of tensors"
        )
