"""One direction of a recurrent layer over a whole sequence, forward and backward.

The products of the weights with the inputs are one matrix product over all steps. Each step is then a matrix product
with the hidden state, and one kernel for all gates (`codegen/specs/recurrent.yaml`). Backward runs the steps in reverse
order; the gradient of each weight is one matrix product over all steps. On CPUs, one kernel can run all steps of a
regular sequence (`runtime/kinds/sequence.py`). Otherwise the plans of a step are looked up once, and each step launches
them on windows: views that move to the step's rows.

Inputs are rows: step t has `sizes[t]` rows, after those of step t - 1, as in `PackedSequence.data`. Sizes never grow,
so the rows of a step belong to the first sequences of the batch. A regular sequence has the same size at every step.
States are stored in slots of `batch` rows, one slot more than there are steps. Step t of a forward direction reads slot
t and writes slot t + 1; step t of a reverse direction reads slot t + 1 and writes slot t.

`layer_functions.recurrent_graph` records a layer for autograd; `steps` has the views and launches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..context import state
from ..dispatch import call
from ..kinds.sequence import should_fuse_steps
from ..records import registry
from ..tensor import Tensor
from .steps import (
    FIXED,
    READ,
    ROWS,
    WRITTEN,
    Geometry,
    Launch,
    StepOperand,
    Window,
    add_in_place,
    column_view,
    copy_into,
    launch_sequence,
    new_empty,
    new_zeros,
    strided_view,
    take_rows,
    transpose_view,
    vector_slice,
)

__all__ = ["CELL_KINDS", "CellKind", "Pass", "Weights"]


@dataclass(frozen=True, slots=True)
class CellKind:
    """A kind of recurrent network and the op that computes its gates.

    Attributes:
        name: Name of the network, "lstm" for example.
        op: Name of the gate op.
        inputs: The op's operands that are slices of the product of weights and input, one per gate.
        hiddens: Those that are slices of the product of weights and hidden state, in the same order.
        activated: The op's results that are activated gates, for backward; () if backward reads none.
        cell: Whether there is a cell state besides the hidden state.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    hiddens: tuple[str, ...]
    activated: tuple[str, ...] = ()
    cell: bool = False

    @property
    def gates(self) -> int:
        """Number of gates: the weights have `gates * hidden` rows."""
        return len(self.inputs)

    @property
    def reset(self) -> bool:
        """Whether a gate multiplies the product with the hidden state, as in a GRU.

        Its bias cannot be added to the product with the input.
        """
        return self.op == "gru_gates"


CELL_KINDS = {
    kind.name: kind
    for kind in (
        CellKind("rnn_tanh", "rnn_tanh_gate", ("x",), ("h",)),
        CellKind("rnn_relu", "rnn_relu_gate", ("x",), ("h",)),
        CellKind("lstm", "lstm_gates", ("xi", "xf", "xg", "xo"), ("hi", "hf", "hg", "ho"),
             ("input_gate", "forget_gate", "cell_gate", "output_gate"), True),
        CellKind("gru", "gru_gates", ("xr", "xz", "xn"), ("hr", "hz", "hn"), ("reset_gate", "update_gate", "new_gate")),
    )
}  # fmt: skip


class Weights(NamedTuple):
    """The parameters of one direction of a layer; None if there is no bias or projection.

    Shapes: ih `(gates * hidden, input)`, hh `(gates * hidden, hidden or projected)`, both biases `(gates * hidden,)`,
    hr `(projected, hidden)`.
    """

    ih: Tensor
    hh: Tensor
    bias_ih: Tensor | None = None
    bias_hh: Tensor | None = None
    hr: Tensor | None = None


# From this many steps on, transposing the weight once is faster than multiplying with a transposed view.
_TRANSPOSE_WEIGHT_MIN_STEPS = 8


