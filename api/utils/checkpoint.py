"""Activation checkpointing: what backward needs of a part of a model is computed again instead of kept (Chen et al.,
"Training Deep Nets with Sublinear Memory Cost", 2016).

Without reentry (`use_reentrant=False`, the one to use), calls are recorded as ever, but in place of the tensors that
they would save stands their number; the first that backward asks for runs the function again, with the random numbers
and modes (autocast) of the first time, and gathers them all. With reentry, the function runs unrecorded, and backward
is called within backward.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from .. import autograd
from ..random import default_generator
from ..runtime.autograd.node import Node, Saved
from ..runtime.context import state
from ..runtime.errors import ArgumentError, GradientError
from ..runtime.modes import Mode
from ..runtime.tensor import Tensor

__all__ = ["CheckpointError", "checkpoint", "checkpoint_sequential", "noop_context_fn", "set_checkpoint_early_stop"]


class CheckpointError(GradientError):
    """The second run of a checkpointed function did not do what the first did."""


def noop_context_fn() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Contexts of the two runs that do nothing."""
    return nullcontext(), nullcontext()


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Accepted for compatibility: the second run always goes to its end."""
    yield


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, of which backward keeps nothing but the arguments and runs it again.

    preserve_rng_state: dropout and the like draw the same numbers in the second run. context_fn: gives a context for
    each of the two runs. determinism_check: `default` compares shapes, dtypes and number of saved tensors, `none` does
    not. `early_stop` and `debug` are accepted. With `use_reentrant=True` gradients go to tensors among `args` and to
    leaves; then at least one of `args` must require grad, kwargs are not taken, and `autograd.grad` must not be used.
    Raises `CheckpointError` in backward where the second run differs, `VersionError` where an argument was written.
    """
    if use_reentrant is None:
        warnings.warn(
            "checkpoint: pass use_reentrant; False is recommended, and True is what leaving it out means",
            stacklevel=2,
        )
        use_reentrant = True
    if determinism_check not in ("default", "none"):
        raise ArgumentError(f"checkpoint: determinism_check is 'default' or 'none', not {determinism_check!r}")
    if use_reentrant:
        if kwargs or context_fn is not noop_context_fn:
            given = f"keyword arguments {sorted(kwargs)}" if kwargs else "a context_fn"
            raise ArgumentError(f"checkpoint: {given} can be given with use_reentrant=False only")
        return _reentrant(function, args, preserve_rng_state)
    own = state()
    if not own.grad or _recording(own.mode):  # an outer checkpoint keeps nothing of what is done in here either
        with context_fn()[0]:
            return function(*args, **kwargs)
    first, second = context_fn()
    frame = _Frame(function, args, kwargs, preserve_rng_state, second, determinism_check == "default")
    with _Record(frame), first:
        return function(*args, **kwargs)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Modules (or functions) one after the other, in `segments` parts of which all but the last are checkpointed."""
    if use_reentrant is None:
        warnings.warn(
            "checkpoint_sequential: pass use_reentrant; False is recommended, and True is what leaving it out means",
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
    """A context with the random numbers, the mode and the autocast region that were current when it was made, and with
    recording."""

    def __init__(self, preserve_rng_state: bool):
        self.generator = (default_generator._seed, default_generator.offset) if preserve_rng_state else None
        own = state()
        mode = own.mode
        while isinstance(mode, _Watch):
            mode = mode._below
        self.mode, self.autocast = mode, own.autocast

    def __enter__(self) -> None:
        own = state()
        self.before = own.mode, own.autocast, own.grad
        self.drawn = default_generator._seed, default_generator.offset
        own.mode, own.autocast, own.grad = self.mode, self.autocast, True
        if self.generator is not None:
            default_generator._seed, default_generator.offset = self.generator

    def __exit__(self, *_: object) -> None:
        own = state()
        own.mode, own.autocast, own.grad = self.before
        if self.generator is not None:
            default_generator._seed, default_generator.offset = self.drawn


# Without reentry ------------------------------------------------------------------------------------------------------


class _Frame:
    """One checkpointed call. count: how many calls it recorded. table: tensors of the second run by (call, place), each
    taken out when it is read, so that memory is given back as backward goes on."""

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
        self.args = [_held(a) for a in args]
        self.kwargs = {k: _held(v) for k, v in kwargs.items()}
        self.replay = _Replay(preserve_rng_state)
        self.context = context
        self.compare = compare
        self.count = 0
        self.table: dict[tuple[int, int], Saved] = {}

    def take(self, key: tuple[int, int]) -> Saved:
        """What call key[0] saved at place key[1], from a second run."""
        if key not in self.table:
            self._run_again()
        if key not in self.table:
            raise CheckpointError(
                f"checkpoint: the second run of {_name(self.function)} did not record call {key[0]} as the first did"
            )
        return self.table.pop(key)

    def _run_again(self) -> None:
        args = [_given(a) for a in self.args]
        kwargs = {k: _given(v) for k, v in self.kwargs.items()}
        self.table = {}
        with self.replay, _Collect() as found, self.context:
            self.function(*args, **kwargs)
        nodes, found.nodes, found.done = found.nodes, [], True
        if self.compare and len(nodes) != self.count:
            raise CheckpointError(
                f"checkpoint: {_name(self.function)} recorded {self.count} calls when it was first run and "
                f"{len(nodes)} in backward; it must do the same both times"
            )
        self.table = {
            (k, i): _bare(saved)
            for k, node in enumerate(nodes)
            for i, saved in enumerate((*node.saved, *node.saved_out))
            if _replaceable(saved)
        }


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__


def _held(value: Any) -> Any:
    return Saved(value, False) if isinstance(value, Tensor) else value


def _given(value: Any) -> Any:
    return value.unpack("checkpoint") if isinstance(value, Saved) else value


def _replaceable(saved: Any) -> bool:
    """Whether keeping it costs memory: numbers and parameters do not."""
    return isinstance(saved, Saved) and not (saved.leaf is not None and saved.needs)


def _bare(saved: Saved) -> Saved:
    """`saved` without its history, which would keep the second run's graph."""
    if isinstance(saved, _Again):
        return _Again(saved, saved.frame, saved.key, history=False)
    bare = Saved.__new__(Saved)
    bare.storage, bare.meta, bare.start, bare.version = saved.storage, saved.meta, saved.start, saved.version
    bare.needs, bare.node, bare.output, bare.leaf = False, None, 0, None
    return bare


