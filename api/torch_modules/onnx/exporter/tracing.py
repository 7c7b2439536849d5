"""Run a model on example arguments, and record its calls."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...autograd.grad_mode import no_grad
from ...runtime.context import state
from ...runtime.errors import WeftgradError
from ...runtime.tensor import Tensor
from ..errors import DynamicSizeError, OnnxExporterError
from .capture import Capture, flat_tensors
from .program import Program, Run, merge_runs
from .resizing import GraphInput, resized, size_plans

if TYPE_CHECKING:
    from ...nn.module import Module

__all__ = ["trace"]


def trace(
    model: Module, args: Sequence[object], kwargs: Mapping[str, object], inputs: list[GraphInput], fold_constants: bool
) -> Program:
    """Run the model with the sizes of each plan until one works, and merge the runs.

    Args:
        model: The model.
        args: Positional arguments.
        kwargs: Keyword arguments.
        inputs: The tensors among them.
        fold_constants: Whether what depends on parameters only is a constant.

    Raises:
        DynamicSizeError: The model does not run with other sizes, or its calls depend on them.
        OnnxExporterError: The model returns no tensors.
    """
    with _restored_buffers(model):
        return _try_plans(model, args, kwargs, inputs, fold_constants)


@contextmanager
def _restored_buffers(model: Module) -> Iterator[None]:
    """Give the buffers their values back at the end: runs in training mode change running statistics."""
    is_training = any(module.training for module in model.modules())
    saved = [(buffer, buffer.detach().clone()) for buffer in model.buffers()] if is_training else []
    try:
        yield
    finally:
        with no_grad():
            for buffer, values in saved:
                buffer.copy_(values)


def _try_plans(
    model: Module, args: Sequence[object], kwargs: Mapping[str, object], inputs: list[GraphInput], fold_constants: bool
) -> Program:
    first_error: Exception | None = None
    for plan in size_plans(inputs):
        try:
            runs = [_run(model, args, kwargs, inputs, dims) for dims in plan]
            _warn_of_host_reads(runs[0])
            return merge_runs(runs, fold_constants=fold_constants)
        except (WeftgradError, ValueError, RuntimeError, IndexError, AssertionError) as error:
            if not plan[0] or (isinstance(error, OnnxExporterError) and not isinstance(error, DynamicSizeError)):
                raise
            first_error = first_error or error
    assert first_error is not None
    if isinstance(first_error, DynamicSizeError):
        raise first_error
    raise DynamicSizeError(
        f"export: the model does not run with other sizes of its dynamic dimensions: {first_error}. Dimensions that "
        "must be equal need the same name in dynamic_axes"
    ) from first_error


def _warn_of_host_reads(run: Run) -> None:
    for layer in dict.fromkeys(run.host_reads):
        where = f"layer {layer!r}" if layer else "the model"
        warnings.warn(
            f"export: {where} reads values that depend on its inputs as Python numbers; the graph is right only for "
            "inputs with the same values there",
            stacklevel=4,
        )


def _run(
    model: Module,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    inputs: list[GraphInput],
    dims: Mapping[str, int],
) -> Run:
    """Run the model once with given sizes of the dynamic dimensions."""
    tensors = [resized(graph_input, dims).clone() for graph_input in inputs]
    replacements = iter(tensors)
    run_args, run_kwargs = _replace_tensors((tuple(args), dict(kwargs)), replacements)
    thread_state = state()
    autocast, thread_state.autocast = thread_state.autocast, None
    try:
        with no_grad(), Capture(model) as capture:
            places = [capture.add_input(tensor) for tensor in tensors]
            outputs = flat_tensors(model(*run_args, **run_kwargs))
            output_places = [capture.place(tensor) for tensor in outputs]
            constants = {i: c for i, tensor in enumerate(outputs) if (c := capture.constant(tensor)) is not None}
    finally:
        thread_state.autocast = autocast
    if not outputs:
        raise OnnxExporterError("export: the model returns no tensors")
    return Run(dims, capture.calls, places, output_places, constants, capture.members, capture.host_reads)


def _replace_tensors(value: Any, tensors: Iterator[Tensor]) -> Any:
    """Return nested tuples, lists and dicts with other tensors, in the order of `flat_tensors`."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, Mapping):
        return {key: _replace_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        items = [_replace_tensors(item, tensors) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value