class Pass:
    """One direction of one layer. `forward` and `backward` compute; neither records anything for autograd.

    Args:
        kind: The kind of network.
        geometry: The rows of each step.
        weights: The direction's parameters.
        reverse: Whether the steps run backwards in time.
        column: First column of this direction in the layer's output.

    Attributes:
        width: Width of the hidden state, after the projection if there is one.
        size: Number of hidden units, which is the width of a gate and of the cell state.
        steps: `Geometry.steps` of the direction.
        initial: The slot of the initial state.
    """

    def __init__(self, kind: CellKind, geometry: Geometry, weights: Weights, reverse: bool, column: int):
        self.kind, self.geometry, self.weights, self.reverse, self.column = kind, geometry, weights, reverse, column
        self.width = weights.hh.meta.shape[1]
        self.size = weights.hh.meta.shape[0] // kind.gates
        self.steps = geometry.steps(reverse)
        self.initial = geometry.length if reverse else 0

    # forward

    def forward(
        self,
        x: Tensor,
        h0: Tensor,
        c0: Tensor | None,
        out: Tensor,
        h_n: Tensor,
        c_n: Tensor | None,
        save_for_backward: bool,
    ) -> None:
        """Run all steps, and write `out`, `h_n` and `c_n`.

        Args:
            x: `(rows, input)`.
            h0: Initial hidden state, `(batch, width)`, contiguous.
            c0: Initial cell state, `(batch, size)`, contiguous; None without a cell.
            out: `(rows, directions * width)`.
            h_n: Like h0.
            c_n: Like c0.
            save_for_backward: Keep the intermediate results of every step; otherwise the next step overwrites them.
        """
        kind, weights, size = self.kind, self.weights, self.size
        buffer_rows, row_kind = (self.geometry.rows, ROWS) if save_for_backward else (self.geometry.batch, FIXED)
        is_single_launch = self._is_single_launch(x)
        bias = self._bias()
        if bias is None:
            input_products = call(registry["linear_product"], (x, weights.ih))
        else:
            input_products = call(registry["linear_bias"], (x, weights.ih, bias))
        self.states = self._slots(h0)
        self.cells = None if c0 is None else self._slots(c0)
        self.products = None
        if not is_single_launch or (kind.reset and save_for_backward):
            self.products = new_empty(x, buffer_rows if kind.reset else self.geometry.batch, kind.gates * size)
        self.activated = new_empty(x, buffer_rows, kind.gates * size) if kind.activated else None
        self.hidden = None if weights.hr is None else new_empty(x, buffer_rows, size)
        # Where the gates write the new hidden state: for the layer's output, and for the next step.
        state_windows = [Window(out, ROWS, self.column, self.width), Window(self.states, WRITTEN)]
        if self.hidden is not None:  # the projection reads it, and writes the states
            state_windows = [Window(self.hidden, row_kind), Window(self.hidden, row_kind)]
        gates = self._gates(input_products, state_windows, row_kind)
        if is_single_launch:
            steps, state_window = [rows for _, rows in self.steps], Window(self.states, READ)
            stored_product = kind.hiddens[-1] if self.products is not None else None
            launch_sequence(
                gates, self.geometry.batch, steps, state_window, steps[0], transpose_view(weights.hh), stored_product
            )
        else:
            self._run_steps(gates, state_windows, row_kind)
        if weights.hr is not None:
            copy_into(self._slots_as_rows(written=True), column_view(out, self.column, self.width))
        copy_into(self._last(self.states), h_n)
        if self.cells is not None:
            assert c_n is not None
            copy_into(self._last(self.cells), c_n)

    def _is_single_launch(self, x: Tensor) -> bool:
        """Return True if one kernel can run all steps."""
        weights, geometry = self.weights, self.geometry
        bias = weights.bias_hh
        if weights.hr is not None or not geometry.is_uniform or geometry.length < 2 or state().has_active_mode():
            return False
        # The steps of a GRU read this bias as an operand, which must have a stride of 1.
        has_strided_bias = self.kind.reset and bias is not None and bias.meta.strides[0] != 1
        return not has_strided_bias and should_fuse_steps(x.meta.device, weights.hh.meta, geometry.batch)

    def _run_steps(self, gates: Launch, state_windows: list[Window], row_kind: int) -> None:
        """Run step by step, with a launch for every product and one for the gates."""
        weights, products = self.weights, self.products
        assert products is not None
        result = Window(products, row_kind if self.kind.reset else FIXED)
        launches = [self._product(Window(self.states, READ), weights.hh, result), gates]
        if weights.hr is not None:
            launches.append(self._product(state_windows[0], weights.hr, Window(self.states, WRITTEN)))
        for n, rows in self.steps:
            for launch in launches:
                launch(n, rows)

    def _bias(self) -> Tensor | None:
        """Return the sum of the biases that can be added to the product with the inputs (not that of a reset gate)."""
        bias_ih, bias_hh = self.weights.bias_ih, self.weights.bias_hh
        if bias_hh is None or (bias_ih is None and not self.kind.reset):
            return bias_ih if bias_hh is None else bias_hh
        if not self.kind.reset:
            return call(registry["add"], (bias_ih, bias_hh))
        gated_size = 2 * self.size  # rows of the reset and the update gate; those of the new gate follow
        total = (
            new_zeros(bias_hh, 3 * self.size)
            if bias_ih is None
            else copy_into(bias_ih, new_empty(bias_ih, 3 * self.size))
        )
        add_in_place(strided_view(total, (gated_size,)), vector_slice(bias_hh, 0, gated_size))
        return total

    def _slots(self, initial: Tensor) -> Tensor:
        """Allocate the slots of a state, `((length + 1) * batch, width)`, and copy the initial state to them."""
        count, (batch, width) = self.geometry.length + 1, initial.meta.shape
        slots = new_empty(initial, count * batch, width)
        if self.reverse and not self.geometry.is_uniform:  # sequences begin at different steps: fill all slots
            all_slots = strided_view(slots, (count, batch, width))
            copy_into(call(registry["expand"], (initial,), ((count, batch, width),)), all_slots)
        else:
            copy_into(initial, self._slot(slots, self.initial))
        return slots

    def _slot(self, slots: Tensor, number: int) -> Tensor:
        """Return a view of one slot, `(batch, width)`."""
        batch, width = self.geometry.batch, slots.meta.shape[1]
        return strided_view(slots, (batch, width), None, number * batch * width)

    def _last(self, slots: Tensor) -> Tensor:
        """Return the state after the last step of each sequence, `(batch, width)`."""
        if self.reverse or self.geometry.is_uniform:
            return self._slot(slots, self.geometry.length - self.initial)
        return take_rows(slots, self.geometry.last_rows())

    def _slots_as_rows(self, *, written: bool) -> Tensor:
        """Return the hidden states that steps wrote (or read) in the order of the inputs: `(rows, width)`."""
        if not self.geometry.is_uniform:
            return take_rows(self.states, self.geometry.rows_of_slots(self.reverse, written=written))
        first = int(written != self.reverse) * self.geometry.batch * self.width  # element of slot 1, or of slot 0
        return strided_view(self.states, (self.geometry.rows, self.width), None, first)

    def _product(self, left: Window, weight: Tensor, result: Window) -> Launch:
        """Return a launch of left @ weight.T for every step. For many steps the weight is transposed once."""
        if self.geometry.length < _TRANSPOSE_WEIGHT_MIN_STEPS:
            return Launch(registry["linear_product"], [left, weight], [result])
        transposed_weight = transpose_view(weight)
        return Launch(
            registry["mm"],
            [left, copy_into(transposed_weight, new_empty(weight, *transposed_weight.meta.shape))],
            [result],
        )

    def _gates(self, input_products: Tensor, state_windows: list[Window], row_kind: int) -> Launch:
        """Return the launch of the gate op for every step."""
        kind = self.kind
        operands: dict[str, StepOperand] = {**self._gate_windows(input_products, kind.inputs, ROWS)}
        operands |= dict.fromkeys(kind.hiddens)  # None: the kernel of all steps computes these products itself
        if self.products is not None:
            operands |= self._gate_windows(self.products, kind.hiddens, row_kind if kind.reset else FIXED)
        results = dict(zip(("out", "hidden"), state_windows, strict=True))
        if self.activated is not None:
            results |= self._gate_windows(self.activated, kind.activated, row_kind)
        if self.cells is not None:
            operands["cell"], results["new_cell"] = Window(self.cells, READ), Window(self.cells, WRITTEN)
        if kind.reset:
            operands["bias"], operands["state"] = self._reset_bias(), Window(self.states, READ)
            results["carried"] = state_windows[1]
        record = registry[kind.op]
        return Launch(record, [operands[o.name] for o in record.operands], [results[o.name] for o in record.outputs])

    def _gate_windows(self, matrix: Tensor, names: Sequence[str], row_kind: int) -> dict[str, Window]:
        """Return a window for each of a matrix's blocks of `size` columns, by name."""
        return {name: Window(matrix, row_kind, k * self.size, self.size) for k, name in enumerate(names)}

    def _reset_bias(self) -> float | Tensor:
        """Return the bias inside the reset gate's product, or 0.0; see `CellKind.reset`."""
        bias = self.weights.bias_hh
        return 0.0 if bias is None else vector_slice(bias, 2 * self.size, self.size)

    # backward

    def backward(
        self,
        x: Tensor,
        grad_out: Tensor | None,
        grad_h: Tensor | None,
        grad_c: Tensor | None,
        is_requested: Callable[[str], bool],
    ) -> dict[str, Tensor]:
        """Return the requested gradients by name: `x`, `h0`, `c0` and the fields of `Weights`.

        Args:
            x: `(rows, input)`.
            grad_out: `(rows, directions * width)`; None for zeros, as for the next two.
            grad_h: `(batch, width)`, the gradient of h_n.
            grad_c: `(batch, size)`, the gradient of c_n.
            is_requested: Returns True for a name whose gradient is needed.
        """
        kind, weights, batch, rows = self.kind, self.weights, self.geometry.batch, self.geometry.rows
        count = kind.gates * self.size
        # Gradients that pass from step to step: d_hidden by way of the hidden state's product with the weights; d_state
        # of an LSTM's cell state, or of a GRU's state where the gates read it directly.
        d_hidden = (
            new_zeros(x, batch, self.width) if grad_h is None else copy_into(grad_h, new_empty(x, batch, self.width))
        )
        d_state = d_hidden
        if kind.cell or kind.reset:
            d_state = (
                new_zeros(x, batch, self.size) if grad_c is None else copy_into(grad_c, new_empty(x, batch, self.size))
            )
        d_products = new_empty(x, rows, count)
        d_inputs = new_empty(x, rows, count) if kind.reset else d_products
        d_projected = None if weights.hr is None else new_empty(x, rows, self.width)
        is_single_launch = self._is_single_launch(x)
        if is_single_launch and grad_out is not None and grad_out.meta.strides[1] not in (0, 1):
            grad_out = copy_into(grad_out, new_empty(x, *grad_out.meta.shape))
        launches = self._backward_launches(grad_out, d_hidden, d_state, d_inputs, d_products, d_projected)
        last = len(self.steps) - 1
        if is_single_launch:
            gates, product = launches
            final_rows, *steps = [step_rows for _, step_rows in reversed(self.steps)]
            gates(batch, final_rows)
            launch_sequence(gates, batch, steps, Window(d_products, ROWS), final_rows, weights.hh)
            if is_requested("h0"):
                product(batch, steps[-1])
        for i, (n, step_rows) in enumerate(() if is_single_launch else reversed(self.steps)):
            for launch in launches if i < last or is_requested("h0") else launches[:-1]:
                launch(n, step_rows)
        if kind.reset:  # gates without reset have the same gradient for both products
            copy_into(column_view(d_products, 0, 2 * self.size), column_view(d_inputs, 0, 2 * self.size))
        gradients = self._collect_gradients(x, d_inputs, d_products, d_projected, is_requested)
        if is_requested("h0"):
            gradients["h0"] = add_in_place(d_hidden, d_state) if kind.reset else d_hidden
        if kind.cell:
            gradients["c0"] = d_state
        return gradients

    def _backward_launches(
        self, grad_out: Tensor | None, d_hidden: Tensor, d_state: Tensor, d_inputs: Tensor, d_products: Tensor,
        d_projected: Tensor | None,
    ) -> list[Launch]:  # fmt: skip
        """Return the launches of a backward step.

        The last one computes the gradient of the hidden state that it read.
        """
        kind, weights = self.kind, self.weights
        incoming: Window | float = 0.0 if grad_out is None else Window(grad_out, ROWS, self.column, self.width)
        carried: Window | float = Window(d_hidden, FIXED)
        launches = []
        if d_projected is not None:
            projected_window = Window(d_projected, ROWS)
            launches.append(Launch(registry["add"], [carried, incoming], [projected_window]))
            incoming, carried = Window(new_empty(d_inputs, self.geometry.batch, self.size), FIXED), 0.0
            launches.append(Launch(registry["mm"], [projected_window, weights.hr], [incoming]))
        state = Window(self.states, WRITTEN)
        operands: dict[str, StepOperand] = {
            "grad_out": incoming, "grad_hidden": carried, "out": state, "hidden": state,
        }  # fmt: skip
        targets = self._gate_windows(d_products, kind.inputs, ROWS)
        if self.activated is not None:
            operands |= self._gate_windows(self.activated, kind.activated, ROWS)
        if self.cells is not None:
            operands |= {"cell": Window(self.cells, READ), "new_cell": Window(self.cells, WRITTEN)}
            operands["grad_new_cell"] = targets["cell"] = Window(d_state, FIXED)
        if kind.reset:
            operands["grad_carried"] = targets["state"] = Window(d_state, FIXED)
            assert self.products is not None
            operands |= {"hn": Window(self.products, ROWS, 2 * self.size, self.size), "bias": self._reset_bias()}
            operands["state"] = Window(self.states, READ)
            targets["xn"] = Window(d_inputs, ROWS, 2 * self.size, self.size)
            targets["hn"] = Window(d_products, ROWS, 2 * self.size, self.size)
        launches.append(_gradient_launch(kind.op, operands, targets))
        launches.append(Launch(registry["mm"], [Window(d_products, ROWS), weights.hh], [Window(d_hidden, FIXED)]))
        return launches

    def _collect_gradients(
        self,
        x: Tensor,
        d_inputs: Tensor,
        d_products: Tensor,
        d_projected: Tensor | None,
        is_requested: Callable[[str], bool],
    ) -> dict[str, Tensor]:
        weights, gradients = self.weights, {}
        mm, sum_op = registry["mm"], registry["sum"]
        if is_requested("x"):
            gradients["x"] = call(mm, (d_inputs, weights.ih))
        if is_requested("ih"):
            gradients["ih"] = call(mm, (transpose_view(d_inputs), x))
        if is_requested("hh"):
            gradients["hh"] = call(mm, (transpose_view(d_products), self._slots_as_rows(written=False)))
        if is_requested("bias_ih") or (is_requested("bias_hh") and d_inputs is d_products):
            gradients["bias_ih"] = gradients["bias_hh"] = call(sum_op, (d_inputs,), ((0,), False, None))
        if is_requested("bias_hh") and d_inputs is not d_products:
            gradients["bias_hh"] = call(sum_op, (d_products,), ((0,), False, None))
        if is_requested("hr") and d_projected is not None:
            gradients["hr"] = call(mm, (transpose_view(d_projected), self.hidden))
        return gradients


def _gradient_launch(op: str, operands: Mapping[str, StepOperand], targets: Mapping[str, Window]) -> Launch:
    """Return the launch that computes all gradients of a gate op. Operands that are missing count as 0."""
    rules = registry.gradients(registry[op])
    rule = rules[next(iter(targets))]
    record = registry[str(rule.op)]
    windows = {rules[name].result or 0: window for name, window in targets.items()}
    outs = [windows[i] for i in range(len(record.outputs))]
    return Launch(record, [operands.get(name, 0.0) for name in rule.operands], outs)
