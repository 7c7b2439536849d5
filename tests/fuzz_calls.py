"""Random calls of ops: dtypes, shapes, layouts and numbers are drawn; NumPy computes what they return, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
from fuzz_reference import DTYPES, FLOATS, INTEGERS, Array, cast, category, promote

SHAPES = ((), (1,), (5,), (0,), (3, 4), (2, 0), (2, 1, 3), (4, 33), (130,))
LAYOUTS = ("contiguous", "transposed", "stepped", "offset", "expanded")
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan)


@dataclass(frozen=True)
class Op:
    """A function of tensors, and its reference.

    Attributes:
        call: Called with the module (weftgrad or torch), the operands and the arguments.
        reference: Called with arrays in the dtype that the op computes in, and the arguments.
        takes: The dtypes of operands.
        result: The rule for the dtype of the result: `promote`, `float`, `bool`, `accumulate`, `truth` or `int64`.
        operands: How many.
        reduces: True if the op has an argument `dim`, None or a dimension.
        needs_dim: True if `dim` cannot be None.
        needs_elements: True if the op needs an element along `dim`.
        ulps: The error that is allowed, in units of the last place.
        sums: The result is a sum of the operand's elements: errors are relative to the sum of magnitudes.
        low: The smallest value of operands.
        has_specials: Operands may be infinite or NaN.
        wraps: A number that the tensor's integer dtype does not hold wraps around.
    """

    name: str
    call: Callable[..., Any]
    reference: Callable[..., Any]
    takes: tuple[str, ...] = DTYPES
    result: str = "promote"
    operands: int = 1
    reduces: bool = False
    needs_dim: bool = False
    needs_elements: bool = False
    ulps: float = 1
    sums: bool = False
    low: float = -3
    has_specials: bool = True
    wraps: bool = False


NUMERIC = (*INTEGERS, *FLOATS)
INTEGRAL = ("bool", *INTEGERS)


def unary(name: str, reference: Callable[..., Any], **fields: Any) -> Op:
    """Return an op of one operand that has the same name in the module."""
    return Op(name, lambda m, x: getattr(m, name)(x), reference, **fields)


def binary(name: str, reference: Callable[..., Any], **fields: Any) -> Op:
    """Return an op of two operands that has the same name in the module."""
    return Op(name, lambda m, x, y: getattr(m, name)(x, y), reference, operands=2, **fields)


def reduction(name: str, reference: Callable[..., Any], **fields: Any) -> Op:
    """Return a reduction, whose reference takes `axis`."""

    def call(m: ModuleType, x: Any, dim: int | None) -> Any:
        return getattr(m, name)(x) if dim is None else getattr(m, name)(x, dim)

    return Op(name, call, lambda x, dim: reference(x, axis=dim), reduces=True, **fields)


def _count_axis(x: Array, axis: int | None) -> int:
    return x.size if axis is None else x.shape[axis] if x.ndim else 1


def _mean(x: Array, axis: int | None) -> Array:
    """Return the mean: NaN for no elements, without NumPy's warning."""
    return np.asarray(x.sum(axis=axis) / np.float64(_count_axis(x, axis)))


def _variance(x: Array, axis: int | None) -> Array:
    """Return the variance with Bessel's correction: NaN for one element."""
    mean = x.mean(axis=axis, keepdims=True) if _count_axis(x, axis) else np.nan
    return np.asarray(((x - mean) ** 2).sum(axis=axis) / np.float64(max(_count_axis(x, axis) - 1, 0)))


