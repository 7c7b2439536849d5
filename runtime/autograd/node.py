"""The autograd graph: nodes that calls record for backward.

A `Node` has edges to the nodes that computed its operands. It saves only the operands and results that its gradient
formulas read; operands that require no gradient have no formula. Results are saved as storage, layout and version,
never as the Tensor: a Tensor refers to its node, and the cycle would keep the memory until the next garbage collection.
"""

from __future__ import annotations

import itertools
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .. import native
from ..context import anomaly
from ..device import Meta
from ..errors import FreedGraphError, VersionError
from ..layout import broadcast, normalize_dim, normalize_dims
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor

if TYPE_CHECKING:
    from ..call_types import BackwardFunction, Edge, GradientHook, SavedValues, Static, Statics

__all__ = ["AccumulateGrad", "Application", "Node", "Recipe", "Saved", "recipe_of", "seed_name", "set_anomaly"]

_numbers = itertools.count()
_RUNTIME = __name__.partition(".autograd")[0] + "."  # prefix of the runtime's modules
_SELECTING_VIEWS = ("select", "slice", "narrow", "diagonal", "index")
_RESHAPING_VIEWS = ("view", "squeeze", "unsqueeze")


class Saved:
    """A tensor saved for backward, with the version of its storage when it was saved.

    Attributes:
        version: Version of the storage; a later in-place write raises it.
        needs_grad: `requires_grad` of the tensor.
        node: The node that computed the tensor; None for a leaf or a result of the saving call.
        output: Which result of `node` the tensor is.
        leaf: The tensor itself if it is a leaf operand, else None.
    """

    __slots__ = ("leaf", "meta", "needs_grad", "node", "output", "start", "storage", "version")

    def __init__(self, tensor: Tensor, is_output: bool):
        self.storage = tensor.storage
        self.meta = tensor.meta
        self.start = tensor.start
        self.version = tensor.storage.version
        self.needs_grad = tensor.needs_grad
        self.node = None if is_output else tensor.node
        self.output = tensor.output
        self.leaf = tensor if tensor.node is None and not is_output else None

    def unpack(self, name: str, node: Node | None = None, output: int = 0) -> Tensor:
        """Return the tensor, connected to its history.

        Args:
            name: The op's name, for the message.
            node: The node of the call that saved the tensor, if the tensor is a result of that call.
            output: Which result of `node` it is.

        Raises:
            VersionError: The tensor was written in place after it was saved.
        """
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
        return Tensor(self.storage, self.meta, self.start, self.needs_grad, self.node, self.output)


class Application:
    """The gradient rule of one operand, bound to a layout and static arguments. All calls of a plan share it.

    Attributes:
        position: Position of the operand.
        rule: The gradient rule.
        result: `rule.result`, for C.
        layout: Layout of the operand.
        record: The op that computes the gradient, or None if a function computes it or there is no rule.
        statics: Static arguments of `record`.
        sources: For C, where the rule's operands are: positions among the saved operands, saved results and incoming
            gradients, in this order. One position more stands for the number `count`. None: Python applies the rule.
        broadcast_shape: For reductions, the shape to which the operands were broadcast.
        keepdim_shape: For reductions, `broadcast_shape` with size 1 in the reduced dimensions.
        dense_layout: A contiguous layout of the operand's shape. None until backward first needs it.
        count: For reductions, the number of elements that each result combines.
        index: For reductions, the position of each element within its group, the elements that one result combines.
            Computed when a rule first reads it.
        sum_dims: For pointwise ops, the dimensions along which the operand was broadcast. Its gradient is summed over
            them.
        sum_record: An op that computes the gradient and sums it over `sum_dims` in one kernel, or None.
    """

    __slots__ = (
        "broadcast_shape", "count", "dense_layout", "index", "keepdim_shape", "layout", "position", "record", "result",
        "rule", "sources", "statics", "sum_dims", "sum_record",
    )  # fmt: skip

    def __init__(self, position: int, rule: Rule, layout: Meta, static_values: Mapping[str, object]):
        self.position = position
        self.rule = rule
        self.result = rule.result
        self.layout = layout
        self.record = None if rule.op is None or rule.op == "!" else registry[rule.op]
        self.statics = () if self.record is None else tuple(static_values.get(name) for name in self.record.statics)
        self.broadcast_shape: tuple[int, ...] = layout.shape
        self.keepdim_shape: tuple[int, ...] = ()
        self.count = 1
        self.dense_layout: Meta | None = None
        self.index: Tensor | None = None
        self.sum_record: OpRecord | None = None
        self.sum_dims: tuple[int, ...] = ()
        self.sources: tuple[int, ...] | None = None

    def broadcast_to(self, shape: tuple[int, ...]) -> None:
        """Set `sum_dims` and `sum_record` for an operand that was broadcast to `shape`."""
        new_dims = len(shape) - len(self.layout.shape)
        padded_shape = (1,) * new_dims + self.layout.shape
        self.sum_dims = tuple(
            d for d, (n, m) in enumerate(zip(padded_shape, shape, strict=True)) if n != m or d < new_dims
        )
        if self.rule.sum_op is not None and self.sum_dims:
            self.sum_record = registry[self.rule.sum_op]


