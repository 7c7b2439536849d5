"""Compare results and derivatives of ops with what is expected, for the tests of ops and for `weftgrad check`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..autograd.gradcheck import gradcheck, gradgradcheck
from ..cli.types import OpFunction
from ..codegen.kinds.composite import called_ops
from ..codegen.loader import op_from_mapping
from ..codegen.model import Op
from ..runtime import dtypes
from ..runtime.dtypes import Array, DType
from ..runtime.errors import ArgumentError, GradientError, WeftgradError
from ..runtime.host_data import host_array
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from . import assert_close

__all__ = ["assert_results_close", "derivative_problem", "is_differentiable", "result_dtype", "sum_to"]


def is_differentiable(op: Op) -> bool:
    """Return True if a registered op has a gradient. Those of composites are gradients of the ops that they call."""
    if op.grad == "none" or op.kind == "random":
        return False
    record = registry[op.name]
    if op.kind == "composite":
        callees = [registry[name] for name in called_ops(op) if name in registry]
        return all(is_differentiable(op_from_mapping(callee.spec)) for callee in callees)
    return any(output.differentiable for output in record.outputs) and bool(registry.gradients(record))


def derivative_problem(function: OpFunction, arguments: Mapping[str, object], order: int) -> tuple[str, bool]:
    """Compare derivatives with finite differences.

    Args:
        function: The function of an op.
        arguments: Its arguments by name. Derivatives by those that are float64 tensors and require grad are compared.
        order: 1 or 2.

    Returns:
        What is wrong ("": nothing), and whether there is no derivative of this order because it is zero everywhere.

    Example:
        >>> from weftgrad.testing.op_comparison import derivative_problem
        >>> derivative_problem(wg.sin, {'input': wg.ones(3, dtype=wg.float64, requires_grad=True)}, 1)
        ('', False)
    """
    inputs = {k: v for k, v in arguments.items() if isinstance(v, Tensor) and v.requires_grad}

    def call(*tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
        return function(**{**arguments, **dict(zip(inputs, tensors, strict=True))})

    try:
        (gradcheck if order == 1 else gradgradcheck)(call, list(inputs.values()))
    except (ArgumentError, GradientError) as error:
        if order == 2 and "require" in str(error) and "grad" in str(error):
            return "", True  # the derivative is constant
        return str(error), False
    except WeftgradError as error:
        return str(error), False
    return "", False


def result_dtype(rule: str, dtype: DType, tensors: Mapping[str, object]) -> DType | None:
    """Return the dtype of a result by its rule, if all operands have `dtype`; None if it depends on more than that."""
    if rule.startswith("like:"):
        operand = tensors[rule.removeprefix("like:")]
        return operand.dtype if isinstance(operand, Tensor) else None
    if rule == "promote":
        return dtype if dtype.is_floating_point else None  # a number of another category promotes integers
    fixed = {"bool": dtypes.bool_, "index": dtypes.int64, **dtypes.BY_NAME}
    return fixed.get(rule, dtype if dtype.is_floating_point else None)


def sum_to(array: Array, shape: tuple[int, ...]) -> Array:
    """Sum an array over the dimensions along which `shape` was broadcast."""
    padded = (*(1,) * (array.ndim - len(shape)), *shape)
    axes = tuple(i for i, n in enumerate(padded) if n == 1)
    return array.sum(axes, keepdims=True).reshape(shape)


def assert_results_close(actual: Tensor, expected: Tensor | Array, tolerance: tuple[float, float], where: str) -> None:
    """Raise `AssertionError` unless a result is what is expected, rounded to its dtype.

    Args:
        actual: The result.
        expected: The expected values, in float64 for floating results.
        tolerance: Relative and absolute.
        where: The call, for the message.
    """
    values = host_array(expected.detach()) if isinstance(expected, Tensor) else expected
    if actual.dtype.is_floating_point:
        values = np.where(np.abs(values) > _largest(actual.dtype), np.copysign(np.inf, values), values)
    elif values.dtype.kind == "f":
        values = np.rint(values)
    rtol, atol = tolerance
    wide = actual.detach().to(dtypes.float64) if actual.dtype.is_floating_point else actual.detach()
    assert_close(
        host_array(wide), np.asarray(values), rtol=rtol, atol=atol, equal_nan=True, check_dtype=False,
        msg=lambda text: f"{where}: {text}",
    )  # fmt: skip


def _largest(dtype: DType) -> float:
    """Return the largest finite number of a dtype; larger results are infinite there."""
    return {"float16": 65504.0, "bfloat16": 3.39e38, "float32": 3.4e38}.get(dtype.name, float(np.finfo(np.float64).max))