OPS = (
    unary("neg", np.negative, takes=NUMERIC), unary("abs", np.abs, takes=NUMERIC),
    unary("sign", lambda x: x if x.dtype == bool else np.nan_to_num(np.sign(x))),  # PyTorch's sign of NaN is 0
    unary("square", lambda x: x * x, takes=NUMERIC),
    unary("floor", np.floor, takes=NUMERIC), unary("ceil", np.ceil, takes=NUMERIC),
    unary("trunc", np.trunc, takes=NUMERIC), unary("round", np.round, takes=NUMERIC),
    unary("sqrt", np.sqrt, result="float", ulps=2), unary("exp", np.exp, result="float", ulps=4),
    unary("expm1", np.expm1, result="float", ulps=4), unary("log", np.log, result="float", ulps=4),
    unary("log1p", np.log1p, result="float", ulps=4), unary("reciprocal", lambda x: 1 / x, result="float", ulps=2),
    unary("sin", np.sin, result="float", ulps=4), unary("cos", np.cos, result="float", ulps=4),
    unary("tanh", np.tanh, result="float", ulps=4), unary("atan", np.arctan, result="float", ulps=4),
    unary("sinh", np.sinh, result="float", ulps=4), unary("asinh", np.arcsinh, result="float", ulps=4),
    unary("sigmoid", lambda x: 1 / (1 + np.exp(-x)), result="float", ulps=4),
    unary("relu", lambda x: np.where(x > 0, x, np.where(np.isnan(x), x, 0)).astype(x.dtype), takes=NUMERIC),
    unary("isnan", np.isnan, result="bool"), unary("isfinite", np.isfinite, result="bool"),
    unary("signbit", np.signbit, takes=NUMERIC, result="bool"), unary("logical_not", np.logical_not, result="bool"),
    unary("bitwise_not", np.invert, takes=INTEGRAL),
    Op("nan_to_num", lambda m, x: m.nan_to_num(x, 1, 9, -9),
       lambda x: np.nan_to_num(x, nan=1, posinf=9, neginf=-9), takes=FLOATS),
    binary("add", np.add, wraps=True), binary("mul", np.multiply, wraps=True),
    binary("sub", np.subtract, takes=NUMERIC, wraps=True),
    binary("true_divide", np.true_divide, result="float", ulps=2),
    binary("maximum", np.maximum), binary("minimum", np.minimum),
    binary("fmod", np.fmod, takes=NUMERIC, has_specials=False, wraps=True),
    binary("remainder", np.remainder, takes=NUMERIC, has_specials=False, wraps=True),
    binary("floor_divide", np.floor_divide, takes=NUMERIC, has_specials=False, wraps=True),
    binary("hypot", np.hypot, takes=FLOATS, ulps=2), binary("atan2", np.arctan2, result="float", ulps=4),
    binary("copysign", np.copysign, result="float"),
    binary("pow", np.power, takes=FLOATS, low=0.125, ulps=8, has_specials=False),
    binary("eq", np.equal, result="bool", wraps=True), binary("ne", np.not_equal, result="bool", wraps=True),
    binary("lt", np.less, result="bool", wraps=True), binary("le", np.less_equal, result="bool", wraps=True),
    binary("gt", np.greater, result="bool", wraps=True), binary("ge", np.greater_equal, result="bool", wraps=True),
    binary("logical_and", np.logical_and, result="bool"), binary("logical_or", np.logical_or, result="bool"),
    binary("logical_xor", np.logical_xor, result="bool"),
    binary("bitwise_and", np.bitwise_and, takes=INTEGRAL, wraps=True),
    binary("bitwise_or", np.bitwise_or, takes=INTEGRAL, wraps=True),
    binary("bitwise_xor", np.bitwise_xor, takes=INTEGRAL, wraps=True),
    reduction("sum", np.sum, result="accumulate", sums=True, ulps=2),
    reduction("mean", _mean, takes=FLOATS, sums=True, ulps=2),
    reduction("prod", np.prod, result="accumulate", ulps=16, has_specials=False),
    reduction("amax", np.max, needs_elements=True, needs_dim=True),
    reduction("amin", np.min, needs_elements=True, needs_dim=True),
    reduction("argmax", np.argmax, needs_elements=True, takes=NUMERIC, result="int64"),
    reduction("argmin", np.argmin, needs_elements=True, takes=NUMERIC, result="int64"),
    reduction("any", np.any, result="truth"), reduction("all", np.all, result="truth"),
    reduction("count_nonzero", np.count_nonzero, result="int64"),
    reduction("var", _variance, takes=FLOATS, sums=True, ulps=8, has_specials=False),
    reduction("std", lambda x, axis: np.sqrt(_variance(x, axis)), takes=FLOATS, ulps=8, has_specials=False),
    reduction("cumsum", np.cumsum, result="accumulate", needs_dim=True, sums=True, ulps=4, has_specials=False),
    reduction("cumprod", np.cumprod, result="accumulate", needs_dim=True, ulps=32, has_specials=False),
    reduction("logsumexp", lambda x, axis: np.log(np.exp(x).sum(axis=axis)), takes=FLOATS, needs_dim=True, ulps=8,
              sums=True, has_specials=False),
    Op("sort", lambda m, x, dim: m.sort(x, dim).values, lambda x, dim: np.sort(x, axis=dim) if x.ndim else x,
       reduces=True, needs_dim=True, has_specials=False),
    Op("flip", lambda m, x, dim: m.flip(x, (dim,)), lambda x, dim: np.flip(x, dim) if x.ndim else x, reduces=True,
       needs_dim=True),
    Op("roll", lambda m, x, dim: m.roll(x, 2, dim), lambda x, dim: np.roll(x, 2, dim) if x.ndim else x, reduces=True,
       needs_dim=True),
    Op("where", lambda m, x, y: m.where(x > 1, x, y), lambda x, y: np.where(x > 1, x, y), operands=2),
    Op("masked_fill", lambda m, x: x.masked_fill(x > 1, 1), lambda x: np.where(x > 1, np.ones_like(x), x)),
    Op("clamp", lambda m, x: m.clamp(x, 0, 2), lambda x: np.clip(x, 0, 2), takes=NUMERIC),
)  # fmt: skip


