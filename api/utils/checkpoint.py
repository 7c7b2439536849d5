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
from typing import Any, TypeGuard, TypeVar

from .. import autograd
from ..random import default_generator
from ..runtime.autograd.node import Node, Saved
from ..runtime.context import state
from ..runtime.errors import ArgumentError, GradientError
from ..runtime.modes import Mode
from ..runtime.tensor import Tensor

__all__ = ["CheckpointError", "checkpoint", "checkpoint_sequential", "noop_context_fn", "set_checkpoint_early_stop"]

_Result = TypeVar("_Result")
_Value = TypeVar("_Value")


class CheckpointError(GradientError):
    """The second run of a checkpointed function differed from the first.

    Example:
        >>> from weftgrad.utils.checkpoint import CheckpointError
        >>> issubclass(CheckpointError, RuntimeError)
        True
    """


def noop_context_fn() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
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
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> _Result:
    """Call `function(*args, **kwargs)`, save only the arguments for backward, and run it again there.

    Args:
        function: The function.
        args: Its positional arguments.
        use_reentrant: The implementation, see above. With True, gradients flow to tensors among `args` and to leaves.
            At least one of `args` must require grad, kwargs are not allowed, and `autograd.grad` does not work.
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
        return _reentrant(function, args, preserve_rng_state)
    thread_state = state()
    # Without gradients nothing is saved. Inside another checkpoint, the outer one already saves nothing of this call.
    if not thread_state.grad or _is_in_first_run(thread_state.mode):
        with context_fn()[0]:
            return function(*args, **kwargs)
    first_context, second_context = context_fn()
    frame = _Frame(function, args, kwargs, preserve_rng_state, second_context, determinism_check == "default")
    with _FirstRun(frame), first_context:
        return function(*args, **kwargs)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
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


def _chain(steps: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def run(input: Any) -> Any:
        for step in steps:
            input = step(input)
        return input

    return run


class _Replay:
    """Context manager that restores the random state, mode and autocast of its creation, and enables gradients."""

    def __init__(self, preserve_rng_state: bool):
        self.generator = (default_generator._seed, default_generator.offset) if preserve_rng_state else None
        thread_state = state()
        mode = thread_state.mode
        while isinstance(mode, _NodeObserver):
            mode = mode._below
        self.mode, self.autocast = mode, thread_state.autocast

    def __enter__(self) -> None:
        thread_state = state()
        self.outer_modes = thread_state.mode, thread_state.autocast, thread_state.grad
        self.outer_generator = default_generator._seed, default_generator.offset
        thread_state.mode, thread_state.autocast, thread_state.grad = self.mode, self.autocast, True
        if self.generator is not None:
            default_generator._seed, default_generator.offset = self.generator

    def __exit__(self, *_: object) -> None:
        thread_state = state()
        thread_state.mode, thread_state.autocast, thread_state.grad = self.outer_modes
        if self.generator is not None:
            default_generator._seed, default_generator.offset = self.outer_generator


# Without reentry ------------------------------------------------------------------------------------------------------


class _Frame:
    """One checkpointed call.

    Attributes:
        count: The number of nodes that the first run recorded.
        recomputed: The tensors that the second run saved, by (node, position). Each is removed when it is read, so
            that memory is freed as backward proceeds.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        preserve_rng_state: bool,
        context: AbstractContextManager[Any],
        compare: bool,
    ):
        self.function = function
        self.args = [_save_argument(a) for a in args]
        self.kwargs = {k: _save_argument(v) for k, v in kwargs.items()}
        self.replay = _Replay(preserve_rng_state)
        self.context = context
        self.compare = compare
        self.count = 0
        self.recomputed: dict[tuple[int, int], Saved] = {}

    def take(self, key: tuple[int, int]) -> Saved:
        """Return the tensor that node key[0] saved at position key[1], from the second run."""
        if key not in self.recomputed:
            self._run_again()
        if key not in self.recomputed:
            raise CheckpointError(
                f"checkpoint: the second run of {_name(self.function)} did not record call {key[0]} as the first did"
            )
        return self.recomputed.pop(key)

    def _run_again(self) -> None:
        args = [_unpack_argument(a) for a in self.args]
        kwargs = {k: _unpack_argument(v) for k, v in self.kwargs.items()}
        self.recomputed = {}
        with self.replay, _SecondRun() as collector, self.context:
            self.function(*args, **kwargs)
        nodes, collector.nodes, collector.done = collector.nodes, [], True
        if self.compare and len(nodes) != self.count:
            raise CheckpointError(
                f"checkpoint: {_name(self.function)} recorded {self.count} calls in forward and "
                f"{len(nodes)} in backward; it must do the same both times"
            )
        self.recomputed = {
            (k, i): _without_history(saved)
            for k, node in enumerate(nodes)
            for i, saved in enumerate((*node.saved, *node.saved_out))
            if _needs_memory(saved)
        }


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__


