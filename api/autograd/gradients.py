"""Compute gradients: `backward` accumulates them into leaves, `grad` returns them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Literal, overload

from ..runtime.autograd import engine
from ..runtime.dispatch import refresh_views
from ..runtime.errors import ArgumentError, GradientError
from ..runtime.tensor import Tensor
from ..shape.joining import stack
from ..tensor_methods.argument_checks import only_tensors

__all__ = ["backward", "grad"]


def backward(
    tensors: Tensor | Iterable[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Accumulate into every leaf's `grad` the gradient of the sum of `tensors`, weighted by `grad_tensors`.

    Args:
        tensors: The tensors to differentiate: roots of the graph.
        grad_tensors: Gradient of each root, of its shape; None means 1 and is allowed for one-element roots.
        retain_graph: Keep saved tensors for another backward. None means `create_graph`.
        create_graph: Record the backward itself, for higher derivatives.
        inputs: Tensors to compute gradients for, instead of all leaves.

    Raises:
        ArgumentError: If `inputs` is empty, or the number of `grad_tensors` differs from that of `tensors`.
        GradientError: If a root or one of `inputs` does not require grad, a root with several elements has no gradient
            in `grad_tensors`, or the graph was freed by an earlier backward.
        ShapeError: If a gradient in `grad_tensors` does not have the shape of its root.

    Example:
        >>> x = wg.tensor([1.0, 2.0], requires_grad=True)
        >>> wg.autograd.backward((x * x).sum())
        >>> x.grad
        tensor([2., 4.])
    """
    roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    seeds = _as_seed_list(grad_tensors, len(roots), "backward")
    if inputs is None:
        retain = create_graph if retain_graph is None else retain_graph
        engine.run(roots, seeds, retain_graph=retain, create_graph=create_graph)
        return
    input_list = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if not input_list:
        raise ArgumentError("backward: inputs is empty; leave it out for all leaves")
    gradients = grad(roots, input_list, seeds, retain_graph, create_graph, allow_unused=True)
    engine.accumulate_into(input_list, gradients, seeds, create_graph)


