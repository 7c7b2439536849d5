"""`weftgrad check SPEC`: check that the ops of a spec compile on every device, and their values and derivatives.

Values are compared with the op's `reference`. An op without one is compared with its own formula, computed by NumPy in
float64: that finds code generation and rounding errors, but not a wrong formula. Derivatives are compared with finite
differences, and evaluated where formulas tend to fail: at 0, ±1, ±100, ±10⁴ and ±10⁻³⁰.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import autograd
from .. import ops as loader
from ..codegen.loader import load_file
from ..codegen.model import Op
from ..creation.factories import ones_like
from ..creation.from_data import tensor
from ..runtime import dtypes
from ..runtime.backends import available
from ..runtime.device import Device
from ..runtime.device import device as to_device
from ..runtime.dtypes import Array
from ..runtime.errors import CompileError, WeftgradError
from ..runtime.host_data import host_array
from ..runtime.tensor import Tensor
from ..testing.op_comparison import derivative_problem, is_differentiable
from ..testing.op_examples import wrong_example_output
from .formula import expected
from .samples import sample_arguments
from .terminal import Style, table
from .types import OpFunction

__all__ = ["Row", "add_options", "check_op"]

_PROBED_VALUES = (0.0, 1.0, -1.0, 100.0, -100.0, 1e4, -1e4, 1e-30, -1e-30)
_TOLERANCE = {"float32": 2e-5, "float64": 1e-11}


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the command's description and options to its parser."""
    command.description = (
        "Compiles each op of SPEC on every device, compares values and derivatives, and looks for inputs where the "
        "derivative is not finite."
    )
    command.add_argument("spec", type=Path, help="a spec file")
    command.add_argument("--device", action="append", metavar="NAME", help="only on this device (may be repeated)")
    command.add_argument("--trust", action="store_true", help="allow custom ops, whose kernels are code")
    command.set_defaults(run=run)


@dataclass(slots=True)
class Row:
    """The results of one op on one device, as the table shows them.

    Attributes:
        failed: The names of the fields whose checks failed.
        notes: A line of explanation for each of them.
    """

    op: str
    device: str
    compiles: str = "–"
    error: str = "–"
    gradcheck: str = "–"
    gradgradcheck: str = "–"
    suspicious: str = "–"
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def fail(self, field: str, note: str) -> None:
        """Record that the check of a field failed, and why."""
        self.failed += (field,)
        self.notes += (f"{self.op} on {self.device}: {note}",)


_FIELDS = ("op", "device", "compiles", "error", "gradcheck", "gradgradcheck", "suspicious")
_HEADINGS = ("op", "device", "compiles", "max error", "gradcheck", "gradgradcheck", "suspicious inputs")


def run(options: argparse.Namespace) -> int:
    """Print one row for each op and device, then the errors. Return exit status 1 if there are any."""
    functions = vars(loader.load(options.spec, trust=options.trust))
    listed = load_file(options.spec, trust=options.trust)
    devices = [to_device(name) for name in options.device] if options.device else available()
    style = Style()
    rows = [check_op(op, functions[op.name], device) for op in listed for device in devices]
    marks = [
        ["bad" if f in r.failed else "warning" if f == "suspicious" and r.suspicious != "–" else "" for f in _FIELDS]
        for r in rows
    ]
    print(table([[getattr(r, f) for f in _FIELDS] for r in rows], _HEADINGS, style, marks))
    for note in dict.fromkeys(n for r in rows for n in r.notes):
        print(style("bad", note))
    failed_count = sum(bool(r.failed) for r in rows)
    print(style("bad", f"{failed_count} of {len(rows)} rows failed") if failed_count else style("good", "all passed"))
    return 1 if failed_count else 0


def check_op(op: Op, function: OpFunction, device: Device) -> Row:
    """Check values and derivatives of one op on one device."""
    row = Row(op.name, str(device))
    try:
        caps = device.driver.capabilities
        _check_values(row, op, function, device, caps.fp64)
    except CompileError as error:
        row.compiles = "no"
        row.fail("compiles", _compiler_message(error))
        return row
    except WeftgradError as error:
        row.compiles = "no"
        remedy = "; arguments are drawn with the shapes of the field `example`: write one" if _lacks_shapes(op) else ""
        row.fail("compiles", f"{error}{remedy}")
        return row
    row.compiles = "yes"
    if op.example:
        _check_example(row, op, function, device)
    if op.grad != "none" and caps.fp64 and op.kind not in ("view", "random"):
        _check_derivatives(row, op, function, device)
    return row


def _lacks_shapes(op: Op) -> bool:
    """Return True for a composite without an example: its expression does not say which shapes fit each other."""
    return op.kind == "composite" and not op.example


def _check_example(row: Row, op: Op, function: OpFunction, device: Device) -> None:
    """Compare the result of the field `example` with what the call prints."""
    if text := wrong_example_output(op, function, device):
        row.fail("error", f"example: {op.example.partition(' -> ')[0].strip()} prints {text}")


