"""SGD, RMSprop, Adagrad, Adadelta, Rprop and ASGD, with PyTorch's formulas, options, defaults and state.

Optimizers here and in `adam` accept the options `foreach`, `fused` and `capturable`, by which PyTorch selects an
implementation. They change nothing: every update is one kernel for all parameters of a group. `differentiable=True`
raises `NotSupported`.
"""

from __future__ import annotations

from typing import ClassVar

from ..creation.factories import full_like, zeros_like
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ._options import check_learning_rate, check_modes, check_not_negative, round_to_float32, to_float
from ._state_memory import reserve_state_memory
from ._types import KernelArguments, ParamGroup, Params, ParamState, Rate
from .optimizer import Optimizer

__all__ = ["ASGD", "SGD", "Adadelta", "Adagrad", "RMSprop", "Rprop"]


def gradient_sign(group: ParamGroup) -> float:
    """Return -1 if the group maximizes, otherwise 1: the factor of its gradients."""
    return -1.0 if group["maximize"] else 1.0


class _StepIndependent(Optimizer):
    """Base class of optimizers whose kernel has the same scalar arguments in every step.

    So all parameters of a group have one key, and are updated by one launch.
    """

    def count_step(self, group: ParamGroup, params: list[Tensor], states: list[ParamState]) -> list[None]:
        super().count_step(group, params, states)
        return [None] * len(states)


class SGD(Optimizer):
    """Stochastic gradient descent, optionally with momentum.

    With gradient g (plus `weight_decay * param`):

        buf    = momentum * buf + (1 - dampening) * g      # the first step sets buf = g
        param -= lr * buf                                  # with nesterov: lr * (g + momentum * buf)

    Nesterov momentum follows Sutskever et al. 2013, "On the importance of initialization and momentum in deep
    learning".

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate; a number or a one-element tensor.
        momentum: Factor of the momentum buffer in its update. With 0 there is no buffer.
        dampening: The gradient is added to the momentum buffer with the weight `1 - dampening`.
        weight_decay: L2 penalty: its product with the parameter is added to the gradient.
        nesterov: Whether to use Nesterov momentum; needs `momentum > 0` and `dampening == 0`.
        maximize: Ascend instead of descend.
        foreach: Accepted for compatibility with PyTorch.
        differentiable: Must be False.
        fused: Accepted for compatibility with PyTorch.

    Raises:
        ArgumentError: If an option is out of range.
        NotSupported: For `differentiable=True`.

    Example:
        >>> w = wg.tensor([1.0], requires_grad=True)
        >>> optimizer = wg.optim.SGD([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.8000], requires_grad=True)
    """

    _scalar_entries = ()

    def __init__(
        self, params: Params, lr: Rate = 1e-3, momentum: float = 0, dampening: float = 0,
        weight_decay: float | Tensor = 0, nesterov: bool = False, *, maximize: bool = False,
        foreach: bool | None = None, differentiable: bool = False, fused: bool | None = None,
    ):  # fmt: skip
        check_learning_rate("SGD", lr)
        check_not_negative("SGD", momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ArgumentError("SGD: nesterov needs momentum above 0 and no dampening")
        check_modes("SGD", differentiable=differentiable, foreach=foreach, fused=fused)
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused,
        })  # fmt: skip

    def _states(self, group: ParamGroup, params: list[Tensor]) -> list[ParamState]:
        # Without momentum, PyTorch stores no entry at all.
        return super()._states(group, params) if group["momentum"] else []

    def init_state(self, param: Tensor, state: ParamState, group: ParamGroup) -> None:
        state["momentum_buffer"] = None

    def count_step(self, group: ParamGroup, params: list[Tensor], states: list[ParamState]) -> list[float]:
        # A key is the weight of the gradient in the momentum buffer: 1 in a parameter's first step, then 1 - dampening.
        if not states:
            return [0.0] * len(params)
        gradient_weights = [1.0 - to_float(group["dampening"])] * len(states)
        if self._rehearsals:  # before the first step: lay out the memory of all buffers at once
            uninitialized = [p for p, state in zip(params, states, strict=True) if state.get("momentum_buffer") is None]
            reserve_state_memory(self, group, uninitialized, tensors_per_param=1)
        for i, (param, state) in enumerate(zip(params, states, strict=True)):
            if state.get("momentum_buffer") is None:
                state["momentum_buffer"] = zeros_like(param)
                gradient_weights[i] = 1.0
        return gradient_weights

    def kernel_arguments(self, group: ParamGroup, key: float) -> KernelArguments:
        lr, decay, sign = to_float(group["lr"]), to_float(group["weight_decay"]), gradient_sign(group)
        if not group["momentum"]:
            return "sgd_step", (), (lr, decay, sign)
        name = "sgd_nesterov_step" if group["nesterov"] else "sgd_momentum_step"
        return name, ("momentum_buffer",), (lr, to_float(group["momentum"]), key, decay, sign)


