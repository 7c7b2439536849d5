"""Recomputation for checkpoints without reentry: the first run saves placeholders, backward runs the function again.

`Frame` is one checkpointed call. The modes `FirstRun` and `_SecondRun` see the graph nodes of both runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeGuard, TypeVar

from ..random import default_generator
from ..runtime.autograd.node import Node, Saved
from ..runtime.context import state
from ..runtime.errors import GradientError
from ..runtime.modes import Mode
from ..runtime.records import OpRecord
from ..runtime.tensor import Tensor

__all__ = ["CheckpointError", "FirstRun", "Frame", "Replay", "is_in_first_run"]

_Value = TypeVar("_Value")


class CheckpointError(GradientError):
    """The second run of a checkpointed function differed from the first.

    Example:
        >>> from weftgrad.utils.checkpoint import CheckpointError
        >>> issubclass(CheckpointError, RuntimeError)
        True
    """


class Replay:
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


class Frame:
    """One checkpointed call.

    Attributes:
        count: The number of nodes that the first run recorded.
        recomputed: The tensors that the second run saved, by (node, position). Each is removed when it is read, so
            that memory is freed as backward proceeds.
    """

    def __init__(
        self,
        function: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        preserve_rng_state: bool,
        context: AbstractContextManager[object],
        compare: bool,
    ):
        self.function = function
        self.args = [_save_argument(a) for a in args]
        self.kwargs = {k: _save_argument(v) for k, v in kwargs.items()}
        self.replay = Replay(preserve_rng_state)
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


def _name(function: Callable[..., object]) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__


def _save_argument(value: object) -> object:
    return Saved(value, False) if isinstance(value, Tensor) else value


def _unpack_argument(value: object) -> object:
    return value.unpack("checkpoint") if isinstance(value, Saved) else value


def _needs_memory(saved: object) -> TypeGuard[Saved]:
    """Return True if saving this value costs memory. Numbers and parameters cost none."""
    return isinstance(saved, Saved) and not (saved.leaf is not None and saved.needs_grad)


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
    detached.needs_grad, detached.node, detached.output, detached.leaf = False, None, 0, None
    return detached


class _RecomputedTensor(Saved):
    """A placeholder for a saved tensor, which is recomputed when it is read."""

    __slots__ = ("frame", "key")

    def __init__(self, saved: Saved, frame: Frame, key: tuple[int, int], history: bool = True):
        self.meta = saved.meta
        self.needs_grad, self.node, self.output = (
            (saved.needs_grad, saved.node, saved.output) if history else (False, None, 0)
        )
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
        return Tensor(recomputed.storage, recomputed.meta, recomputed.start, self.needs_grad, self.node, self.output)


class _NodeObserver(Mode):
    """Mode that passes every new node with saved tensors to `on_node`, once.

    Casts save nothing, so they do not count: a cast may happen in one run, and be cached in the other.
    """

    def call(
        self,
        record: OpRecord,
        operands: Sequence[object],
        statics: tuple[object, ...],
        outs: Sequence[Tensor] | None,
        in_place: bool,
    ) -> Tensor | tuple[Tensor, ...]:
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


class FirstRun(_NodeObserver):
    """The first run: nodes save placeholders instead of tensors."""

    def __init__(self, frame: Frame):
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


def is_in_first_run(mode: Mode | None) -> bool:
    """Return True if `mode` or one below it is the first run of a checkpoint."""
    while mode is not None:
        if isinstance(mode, FirstRun):
            return True
        mode = mode._below
    return False