class Recipe:
    """What to save and how to differentiate, for all calls of one plan. Their nodes share it.

    Attributes:
        record: The op.
        names: Names of the operands, by position.
        applications: The rule of each operand that requires a gradient.
        edges: Positions of the operands that require gradients.
        read: Names of the operands, results and incoming gradients that the rules read.
        saved_operands: Positions of the operands to save.
        saved_outputs: Positions of the results to save.
        seeds: Names of the incoming gradients.
        metas: For each operand its layout, the type of a number, or None.
        out_metas: Layouts of the results.
        differentiable: For each result, whether it has a gradient.
        is_partial_view: True if the op returns a view of part of its operand, and the view repeats no element. The
            engine then adds its gradient to that part of the operand's gradient.
        is_reshape: True if the op returns a view of all elements in another shape. The gradient of the operand is that
            of the result, in the operand's shape.
    """

    __slots__ = (
        "applications", "differentiable", "edges", "is_partial_view", "is_reshape", "metas", "names", "out_metas",
        "read", "record", "saved_operands", "saved_outputs", "seeds",
    )  # fmt: skip

    def __init__(
        self,
        record: OpRecord,
        metas: Sequence[Meta | type | None],
        out_metas: Sequence[Meta],
        rules: Sequence[tuple[int, Rule]],
        differentiable: Sequence[bool],
        statics: Statics = (),
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
        view = record.detail.get("view")
        self.is_partial_view = view in _SELECTING_VIEWS
        self.is_reshape = view in _RESHAPING_VIEWS
        static_values = dict(zip(record.statics, statics, strict=False))
        self.applications = tuple(
            Application(i, rule, layout, static_values) for i, rule in rules if isinstance(layout := metas[i], Meta)
        )
        if record.kind == "pointwise" and not any(isinstance(m, type) for m in metas):
            for application in self.applications:
                application.broadcast_to(self.out_metas[0].shape)
        if record.kind == "reduction":
            broadcast_shape = broadcast((m.shape for m in metas if isinstance(m, Meta)), record.name)
            dim = static_values.get("dim")
            dims = normalize_dims(None if dim == () else dim, len(broadcast_shape), record.name)
            for application in self.applications:
                application.broadcast_shape = broadcast_shape
                application.keepdim_shape = tuple(1 if d in dims else n for d, n in enumerate(broadcast_shape))
                for d in dims:
                    application.count *= broadcast_shape[d]
        if view == "permute":
            for application in self.applications:
                application.statics = (_inverse_order(statics[0], application.layout.ndim),)
        for application in self.applications:
            application.sources = self._sources(application.rule)

    def _sources(self, rule: Rule) -> tuple[int, ...] | None:
        """Return the `sources` of the application of `rule`."""
        if rule.function is not None or rule.op == "!" or "index_reduced" in self.read:
            return None
        operands, outputs = self.saved_operands, self.saved_outputs
        names = [*(self.names[i] for i in operands), *(self.record.outputs[i].name for i in outputs), *self.seeds]
        positions = {name: i for i, name in enumerate(names)}
        if self.record.kind == "reduction":
            positions["n_reduced"] = len(names)
        sources = tuple(positions.get(name, -1) for name in rule.operands)
        numbers = {i for i, position in enumerate(operands) if not isinstance(self.metas[position], Meta)}
        numbers.add(len(names))
        has_tensor = not sources or not numbers.issuperset(sources)
        return sources if has_tensor and -1 not in sources else None


def _inverse_order(dims: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return the order of dimensions that undoes a permutation of them."""
    order = [normalize_dim(d, ndim, "permute") for d in dims]
    return tuple(order.index(d) for d in range(ndim))


def recipe_of(
    record: OpRecord,
    metas: Sequence[Meta | type | None],
    out_metas: Sequence[Meta],
    grad_mask: int,
    statics: Statics,
) -> Recipe | None:
    """Return the recipe of a call, or None if it has no gradients.

    A differentiable operand without a rule gets a rule that raises when its gradient is computed.

    Args:
        record: The op.
        metas: For each operand its layout, the type of a number, or None.
        out_metas: Layouts of the results.
        grad_mask: Bit mask of the operands that require gradients.
        statics: The static arguments.
    """
    rules = registry.gradients(record)
    names = _names(record, len(metas))
    differentiable = [o.differentiable and m.dtype.kind == "f" for o, m in zip(record.outputs, out_metas, strict=False)]
    if not any(differentiable):
        return None
    rules_by_position = [
        (i, rules.get(name, _UNKNOWN))
        for i, name in enumerate(names)
        if grad_mask >> i & 1 and isinstance(layout := metas[i], Meta) and layout.dtype.kind == "f"
    ]
    # A plan may have more results than its op (`misses` of an index op). They have no gradient.
    op_metas = out_metas[: len(differentiable)]
    return Recipe(record, metas, op_metas, rules_by_position, differentiable, statics) if rules_by_position else None


_UNKNOWN = Rule("!")


def _names(record: OpRecord, count: int) -> tuple[str, ...]:
    """Return the names of `count` operands. If the last operand is a list, each of its tensors has the list's name."""
    names = tuple(o.name for o in record.operands)
    return names + names[-1:] * (count - len(names))


def seed_name(record: OpRecord, index: int) -> str:
    """Return the name that rules of `record` use for the gradient of its result number `index`.

    The name is `grad`, or `grad_NAME` if there are several results. If an operand, static argument or result has that
    name already, as in gradients of gradients, a number is appended: `grad2`.
    """
    used_names = {o.name for o in record.operands} | set(record.statics) | {o.name for o in record.outputs}
    base = "grad" if len(record.outputs) < 2 else f"grad_{record.outputs[index].name}"
    name, suffix = base, 1
    while name in used_names:
        suffix += 1
        name = f"{base}{suffix}"
    return name


_TRACE_FRAMES = 12  # stack frames in an error message


def set_anomaly(is_enabled: bool, checks_nan: bool) -> tuple[bool, bool]:
    """Set the process's anomaly mode, and return the previous setting of both."""
    previous = anomaly.is_enabled, anomaly.checks_nan
    anomaly.is_enabled, anomaly.checks_nan = bool(is_enabled), bool(checks_nan)
    native.record_stacks(_forward_stack if is_enabled else None)
    return previous


def _forward_stack() -> str:
    """Return the Python stack of the call that is being recorded, without the frames of the runtime."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_RUNTIME):
        frame = frame.f_back
    return "".join(traceback.format_stack(frame, limit=_TRACE_FRAMES))


class AccumulateGrad:
    """The end of the graph at a leaf, for programs that walk `next_functions`.

    Attributes:
        variable: The leaf, whose `grad` backward adds to.
        next_functions: No nodes: the graph ends here.
    """

    __slots__ = ("next_functions", "variable")

    def __init__(self, variable: Tensor):
        self.variable = variable
        self.next_functions: tuple[tuple[Node, int], ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccumulateGrad) and other.variable is self.variable

    def __hash__(self) -> int:
        return id(self.variable)


class Node:
    """One recorded call.

    Attributes:
        recipe: What was saved, and the gradient rules.
        edges: For each operand that requires a gradient, the node that computed it and which of the node's results it
            is; `(leaf, 0)` for a leaf.
        saved: Saved operands, in the order of `recipe.saved_operands`.
        saved_out: Saved results, in the order of `recipe.saved_outputs`.
        statics: Static arguments of the call.
        sequence: Number of the call, in order of time. The engine runs the node with the highest number first.
        hooks: By key, (output, hook); the hook is called with that output's gradient.
        function: Computes the gradients instead of the record's rules (custom functions, in-place writes to slices).
        freed: True after `release` has dropped saved tensors.
        trace: The stack of the forward call, if anomaly mode was enabled.
    """

    __slots__ = (
        "edges", "freed", "function", "hooks", "recipe", "saved", "saved_out", "sequence", "statics",
        "trace",
    )  # fmt: skip

    def __init__(
        self,
        recipe: Recipe,
        operands: Sequence[object],
        outs: Sequence[Tensor],
        statics: Statics,
        function: BackwardFunction | None = None,
    ):
        self.recipe = recipe
        tensors: list[Tensor] = [operands[i] for i in recipe.edges]  # type: ignore[misc]  # not tested, to save time
        self.edges: tuple[Edge, ...] = tuple(
            [(tensor.node, tensor.output) if tensor.node is not None else (tensor, 0) for tensor in tensors]
        )
        self.saved: tuple[object, ...] = tuple(
            [
                Saved(operand, False) if isinstance(operand := operands[i], Tensor) else operand
                for i in recipe.saved_operands
            ]
        )
        self.saved_out: tuple[Saved, ...] = tuple([Saved(outs[i], True) for i in recipe.saved_outputs])
        self.statics = statics
        self.sequence = next(_numbers)
        self.hooks: dict[int, tuple[int, GradientHook]] | None = None
        self.function = function
        self.freed = False
        self.trace = _forward_stack() if anomaly.is_enabled else None

    @property
    def name(self) -> str:
        return self.recipe.record.name

    @property
    def next_functions(self) -> tuple[tuple[Node | AccumulateGrad | None, int], ...]:
        """For each tensor operand the node that computed it, and which of the node's results it is.

        The node of a leaf is an `AccumulateGrad`, and that of an operand without a gradient None. A node with its own
        gradient function has no such None: its edges need not be operands of the record.
        """
        edges = [(node, i) if isinstance(node, Node) else (AccumulateGrad(node), 0) for node, i in self.edges]
        if self.function is not None:
            return tuple(edges)
        nodes = dict(zip(self.recipe.edges, edges, strict=True))
        positions = [i for i, layout in enumerate(self.recipe.metas) if isinstance(layout, Meta)]
        return tuple(nodes.get(i, (None, 0)) for i in positions)

    def static(self, name: str) -> Static:
        """Return the value of the static argument `name`."""
        return self.statics[self.recipe.record.statics.index(name)]

    def operand_layout(self, position: int) -> Meta:
        """Return the layout of the operand at `position`, which is a tensor."""
        layout = self.recipe.metas[position]
        assert isinstance(layout, Meta)
        return layout

    def refresh_saved_outputs(self, outs: Sequence[Tensor]) -> None:
        """Save the results again after an in-place op has raised their storage versions."""
        self.saved_out = tuple(Saved(outs[i], True) for i in self.recipe.saved_outputs)

    def values(self) -> SavedValues:
        """Return the saved operands and results by name.

        Raises:
            FreedGraphError: An earlier backward has dropped the saved tensors.
            VersionError: A saved tensor was written in place since.
        """
        if self.freed:
            raise FreedGraphError(
                f"backward of {self.name}: its saved tensors were freed by an earlier backward; "
                "pass retain_graph=True to the first one to go through the graph twice"
            )
        recipe = self.recipe
        values_by_name: SavedValues = {}
        for i, value in zip(recipe.saved_operands, self.saved, strict=True):
            values_by_name[recipe.names[i]] = value.unpack(self.name) if isinstance(value, Saved) else value
        for i, value in zip(recipe.saved_outputs, self.saved_out, strict=True):
            values_by_name[recipe.record.outputs[i].name] = value.unpack(self.name, self, i)
        return values_by_name

    def release(self) -> None:
        """Drop the saved tensors after backward. A node that saved none can run again."""
        if self.saved or self.saved_out:
            self.saved = self.saved_out = ()
            self.freed = True
        if self.function is not None and (release := getattr(self.function, "release", None)) is not None:
            release()
