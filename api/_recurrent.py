"""One recurrent layer over a whole sequence, in one or two directions: one node of the graph.

The products with the inputs are one matrix product of all steps; a step is then a matrix product with the hidden state
and one kernel for all that its gates do (`codegen/specs/recurrent.yaml`). Backward is the same the other way round, and
gradients of weights are one matrix product over all steps each. On CPUs the steps of a regular sequence are one kernel
(`runtime/kinds/sequence.py`); others launch plans that were looked up once, on views whose starts are moved along.

Inputs are rows: step t has `sizes[t]` of them, behind those of step t - 1, as `PackedSequence.data` has them. Sizes
never grow, so that the rows of a step belong to the first sequences. A regular sequence has as many every step.
States are kept in slots, one more than steps: step t of a forward direction reads slot t and writes slot t + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ._stepping import (
    FIXED,
    READ,
    ROWS,
    WRITTEN,
    Geometry,
    Launch,
    Window,
    add_to,
    columns,
    copied,
    filled,
    made,
    part,
    sequence,
    taken,
    transposed,
    viewed,
)
from .runtime.context import state
from .runtime.dispatch import call
from .runtime.kinds.sequence import suits
from .runtime.records import registry
from .runtime.tensor import Tensor

__all__ = ["SORTS", "Pass", "Sort", "Weights"]


@dataclass(frozen=True, slots=True)
class Sort:
    """A sort of recurrent network: the op of its gates, their operands by what they come from, and what is carried.

    inputs, hiddens: operands from the product with the input, and from that with the hidden state, in the order of the
    weights' rows. activated: results that backward reads. cell: whether there is a cell state beside the hidden one.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    hiddens: tuple[str, ...]
    activated: tuple[str, ...] = ()
    cell: bool = False

    @property
    def gates(self) -> int:
        """How many times the hidden size the weights have rows."""
        return len(self.inputs)

    @property
    def reset(self) -> bool:
        """Whether a gate acts on the product with the hidden state itself, so that its bias stays apart (GRU)."""
        return self.op == "gru_gates"


SORTS = {
    sort.name: sort
    for sort in (
        Sort("rnn_tanh", "rnn_tanh_gate", ("x",), ("h",)),
        Sort("rnn_relu", "rnn_relu_gate", ("x",), ("h",)),
        Sort("lstm", "lstm_gates", ("xi", "xf", "xg", "xo"), ("hi", "hf", "hg", "ho"),
             ("input_gate", "forget_gate", "cell_gate", "output_gate"), True),
        Sort("gru", "gru_gates", ("xr", "xz", "xn"), ("hr", "hz", "hn"), ("reset_gate", "update_gate", "new_gate")),
    )
}  # fmt: skip


class Weights(NamedTuple):
    """The parameters of one direction of a layer, None for what it has not: (gates x hidden, input), (gates x hidden,
    hidden or projected), (gates x hidden) twice, (projected, hidden)."""

    ih: Tensor
    hh: Tensor
    bias_ih: Tensor | None = None
    bias_hh: Tensor | None = None
    hr: Tensor | None = None


_MANY = 8  # steps from which a product with a transposed weight takes longer than transposing it


