"""L-BFGS, a quasi-Newton method that calls its closure several times a step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import SupportsFloat, TypeVar

from ..autograd import enable_grad, no_grad
from ..creation.factories import zeros
from ..runtime.errors import ArgumentError, DomainError
from ..runtime.tensor import Tensor
from ..shape.joining import cat
from ._options import check_learning_rate, to_float
from ._types import ParamGroup, Params, ParamState, Rate
from .line_search import strong_wolfe
from .optimizer import Optimizer

__all__ = ["LBFGS"]

_Loss = TypeVar("_Loss", bound=SupportsFloat)
_MIN_CURVATURE = 1e-10  # below this, a pair (step, gradient change) carries no curvature information


class LBFGS(Optimizer):
    """Limited-memory BFGS (Nocedal and Wright 2006, "Numerical Optimization", algorithms 7.4 and 7.5).

    The direction is the gradient times an approximation of the inverse Hessian, built from the last `history_size`
    steps. `step(closure)` needs a closure that computes the loss and its gradients. The host waits for the loss and for
    the dot products of each iteration.

    Args:
        params: Parameters; L-BFGS supports one parameter group.
        lr: Step length along the direction.
        max_iter: Directions per call of `step`.
        max_eval: Closure calls per call of `step`; None means `max_iter * 5 // 4`.
        tolerance_grad: Stop if no gradient element is larger.
        tolerance_change: Stop if the loss or all parameters change by less.
        history_size: Steps in the approximation. Each needs two vectors of all parameters' size.
        line_search_fn: None for a fixed step length, or `"strong_wolfe"`.

    Raises:
        ArgumentError: For more than one parameter group.

    Example:
        >>> w = wg.tensor([3.0], requires_grad=True)
        >>> optimizer = wg.optim.LBFGS([w])
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = ((w - 1) ** 2).sum()
        ...     loss.backward()
        ...     return loss
        ...
        >>> loss = optimizer.step(closure)
        >>> w
        tensor([1.], requires_grad=True)
    """

    def __init__(
        self, params: Params, lr: Rate = 1, max_iter: int = 20, max_eval: int | None = None,
        tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
        line_search_fn: str | None = None,
    ):  # fmt: skip
        check_learning_rate("LBFGS", lr)
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn,
        })  # fmt: skip
        if len(self.param_groups) != 1:
            raise ArgumentError("LBFGS: takes one parameter group, because its options cannot differ by parameter")
        self._params = self.param_groups[0]["params"]

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_params": self._params}

    def _flat_gradient(self) -> Tensor:
        """Return all gradients concatenated into one vector, with zeros for missing ones."""
        rows = []
        for p in self._params:
            grad = p.extra.grad if p.extra is not None else None
            rows.append(zeros(p.meta.numel, dtype=p.dtype, device=p.device) if grad is None else grad.reshape(-1))
        return cat(rows, 0)

    def _move_params(self, length: float, direction: Tensor) -> None:
        offset = 0
        for p in self._params:
            size = p.meta.numel
            p.add_(direction[offset : offset + size].reshape(p.shape), alpha=length)
            offset += size

    def step(self, closure: Callable[[], _Loss]) -> _Loss:  # type: ignore[override]
        """Minimize the loss, starting from the current parameters.

        Args:
            closure: Function that clears the gradients, computes the loss, calls backward, and returns the loss.

        Returns:
            The loss at the starting point.

        Example:
            >>> w = wg.tensor([3.0], requires_grad=True)
            >>> optimizer = wg.optim.LBFGS([w])
            >>> def closure():
            ...     optimizer.zero_grad()
            ...     loss = ((w - 1) ** 2).sum()
            ...     loss.backward()
            ...     return loss
            ...
            >>> optimizer.step(closure).item()
            4.0
        """
        with no_grad():
            return self._minimise(enable_grad()(closure))

    def _minimise(self, closure: Callable[[], _Loss]) -> _Loss:
        group = self.param_groups[0]
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise DomainError(f"LBFGS: line_search_fn is None or 'strong_wolfe', not {group['line_search_fn']!r}")
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        initial_loss = closure()
        loss = to_float(initial_loss)
        calls = 1
        state["func_evals"] += 1
        grad = self._flat_gradient()
        if _max_abs(grad) <= group["tolerance_grad"]:
            return initial_loss
        for count in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            self._update_direction(state, grad, group["history_size"])
            previous_loss, state["prev_loss"] = loss, loss
            direction = state["d"]
            lr = to_float(group["lr"])
            state["t"] = min(1.0, 1.0 / to_float(grad.abs().sum())) * lr if state["n_iter"] == 1 else lr
            slope = to_float((grad * direction).sum())
            if slope > -group["tolerance_change"]:
                break
            is_last_iteration = count == group["max_iter"]
            loss, grad, line_calls = self._step_along_direction(
                closure, state, group, loss, grad, slope, calls, is_last_iteration
            )
            calls += line_calls
            state["func_evals"] += line_calls
            if is_last_iteration or calls >= group["max_eval"] or _max_abs(grad) <= group["tolerance_grad"]:
                break
            if _max_abs(direction * state["t"]) <= group["tolerance_change"]:
                break
            if abs(loss - previous_loss) < group["tolerance_change"]:
                break
        return initial_loss

    def _step_along_direction(
        self, closure: Callable[[], SupportsFloat], state: ParamState, group: ParamGroup, loss: float, grad: Tensor,
        slope: float, calls: int, is_last_iteration: bool,
    ) -> tuple[float, Tensor, int]:  # fmt: skip
        """Move the parameters along the direction.

        Return the new loss, the new gradient, and the number of closure calls.
        """
        direction = state["d"]
        if group["line_search_fn"] is None:
            self._move_params(state["t"], direction)
            if is_last_iteration:  # the last iteration needs no loss at the new point
                return loss, grad, 0
            return to_float(closure()), self._flat_gradient(), 1
        initial_params = [p.detach().clone() for p in self._params]

        def evaluate(length: float) -> tuple[float, Tensor, float]:
            self._move_params(length, direction)
            trial_loss = to_float(closure())
            trial_grad = self._flat_gradient()
            for p, initial in zip(self._params, initial_params, strict=True):
                p.copy_(initial)
            return trial_loss, trial_grad, to_float((trial_grad * direction).sum())

        max_calls = group["max_eval"] - calls
        loss, grad, state["t"], line_calls = strong_wolfe(
            evaluate, state["t"], _max_abs(direction), loss, grad, slope, tolerance=1e-9, max_tries=max_calls
        )
        self._move_params(state["t"], direction)
        return loss, grad, line_calls

    def _update_direction(self, state: ParamState, grad: Tensor, history_size: int) -> None:
        """Add the last step to the history and store the next direction in `state["d"]`."""
        if state["n_iter"] == 1:
            state.update(d=grad.neg(), old_dirs=[], old_stps=[], ro=[], H_diag=1, prev_flat_grad=grad.clone())
            return
        changes, steps, weights = state["old_dirs"], state["old_stps"], state["ro"]
        change, step = grad - state["prev_flat_grad"], state["d"] * state["t"]
        curvature = to_float((change * step).sum())
        if curvature > _MIN_CURVATURE:
            if len(changes) == history_size:
                for history in (changes, steps, weights):
                    history.pop(0)
            changes.append(change)
            steps.append(step)
            weights.append(1.0 / curvature)
            state["H_diag"] = curvature / to_float((change * change).sum())
        state["al"] = coefficients = [None] * history_size
        direction = grad.neg()
        for i in reversed(range(len(changes))):
            coefficient = (steps[i] * direction).sum() * weights[i]
            coefficients[i] = coefficient
            direction = direction - coefficient * changes[i]
        direction = direction * state["H_diag"]
        for i in range(len(changes)):
            direction = direction + (coefficients[i] - (changes[i] * direction).sum() * weights[i]) * steps[i]
        state["d"] = direction
        state["prev_flat_grad"] = grad.clone()


def _max_abs(values: Tensor) -> float:
    largest = to_float(values.abs().max())
    return largest if not math.isnan(largest) else math.inf