def _save_argument(value: Any) -> Any:
    return Saved(value, False) if isinstance(value, Tensor) else value


def _unpack_argument(value: Any) -> Any:
    return value.unpack("checkpoint") if isinstance(value, Saved) else value


def _needs_memory(saved: object) -> TypeGuard[Saved]:
    """Return True if saving this value costs memory. Numbers and parameters cost none."""
    return isinstance(saved, Saved) and not (saved.leaf is not None and saved.needs)


def _without_history(saved: Saved) -> Saved:
    """Return `saved` without its node, which would keep the second run's graph alive."""
    if isinstance(saved, _RecomputedTensor):
        return _RecomputedTensor(saved, saved.frame, saved.key, history=False)
    detached = Saved.__new__(Saved)
    detached.storage, detached.meta, detached.start, detached.version = (
        saved.storage,
        saved.meta,
        saved.start,
        saved.version,
    )
    detached.needs, detached.node, detached.output, detached.leaf = False, None, 0, None
    return detached


class _RecomputedTensor(Saved):
    """A placeholder for a saved tensor, which is recomputed when it is read."""

    __slots__ = ("frame", "key")

    def __init__(self, saved: Saved, frame: _Frame, key: tuple[int, int], history: bool = True):
        self.meta = saved.meta
        self.needs, self.node, self.output = (saved.needs, saved.node, saved.output) if history else (False, None, 0)
        self.leaf = None
        self.frame = frame
        self.key = key

    def unpack(self, name: str, node: Node | None = None, output: int = 0) -> Tensor:
        """Return the recomputed tensor, with the graph node of the first run."""
        recomputed = self.frame.take(self.key).unpack(name)
        if self.frame.compare and recomputed.meta is not self.meta:
            first, second = (f"{m.dtype.name} of shape {list(m.shape)}" for m in (self.meta, recomputed.meta))
            raise CheckpointError(
                f"checkpoint: {name} saved a {first} when {_name(self.frame.function)} was first run, "
                f"and a {second} in backward; it must do the same both times"
            )
        if node is not None:
            return Tensor(recomputed.storage, recomputed.meta, recomputed.start, True, node, output)
        return Tensor(recomputed.storage, recomputed.meta, recomputed.start, self.needs, self.node, self.output)


class _NodeObserver(Mode):
    """Mode that passes every new node with saved tensors to `on_node`, once.

    Casts save nothing, so they do not count: a cast may happen in one run, and be cached in the other.
    """

    def call(self, record: Any, operands: Any, statics: Any, outs: Any, in_place: bool) -> Any:
        """Make the call, and pass its node to `on_node`."""
        nodes_before = None if outs is None else [out.node for out in outs]
        result = self.proceed(record, operands, statics, outs, in_place)
        last_node = None
        for i, output in enumerate(result if isinstance(result, tuple) else (result,)):
            node = output.node
            if node is not None and node is not last_node and (nodes_before is None or node is not nodes_before[i]):
                last_node = node
                if any(map(_needs_memory, (*node.saved, *node.saved_out))):
                    self.on_node(node)
        return result

    def on_node(self, node: Node) -> None:
        """Handle one node."""
        raise NotImplementedError


