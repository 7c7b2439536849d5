"""L-BFGS: a quasi-Newton method whose closure is called many times a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from ..autograd import enable_grad, no_grad
from ..factories import zeros
from ..joining import cat
from ..runtime.errors import ArgumentError, DomainError
from ..runtime.tensor import Tensor
from ._options import check_rate, number
from .line_search import strong_wolfe
from .optimizer import Optimizer

__all__ = ["LBFGS"]

_LEAST_CURVATURE = 1e-10  # below, a pair of steps says nothing of the Hessian


class LBFGS(Optimizer):
    """Steps along the gradient times an approximation of the inverse Hessian, made of the last `history_size` steps
    (Nocedal and Wright 2006, algorithms 7.4 and 7.5).

    `step(closure)` calls the closure, which computes loss and gradients, up to `max_eval` times for up to `max_iter`
    directions. line_search_fn: None (steps of length lr) or "strong_wolfe". There is one parameter group. The host
    waits for the loss and for products along each direction.
    """

    def __init__(
        self, params: Iterable[Any], lr: Any = 1, max_iter: int = 20, max_eval: int | None = None,
        tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
        line_search_fn: str | None = None,
    ):  # fmt: skip
        check_rate("LBFGS", lr)
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn,
        })  # fmt: skip
        if len(self.param_groups) != 1:
            raise ArgumentError("LBFGS: takes one parameter group: its options cannot differ by parameter")
        self._params = self.param_groups[0]["params"]

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_params": self._params}

    def _gradient(self) -> Tensor:
        """All gradients in one row."""
        rows = []
        for p in self._params:
            grad = p.extra.grad if p.extra is not None else None
            rows.append(zeros(p.meta.numel, dtype=p.dtype, device=p.device) if grad is None else grad.reshape(-1))
        return cat(rows, 0)  # type: ignore[no-any-return]

    def _go(self, length: float, direction: Tensor) -> None:
        at = 0
        for p in self._params:
            size = p.meta.numel
            p.add_(direction[at : at + size].reshape(p.shape), alpha=length)
            at += size

    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Minimise from where the parameters are; the loss that `closure` gave there."""
        with no_grad():
            return self._minimise(enable_grad()(closure))

    def _minimise(self, closure: Callable[[], Any]) -> Any:
        group = self.param_groups[0]
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise DomainError(f"LBFGS: line_search_fn is None or 'strong_wolfe', not {group['line_search_fn']!r}")
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = closure()
        loss = number(first)
        calls = 1
        state["func_evals"] += 1
        grad = self._gradient()
        if _largest(grad) <= group["tolerance_grad"]:
            return first
        for count in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            self._direction(state, grad, group["history_size"])
            before, state["prev_loss"] = loss, loss
            direction = state["d"]
            lr = number(group["lr"])
            state["t"] = min(1.0, 1.0 / number(grad.abs().sum())) * lr if state["n_iter"] == 1 else lr
            slope = number((grad * direction).sum())
            if slope > -group["tolerance_change"]:
                break
            last = count == group["max_iter"]
            loss, grad, used = self._along(closure, state, group, loss, grad, slope, calls, last)
            calls += used
            state["func_evals"] += used
            if last or calls >= group["max_eval"] or _largest(grad) <= group["tolerance_grad"]:
                break
            if _largest(direction * state["t"]) <= group["tolerance_change"]:
                break
            if abs(loss - before) < group["tolerance_change"]:
                break
        return first

    def _along(
        self, closure: Callable[[], Any], state: dict[str, Any], group: dict[str, Any], loss: float, grad: Tensor,
        slope: float, calls: int, last: bool,
    ) -> tuple[float, Tensor, int]:  # fmt: skip
        """Move along the direction; the loss and gradient there, and how many calls of the closure they took."""
        direction = state["d"]
        if group["line_search_fn"] is None:
            self._go(state["t"], direction)
            if last:  # nobody asks for the loss there
                return loss, grad, 0
            return number(closure()), self._gradient(), 1
        start = [p.detach().clone() for p in self._params]

        def at(length: float) -> tuple[float, Tensor, float]:
            self._go(length, direction)
            found = number(closure())
            there = self._gradient()
            for p, old in zip(self._params, start, strict=True):
                p.copy_(old)
            return found, there, number((there * direction).sum())

        most = group["max_eval"] - calls
        loss, grad, state["t"], used = strong_wolfe(
            at, state["t"], _largest(direction), loss, grad, slope, tolerance=1e-9, most=most
        )
        self._go(state["t"], direction)
        return loss, grad, used

    def _direction(self, state: dict[str, Any], grad: Tensor, most: int) -> None:
        """Put the next direction into `state`, after the last step has been added to the history."""
        if state["n_iter"] == 1:
            state.update(d=grad.neg(), old_dirs=[], old_stps=[], ro=[], H_diag=1, prev_flat_grad=grad.clone())
            return
        changes, steps, weights = state["old_dirs"], state["old_stps"], state["ro"]
        change, step = grad - state["prev_flat_grad"], state["d"] * state["t"]
        curvature = number((change * step).sum())
        if curvature > _LEAST_CURVATURE:
            if len(changes) == most:
                for each in (changes, steps, weights):
                    each.pop(0)
            changes.append(change)
            steps.append(step)
            weights.append(1.0 / curvature)
            state["H_diag"] = curvature / number((change * change).sum())
        state["al"] = shares = [None] * most
        way = grad.neg()
        for i in reversed(range(len(changes))):
            share = (steps[i] * way).sum() * weights[i]
            shares[i] = share
            way = way - share * changes[i]
        way = way * state["H_diag"]
        for i in range(len(changes)):
            way = way + (shares[i] - (changes[i] * way).sum() * weights[i]) * steps[i]
        state["d"] = way
        state["prev_flat_grad"] = grad.clone()


def _largest(values: Tensor) -> float:
    found = number(values.abs().max())
    return found if not math.isnan(found) else math.inf