class RMSprop(_StepIndependent):
    """Divide the gradient by the root of its running mean square.

    Sources: Hinton 2012, lecture 6e; Graves 2013, arXiv 1308.0850, for `centered` and `momentum`.

        square_avg = alpha * square_avg + (1 - alpha) * g**2
        grad_avg   = alpha * grad_avg + (1 - alpha) * g            # with centered; else grad_avg is 0
        scaled     = g / (sqrt(square_avg - grad_avg**2) + eps)
        buf        = momentum * buf + scaled
        param     -= lr * buf

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate.
        alpha: Weight of the old value in the running means.
        eps: Added to the denominator.
        weight_decay: L2 penalty: its product with the parameter is added to the gradient.
        momentum: Factor of the momentum buffer in its update. With 0 there is no buffer.
        centered: Whether to divide by the root of the running variance instead of the mean square.
        capturable: Accepted for compatibility with PyTorch.
        foreach: Accepted for compatibility with PyTorch.
        maximize: Ascend instead of descend.
        differentiable: Must be False.

    Raises:
        ArgumentError: If an option is out of range.
        NotSupported: For `differentiable=True`.

    Example:
        >>> w = wg.tensor([1.0], requires_grad=True)
        >>> optimizer = wg.optim.RMSprop([w], lr=0.01)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.9000], requires_grad=True)
    """

    # (centered, with momentum) -> the update op, and its operands after parameter and gradient
    _UPDATE_OPS: ClassVar[dict[tuple[bool, bool], tuple[str, tuple[str, ...]]]] = {
        (False, False): ("rmsprop_step", ("square_avg",)),
        (False, True): ("rmsprop_momentum_step", ("square_avg", "momentum_buffer")),
        (True, False): ("rmsprop_centred_step", ("square_avg", "grad_avg")),
        (True, True): ("rmsprop_centred_momentum_step", ("square_avg", "grad_avg", "momentum_buffer")),
    }

    def __init__(
        self, params: Params, lr: Rate = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0, momentum: float = 0, centered: bool = False, capturable: bool = False,
        foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    ):  # fmt: skip
        check_learning_rate("RMSprop", lr)
        check_not_negative("RMSprop", eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        check_modes("RMSprop", differentiable=differentiable)
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable,
        })  # fmt: skip

    def init_state(self, param: Tensor, state: ParamState, group: ParamGroup) -> None:
        state["step"] = 0.0
        state["square_avg"] = zeros_like(param)
        if group["momentum"] > 0:
            state["momentum_buffer"] = zeros_like(param)
        if group["centered"]:
            state["grad_avg"] = zeros_like(param)

    def kernel_arguments(self, group: ParamGroup, key: None) -> KernelArguments:
        alpha, momentum = to_float(group["alpha"]), to_float(group["momentum"])
        decay, sign = to_float(group["weight_decay"]), gradient_sign(group)
        scalars = (to_float(group["lr"]), alpha, 1 - alpha, to_float(group["eps"]), decay, sign)
        name, entries = self._UPDATE_OPS[bool(group["centered"]), momentum > 0]
        return name, entries, (*scalars, momentum) if momentum > 0 else scalars


