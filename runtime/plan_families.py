"""Plan families: a call with new sizes is planned by filling in its sizes, not by running its planner.

Calls that differ in sizes only (same op, dtypes, ranks, …) are a `Lineage`. The first few are planned in the ordinary
way. Then the planner runs once more, on sizes that record what it computes and compares (`traced_sizes`). From that,
`plan_functions` writes the function of a `Family`: it checks the comparisons and then builds the plan for the sizes at
hand. A planner must be a pure function, and must use sizes as `traced_sizes` says. Every threshold with which it
compares a size is part of the family.

A recorded comparison with its outcome is a *guard*. The function returns the number of the first guard that fails. The
families of a lineage are a tree: `Family.branches` leads from that number to the family whose planner took the other
branch there. If there is none, the call is planned in the ordinary way, and after a few such calls the tree gets a new
family.

All threads share the families, because the functions have no state. A change of a setting that planners read drops
them, as it drops plans (`context.forget_plans`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from . import context, native
from .device import Meta, contiguous_strides
from .errors import WeftgradError
from .kinds import Planned, Request
from .plan_functions import Fill, is_traced, write_function
from .plan_programs import write_program
from .traced_sizes import Trace

if TYPE_CHECKING:
    from .autograd.node import Recipe
    from .call_types import Statics
    from .native import Program
    from .plans import Plan
    from .records import OpRecord

__all__ = [
    "ABOVE_ONE", "BELOW_ZERO", "CALLS_BEFORE_BRANCH", "CALLS_BEFORE_FAMILY", "Family", "Into", "Lineage", "Operands",
    "Search", "signature_of",
]  # fmt: skip

# Calls that are planned in the ordinary way until a lineage gets its first family, and a tree another branch. A family
# costs as much time as 5 to 10 ordinary plans. Networks for images have up to five sizes of most layers, and need none.
CALLS_BEFORE_FAMILY, CALLS_BEFORE_BRANCH = 6, 3
# Limits for all threads together. When one is reached, all lineages are dropped. A family takes 4 to 10 KiB.
_MAX_LINEAGES, _MAX_FAMILIES = 4096, 2048
_MAX_FAMILIES_OF_LINEAGE = 64
# Estimated memory of a plan that C has filled in, with its layouts, from the growth of the process over such plans.
_PLAN_BYTES, _STEP_BYTES, _RECIPE_BYTES = 600, 400, 800
# Exceptions of a planner that uses a size in a way that a trace cannot record. Then its calls get no family.
_UNTRACEABLE = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError, WeftgradError,
    struct.error,
)  # fmt: skip
ABOVE_ONE, BELOW_ZERO = object(), object()  # in keys, in place of such sizes and strides
_signatures: dict[tuple[object, ...], object] = {}  # one object for each, because objects are quicker to compare

Operands = Sequence["Meta | type | None"]
Into = tuple[Meta, ...] | None


class PlanParts(Protocol):
    """The ordinary way to plan a call: `plans.plan_parts`."""

    def __call__(
        self, record: OpRecord, layouts: Operands, statics: Statics, grad_mask: int, into: Into,
        request_class: type[Request] = Request, /,
    ) -> tuple[Request, Planned, Recipe | None]: ...  # fmt: skip


class TracedRequest(Request):
    """The request that a planner gets while it is traced."""

    __slots__ = ()

    def where(self) -> str:
        """Return the op's name. With sizes in the text, the family would be of these sizes only."""
        return self.record.name


class Family:
    """Calls for which a planner takes the same branches.

    Attributes:
        fill: Plans a call, or returns the number of the guard that excludes the call from the family.
        template: A plan of the family without its sizes; None for the root of a tree.
        program: The same as `fill` in C, which also makes the plan; None if C cannot fill in plans of the family.
        branches: By the number of a guard, the family to try for calls that it excludes.
        calls: By the number of a guard, how many excluded calls were planned in the ordinary way, for want of a family.
    """

    __slots__ = ("branches", "calls", "fill", "program", "template")

    def __init__(self, fill: Fill, template: Plan | None, program: Program | None = None):
        self.fill = fill
        self.template = template
        self.program = program
        self.branches: dict[int, Family] = {}
        self.calls: dict[int, int] = {}


class Lineage:
    """A tree of families.

    Attributes:
        root: A family that excludes all calls by guard 0. The first real family is its branch.
        families: Number of families below the root.
    """

    __slots__ = ("families", "root")

    def __init__(self) -> None:
        self.root = Family(lambda layouts, sizes: 0, None)
        self.families = 0


