"""`weftgrad check SPEC`: does a spec's op compile everywhere, give the right values, and have the right derivatives?

Values are compared with the op's `reference`; where it names none, with its own formula computed by NumPy in float64,
which finds errors of printing and rounding but not a wrong formula. Derivatives are compared with differences, and
looked at where formulas tend to fail: at 0, ±1, ±100, ±10⁴ and tiny numbers.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime import dtypes
from ..runtime.device import Device
from ..runtime.device import device as to_device
from ..runtime.errors import ArgumentError, CompileError, GradientError, WeftgradError
from .terminal import Style, table

__all__ = ["Row", "check_op", "register"]

GRID = (0.0, 1.0, -1.0, 100.0, -100.0, 1e4, -1e4, 1e-30, -1e-30)
_TOLERANCE = {"float32": 2e-5, "float64": 1e-11}


def register(subparsers: Any) -> None:
    """Add the command."""
    made = subparsers.add_parser(
        "check",
        help="check a spec: values, derivatives, every device",
        description="Compiles each op of SPEC on every device, compares values and derivatives, and looks for inputs "
        "whose derivative is not finite.",
    )
    made.add_argument("spec", type=Path, help="a spec file")
    made.add_argument("--device", action="append", metavar="NAME", help="only on this device (may be repeated)")
    made.add_argument("--trust", action="store_true", help="take custom ops, whose kernels are code")
    made.set_defaults(run=run)


@dataclass(slots=True)
class Row:
    """What was found of one op on one device. Each field is what the table shows; `failed` are the wrong ones."""

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
        self.failed += (field,)
        self.notes += (f"{self.op} on {self.device}: {note}",)


_FIELDS = ("op", "device", "compiles", "error", "gradcheck", "gradgradcheck", "suspicious")
_HEADINGS = ("op", "device", "compiles", "max error", "gradcheck", "gradgradcheck", "suspicious inputs")


def run(options: argparse.Namespace) -> int:
    """Print one row for each op and device, then what was wrong."""
    from .. import ops as loader
    from ..codegen.loader import load_file
    from ..runtime.backends import available

    functions = vars(loader.load(options.spec, trust=options.trust))
    listed = load_file(options.spec, trust=options.trust)
    places = [to_device(name) for name in options.device] if options.device else available()
    style = Style()
    rows = [check_op(op, functions[op.name], place) for op in listed for place in places]
    marks = [
        [
            "bad" if f in r.failed else "warning" if f == "suspicious" and r.suspicious not in "–" else ""
            for f in _FIELDS
        ]
        for r in rows
    ]
    print(table([[getattr(r, f) for f in _FIELDS] for r in rows], _HEADINGS, style, marks))
    for note in dict.fromkeys(n for r in rows for n in r.notes):
        print(style("bad", note))
    wrong = sum(bool(r.failed) for r in rows)
    print(style("bad", f"{wrong} of {len(rows)} rows failed") if wrong else style("good", "all passed"))
    return 1 if wrong else 0


def check_op(op: Any, function: Callable[..., Any], place: Device) -> Row:
    """Everything about one op on one device."""
    row = Row(op.name, str(place))
    try:
        able = place.driver.capabilities
        fine = _values(row, op, function, place, able.fp64)
    except CompileError as error:
        row.compiles = "no"
        row.fail("compiles", _compiler_says(error))
        return row
    except WeftgradError as error:
        row.compiles = "no"
        row.fail("compiles", str(error))
        return row
    row.compiles = "yes"
    if fine and op.grad != "none" and able.fp64 and op.kind not in ("view", "random"):
        _derivatives(row, op, function, place)
    return row


def _compiler_says(error: CompileError) -> str:
    lines = str(error).splitlines()
    told = [line.strip() for line in lines if "error:" in line]
    return "; ".join([lines[0], *told[:3]])


# Values


def _values(row: Row, op: Any, function: Callable[..., Any], place: Device, fp64: bool) -> bool:
    """Call the op in each floating type; False if that gives an error of its own."""
    from .formula import expected

    rng = np.random.default_rng(0)
    shown = []
    for dtype in ("float32", "float64") if fp64 else ("float32",):
        state = rng.bit_generator.state
        named = _arguments(op, place, dtype, rng)
        rng.bit_generator.state = state
        result = function(**named)
        found = [np.asarray(_host(t), np.float64) for t in (result if isinstance(result, tuple) else (result,))]
        # what the device was given: values rounded to its type
        given = {k: _host(v) if _is_tensor(v) else v for k, v in named.items()}
        how, wanted = expected(op, given)
        if wanted is None:
            row.error = how
            continue
        worst = 0.0
        for f, w in zip(found, wanted, strict=False):
            if f.shape != np.shape(w):
                row.fail("error", f"shape {list(f.shape)}, the {how} gives {list(np.shape(w))}")
                row.error = "shape"
                return True
            worst = max(worst, _error(f, np.asarray(w, np.float64)))
        shown.append(f"{worst:.1e}")
        row.error = f"{' '.join(shown)} ({how})"
        if not worst <= _TOLERANCE[dtype]:
            row.fail("error", f"{dtype} is {worst:.2e} from the {how}, relative to 1 + its magnitude")
    return True


def _error(found: Any, wanted: Any) -> float:
    with np.errstate(all="ignore"):
        same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
        gap = np.where(same, 0.0, np.abs(found - wanted) / (1 + np.abs(wanted)))
    return float(np.max(np.where(np.isnan(gap), np.inf, gap), initial=0.0))


def _arguments(op: Any, place: Device, dtype: str, rng: Any, **options: Any) -> dict[str, Any]:
    from .samples import arguments

    return arguments(op, place, dtypes.parse(dtype), rng, **options)


def _host(tensor: Any) -> Any:
    from .._hosting import host_array

    return host_array(tensor.detach())


def _is_tensor(value: Any) -> bool:
    from ..runtime.tensor import Tensor

    return isinstance(value, Tensor)


# Derivatives


def _derivatives(row: Row, op: Any, function: Callable[..., Any], place: Device) -> None:
    from ..gradcheck import gradcheck, gradgradcheck

    named = _arguments(op, place, "float64", np.random.default_rng(1), grad=True)
    wanted = [k for k, v in named.items() if _is_tensor(v) and v.needs]
    if not wanted:
        return

    def call(*tensors: Any) -> Any:
        return function(**{**named, **dict(zip(wanted, tensors, strict=True))})

    inputs = [named[k] for k in wanted]
    for field, checker in (("gradcheck", gradcheck), ("gradgradcheck", gradgradcheck)):
        try:
            checker(call, inputs)
            setattr(row, field, "passed")
        except (ArgumentError, GradientError) as error:
            if "require" in str(error) and "grad" in str(error) and field == "gradgradcheck":
                setattr(row, field, "zero")  # the derivative is constant
                continue
            setattr(row, field, "FAILED")
            row.fail(field, f"{field}: {error}")
        except WeftgradError as error:
            setattr(row, field, "FAILED")
            row.fail(field, f"{field}: {error}")
        except Exception as error:  # GradcheckError
            setattr(row, field, "FAILED")
            row.fail(field, f"{field}: {str(error).partition(chr(10))[0]}")
    if op.kind in ("pointwise", "rowwise", "composite"):
        found = suspicious(op, function, place, named, wanted)
        row.suspicious = ", ".join(found[:4]) + (f", … ({len(found)})" if len(found) > 4 else "") or "–"


def suspicious(
    op: Any, function: Callable[..., Any], place: Device, named: dict[str, Any], wanted: list[str]
) -> list[str]:
    """Inputs at which the value is finite and a derivative is not: `input=-100: nan`."""
    from ..autograd import grad
    from ..factories import tensor

    found = []
    for name in wanted:
        for value in GRID:
            filled = np.array(_host(named[name]))
            filled[...] = value if op.kind != "rowwise" else filled
            filled.reshape(-1)[:1] = value
            given = {**named, name: tensor(filled, device=place, requires_grad=True)}
            out = function(**given)
            out = out[0] if isinstance(out, tuple) else out
            if not out.needs:
                continue
            gradient = grad(out, [given[n] for n in wanted], grad_outputs=_ones(out), allow_unused=True)
            finite = np.all(np.isfinite(_host(out)))
            for other, g in zip(wanted, gradient, strict=True):
                if g is not None and finite and not np.all(np.isfinite(values := _host(g))):
                    kind = "nan" if np.isnan(values).any() else "inf"
                    found.append(f"{name}={value:g}: {kind}" + (f" in {other}" if other != name else ""))
    return found


def _ones(like: Any) -> Any:
    from ..factories import ones_like

    return ones_like(like.detach())