@dataclass(frozen=True)
class Operand:
    """A tensor or a number.

    Attributes:
        values: The values; in a layout other than `contiguous` the tensor is a view of a larger one.
        dtype: Its dtype, or the dtype of a number.
        layout: One of LAYOUTS; "" for a number.
    """

    values: Any
    dtype: str
    layout: str = ""

    def make(self, m: ModuleType) -> Any:
        """Return the tensor of the module `m`, or the number."""
        if not self.layout:
            return self.values
        dtype, values = getattr(m, self.dtype), np.asarray(self.values)

        def tensor(array: Array) -> Any:
            return m.tensor(array.tolist(), dtype=dtype).reshape(array.shape)

        if self.layout == "transposed" and values.ndim > 1:
            return tensor(np.swapaxes(values, 0, -1)).transpose(0, -1)
        if self.layout == "stepped" and values.ndim:
            return tensor(np.repeat(values, 2, -1))[..., ::2]
        if self.layout == "offset" and values.ndim:
            return tensor(np.concatenate([values[:1], values]))[values[:1].shape[0] :]
        if self.layout == "expanded" and values.ndim:
            return tensor(values[..., :1]).expand(values.shape)
        return tensor(values)

    def __str__(self) -> str:
        if not self.layout:
            return repr(self.values)
        return f"{self.dtype}{list(np.shape(self.values))} {self.layout} {np.ravel(self.values)[:6].tolist()}"