class Search:
    """The search for the family of a call that has no plan. The first search of a kind of calls creates its lineage.

    Args:
        record: The op.
        operands: The layout of each tensor, the type of each number, or None.
        statics: The static arguments.
        grad_mask: Bit mask of the operands that need gradients.
        into: The layouts of existing results (`out=`, in place), or None.
    """

    __slots__ = ("_call", "_family", "_guard", "_layouts", "_lineage", "_sizes")

    def __init__(self, record: OpRecord, operands: Operands, statics: Statics, grad_mask: int, into: Into):
        self._call = record, operands, statics, grad_mask, into
        positions: dict[Meta, int] = {}  # of the distinct layouts
        self._sizes: list[int] = []
        key: list[object] = [record, grad_mask, len(operands)]
        for operand in operands if into is None else (*operands, *into):
            if not isinstance(operand, Meta):
                key.append(operand)
            elif (position := positions.get(operand)) is not None:
                key.append(position)
            else:
                positions[operand] = len(positions)
                key.append(operand.signature or signature_of(operand))
        self._layouts = list(positions)
        if record.kind == "view" and statics:
            statics = _map_sizes(record, statics, self._record_size)
        key.append(statics)
        lineages = context.lineages
        lineage = lineages.get(tuple(key))
        if lineage is None:
            if len(lineages) >= _MAX_LINEAGES:
                lineages.clear()
            lineage = lineages[tuple(key)] = Lineage()
        self._lineage = lineage
        self._family = lineage.root
        self._guard = 0

    def _record_size(self, size: int) -> object:
        """Append a size to the arguments of the family's function; return what stands for it in the lineage's key."""
        self._sizes.append(size)
        return ABOVE_ONE if size > 0 else BELOW_ZERO

    def find(self) -> tuple[Plan, Planned, Recipe | None] | None:
        """Return the parts of the call's plan.

        Returns:
            The family's template, and the planner's result and the recipe for the call's sizes; None if the call has no
            family.
        """
        family: Family | None = self._lineage.root
        while family is not None:
            parts = family.fill(self._layouts, self._sizes)
            if not isinstance(parts, int):
                return family.template, *parts  # type: ignore[return-value]  # the root, which has none, fills nothing
            self._family, self._guard = family, parts
            family = family.branches.get(parts)
        return None

    def add_family(self, plan: Plan, plan_parts: PlanParts) -> None:
        """Add a family for the call if the same guard has excluded several calls.

        Args:
            plan: The call's plan, made in the ordinary way.
            plan_parts: Plans in the ordinary way.
        """
        family, guard, lineage = self._family, self._guard, self._lineage
        calls = family.calls[guard] = family.calls.get(guard, 0) + 1
        threshold = CALLS_BEFORE_BRANCH if lineage.families else CALLS_BEFORE_FAMILY
        if calls != threshold or lineage.families >= _MAX_FAMILIES_OF_LINEAGE:
            return
        if sum(other.families for other in list(context.lineages.values())) >= _MAX_FAMILIES:
            context.lineages.clear()
            return  # this lineage is dropped, too
        record, operands, statics, grad_mask, into = self._call
        trace = Trace()
        traced_layouts = {layout: _trace_layout(trace, layout, i) for i, layout in enumerate(self._layouts)}
        traced_sizes = [trace.argument(f"x{i}", size) for i, size in enumerate(self._sizes)]
        traced_operands = [traced_layouts[o] if isinstance(o, Meta) else o for o in operands]
        traced_into = None if into is None else tuple(traced_layouts[layout] for layout in into)
        if traced_sizes:
            remaining_sizes = iter(traced_sizes)
            statics = _map_sizes(record, statics, lambda size: next(remaining_sizes))
        try:
            _, planned, recipe = plan_parts(record, traced_operands, statics, grad_mask, traced_into, TracedRequest)
            fill = write_function(trace, list(traced_layouts.values()), traced_sizes, (planned, recipe))
        except _UNTRACEABLE:
            return
        program = write_program(
            trace, list(traced_layouts.values()), traced_sizes, planned, recipe, plan.run, plan.device,
            plan.planned.steps if plan.planned is not None else (),
        )  # fmt: skip
        template = plan.refill(Planned(()), None)  # without layouts, a launcher and what backward has cached
        launches_from_c = not planned.steps or bool(native.host_templates_of(plan.run))
        if program is None or not launches_from_c:
            template.nbytes //= 2  # plans of a family share the other half: positions of operands, rules, …
        else:
            template.nbytes = _PLAN_BYTES + _STEP_BYTES * len(planned.steps) + _RECIPE_BYTES * (recipe is not None)
        family.branches[guard] = Family(fill, template, program)
        lineage.families += 1


def signature_of(layout: Meta) -> object:
    """Return what the layouts of a lineage have in common, and store it in `layout.signature`."""
    sizes = tuple([size if size < 2 else ABOVE_ONE for size in layout.shape])
    strides: tuple[object, ...] | None = None
    if layout.strides != contiguous_strides(layout.shape):
        strides = tuple([s if 0 <= s < 2 else ABOVE_ONE if s > 0 else BELOW_ZERO for s in layout.strides])
    layout.signature = _signatures.setdefault((layout.dtype, layout.device, sizes, strides), object())
    return layout.signature


def _trace_layout(trace: Trace, layout: Meta, position: int) -> Meta:
    """Return a layout whose sizes and strides, except for 0 and 1, are arguments of the family's function."""
    shape = tuple(trace.argument(f"m{position}s{d}", size) for d, size in enumerate(layout.shape))
    strides = contiguous_strides(shape)
    if layout.strides != contiguous_strides(layout.shape):
        strides = tuple(trace.argument(f"m{position}t{d}", stride) for d, stride in enumerate(layout.strides))
    traced = Meta(layout.dtype, shape, strides, layout.device)
    return traced if is_traced(traced) else layout


def _map_sizes(record: OpRecord, statics: Statics, replace: Callable[[int], object]) -> tuple[object, ...]:
    """Return the static arguments of a view with their sizes replaced, such as those in `shape`.

    Dimensions stay, because they are no sizes, and so do -1, 0 and 1, which often mean something else.
    """

    def map_value(value: object) -> object:
        if type(value) is int:
            return value if -1 <= value <= 1 else replace(value)
        return tuple([map_value(item) for item in value]) if isinstance(value, tuple) else value

    names = record.statics or ("",) * len(statics)
    return tuple([v if name.startswith("dim") else map_value(v) for name, v in zip(names, statics, strict=False)])