class _Again(Saved):
    """A saved tensor that is computed again when it is read."""

    __slots__ = ("frame", "key")

    def __init__(self, saved: Saved, frame: _Frame, key: tuple[int, int], history: bool = True):
        self.meta = saved.meta
        self.needs, self.node, self.output = (saved.needs, saved.node, saved.output) if history else (False, None, 0)
        self.leaf = None
        self.frame = frame
        self.key = key

    def unpack(self, name: str, node: Node | None = None, output: int = 0) -> Tensor:
        """The tensor, with the history that it had in the first run."""
        found = self.frame.take(self.key).unpack(name)
        if self.frame.compare and found.meta is not self.meta:
            first, second = (f"{m.dtype.name} of shape {list(m.shape)}" for m in (self.meta, found.meta))
            raise CheckpointError(
                f"checkpoint: {name} saved a {first} when {_name(self.frame.function)} was first run, "
                f"and a {second} in backward; it must do the same both times"
            )
        if node is not None:
            return Tensor(found.storage, found.meta, found.start, True, node, output)
        return Tensor(found.storage, found.meta, found.start, self.needs, self.node, self.output)


class _Watch(Mode):
    """Sees every call that was recorded and saved something, once. (Casts save nothing; one may be made in one run, and
    be there already in the other.)"""

    def call(self, record: Any, operands: Any, statics: Any, outs: Any, in_place: bool) -> Any:
        """Make the call, and look at the node it left."""
        before = None if outs is None else [out.node for out in outs]
        result = self.proceed(record, operands, statics, outs, in_place)
        seen = None
        for i, each in enumerate(result if isinstance(result, tuple) else (result,)):
            node = each.node
            if node is not None and node is not seen and (before is None or node is not before[i]):
                seen = node
                if any(map(_replaceable, (*node.saved, *node.saved_out))):
                    self.recorded(node)
        return result

    def recorded(self, node: Node) -> None:
        """See one node."""
        raise NotImplementedError


class _Record(_Watch):
    """The first run: nodes keep numbers instead of tensors."""

    def __init__(self, frame: _Frame):
        self.frame = frame

    def recorded(self, node: Node) -> None:
        """Put numbers in place of what the node saved."""
        call, split = self.frame.count, len(node.saved)
        self.frame.count += 1
        kept = tuple(
            _Again(saved, self.frame, (call, i)) if _replaceable(saved) else saved
            for i, saved in enumerate((*node.saved, *node.saved_out))
        )
        node.saved, node.saved_out = kept[:split], kept[split:]


class _Collect(_Watch):
    """The second run: nodes are kept until its end."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.done = False

    def recorded(self, node: Node) -> None:
        """Keep the node, unless a mode that was entered inside brings this one up again later."""
        if not self.done:
            self.nodes.append(node)


def _recording(mode: Mode | None) -> bool:
    while mode is not None:
        if isinstance(mode, _Record):
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
    shape: list[Any] = []
    found = _Reentrant.apply(function, _Replay(preserve_rng_state), shape, *args)
    if not isinstance(shape[0], tuple):
        return found[0] if isinstance(shape[0], Tensor) else shape[0]
    rest = iter(found)
    return tuple(next(rest) if isinstance(each, Tensor) else each for each in shape[0])


def _tensors(result: Any) -> Iterable[Tensor]:
    return [r for r in (result if isinstance(result, tuple) else (result,)) if isinstance(r, Tensor)]


class _Reentrant(autograd.Function):
    """Runs a function unrecorded; its backward runs it recorded, and backward through that."""

    @staticmethod
    def forward(ctx: Any, function: Any, replay: Any, shape: Any, *args: Any) -> Any:
        ctx.function, ctx.replay = function, replay
        ctx.set_materialize_grads(False)
        ctx.args = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*[a if isinstance(a, Tensor) else None for a in args])
        result = function(*args)
        shape.append(result)
        return tuple(_tensors(result))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        given: list[Any] = [
            a if t is None else t.detach().requires_grad_(t.needs)
            for a, t in zip(ctx.args, ctx.saved_tensors, strict=True)
        ]
        with ctx.replay:
            result = ctx.function(*given)
        pairs = [(r, g) for r, g in zip(_tensors(result), grads, strict=True) if g is not None and r.requires_grad]
        if not pairs:
            raise CheckpointError("checkpoint: none of the results requires grad, so there is nothing to go back to")
        autograd.backward([r for r, _ in pairs], [g for _, g in pairs])
        return (None, None, None, *[g.grad if isinstance(g, Tensor) else None for g in given])
