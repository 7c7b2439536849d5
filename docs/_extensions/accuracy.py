"""Measure how exactly `cpu` computes an op, for the table "Accuracy" of the op's page.

The op is called on random operands of each floating dtype, and on the same values in float64. The difference is the
error. For pointwise ops it is counted in units in the last place (ULP) of each result. A result of other kinds is made
from many elements, and can be near zero where they cancel: there the unit is the last place of the largest result.
"""

import numpy as np

import weftgrad as wg
from weftgrad._generated import ops as generated
from weftgrad.cli import samples
from weftgrad.codegen.loader import op_from_mapping
from weftgrad.runtime import dtypes
from weftgrad.runtime.errors import WeftgradError
from weftgrad.runtime.records import OpRecord

SHAPE = (64, 1000)
MEASURED_DTYPES = (dtypes.float32, dtypes.float16, dtypes.bfloat16)
BITS = {"float32": 23, "float16": 10, "bfloat16": 7}  # of the mantissa, without the leading one
SMALLEST_EXPONENT = {"float32": -126, "float16": -14, "bfloat16": -126}
KINDS = ("pointwise", "rowwise", "reduction", "scan", "contraction")
MIN_RESULTS = 10  # the single result of a reduction over all elements can be near zero by chance
PERCENTILE = 99.9
CANCELLING = 100  # ULP: a largest error above it comes from results near zero

CANCELLATION = """The largest errors belong to results near zero, such as differences of nearly equal terms: their
rounding errors stay, and are many last places of the small result."""


def accuracy_table(record: OpRecord) -> list[str]:
    """Return the section "Accuracy" as lines of Markdown; nothing for ops whose results are no rounded numbers."""
    if record.kind not in KINDS or record.outputs[0].result in ("bool", "index"):
        return []
    rows = [row for dtype in MEASURED_DTYPES if (row := _row(record, dtype))]
    if not rows:
        return []
    ranges = op_from_mapping(record.spec).fields.get("sample", {})
    operands = ", ".join(f"{name} from {low:g} to {high:g}" for name, (low, high) in ranges.items())
    shape = "x".join(map(str, SHAPE))
    unit = "each result" if record.kind == "pointwise" else "the largest result"
    return [
        "## Accuracy", "",
        f"Errors on `cpu`, in units in the last place (ULP) of {unit}, against the op in float64 on the same operands: "
        f"{shape} random values ({operands or 'from -2 to 2'}).", "",
        f"| dtype | mean error | {PERCENTILE:g} % are below | largest error |", "| --- | ---: | ---: | ---: |",
        *(row for row, _ in rows), "",
        *([CANCELLATION, ""] if max(largest for _, largest in rows) > CANCELLING else []),
    ]  # fmt: skip


def _row(record: OpRecord, dtype: dtypes.DType) -> tuple[str, float] | None:
    """Return a dtype's table row and largest error, or None if the op refuses the dtype or returns another one."""
    op = op_from_mapping(record.spec)
    function = generated.FUNCTIONS[record.name][0]
    cpu = wg.device("cpu")
    try:
        arguments = samples.sample_arguments(op, cpu, dtype, np.random.default_rng(0), shape=SHAPE)
        if "dim" in arguments and record.kind == "reduction":
            arguments["dim"] = -1
        exact_arguments = {name: _widen(value) for name, value in arguments.items()}
        result, exact = (_first(function(**each)) for each in (arguments, exact_arguments))
    except (WeftgradError, TypeError, ValueError):
        return None
    if not isinstance(result, wg.Tensor) or result.dtype != dtype or exact.dtype != dtypes.float64:
        return None
    expected, actual = exact.numpy(), result.to(dtypes.float64).numpy()
    is_finite = np.isfinite(expected) & np.isfinite(actual)
    if is_finite.sum() < MIN_RESULTS:
        return None
    size = np.abs(expected[is_finite]) if record.kind == "pointwise" else np.abs(expected[is_finite]).max()
    errors = np.abs(actual[is_finite] - expected[is_finite]) / _last_place(size, dtype.name)
    high = np.percentile(errors, PERCENTILE)
    return f"| {dtype.name} | {errors.mean():.2f} | {high:.2f} | {errors.max():.4g} |", float(errors.max())


def _widen(value: object) -> object:
    """Return a floating tensor in float64, the tensors of a list as well, and everything else as it is."""
    if isinstance(value, list):
        return [_widen(each) for each in value]
    is_floating = isinstance(value, wg.Tensor) and value.dtype.is_floating_point
    return value.to(dtypes.float64) if is_floating and isinstance(value, wg.Tensor) else value


def _first(results: object) -> object:
    return results[0] if isinstance(results, tuple) else results


def _last_place(size: np.ndarray, dtype_name: str) -> np.ndarray:
    """Return the distance of neighbouring numbers of a dtype at values of this size; subnormal ones have the least."""
    exponent = np.frexp(size)[1] - 1
    return np.ldexp(1.0, np.maximum(exponent, SMALLEST_EXPONENT[dtype_name]) - BITS[dtype_name])