@dataclass(frozen=True)
class Call:
    """One random call."""

    op: Op
    operands: tuple[Operand, ...]
    arguments: tuple[Any, ...] = ()
    seed: int = field(default=0)

    def run(self, m: ModuleType) -> Any:
        return self.op.call(m, *(operand.make(m) for operand in self.operands), *self.arguments)

    def __str__(self) -> str:
        arguments = ", ".join([*map(str, self.operands), *map(repr, self.arguments)])
        return f"seed {self.seed}: {self.op.name}({arguments})"

    def expected(self) -> tuple[Array, str, float]:
        """Return the exact result, its dtype, and the magnitude of the terms of a sum."""
        op = self.op
        common = promote([(o.dtype, 2 if not o.layout else 0 if np.ndim(o.values) else 1) for o in self.operands])
        compute = common if category(common) == 2 or op.result != "float" else "float32"
        result = {
            "bool": "bool", "int64": "int64", "truth": "uint8" if common == "uint8" else "bool",
            "accumulate": common if category(common) == 2 else "int64",
        }.get(op.result, compute)  # fmt: skip
        is_accumulated = op.result == "accumulate" and category(common) < 2
        exact = "int64" if is_accumulated else "float64" if category(compute) == 2 else compute
        arrays = [cast(cast(operand.values, compute), exact) for operand in self.operands]
        with np.errstate(all="ignore"):
            values = np.asarray(op.reference(*arrays, *self.arguments))
            finite = [np.where(np.isfinite(a), np.abs(a.astype(np.float64)), 0) for a in arrays]
        return values, result, float(finite[0].sum()) if op.sums else 0.0


def draw_call(seed: int, ops: Sequence[Op] = OPS) -> Call:
    """Return the call of a seed."""
    rng = np.random.default_rng(seed)
    op = ops[rng.integers(len(ops))]
    shape = SHAPES[rng.integers(len(SHAPES))]
    operands = [_draw_tensor(rng, op, shape)]
    for _ in range(op.operands - 1):
        operands.append(
            _draw_number(rng, op, operands[0].dtype) if rng.random() < 0.3
            else _draw_tensor(rng, op, _broadcastable(rng, shape))
        )  # fmt: skip
    if op.operands == 2 and operands[1].layout and rng.random() < 0.5:
        operands.reverse()
    arguments: tuple[Any, ...] = ()
    if op.reduces:
        dims = [*range(-len(shape), len(shape))] or [0, -1]
        dim = None if rng.random() < 0.3 and not op.needs_dim else int(dims[rng.integers(len(dims))])
        arguments = (dim,)
        if op.needs_elements and 0 in shape:
            return draw_call(seed + 1_000_000_007, ops)
        if dim is not None and not shape:  # NumPy's reductions take no axis of an array without dimensions
            operands = [_draw_tensor(rng, op, (1,))]
            arguments = (0,)
    return Call(op, tuple(operands), arguments, seed)


def _broadcastable(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape that broadcasts with `shape`."""
    other = tuple(1 if rng.random() < 0.2 else n for n in shape)
    return other[rng.integers(len(other) + 1) :] if rng.random() < 0.3 else other


def _draw_tensor(rng: np.random.Generator, op: Op, shape: tuple[int, ...]) -> Operand:
    dtype = str(rng.choice(op.takes))
    layout = str(rng.choice(LAYOUTS))
    if dtype == "bool":
        values = rng.integers(0, 2, shape).astype(bool)
    elif dtype in INTEGERS:
        values = rng.integers(0 if dtype == "uint8" or op.low > 0 else -5, 10, shape)
    else:  # eighths, which all floating dtypes hold
        values = np.maximum(rng.integers(-24, 25, shape) / 8, op.low)
        if op.has_specials and rng.random() < 0.3:
            values = np.where(rng.random(shape) < 0.2, rng.choice(SPECIAL, shape), values)
    if layout == "expanded" and values.ndim:
        values = np.broadcast_to(values[..., :1], shape).copy()
    return Operand(np.asarray(values), dtype, layout)


def _draw_number(rng: np.random.Generator, op: Op, tensor_dtype: str) -> Operand:
    """Return a number; beside a tensor of integers sometimes one that its dtype does not hold."""
    if tensor_dtype in FLOATS and rng.random() < 0.6:
        return Operand(float(max(rng.integers(-24, 25) / 8, op.low)), "float32")
    number = int(rng.integers(1, 9)) if op.low > 0 or rng.random() < 0.7 else int(rng.integers(-300, 300))
    is_limited = tensor_dtype == "bool" or not op.wraps
    return Operand(number % 7 + 1 if is_limited else number, "int64")