class _FirstRun(_NodeObserver):
    """The first run: nodes save placeholders instead of tensors."""

    def __init__(self, frame: _Frame):
        self.frame = frame

    def on_node(self, node: Node) -> None:
        """Replace the node's saved tensors by placeholders."""
        node_index, saved_count = self.frame.count, len(node.saved)
        self.frame.count += 1
        node.saved = tuple(self._placeholder(saved, (node_index, i)) for i, saved in enumerate(node.saved))
        node.saved_out = tuple(
            self._placeholder(saved, (node_index, i)) for i, saved in enumerate(node.saved_out, saved_count)
        )

    def _placeholder(self, saved: _Value, key: tuple[int, int]) -> _Value | _RecomputedTensor:
        """Return a placeholder for a saved tensor if that saves memory, else `saved` itself."""
        return _RecomputedTensor(saved, self.frame, key) if _needs_memory(saved) else saved


class _SecondRun(_NodeObserver):
    """The second run: collects the nodes."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.done = False

    def on_node(self, node: Node) -> None:
        """Collect the node. Ignore nodes after the run: a mode entered inside may reinstate this one later."""
        if not self.done:
            self.nodes.append(node)


def _is_in_first_run(mode: Mode | None) -> bool:
    """Return True if `mode` or one below it is the first run of a checkpoint."""
    while mode is not None:
        if isinstance(mode, _FirstRun):
            return True
        mode = mode._below
    return False


# With reentry ---------------------------------------------------------------------------------------------------------


def _reentrant(function: Callable[..., Any], args: tuple[Any, ...], preserve_rng_state: bool) -> Any:
    if state().grad and not any(isinstance(a, Tensor) and a.requires_grad for a in args):
        warnings.warn(
            "checkpoint: none of the arguments requires grad, so nothing inside gets a gradient; "
            "use use_reentrant=False",
            stacklevel=3,
        )
    result_template: list[Any] = []  # gets the function's result: `apply` returns only the tensors in it
    outputs = _Reentrant.apply(function, _Replay(preserve_rng_state), result_template, *args)
    if not isinstance(result_template[0], tuple):
        return outputs[0] if isinstance(result_template[0], Tensor) else result_template[0]
    tensors = iter(outputs)
    return tuple(next(tensors) if isinstance(part, Tensor) else part for part in result_template[0])


def _tensors(result: Any) -> Iterable[Tensor]:
    """Return the tensors in a result, which is one object or a tuple."""
    return [r for r in (result if isinstance(result, tuple) else (result,)) if isinstance(r, Tensor)]


class _Reentrant(autograd.Function):
    """Run a function without a graph; backward runs it again with a graph, and calls backward on that."""

    @staticmethod
    def forward(ctx: Any, function: Any, replay: Any, result_template: Any, *args: Any) -> Any:
        ctx.function, ctx.replay = function, replay
        ctx.set_materialize_grads(False)
        ctx.args = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*[a if isinstance(a, Tensor) else None for a in args])
        result = function(*args)
        result_template.append(result)
        return tuple(_tensors(result))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        inputs: list[Any] = [
            a if t is None else t.detach().requires_grad_(t.needs)
            for a, t in zip(ctx.args, ctx.saved_tensors, strict=True)
        ]
        with ctx.replay:
            result = ctx.function(*inputs)
        pairs = [(r, g) for r, g in zip(_tensors(result), grads, strict=True) if g is not None and r.requires_grad]
        if not pairs:
            raise CheckpointError("checkpoint: none of the results requires grad, so backward has nothing to compute")
        autograd.backward([r for r, _ in pairs], [g for _, g in pairs])
        return (None, None, None, *[g.grad if isinstance(g, Tensor) else None for g in inputs])