class Adagrad(Optimizer):
    """Divide the gradient by the root of the sum of all its squares (Duchi et al. 2011).

        sum   += g**2
        param -= lr / (1 + (t - 1) * lr_decay) * g / (sqrt(sum) + eps)

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate.
        lr_decay: Decay of the learning rate; see the formula.
        weight_decay: L2 penalty: its product with the parameter is added to the gradient.
        initial_accumulator_value: Value of `sum` before the first step.
        eps: Added to the denominator.
        foreach: Accepted for compatibility with PyTorch.
        maximize: Ascend instead of descend.
        differentiable: Must be False.
        fused: Accepted for compatibility with PyTorch.

    Raises:
        ArgumentError: If an option is out of range.
        NotSupported: For `differentiable=True`.

    Example:
        >>> w = wg.tensor([1.0], requires_grad=True)
        >>> optimizer = wg.optim.Adagrad([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.9000], requires_grad=True)
    """

    def __init__(
        self, params: Params, lr: Rate = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
        initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *,
        maximize: bool = False, differentiable: bool = False, fused: bool | None = None,
    ):  # fmt: skip
        check_learning_rate("Adagrad", lr)
        check_not_negative("Adagrad", lr_decay=lr_decay, weight_decay=weight_decay, eps=eps,
                     initial_accumulator_value=initial_accumulator_value)  # fmt: skip
        check_modes("Adagrad", differentiable=differentiable, foreach=foreach, fused=fused)
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "fused": fused,
        })  # fmt: skip
        for group in self.param_groups:
            for param in group["params"]:
                self.init_state(param, self.state[param], group)

    def share_memory(self) -> None:
        """Move the state tensors to memory that processes share.

        Example:
            >>> weight = wg.ones(1, device='cpu').requires_grad_()
            >>> optimizer = wg.optim.Adagrad([weight])
            >>> optimizer.share_memory()
            >>> optimizer.state[weight]['sum'].is_shared()
            True
        """
        for state in self.state.values():
            state["sum"].share_memory_()

    def init_state(self, param: Tensor, state: ParamState, group: ParamGroup) -> None:
        state["step"] = 0.0
        state["sum"] = full_like(param, float(self.defaults["initial_accumulator_value"]))

    def kernel_arguments(self, group: ParamGroup, key: float) -> KernelArguments:
        step = key
        lr = to_float(group["lr"]) / (1 + (step - 1) * to_float(group["lr_decay"]))
        scalars = (lr, to_float(group["eps"]), to_float(group["weight_decay"]), gradient_sign(group))
        return "adagrad_step", ("sum",), scalars


class Adadelta(_StepIndependent):
    """Scale the gradient by the ratio of the running RMS of updates and of gradients (Zeiler 2012, arXiv 1212.5701).

        square_avg = rho * square_avg + (1 - rho) * g**2
        delta      = sqrt(acc_delta + eps) / sqrt(square_avg + eps) * g
        acc_delta  = rho * acc_delta + (1 - rho) * delta**2
        param     -= lr * delta

    Args:
        params: Parameters or parameter groups.
        lr: Factor of the update.
        rho: Weight of the old value in the running mean squares, between 0 and 1.
        eps: Added to both mean squares.
        weight_decay: L2 penalty: its product with the parameter is added to the gradient.
        foreach: Accepted for compatibility with PyTorch.
        capturable: Accepted for compatibility with PyTorch.
        maximize: Ascend instead of descend.
        differentiable: Must be False.

    Raises:
        ArgumentError: If an option is out of range.
        NotSupported: For `differentiable=True`.

    Example:
        >>> w = wg.tensor([1.0], requires_grad=True)
        >>> optimizer = wg.optim.Adadelta([w], lr=1.0)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.9968], requires_grad=True)
    """

    def __init__(
        self, params: Params, lr: Rate = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0,
        foreach: bool | None = None, *, capturable: bool = False, maximize: bool = False, differentiable: bool = False,
    ):  # fmt: skip
        check_learning_rate("Adadelta", lr)
        if not 0 <= rho <= 1:
            raise ArgumentError(f"Adadelta: rho must be between 0 and 1, not {rho}")
        check_not_negative("Adadelta", eps=eps, weight_decay=weight_decay)
        check_modes("Adadelta", differentiable=differentiable)
        super().__init__(params, {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "capturable": capturable, "foreach": foreach, "differentiable": differentiable,
        })  # fmt: skip

    def init_state(self, param: Tensor, state: ParamState, group: ParamGroup) -> None:
        state.update(step=0.0, square_avg=zeros_like(param), acc_delta=zeros_like(param))

    def kernel_arguments(self, group: ParamGroup, key: None) -> KernelArguments:
        rho = to_float(group["rho"])
        eps, decay = to_float(group["eps"]), to_float(group["weight_decay"])
        scalars = (to_float(group["lr"]), rho, 1 - rho, eps, decay, gradient_sign(group))
        return "adadelta_step", ("square_avg", "acc_delta"), scalars


