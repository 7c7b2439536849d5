"""Activation checkpointing: recompute the activations of a part of a model in backward instead of saving them.

After Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.

With `use_reentrant=False` (recommended), the graph is recorded as usual, but its nodes save placeholders instead of
tensors. When backward reads the first placeholder, the function runs a second time, with the same random numbers and
autocast mode, and the tensors that this run saves replace all placeholders.

With `use_reentrant=True`, the function runs without a graph, as one node. The node's backward runs the function again
with a graph, and calls backward on that.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ..runtime.context import state
from ..runtime.errors import ArgumentError
from ._recomputation import CheckpointError, FirstRun, Frame, is_in_first_run
from ._reentrant_checkpoint import Value, call_reentrant

if TYPE_CHECKING:
    from ..nn.module import Module

__all__ = ["CheckpointError", "checkpoint", "checkpoint_sequential", "noop_context_fn", "set_checkpoint_early_stop"]

_Result = TypeVar("_Result")
_Contexts: TypeAlias = tuple[AbstractContextManager[object], AbstractContextManager[object]]


def noop_context_fn() -> _Contexts:
    """Return two null contexts, for the first and the second run.

    Returns:
        Two context managers.

    Example:
        >>> len(wg.utils.checkpoint.noop_context_fn())
        2
    """
    return nullcontext(), nullcontext()


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Do nothing (for compatibility): the second run always runs to its end.

    Args:
        enable: Ignored.

    Returns:
        Context manager.

    Example:
        >>> with wg.utils.checkpoint.set_checkpoint_early_stop(False):
        ...     print('unchanged')
        ...
        unchanged
    """
    yield


def checkpoint(
    function: Callable[..., _Result],
    *args: object,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], _Contexts] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: object,
) -> _Result:
    """Call `function(*args, **kwargs)`, save only the arguments for backward, and run it again there.

    Args:
        function: The function.
        args: Its positional arguments.
        use_reentrant: False, which is recommended, records the graph of `function` as usual. True records the call as
            one node, whose backward calls backward again: then at least one of `args` must require grad, gradients flow
            to tensors among `args` and to leaves only, keyword arguments are not allowed, and `autograd.grad` does not
            work. None warns and means True.
        context_fn: Returns a context manager for each of the two runs.
        determinism_check: `default` compares shapes, dtypes and the number of saved tensors of both runs; `none` does
            not.
        debug: Ignored.
        early_stop: Ignored.
        preserve_rng_state: Make dropout and similar functions draw the same numbers in the second run.
        kwargs: Keyword arguments of `function`.

    Returns:
        The result of `function`.

    Raises:
        CheckpointError: In backward, if the second run differs from the first.
        VersionError: In backward, if an argument was written in place.
        ArgumentError: If `determinism_check` is unknown, or keyword arguments or `context_fn` are used with reentry.

    Example:
        >>> x = wg.tensor([1.0, 2.0], requires_grad=True)
        >>> wg.utils.checkpoint.checkpoint(wg.sin, x, use_reentrant=False).sum().backward()
        >>> x.grad
        tensor([ 0.5403, -0.4161])
    """
    if use_reentrant is None:
        warnings.warn(
            "checkpoint: pass use_reentrant; False is recommended, and the default is True",
            stacklevel=2,
        )
        use_reentrant = True
    if determinism_check not in ("default", "none"):
        raise ArgumentError(f"checkpoint: determinism_check is 'default' or 'none', not {determinism_check!r}")
    if use_reentrant:
        if kwargs or context_fn is not noop_context_fn:
            unsupported = f"keyword arguments {sorted(kwargs)}" if kwargs else "a context_fn"
            raise ArgumentError(f"checkpoint: {unsupported} can only be used with use_reentrant=False")
        return call_reentrant(function, args, preserve_rng_state)
    thread_state = state()
    # Without gradients nothing is saved. Inside another checkpoint, the outer one already saves nothing of this call.
    if not thread_state.grad or is_in_first_run(thread_state.mode):
        with context_fn()[0]:
            return function(*args, **kwargs)
    first_context, second_context = context_fn()
    frame = Frame(function, args, kwargs, preserve_rng_state, second_context, determinism_check == "default")
    with FirstRun(frame), first_context:
        return function(*args, **kwargs)


def checkpoint_sequential(
    functions: Module | Iterable[Callable[[Value], Value]], segments: int, input: Value,
    use_reentrant: bool | None = None, **kwargs: bool,
) -> Value:  # fmt: skip
    """Call modules or functions in sequence, in `segments` parts. All parts but the last are checkpointed.

    Args:
        functions: A `Sequential`, or a list of functions of one argument.
        segments: Number of parts.
        input: Argument of the first function.
        use_reentrant: See `checkpoint`; None warns and means True.
        **kwargs: `preserve_rng_state`, see `checkpoint`.

    Returns:
        The result of the last function.

    Raises:
        ArgumentError: If there are fewer functions than segments, or another keyword argument is passed.

    Example:
        >>> from weftgrad import nn
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> wg.utils.checkpoint.checkpoint_sequential(model, 2, wg.ones(4, 2), use_reentrant=False).shape
        weftgrad.Size([4, 1])
    """
    if use_reentrant is None:
        warnings.warn(
            "checkpoint_sequential: pass use_reentrant; False is recommended, and the default is True",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ArgumentError(f"checkpoint_sequential: got unexpected arguments {sorted(kwargs)}")
    steps = list(functions.children()) if hasattr(functions, "children") else list(functions)
    if not 1 <= segments <= max(1, len(steps)):
        raise ArgumentError(f"checkpoint_sequential: {len(steps)} functions cannot make {segments} segments")
    size = len(steps) // segments
    for begin in range(0, size * (segments - 1), size):
        part = _chain(steps[begin : begin + size])
        input = checkpoint(part, input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return _chain(steps[size * (segments - 1) :])(input)


def _chain(steps: Sequence[Callable[[Value], Value]]) -> Callable[[Value], Value]:
    def run(input: Value) -> Value:
        for step in steps:
            input = step(input)
        return input

    return run