def _compiler_message(error: CompileError) -> str:
    """Return the first line of the compiler's message, and up to three of its errors."""
    lines = str(error).splitlines()
    messages = [line.strip() for line in lines if "error:" in line]
    return "; ".join([lines[0], *messages[:3]])


# Values


def _check_values(row: Row, op: Op, function: OpFunction, device: Device, fp64: bool) -> None:
    """Compare the op's results with the expected ones in float32, and in float64 if the device has it."""
    rng = np.random.default_rng(0)
    errors = []
    for dtype in ("float32", "float64") if fp64 else ("float32",):
        state = rng.bit_generator.state
        values = _arguments(op, device, dtype, rng)
        rng.bit_generator.state = state
        result = function(**values)
        results = [np.asarray(_host(t), np.float64) for t in (result if isinstance(result, tuple) else (result,))]
        # the reference gets the values that the device got: rounded to its dtype
        inputs = {k: _host(v) if isinstance(v, Tensor) else v for k, v in values.items()}
        source, expected_values = expected(op, inputs)
        if expected_values is None:
            row.error = source
            continue
        max_error = 0.0
        for actual, desired in zip(results, expected_values, strict=False):
            if actual.shape != np.shape(desired):
                row.fail("error", f"shape {list(actual.shape)}, the {source} gives {list(np.shape(desired))}")
                row.error = "shape"
                return
            max_error = max(max_error, _max_error(actual, np.asarray(desired, np.float64)))
        errors.append(f"{max_error:.1e}")
        row.error = f"{' '.join(errors)} ({source})"
        if not max_error <= _TOLERANCE[dtype]:
            row.fail("error", f"{dtype} is {max_error:.2e} from the {source}, relative to 1 + its magnitude")


def _max_error(actual: Array, expected: Array) -> float:
    """Return the largest error relative to 1 + the magnitude; infinity if only one of two elements is NaN."""
    with np.errstate(all="ignore"):
        is_equal = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
        difference = np.where(is_equal, 0.0, np.abs(actual - expected) / (1 + np.abs(expected)))
    return float(np.max(np.where(np.isnan(difference), np.inf, difference), initial=0.0))


def _arguments(op: Op, device: Device, dtype: str, rng: np.random.Generator, grad: bool = False) -> dict[str, object]:
    return sample_arguments(op, device, dtypes.parse(dtype), rng, grad=grad)


def _host(tensor: Tensor) -> Array:
    return host_array(tensor.detach())


# Derivatives


def _check_derivatives(row: Row, op: Op, function: OpFunction, device: Device) -> None:
    """Compare first and second derivatives with differences in float64, and look for ones that are not finite."""
    values = _arguments(op, device, "float64", np.random.default_rng(1), grad=True)
    inputs = {k: v for k, v in values.items() if isinstance(v, Tensor) and v.needs_grad}
    if not inputs:
        return
    if not is_differentiable(op):
        row.gradcheck = row.gradgradcheck = "none"
        return
    for order, field in ((1, "gradcheck"), (2, "gradgradcheck")):
        problem, is_zero = derivative_problem(function, values, order)
        setattr(row, field, "FAILED" if problem else "zero" if is_zero else "passed")
        if problem:
            row.fail(field, f"{field}: {problem}")
    if op.kind in ("pointwise", "rowwise", "composite"):
        descriptions = find_nonfinite_derivatives(op, function, device, values, inputs)
        row.suspicious = (
            ", ".join(descriptions[:4]) + (f", … ({len(descriptions)})" if len(descriptions) > 4 else "") or "–"
        )


def find_nonfinite_derivatives(
    op: Op, function: OpFunction, device: Device, values: Mapping[str, object], inputs: Mapping[str, Tensor]
) -> list[str]:
    """Return the inputs at which the value is finite and a derivative is not, as `input=-100: nan`.

    Args:
        op: The op.
        function: Its function.
        device: The device of the tensors.
        values: An argument for each parameter.
        inputs: Those of `values` that are differentiable tensors.
    """
    descriptions = []
    for name in inputs:
        for value in _PROBED_VALUES:
            filled = np.array(_host(inputs[name]))
            filled[...] = value if op.kind != "rowwise" else filled
            filled.reshape(-1)[:1] = value
            changed_inputs = {**inputs, name: tensor(filled, device=device, requires_grad=True)}
            output = function(**{**values, **changed_inputs})
            output = output[0] if isinstance(output, tuple) else output
            if not output.needs_grad:
                continue
            gradients = autograd.grad(
                output, list(changed_inputs.values()), grad_outputs=ones_like(output.detach()), allow_unused=True
            )
            is_output_finite = np.all(np.isfinite(_host(output)))
            for grad_name, gradient in zip(inputs, gradients, strict=True):
                if gradient is None or not is_output_finite or np.all(np.isfinite(elements := _host(gradient))):
                    continue
                kind = "nan" if np.isnan(elements).any() else "inf"
                descriptions.append(f"{name}={value:g}: {kind}" + (f" in {grad_name}" if grad_name != name else ""))
    return descriptions