class Rprop(_StepIndependent):
    """Resilient backpropagation: step sizes that depend on the gradient's sign only (Riedmiller and Braun 1993).

    An element's step size grows by `etas[1]` while the sign of its gradient stays, and shrinks by `etas[0]` when the
    sign changes. After a change the element skips one update (iRprop-, Igel and Hüsken 2000).

    Args:
        params: Parameters or parameter groups.
        lr: First step size of every element.
        etas: Factors of the step size: one below 1 to shrink it, and one above 1 to grow it.
        step_sizes: Smallest and largest step size.
        capturable: Accepted for compatibility with PyTorch.
        foreach: Accepted for compatibility with PyTorch.
        maximize: Ascend instead of descend.
        differentiable: Must be False.

    Raises:
        ArgumentError: If an option is out of range.
        NotSupported: For `differentiable=True`.

    Example:
        >>> w = wg.tensor([1.0], requires_grad=True)
        >>> optimizer = wg.optim.Rprop([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.9000], requires_grad=True)
    """

    def __init__(
        self, params: Params, lr: Rate = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False, foreach: bool | None = None,
        maximize: bool = False, differentiable: bool = False,
    ):  # fmt: skip
        check_learning_rate("Rprop", lr)
        if not 0 < etas[0] < 1 < etas[1]:
            raise ArgumentError(f"Rprop: etas must be a factor between 0 and 1 and a factor above 1, not {etas}")
        check_modes("Rprop", differentiable=differentiable)
        super().__init__(params, {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    def init_state(self, param: Tensor, state: ParamState, group: ParamGroup) -> None:
        state.update(step=0.0, prev=zeros_like(param), step_size=full_like(param, to_float(group["lr"])))

    def kernel_arguments(self, group: ParamGroup, key: None) -> KernelArguments:
        scalars = *map(to_float, group["etas"]), *map(to_float, group["step_sizes"]), gradient_sign(group)
        return "rprop_step", ("prev", "step_size"), scalars


class ASGD(Optimizer):
    """Averaged stochastic gradient descent (Polyak and Juditsky 1992).

    At step t, with gradient g (plus `weight_decay * param`):

        param = param * (1 - lambd * eta) - eta * g
        ax    = ax + mu * (param - ax)                       # the average of the parameter since step t0
        eta   = lr / (1 + lambd * lr * t) ** alpha           # for the next step, as is mu
        mu    = 1 / max(1, t - t0)

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate.
        lambd: Decay of the parameter, and of the step size.
        alpha: Exponent of the decay of the step size.
        t0: Step at which averaging begins.
        weight_decay: L2 penalty: its product with the parameter is added to the gradient.
        foreach: Accepted for compatibility with PyTorch.
        maximize: Ascend instead of descend.
        differentiable: Must be False.
        capturable: Accepted for compatibility with PyTorch.

    Raises:
        ArgumentError: If an option is out of range.
        NotSupported: For `differentiable=True`.

    Example:
        >>> w = wg.tensor([1.0], requires_grad=True)
        >>> optimizer = wg.optim.ASGD([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.8000], requires_grad=True)
    """

    _scalar_entries = ("step", "eta", "mu")

    def __init__(
        self, params: Params, lr: Rate = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
        weight_decay: float = 0, foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
        capturable: bool = False,
    ):  # fmt: skip
        check_learning_rate("ASGD", lr)
        check_not_negative("ASGD", weight_decay=weight_decay)
        check_modes("ASGD", differentiable=differentiable)
        super().__init__(params, {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    def init_state(self, param: Tensor, state: ParamState, group: ParamGroup) -> None:
        state.update(step=0.0, eta=round_to_float32(to_float(group["lr"])), mu=1.0, ax=zeros_like(param))

    def count_step(
        self, group: ParamGroup, params: list[Tensor], states: list[ParamState]
    ) -> list[tuple[float, float]]:
        keys = [(state["eta"], state["mu"]) for state in states]  # before this step changes them
        lr = to_float(group["lr"])
        for state, step in zip(states, super().count_step(group, params, states), strict=True):
            state["eta"] = round_to_float32(lr / (1 + group["lambd"] * lr * step) ** group["alpha"])
            state["mu"] = round_to_float32(1 / max(1, step - group["t0"]))
        return keys

    def kernel_arguments(self, group: ParamGroup, key: tuple[float, float]) -> KernelArguments:
        eta, mu = key
        decay = 1 - to_float(group["lambd"]) * eta
        return "asgd_step", ("ax",), (eta, decay, mu, to_float(group["weight_decay"]), gradient_sign(group))
