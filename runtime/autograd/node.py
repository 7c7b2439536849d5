"""What a call leaves behind for backward.

A `Node` keeps edges to whatever computed its operands, and of the operands and results only those that the gradient
formulas of the operands that want gradients read. Results are kept as storage, layout and version, never as the
Tensor: a Tensor points to its node, and a cycle would keep memory until the garbage collector comes by.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..device import Meta
from ..errors import FreedGraphError, VersionError
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor

__all__ = ["Node", "Recipe", "Saved", "recipe_of"]

_numbers = itertools.count()


class Saved:
    """A tensor as it was when a call read or wrote it."""

    __slots__ = ("leaf", "meta", "needs", "node", "output", "start", "storage", "version")

    def __init__(self, tensor: Tensor, is_output: bool):
        self.storage = tensor.storage
        self.meta = tensor.meta
        self.start = tensor.start
        self.version = tensor.storage.version
        self.needs = tensor.needs
        self.node = None if is_output else tensor.node
        self.output = tensor.output
        self.leaf = tensor if tensor.node is None and not is_output else None

    def unpack(self, name: str, node: Node | None = None, output: int = 0) -> Tensor:
        """The tensor again, connected to its history. Raises `VersionError` if its memory was written since."""
        if self.storage.version != self.version:
            raise VersionError(
                f"backward of {name}: a tensor of shape {list(self.meta.shape)} and dtype {self.meta.dtype.name} that "
                f"it saved was modified in place: it has version {self.storage.version}, and was saved at version "
                f"{self.version}; use the out-of-place form, or clone() it before the change"
            )
        if self.leaf is not None:
            return self.leaf
        if node is not None:
            return Tensor(self.storage, self.meta, self.start, True, node, output)
        return Tensor(self.storage, self.meta, self.start, self.needs, self.node, self.output)


class Recipe:
    """How calls of one plan are recorded: shared by all of that plan's nodes.

    rules: for each operand that wants a gradient, its position and rule. saved_operands, saved_outputs: positions
    whose tensors the rules read. metas, out_metas: layouts, for shapes of gradients.
    """

    __slots__ = ("differentiable", "edges", "metas", "out_metas", "record", "rules", "saved_operands", "saved_outputs")

    def __init__(
        self,
        record: OpRecord,
        metas: Sequence[Meta | type | None],
        out_metas: Sequence[Meta],
        rules: Sequence[tuple[int, Rule]],
        saved_operands: Sequence[int],
        saved_outputs: Sequence[int],
        differentiable: Sequence[bool],
    ):
        self.record = record
        self.metas = tuple(metas)
        self.out_metas = tuple(out_metas)
        self.rules = tuple(rules)
        self.edges = tuple(i for i, _ in rules)
        self.saved_operands = tuple(saved_operands)
        self.saved_outputs = tuple(saved_outputs)
        self.differentiable = tuple(differentiable)


def recipe_of(
    record: OpRecord, metas: Sequence[Meta | type | None], out_metas: Sequence[Meta], needs: int
) -> Recipe | None:
    """The recipe for a call whose operands with bit i of `needs` set want gradients; None if none can have one."""
    rules = registry.gradients(record)
    names = _names(record, len(metas))
    wanted: list[tuple[int, Rule]] = []
    for i, name in enumerate(names):
        if needs >> i & 1:
            layout = metas[i]
            if isinstance(layout, Meta) and layout.dtype.kind == "f" and name in rules:
                wanted.append((i, rules[name]))
    differentiable = [o.differentiable and m.dtype.kind == "f" for o, m in zip(record.outputs, out_metas, strict=False)]
    if not wanted or not any(differentiable):
        return None
    read = {n for _, rule in wanted for n in rule.operands}
    saved_operands = [i for i, n in enumerate(names) if (n in read) and metas[i] is not None]
    saved_outputs = [i for i, o in enumerate(record.outputs) if o.name in read]
    return Recipe(record, metas, out_metas, wanted, saved_operands, saved_outputs, differentiable)


def _names(record: OpRecord, count: int) -> list[str]:
    """Operand names by position; the members of a list operand all have its name."""
    names = [o.name for o in record.operands]
    return names + names[-1:] * (count - len(names))


class Accumulate:
    """The end of the line: adds a gradient to a leaf's `grad`."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor):
        self.tensor = tensor


class Node:
    """One recorded call. `edges[k]` is where the gradient of the k-th wanted operand goes: (node, output) or a leaf.

    sequence: grows with time, so that the engine runs the latest call first. hooks: called with the gradients.
    function: overrides the record's rules (custom functions, slices copied by in-place writes).
    """

    __slots__ = (
        "edges", "freed", "function", "hooks", "numbers", "recipe", "saved", "saved_out", "sequence", "statics", "trace",
    )  # fmt: skip

    def __init__(
        self,
        recipe: Recipe,
        operands: Sequence[Any],
        outs: Sequence[Tensor],
        statics: tuple[Any, ...],
        function: Callable[..., Any] | None = None,
    ):
        self.recipe = recipe
        self.edges = tuple(
            [
                (operand.node, operand.output) if operand.node is not None else (operand, 0)
                for operand in [operands[i] for i in recipe.edges]
            ]
        )
        self.saved = tuple(
            [
                Saved(operands[i], False) if isinstance(operands[i], Tensor) else operands[i]
                for i in recipe.saved_operands
            ]
        )
        self.saved_out = tuple([Saved(outs[i], True) for i in recipe.saved_outputs])
        self.statics = statics
        self.sequence = next(_numbers)
        self.hooks: dict[int, Callable[..., Any]] | None = None
        self.function = function
        self.freed = False
        self.trace: Any = None

    @property
    def name(self) -> str:
        return self.recipe.record.name

    def refresh_saved_outputs(self, outs: Sequence[Tensor]) -> None:
        """Take the version a saved result has after it was written in place."""
        self.saved_out = tuple(Saved(outs[i], True) for i in self.recipe.saved_outputs)

    def values(self) -> Mapping[str, Any]:
        """Saved operands and results by name. Raises `FreedGraphError`, `VersionError`."""
        if self.freed:
            raise FreedGraphError(
                f"backward of {self.name}: its saved tensors were freed by an earlier backward; "
                "pass retain_graph=True to the first one to go through the graph twice"
            )
        record = self.recipe.record
        names = _names(record, len(self.recipe.metas))
        found: dict[str, Any] = {}
        for i, value in zip(self.recipe.saved_operands, self.saved, strict=True):
            found[names[i]] = value.unpack(self.name) if isinstance(value, Saved) else value
        for i, value in zip(self.recipe.saved_outputs, self.saved_out, strict=True):
            found[record.outputs[i].name] = value.unpack(self.name, self, i)
        return found

    def release(self) -> None:
        """Drop what was saved: backward has been through."""
        self.saved = self.saved_out = ()
        self.freed = True
