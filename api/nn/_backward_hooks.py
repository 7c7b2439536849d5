"""Backward hooks of modules: identity ops around a call's inputs and outputs, whose backward calls the hooks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from ..autograd import Function, is_grad_enabled
from ..creation.factories import zeros
from ..runtime.errors import GradientError
from ..runtime.tensor import Tensor
from ._hook_tables import global_backward, global_backward_pre

if TYPE_CHECKING:
    from ..autograd.function import FunctionCtx
    from ..runtime.autograd.node import Node
    from ..runtime.device import Meta
    from ._hooks import WithForward
    from ._types import Hook

    class _TapContext(FunctionCtx):
        """The context of `_GradientTap`, with the attribute that its forward sets."""

        callback: GradientCallback


__all__ = ["BackwardHookCall"]


Grads: TypeAlias = "tuple[Tensor | None, ...]"


GradientCallback: TypeAlias = Callable[[Grads], Grads]


class BackwardHookCall:
    """One call of a module with backward hooks. Identities around the call give the hooks its gradients."""

    def __init__(self, module: WithForward[..., object], num_args: int):
        self.module = module
        self.num_args = num_args
        self.input_indices: list[int] = []  # positions of wrapped arguments; empty if none requires grad
        self.output_indices: list[int] = []
        self.num_outputs = 1
        self.tapped_inputs: list[tuple[Tensor, Node | None]] = []
        self.layouts: list[Meta] = []
        self.grad_output: Grads | None = None

    def wrap_inputs(self, args: tuple[object, ...]) -> tuple[object, ...]:
        """Return the arguments with tensors passed through an identity that reports their gradients."""
        inputs = {i: a for i, a in enumerate(args) if isinstance(a, Tensor)}
        if not is_grad_enabled() or not any(tensor.requires_grad for tensor in inputs.values()):
            return args
        self.input_indices = list(inputs)
        self.layouts = [tensor.meta for tensor in inputs.values()]
        tapped_inputs = _tap_gradients(inputs, self.grad_input_ready)
        self.tapped_inputs = [(t, t.node) for t in tapped_inputs.values()]
        return tuple(tapped_inputs.get(i, a) for i, a in enumerate(args))

    def wrap_outputs(self, result: object) -> object:
        """Return the output with tensors passed through an identity that reports their gradients."""
        name = type(self.module).__name__
        if any(tensor.node is not node for tensor, node in self.tapped_inputs):
            raise GradientError(
                f"{name} has backward hooks and wrote an argument in place, so its gradient cannot be seen; "
                "use inplace=False, or remove the hooks"
            )
        self.tapped_inputs = []
        results = result if isinstance(result, tuple) else (result,)
        outputs = {i: r for i, r in enumerate(results) if isinstance(r, Tensor)}
        if not outputs:
            warnings.warn(
                f"{name}: backward hooks need a tensor or a tuple of tensors as output, not {type(result).__name__}; "
                "they are not called",
                stacklevel=4,
            )
            return result
        if not is_grad_enabled() or not any(tensor.requires_grad for tensor in outputs.values()):
            return result
        self.output_indices, self.num_outputs = list(outputs), len(results)
        tapped_outputs = _tap_gradients(outputs, self.grad_output_ready)
        if not isinstance(result, tuple):
            return tapped_outputs[0]
        new_results = [tapped_outputs.get(i, r) for i, r in enumerate(results)]
        create: Callable[..., object] = type(result)
        return create(*new_results) if hasattr(result, "_fields") else create(new_results)

    def grad_output_ready(self, grads: Grads) -> Grads:
        """Call the backward pre-hooks, and the backward hooks too if no argument requires grad."""
        grad_by_index = dict(zip(self.output_indices, grads, strict=True))
        grad_output = tuple(grad_by_index.get(i) for i in range(self.num_outputs))
        for hook in (*global_backward_pre.values(), *self.module._backward_pre_hooks.values()):
            grad_output = self._check_replacement(
                hook(self.module, grad_output), grad_output, "pre-hook", "grad_output"
            )
        self.grad_output = grad_output
        if not self.input_indices:
            no_grads = (None,) * self.num_args
            for hook in self._hooks():
                grad_input = self._check_replacement(
                    hook(self.module, no_grads, grad_output), no_grads, "hook", "grad_input"
                )
                if any(g is not None for g in grad_input):
                    raise GradientError(
                        f"{type(self.module).__name__}: no argument requires grad, so a backward hook returns None"
                    )
            self.grad_output = None
        return tuple(grad_output[i] for i in self.output_indices)

    def grad_input_ready(self, grads: Grads) -> Grads:
        """Call the backward hooks and return the gradients of the arguments."""
        if self.grad_output is None:  # the gradient did not come through the output
            return grads
        filled = [_zeros(m) if g is None else g for g, m in zip(grads, self.layouts, strict=True)]
        grad_by_index = dict(zip(self.input_indices, filled, strict=True))
        grad_input: Grads = tuple(grad_by_index.get(i) for i in range(self.num_args))
        for hook in self._hooks():
            replacement = hook(self.module, grad_input, self.grad_output)
            grad_input = self._check_replacement(replacement, grad_input, "hook", "grad_input")
        self.grad_output = None
        return tuple(grad_input[i] for i in self.input_indices)

    def _hooks(self) -> Iterable[Hook]:
        return (*global_backward.values(), *self.module._backward_hooks.values())

    def _check_replacement(
        self, replacement: Grads | Tensor | None, original: Grads, hook_kind: str, grads_name: str
    ) -> Grads:
        if replacement is None:
            return original
        grads = replacement if isinstance(replacement, tuple) else (replacement,)
        if len(grads) != len(original):
            raise GradientError(
                f"{type(self.module).__name__}: a backward {hook_kind} returned {len(grads)} gradients, and "
                f"{grads_name} has {len(original)}"
            )
        return grads


def _zeros(layout: Meta) -> Tensor:
    """Return the zero gradient that hooks get for an argument without a gradient."""
    return zeros(layout.shape, dtype=layout.dtype, device=layout.device)


def _tap_gradients(tensors: dict[int, Tensor], callback: GradientCallback) -> dict[int, Tensor]:
    """Return the tensors through an identity whose backward passes their gradients through `callback`."""
    return dict(zip(tensors, _GradientTap.apply(callback, *tensors.values()), strict=True))


class _GradientTap(Function):
    """The identity; its backward passes the gradients through `callback`."""

    @staticmethod
    def forward(ctx: _TapContext, callback: GradientCallback, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.callback = callback
        ctx.set_materialize_grads(False)
        outputs = tuple(tensor.detach() for tensor in tensors)
        ctx.mark_non_differentiable(
            *(output for output, tensor in zip(outputs, tensors, strict=True) if not tensor.needs_grad)
        )
        return outputs

    @staticmethod
    def backward(ctx: _TapContext, *grads: Tensor | None) -> Grads:
        return (None, *ctx.callback(grads))