class Pass:
    """One direction of one layer: `forward` runs it, `backward` goes back. Neither records anything.

    x: (rows, input). out: (rows, directions x out), of which this direction has the columns from `column`. keep:
    whether backward will want what steps computed; without, it is written over by the next step.
    """

    def __init__(self, sort: Sort, geometry: Geometry, weights: Weights, reverse: bool, column: int):
        self.sort, self.geometry, self.weights, self.reverse, self.column = sort, geometry, weights, reverse, column
        self.width = weights.hh.meta.shape[1]  # of the hidden state: projected, if it is
        self.size = weights.hh.meta.shape[0] // sort.gates
        self.steps = geometry.steps(reverse)
        self.initial = geometry.length if reverse else 0  # the slot of the initial state

    # forward

    def forward(self, x: Tensor, h0: Tensor, c0: Tensor | None, out: Tensor, h_n: Tensor, c_n: Any, keep: bool) -> None:
        """Run all steps. h0, c0, h_n, c_n: (batch, size), contiguous."""
        sort, weights, size = self.sort, self.weights, self.size
        many, follows = (self.geometry.rows, ROWS) if keep else (self.geometry.batch, FIXED)
        together = self._together(x)
        bias = self._bias()
        if bias is None:
            given = call(registry["linear_product"], (x, weights.ih))
        else:
            given = call(registry["linear_bias"], (x, weights.ih, bias))
        self.states = self._slots(h0)
        self.cells = None if c0 is None else self._slots(c0)
        self.products = None
        if not together or (sort.reset and keep):
            self.products = made(x, many if sort.reset else self.geometry.batch, sort.gates * size)
        self.activated = made(x, many, sort.gates * size) if sort.activated else None
        self.hidden = None if weights.hr is None else made(x, many, size)
        written = [Window(out, ROWS, self.column, self.width), Window(self.states, WRITTEN)]
        if self.hidden is not None:
            written = [Window(self.hidden, follows), Window(self.hidden, follows)]
        gates = self._gates(given, written, follows)
        if together:
            steps, left = [rows for _, rows in self.steps], Window(self.states, READ)
            stored = sort.hiddens[-1] if self.products is not None else None
            sequence(gates, self.geometry.batch, steps, left, steps[0], transposed(weights.hh), stored)
        else:
            self._walk(gates, written, follows)
        if weights.hr is not None:
            copied(self._slots_as_rows(written=True), columns(out, self.column, self.width))
        copied(self._last(self.states), h_n)
        if self.cells is not None:
            copied(self._last(self.cells), c_n)

    def _together(self, x: Tensor) -> bool:
        """Whether all steps are one launch."""
        weights, geometry = self.weights, self.geometry
        bias = weights.bias_hh
        if weights.hr is not None or not geometry.regular or geometry.length < 2 or state().watched():
            return False
        apart = self.sort.reset and bias is not None and bias.meta.strides[0] != 1  # an operand of the steps
        return not apart and suits(x.meta.device, weights.hh.meta, geometry.batch)

    def _walk(self, gates: Launch, written: list[Window], follows: int) -> None:
        """Step after step, a launch for every product and one for the gates."""
        weights, products = self.weights, self.products
        assert products is not None
        result = Window(products, follows if self.sort.reset else FIXED)
        launches = [self._product(Window(self.states, READ), weights.hh, result), gates]
        if weights.hr is not None:
            launches.append(self._product(written[0], weights.hr, Window(self.states, WRITTEN)))
        for n, rows in self.steps:
            for launch in launches:
                launch(n, rows)

    def _bias(self) -> Tensor | None:
        """What is added to the product with the inputs: all biases but the one that a reset gate acts on."""
        one, other = self.weights.bias_ih, self.weights.bias_hh
        if other is None or (one is None and not self.sort.reset):
            return one if other is None else other
        if not self.sort.reset:
            return call(registry["add"], (one, other))  # type: ignore[no-any-return]
        both = 2 * self.size
        total = filled(other, 3 * self.size) if one is None else copied(one, made(one, 3 * self.size))
        add_to(viewed(total, (both,)), part(other, 0, both))
        return total

    def _slots(self, initial: Tensor) -> Tensor:
        """(slots x batch, size), with the initial state where steps will read it."""
        count, (batch, width) = self.geometry.length + 1, initial.meta.shape
        slots = made(initial, count * batch, width)
        if self.reverse and not self.geometry.regular:  # sequences begin at different steps
            whole = viewed(slots, (count, batch, width))
            copied(call(registry["expand"], (initial,), ((count, batch, width),)), whole)
        else:
            copied(initial, self._slot(slots, self.initial))
        return slots

    def _slot(self, slots: Tensor, number: int) -> Tensor:
        batch, width = self.geometry.batch, slots.meta.shape[1]
        return viewed(slots, (batch, width), None, number * batch * width)

    def _last(self, slots: Tensor) -> Tensor:
        if self.reverse or self.geometry.regular:
            return self._slot(slots, self.geometry.length - self.initial)
        return taken(slots, self.geometry.last_rows())

    def _slots_as_rows(self, *, written: bool) -> Tensor:
        """The states that steps read, or wrote, in the order of the inputs: (rows, size)."""
        if not self.geometry.regular:
            return taken(self.states, self.geometry.rows_of_slots(self.reverse, written=written))
        first = int(written != self.reverse) * self.geometry.batch * self.width
        return viewed(self.states, (self.geometry.rows, self.width), None, first)

    def _product(self, left: Window, weight: Tensor, result: Window) -> Launch:
        """left @ weight.T, for step after step; over many, it pays to lay the weight out along its columns once."""
        if self.geometry.length < _MANY:
            return Launch(registry["linear_product"], [left, weight], [result])
        turned = transposed(weight)
        return Launch(registry["mm"], [left, copied(turned, made(weight, *turned.meta.shape))], [result])

    def _gates(self, given: Tensor, written: list[Window], follows: int) -> Launch:
        sort = self.sort
        table: dict[str, Any] = self._cut(given, sort.inputs, ROWS)
        table |= dict.fromkeys(sort.hiddens)
        if self.products is not None:
            table |= self._cut(self.products, sort.hiddens, follows if sort.reset else FIXED)
        results = dict(zip(("out", "hidden"), written, strict=True))
        if self.activated is not None:
            results |= self._cut(self.activated, sort.activated, follows)
        if self.cells is not None:
            table["cell"], results["new_cell"] = Window(self.cells, READ), Window(self.cells, WRITTEN)
        if sort.reset:
            table["bias"], table["state"] = self._reset_bias(), Window(self.states, READ)
            results["carried"] = written[1]
        record = registry[sort.op]
        return Launch(record, [table[o.name] for o in record.operands], [results[o.name] for o in record.outputs])

    def _cut(self, matrix: Tensor, names: Sequence[str], follows: int) -> dict[str, Window]:
        return {name: Window(matrix, follows, k * self.size, self.size) for k, name in enumerate(names)}

    def _reset_bias(self) -> Any:
        bias = self.weights.bias_hh
        return 0.0 if bias is None else part(bias, 2 * self.size, self.size)

    # backward

    def backward(
        self,
        x: Tensor,
        grad_out: Tensor | None,
        grad_h: Tensor | None,
        grad_c: Tensor | None,
        wanted: Callable[[str], bool],
    ) -> dict[str, Tensor]:
        """Gradients by name: `x`, `h0`, `c0` and the fields of `Weights`, as far as they are `wanted`.

        grad_out: (rows, directions x out), grad_h, grad_c: (batch, size); None for nothing.
        """
        sort, weights, batch, rows = self.sort, self.weights, self.geometry.batch, self.geometry.rows
        count = sort.gates * self.size
        # What goes from step to step: of the hidden state, and of the cell, or of the state that the gates read.
        d_hidden = filled(x, batch, self.width) if grad_h is None else copied(grad_h, made(x, batch, self.width))
        d_state = d_hidden
        if sort.cell or sort.reset:
            d_state = filled(x, batch, self.size) if grad_c is None else copied(grad_c, made(x, batch, self.size))
        d_products = made(x, rows, count)
        d_given = made(x, rows, count) if sort.reset else d_products
        d_projected = None if weights.hr is None else made(x, rows, self.width)
        together = self._together(x)
        if together and grad_out is not None and grad_out.meta.strides[1] not in (0, 1):
            grad_out = copied(grad_out, made(x, *grad_out.meta.shape))
        launches = self._back(grad_out, d_hidden, d_state, d_given, d_products, d_projected)
        last = len(self.steps) - 1
        if together:
            gates, product = launches
            begun, *steps = [at for _, at in reversed(self.steps)]
            gates(batch, begun)
            sequence(gates, batch, steps, Window(d_products, ROWS), begun, weights.hh)
            if wanted("h0"):
                product(batch, steps[-1])
        for i, (n, at) in enumerate(() if together else reversed(self.steps)):
            for launch in launches if i < last or wanted("h0") else launches[:-1]:
                launch(n, at)
        if sort.reset:  # the gates that are not reset have the same gradients on either side
            copied(columns(d_products, 0, 2 * self.size), columns(d_given, 0, 2 * self.size))
        found = self._collected(x, d_given, d_products, d_projected, wanted)
        if wanted("h0"):
            found["h0"] = add_to(d_hidden, d_state) if sort.reset else d_hidden
        if sort.cell:
            found["c0"] = d_state
        return found

    def _back(
        self, grad_out: Tensor | None, d_hidden: Tensor, d_state: Tensor, d_given: Tensor, d_products: Tensor,
        d_projected: Tensor | None,
    ) -> list[Launch]:  # fmt: skip
        """What a step backward launches; last, the product that gives the gradient of the hidden state it read."""
        sort, weights = self.sort, self.weights
        arrived: Any = 0.0 if grad_out is None else Window(grad_out, ROWS, self.column, self.width)
        carried: Any = Window(d_hidden, FIXED)
        launches = []
        if d_projected is not None:
            whole = Window(d_projected, ROWS)
            launches.append(Launch(registry["add"], [carried, arrived], [whole]))
            arrived, carried = Window(made(d_given, self.geometry.batch, self.size), FIXED), 0.0
            launches.append(Launch(registry["mm"], [whole, weights.hr], [arrived]))
        table = {"grad_out": arrived, "grad_hidden": carried, "out": Window(self.states, WRITTEN)}
        table["hidden"] = table["out"]
        targets = self._cut(d_products, sort.inputs, ROWS)
        if self.activated is not None:
            table |= self._cut(self.activated, sort.activated, ROWS)
        if self.cells is not None:
            table |= {"cell": Window(self.cells, READ), "new_cell": Window(self.cells, WRITTEN)}
            table["grad_new_cell"] = targets["cell"] = Window(d_state, FIXED)
        if sort.reset:
            table["grad_carried"] = targets["state"] = Window(d_state, FIXED)
            assert self.products is not None
            table |= {"hn": Window(self.products, ROWS, 2 * self.size, self.size), "bias": self._reset_bias()}
            table["state"] = Window(self.states, READ)
            targets["xn"] = Window(d_given, ROWS, 2 * self.size, self.size)
            targets["hn"] = Window(d_products, ROWS, 2 * self.size, self.size)
        launches.append(_gradient_launch(sort.op, table, targets))
        launches.append(Launch(registry["mm"], [Window(d_products, ROWS), weights.hh], [Window(d_hidden, FIXED)]))
        return launches

    def _collected(
        self, x: Tensor, d_given: Tensor, d_products: Tensor, d_projected: Tensor | None, wanted: Callable[[str], bool]
    ) -> dict[str, Tensor]:
        weights, found = self.weights, {}
        mm, total = registry["mm"], registry["sum"]
        if wanted("x"):
            found["x"] = call(mm, (d_given, weights.ih))
        if wanted("ih"):
            found["ih"] = call(mm, (transposed(d_given), x))
        if wanted("hh"):
            found["hh"] = call(mm, (transposed(d_products), self._slots_as_rows(written=False)))
        if wanted("bias_ih") or (wanted("bias_hh") and d_given is d_products):
            found["bias_ih"] = found["bias_hh"] = call(total, (d_given,), ((0,), False, None))
        if wanted("bias_hh") and d_given is not d_products:
            found["bias_hh"] = call(total, (d_products,), ((0,), False, None))
        if wanted("hr") and d_projected is not None:
            found["hr"] = call(mm, (transposed(d_projected), self.hidden))
        return found


def _gradient_launch(op: str, table: Mapping[str, Any], targets: Mapping[str, Window]) -> Launch:
    """The kernel that computes all gradients of a gate op: what the table does not name never arrived."""
    rules = registry.gradients(registry[op])
    rule = rules[next(iter(targets))]
    record = registry[str(rule.op)]
    outs: list[Any] = [None] * len(record.outputs)
    for name, window in targets.items():
        outs[rules[name].result or 0] = window
    return Launch(record, [table.get(name, 0.0) for name in rule.operands], outs)
