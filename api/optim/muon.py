"""Muon, an optimizer of weight matrices whose updates are nearly orthogonal."""

from __future__ import annotations

import math

from ..creation.factories import zeros_like
from ..linear_algebra.products import addmm
from ..runtime import dtypes
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ._options import check_learning_rate, check_not_negative, to_float
from ._types import KernelArguments, ParamGroup, Params, ParamState, Rate
from .optimizer import Optimizer

__all__ = ["Muon"]

# Jordan et al. 2024: the polynomial with the steepest slope at zero that keeps the iterations bounded. Small singular
# values grow fast by it, but they come only near 1.
_COEFFICIENTS = (3.4445, -4.775, 2.0315)


class Muon(Optimizer):
    """Descend along orthogonalized momentum (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/).

    With the gradient matrix G:

        buf    = momentum * buf + (1 - momentum) * G
        U      = (1 - momentum) * G + momentum * buf         # with nesterov; else U is buf
        param  = param * (1 - lr * weight_decay) - lr * ratio * orthogonalize(U)

    `orthogonalize` brings all singular values near 1 by Newton-Schulz iterations, products of matrices in bfloat16:

        X = U / max(norm(U), eps)
        X = a * X + (b * X @ X.T + c * X @ X.T @ X @ X.T) @ X          # ns_steps times

    Muon is for the weight matrices of hidden layers. Update vectors, embeddings and output layers by AdamW.

    Args:
        params: Matrices of shape (A, B), or parameter groups of them.
        lr: Learning rate.
        weight_decay: Decoupled weight decay.
        momentum: Weight of the buffer's old value when it is updated, and of the buffer in a Nesterov update.
        nesterov: Whether to use Nesterov momentum.
        ns_coefficients: The coefficients (a, b, c).
        eps: Lower bound of the norm that divides U.
        ns_steps: Number of Newton-Schulz iterations, below 100.
        adjust_lr_fn: "original" or None: `ratio` is `sqrt(max(1, A / B))`. "match_rms_adamw": `ratio` is
            `0.2 * sqrt(max(A, B))`, so that updates are as large as AdamW's (Liu et al. 2025, arXiv 2502.16982).

    Raises:
        ArgumentError: If an option is out of range, or a parameter is not a matrix.

    Example:
        >>> w = wg.tensor([[3.0, 0.0], [0.0, 3.0]], requires_grad=True)
        >>> optimizer = wg.optim.Muon([w], lr=1.0, weight_decay=0.0)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> bool((w.diagonal() < 2.4).all()), w.detach()[0, 1].item()
        (True, 0.0)
    """

    _scalar_entries = ()

    def __init__(
        self, params: Params, lr: Rate = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = _COEFFICIENTS, eps: float = 1e-7, ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ):  # fmt: skip
        check_learning_rate("Muon", lr)
        check_not_negative("Muon", momentum=momentum, weight_decay=weight_decay)
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ArgumentError(f"Muon: adjust_lr_fn is 'original', 'match_rms_adamw' or None, not {adjust_lr_fn!r}")
        super().__init__(params, {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn,
        })  # fmt: skip
        for param in self._all_params():
            if param.ndim != 2:
                raise ArgumentError(f"Muon: parameters are matrices; got one of shape {list(param.shape)}")

    def init_state(self, param: Tensor, state: ParamState, group: ParamGroup) -> None:
        state["momentum_buffer"] = zeros_like(param)

    def _step_group(self, position: int, group: ParamGroup, params: list[Tensor], grads: list[Tensor]) -> None:
        momentum = to_float(group["momentum"])
        updates = []
        for param, grad, state in zip(params, grads, self._states(group, params), strict=True):
            buffer = state["momentum_buffer"].lerp_(grad, 1 - momentum)
            update = _orthogonalize(grad.lerp(buffer, momentum) if group["nesterov"] else buffer, group)
            updates.append(update.to(param.dtype))
        super()._step_group(position, group, params, updates)

    def count_step(self, group: ParamGroup, params: list[Tensor], states: list[ParamState]) -> list[float]:
        # The key is the ratio of the learning rate: parameters with the same ratio are updated by one launch.
        return [_learning_rate_ratio(group["adjust_lr_fn"], *param.shape) for param in params]

    def kernel_arguments(self, group: ParamGroup, key: float) -> KernelArguments:
        # `key` is the ratio. sgd_step multiplies the weight decay by its learning rate, so the ratio is divided out.
        return "sgd_step", (), (to_float(group["lr"]) * key, to_float(group["weight_decay"]) / key, 1.0)


def _learning_rate_ratio(adjust_lr_fn: str | None, rows: int, columns: int) -> float:
    """Return the factor of the learning rate for a matrix of shape (rows, columns)."""
    if adjust_lr_fn == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1, rows / columns))


def _orthogonalize(update: Tensor, group: ParamGroup) -> Tensor:
    """Return a bfloat16 matrix with the singular vectors of `update` and singular values near 1."""
    if group["ns_steps"] >= 100:
        raise ArgumentError(f"Muon: ns_steps is below 100, not {group['ns_steps']}")
    if len(group["ns_coefficients"]) != 3:
        raise ArgumentError(f"Muon: ns_coefficients are three numbers, not {group['ns_coefficients']}")
    a, b, c = group["ns_coefficients"]
    # The Gram matrix of a wide matrix is the smaller one, so a tall matrix is transposed.
    is_tall = update.shape[0] > update.shape[1]
    matrix = update.to(dtypes.bfloat16)
    matrix = matrix.T if is_tall else matrix
    matrix = matrix / matrix.norm().clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = matrix @ matrix.T
        polynomial = addmm(gram, gram, gram, beta=b, alpha=c)
        matrix = addmm(matrix, polynomial, matrix, beta=a)
    return matrix.T if is_tall else matrix
