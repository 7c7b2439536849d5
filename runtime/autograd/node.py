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
from ..layout import broadcast, normalize_dims
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor

__all__ = ["Application", "Node", "Recipe", "Saved", "recipe_of", "seed_name"]

_numbers = itertools.count()
_CUTS = ("select", "slice", "narrow", "diagonal", "index")


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


class Application:
    """One rule made ready: the operand it serves, the op it calls, and where that op's static arguments come from.

    whole, kept, count: for reductions, the shape that the operands were broadcast to, the same with the reduced
    dimensions at size 1, and how many elements were reduced; index: each element's place among those it is reduced
    with, made when first read.
    summed, summed_dims: for an operand that was broadcast, the op that computes its gradient and sums it at once, and
    the dimensions to sum over.
    """

    __slots__ = (
        "count", "index", "kept", "layout", "position", "record", "rule", "statics", "summed", "summed_dims", "whole",
    )  # fmt: skip

    def __init__(self, position: int, rule: Rule, layout: Meta, own: Mapping[str, Any]):
        self.position = position
        self.rule = rule
        self.layout = layout
        self.record = None if rule.op is None or rule.op == "!" else registry[rule.op]
        self.statics = () if self.record is None else tuple(own.get(name) for name in self.record.statics)
        self.whole: tuple[int, ...] = layout.shape
        self.kept: tuple[int, ...] = ()
        self.count = 1
        self.index: Tensor | None = None
        self.summed: OpRecord | None = None
        self.summed_dims: tuple[int, ...] = ()

    def broadcast_to(self, shape: tuple[int, ...]) -> None:
        """Say that the operand was broadcast to `shape`."""
        lead = len(shape) - len(self.layout.shape)
        own = (1,) * lead + self.layout.shape
        self.summed_dims = tuple(d for d, (n, m) in enumerate(zip(own, shape, strict=True)) if n != m or d < lead)
        if self.rule.sum_op is not None and self.summed_dims:
            self.summed = registry[self.rule.sum_op]


class Recipe:
    """How calls of one plan are recorded: shared by all of that plan's nodes.

    applications: for each operand that wants a gradient, its rule made ready. saved_operands, saved_outputs:
    positions whose tensors the rules read. seeds: the names of the incoming gradients. metas, out_metas: layouts.
    cuts: whether the call is a view that leaves elements out, each of the others being in it once.
    """

    __slots__ = (
        "applications", "cuts", "differentiable", "edges", "metas", "names", "out_metas", "read", "record",
        "saved_operands", "saved_outputs", "seeds",
    )  # fmt: skip

    def __init__(
        self,
        record: OpRecord,
        metas: Sequence[Meta | type | None],
        out_metas: Sequence[Meta],
        rules: Sequence[tuple[int, Rule]],
        differentiable: Sequence[bool],
        statics: tuple[Any, ...] = (),
    ):
        self.record = record
        self.metas = tuple(metas)
        self.out_metas = tuple(out_metas)
        self.names = _names(record, len(metas))
        self.edges = tuple(i for i, _ in rules)
        self.read = frozenset(n for _, rule in rules for n in rule.operands)
        self.saved_operands = tuple(i for i, n in enumerate(self.names) if n in self.read and metas[i] is not None)
        self.saved_outputs = tuple(i for i, o in enumerate(record.outputs) if o.name in self.read)
        self.seeds = record.detail.get("seeds") or tuple(seed_name(record, i) for i in range(len(record.outputs)))
        self.differentiable = tuple(differentiable)
        self.cuts = record.detail.get("view") in _CUTS
        own = dict(zip(record.statics, statics, strict=False))
        self.applications = tuple(
            Application(i, rule, layout, own) for i, rule in rules if isinstance(layout := metas[i], Meta)
        )
        if record.kind == "pointwise" and not any(isinstance(m, type) for m in metas):
            for each in self.applications:
                each.broadcast_to(self.out_metas[0].shape)
        if record.kind == "reduction":
            whole = broadcast((m.shape for m in metas if isinstance(m, Meta)), record.name)
            given = own.get("dim")
            dims = normalize_dims(None if given == () else given, len(whole), record.name)
            for each in self.applications:
                each.whole = whole
                each.kept = tuple(1 if d in dims else n for d, n in enumerate(whole))
                for d in dims:
                    each.count *= whole[d]


def recipe_of(
    record: OpRecord,
    metas: Sequence[Meta | type | None],
    out_metas: Sequence[Meta],
    needs: int,
    statics: tuple[Any, ...],
) -> Recipe | None:
    """The recipe for a call whose operands with bit i of `needs` set want gradients; None if none can have one.

    A differentiable operand without a rule gets one that raises when its gradient is asked for.
    """
    rules = registry.gradients(record)
    names = _names(record, len(metas))
    differentiable = [o.differentiable and m.dtype.kind == "f" for o, m in zip(record.outputs, out_metas, strict=False)]
    if not any(differentiable):
        return None
    wanted = [
        (i, rules.get(name, _UNKNOWN))
        for i, name in enumerate(names)
        if needs >> i & 1 and isinstance(layout := metas[i], Meta) and layout.dtype.kind == "f"
    ]
    # What a plan gives beside the record's results (an index op's `misses`) takes no part in backward.
    results = out_metas[: len(differentiable)]
    return Recipe(record, metas, results, wanted, differentiable, statics) if wanted else None


_UNKNOWN = Rule("!")


def _names(record: OpRecord, count: int) -> tuple[str, ...]:
    """Operand names by position; the members of a list operand all have its name."""
    names = tuple(o.name for o in record.operands)
    return names + names[-1:] * (count - len(names))


def seed_name(record: OpRecord, index: int) -> str:
    """The name under which rules of `record` speak of the gradient of its result number `index`: `grad`, or
    `grad_NAME` of several, with a number behind it where an operand has that name already (higher orders)."""
    taken = {o.name for o in record.operands} | set(record.statics) | {o.name for o in record.outputs}
    base = "grad" if len(record.outputs) < 2 else f"grad_{record.outputs[index].name}"
    name, order = base, 1
    while name in taken:
        order += 1
        name = f"{base}{order}"
    return name


class Node:
    """One recorded call. `edges[k]` is where the gradient of the k-th wanted operand goes: (node, output) or a leaf.

    sequence: grows with time, so that the engine runs the latest call first. hooks: called with the gradients.
    function: overrides the record's rules (custom functions, slices copied by in-place writes).
    """

    __slots__ = (
        "edges", "freed", "function", "hooks", "numbers", "recipe", "saved", "saved_out", "sequence", "statics",
        "trace",
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

    def values(self) -> dict[str, Any]:
        """Saved operands and results by name. Raises `FreedGraphError`, `VersionError`."""
        if self.freed:
            raise FreedGraphError(
                f"backward of {self.name}: its saved tensors were freed by an earlier backward; "
                "pass retain_graph=True to the first one to go through the graph twice"
            )
        recipe = self.recipe
        found: dict[str, Any] = {}
        for i, value in zip(recipe.saved_operands, self.saved, strict=True):
            found[recipe.names[i]] = value.unpack(self.name) if isinstance(value, Saved) else value
        for i, value in zip(recipe.saved_outputs, self.saved_out, strict=True):
            found[recipe.record.outputs[i].name] = value.unpack(self.name, self, i)
        return found

    def release(self) -> None:
        """Drop what was saved: backward has been through. A node that saved nothing is as good as before."""
        if self.saved or self.saved_out:
            self.saved = self.saved_out = ()
            self.freed = True
        if self.function is not None and (release := getattr(self.function, "release", None)) is not None:
            release()
