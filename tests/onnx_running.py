"""Export models, run the files with ONNX Runtime and with our importer, and compare the outputs.

    pip install onnx onnxruntime
    pytest tests/test_onnx_models.py tests/test_onnx_ops.py tests/test_onnx_import.py

The modules that use this one are skipped where one of the packages is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weftgrad as wg

__all__ = ["Function", "assert_equal_outputs", "check_export", "flat", "run_with_onnxruntime"]


class Function(wg.nn.Module):
    """A model whose `forward` is a function of its arguments."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *args: wg.Tensor) -> Any:
        return self.function(*args)


def flat(value: Any) -> list[wg.Tensor]:
    """Return the tensors in nested tuples, lists and dicts."""
    if isinstance(value, wg.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return [tensor for item in items for tensor in flat(item)]


def run_with_onnxruntime(program: Any, args: Sequence[wg.Tensor]) -> list[np.ndarray]:
    """Return what ONNX Runtime computes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    return session.run(None, {name: arg.numpy() for name, arg in zip(names, args, strict=True)})


def assert_equal_outputs(outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: float) -> None:
    """Compare shapes, dtypes and values: integers exactly, floats relative to magnitude plus 1."""
    assert len(outputs) == len(expected)
    for position, (output, reference) in enumerate(zip(outputs, expected, strict=True)):
        assert (output.shape, output.dtype) == (reference.shape, reference.dtype), position
        if reference.dtype.kind == "f":
            np.testing.assert_allclose(output, reference, rtol=tolerance, atol=tolerance, err_msg=f"output {position}")
        else:
            np.testing.assert_array_equal(output, reference, err_msg=f"output {position}")


def check_export(
    model: wg.nn.Module, *calls: Sequence[wg.Tensor], dynamic_axes: Any = None, tolerance: float = 2e-5, **options: Any
) -> Any:
    """Export a model with the arguments of the first call, and compare the outputs of every call.

    Args:
        model: The model.
        calls: Arguments, with other sizes in the dynamic dimensions after the first.
        dynamic_axes: The dynamic dimensions.
        tolerance: For floats.
        options: Further arguments of `export`.

    Returns:
        The exported program.
    """
    model.eval()
    program = wg.onnx.export(model, tuple(calls[0]), dynamic_axes=dynamic_axes, **options)
    loaded = wg.onnx.load(program.model_proto)
    for args in calls:
        with wg.no_grad():
            expected = [tensor.numpy() for tensor in flat(model(*args))]
            reloaded = [tensor.numpy() for tensor in flat(loaded(*args))]
        assert_equal_outputs(run_with_onnxruntime(program, args), expected, tolerance)
        assert_equal_outputs(reloaded, expected, tolerance)
    return program
