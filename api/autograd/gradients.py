"""Compute gradients: `backward` accumulates them into leaves, `grad` returns them.

The *seed* of an output is the gradient that backward starts with there: the argument `grad_tensors` or `grad_outputs`.
"""

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
    """Differentiate the sum of `tensors`, weighted by `grad_tensors`, and add the gradients to the leaves' `grad`.

    Args:
        tensors: The tensors to differentiate.
        grad_tensors: A gradient for each of `tensors`, of its shape; None means 1, for a tensor with one element.
        retain_graph: Whether a second backward through the same graph must be possible. If not, the tensors that the
            graph saved are freed. None means `create_graph`.
        create_graph: Whether to record the computation of the gradients, so that they can be differentiated again.
        inputs: Tensors to compute gradients for, instead of all leaves.

    Raises:
        ArgumentError: If `tensors` holds anything but tensors, `inputs` is empty, or the number of `grad_tensors`
            differs from that of `tensors`.
        GradientError: If one of `tensors` or `inputs` does not require grad, a tensor with several elements has no
            gradient in `grad_tensors`, or the graph was freed by an earlier backward.
        ShapeError: If a gradient in `grad_tensors` does not have the shape of its tensor.

    Example:
        >>> x = wg.tensor([1.0, 2.0], requires_grad=True)
        >>> wg.autograd.backward((x * x).sum())
        >>> x.grad
        tensor([2., 4.])
    """
    roots = _as_list(tensors)
    only_tensors("backward", *roots)
    seeds = _as_seed_list(grad_tensors, len(roots), "backward")
    if retain_graph is None:
        retain_graph = create_graph
    if inputs is None:
        engine.run(roots, seeds, retain_graph=retain_graph, create_graph=create_graph)
        return
    input_list = _as_list(inputs)
    if not input_list:
        raise ArgumentError("backward: inputs is empty; leave it out for all leaves")
    _check_inputs("backward", input_list)
    engine.run(roots, seeds, retain_graph=retain_graph, create_graph=create_graph, inputs=input_list, accumulates=True)


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
        outputs: The tensors to differentiate.
        inputs: Tensors to differentiate with respect to, leaves or not; each must require grad.
        grad_outputs: A gradient for each output, of its shape; None means 1, for an output with one element.
        retain_graph: Whether a second backward through the same graph must be possible. If not, the tensors that the
            graph saved are freed. None means `create_graph`.
        create_graph: Whether to record the computation of the gradients, so that they can be differentiated again.
        only_inputs: Deprecated; has no effect. False warns.
        allow_unused: Whether to return None for an input that the outputs do not depend on. By default that is an
            error.
        is_grads_batched: Whether each of `grad_outputs` is a batch of B gradients, of shape `(B, *output.shape)`. Then
            backward runs B times, and each result has the shape `(B, *input.shape)`.
        materialize_grads: Whether to return zeros for an input that the outputs do not depend on.

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
    roots, input_list = _as_list(outputs), _as_list(inputs)
    only_tensors("grad", *roots)
    _check_inputs("grad", input_list)
    seeds = _as_seed_list(grad_outputs, len(roots), "grad")
    if retain_graph is None:
        retain_graph = create_graph
    compute = _batched_grads if is_grads_batched else _grads
    gradients = compute(roots, seeds, input_list, retain_graph, create_graph)
    for i, tensor in enumerate(input_list):
        if gradients[i] is None and materialize_grads:
            gradients[i] = tensor.new_zeros(tensor.shape).requires_grad_(create_graph)
        elif gradients[i] is None and not allow_unused:
            raise GradientError(
                f"grad: input {i}, of shape {list(tensor.shape)}, is not used by the outputs; pass allow_unused=True "
                "to get None for it, or materialize_grads=True to get zeros"
            )
    return tuple(gradients)


def _check_inputs(caller: str, inputs: list[Tensor]) -> None:
    """Raise an error if one of `inputs` is no tensor, or does not require grad."""
    only_tensors(caller, *inputs)
    refresh_views(*inputs)  # a write to a view's base may have made the view require grad
    for i, tensor in enumerate(inputs):
        if not tensor.needs_grad:
            raise GradientError(
                f"{caller}: input {i}, of shape {list(tensor.shape)}, does not require grad; call requires_grad_() on "
                "it before computing the outputs"
            )


def _grads(
    roots: list[Tensor], seeds: list[Tensor | None], inputs: list[Tensor], retain_graph: bool, create_graph: bool
) -> list[Tensor | None]:
    return engine.run(roots, seeds, retain_graph=retain_graph, create_graph=create_graph, inputs=inputs)


def _batched_grads(
    roots: list[Tensor], seeds: list[Tensor | None], inputs: list[Tensor], retain_graph: bool, create_graph: bool
) -> list[Tensor | None]:
    """Run backward once for every index of the seeds' first dimension, and return the gradients stacked along it.

    Args:
        roots: Tensors to differentiate.
        seeds: A batch of B gradients for each root, of shape `(B, *root.shape)`; None means ones, for a root with one
            element.
        inputs: Tensors to differentiate with respect to.
        retain_graph: Whether to keep the saved tensors after the last run.
        create_graph: Whether to record the computation of the gradients.

    Returns:
        A gradient of shape `(B, *input.shape)` for each of `inputs`; None if no root depends on it.

    Raises:
        ArgumentError: No seed has a first dimension, or their sizes differ.
    """
    batch_sizes = {seed.meta.shape[0] if seed.meta.shape else None for seed in seeds if seed is not None}
    batch_size = batch_sizes.pop() if len(batch_sizes) == 1 else None
    if batch_size is None:
        raise ArgumentError(
            "grad: with is_grads_batched, grad_outputs must have one more dimension than outputs: a first dimension, "
            f"of the same size for all; their shapes are {[None if s is None else list(s.meta.shape) for s in seeds]}"
        )
    if batch_size == 0:
        return [tensor.new_zeros((0, *tensor.shape)) for tensor in inputs]
    results = []
    for i in range(batch_size):
        item_seeds = [None if seed is None else seed[i] for seed in seeds]
        is_last = i + 1 == batch_size
        results.append(_grads(roots, item_seeds, inputs, retain_graph or not is_last, create_graph))
    return [None if gradients[0] is None else stack(list(gradients)) for gradients in zip(*results, strict=True)]


def _as_list(tensors: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return list(tensors) if isinstance(tensors, Iterable) and not isinstance(tensors, Tensor) else [tensors]


def _as_seed_list(
    grad_outputs: Tensor | Sequence[Tensor | None] | None, count: int, caller: str
) -> list[Tensor | None]:
    """Return one seed, a gradient or None, for each of `count` roots.

    Raises:
        ArgumentError: If there are more or fewer gradients than roots.
    """
    if grad_outputs is None:
        return [None] * count
    seeds: list[Tensor | None] = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    if len(seeds) != count:
        raise ArgumentError(
            f"{caller}: {count} tensors and {len(seeds)} gradients; pass one gradient (or None) for each tensor"
        )
    return seeds