@overload
def grad(
    outputs: Tensor | Iterable[Tensor],
    inputs: Tensor | Iterable[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: Literal[False] | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]: ...
@overload
def grad(
    outputs: Tensor | Iterable[Tensor],
    inputs: Tensor | Iterable[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    *,
    allow_unused: Literal[True],
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]: ...
@overload
def grad(
    outputs: Tensor | Iterable[Tensor],
    inputs: Tensor | Iterable[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]: ...
def grad(
    outputs: Tensor | Iterable[Tensor],
    inputs: Tensor | Iterable[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of the sum of `outputs`, weighted by `grad_outputs`, with respect to `inputs`.

    No tensor's `grad` changes.

    Args:
        outputs: The tensors to differentiate: roots of the graph.
        inputs: Tensors to differentiate with respect to, leaves or not; each must require grad.
        grad_outputs: Gradient of each output, of its shape; None means 1 and is allowed for one-element outputs.
        retain_graph: Keep saved tensors for another backward. None means `create_graph`.
        create_graph: Record the backward itself, for higher derivatives.
        only_inputs: Deprecated; has no effect.
        allow_unused: Return None for an input that the outputs do not depend on.
        is_grads_batched: Each of `grad_outputs` is a batch of B gradients, of shape `(B, *output.shape)`, and each
            result has the shape `(B, *input.shape)`. Backward runs B times.
        materialize_grads: Return zeros for an input that the outputs do not depend on.

    Returns:
        One gradient per input, with its shape; None for an unused input if `allow_unused`.

    Raises:
        GradientError: If an output or an input does not require grad, an input is unused and neither `allow_unused` nor
            `materialize_grads` is set, an output with several elements has no gradient in `grad_outputs`, or the graph
            was freed by an earlier backward.
        ArgumentError: If the number of `grad_outputs` differs from that of `outputs`, the sizes of their first
            dimensions differ with `is_grads_batched`, or `materialize_grads` and `allow_unused=False` are combined.
        ShapeError: If a gradient in `grad_outputs` does not have the shape of its output.

    Example:
        >>> x = wg.tensor([1.0, 2.0], requires_grad=True)
        >>> wg.autograd.grad((x * x).sum(), x)
        (tensor([2., 4.]),)
    """
    if not only_inputs:
        warnings.warn(
            "grad: only_inputs=False does nothing; call backward() for the leaves' grad", FutureWarning, stacklevel=2
        )
    if materialize_grads and allow_unused is False:
        raise ArgumentError("grad: materialize_grads gives zeros for unused inputs; allow_unused=False contradicts it")
    roots, input_list = (
        list(tensors) if isinstance(tensors, Iterable) and not isinstance(tensors, Tensor) else [tensors]
        for tensors in (outputs, inputs)
    )
    only_tensors("grad", *roots, *input_list)
    refresh_views(*input_list)  # a write to a view's base may have made the view require grad
    for tensor in input_list:
        if not tensor.needs:
            raise GradientError("grad: one of the inputs does not require grad")
    seeds = _as_seed_list(grad_outputs, len(roots), "grad")
    retain = create_graph if retain_graph is None else retain_graph
    gradients: list[Tensor | None]
    if is_grads_batched:
        gradients = _batched_grads(roots, seeds, input_list, retain, create_graph)
    else:
        gradients = list(engine.run(roots, seeds, retain_graph=retain, create_graph=create_graph, inputs=input_list))
    if materialize_grads:
        return tuple(
            tensor.new_zeros(tensor.shape).requires_grad_(create_graph) if gradient is None else gradient
            for gradient, tensor in zip(gradients, input_list, strict=True)
        )
    if not allow_unused and any(gradient is None for gradient in gradients):
        raise GradientError("grad: an input is not used by the outputs; pass allow_unused=True to get None for it")
    return tuple(gradients)


def _batched_grads(
    roots: list[Tensor], seeds: list[Tensor | None], inputs: list[Tensor], retain: bool, create_graph: bool
) -> list[Tensor | None]:
    """Run backward once for every index of the seeds' first dimension, and return the gradients stacked along it.

    Args:
        roots: Tensors to differentiate.
        seeds: The gradients of each root, of shape `(B, *root.shape)`; None for a one-element root means ones.
        inputs: Tensors to differentiate with respect to.
        retain: Keep the saved tensors after the last run.
        create_graph: Record the computation of the gradients.
    """
    sizes = {seed.meta.shape[:1] for seed in seeds if seed is not None}
    if len(sizes) != 1 or () in sizes:
        raise ArgumentError(
            "grad: with is_grads_batched, grad_outputs must have one more dimension than outputs: a first dimension, "
            f"of the same size for all; their shapes are {[None if s is None else list(s.meta.shape) for s in seeds]}"
        )
    ((count,),) = sizes
    if not count:
        return [tensor.new_zeros((0, *tensor.shape)) for tensor in inputs]
    runs = []
    for i in range(count):
        batch_seeds = [None if seed is None else seed[i] for seed in seeds]
        retain_graph = retain or i + 1 < count
        runs.append(engine.run(roots, batch_seeds, retain_graph=retain_graph, create_graph=create_graph, inputs=inputs))
    return [None if gradients[0] is None else stack(list(gradients)) for gradients in zip(*runs, strict=True)]


def _as_seed_list(
    grad_outputs: Tensor | Sequence[Tensor | None] | None, count: int, caller: str
) -> list[Tensor | None]:
    """Return the seeds of backward: one gradient (or None) for each of `count` roots.

    Raises:
        ArgumentError: If there are more or fewer gradients than roots.
    """
    if grad_outputs is None:
        return [None] * count
    seeds: list[Tensor | None] = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    if len(seeds) != count:
        raise ArgumentError(f"{caller}: {count} tensors and {len(seeds)} gradients; there must be one for each")
    return seeds
