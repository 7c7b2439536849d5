"""Random programs: views, writes in place and functions of several values; each step also runs on NumPy arrays.

A view of a tensor has a NumPy view of the array beside it, so that writes to either show in the other. Programs are
drawn while their NumPy steps run, because shapes decide what may follow, and are then run by weftgrad or torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from fuzz_reference import FLOATS, Array, cast, numpy_dtype

Rng: TypeAlias = np.random.Generator


@dataclass(frozen=True)
class Step:
    """One step of a program.

    Attributes:
        text: What it does, for messages; `{}` stand for the names of the operands.
        operands: Positions of the values that it reads or writes.
        run: Called with the module and tensors. It returns a new value; None if it writes to the first operand.
        reference: The same for arrays.
        writes: True if it writes to the first operand.
    """

    text: str
    operands: tuple[int, ...]
    run: Callable[..., Any]
    reference: Callable[..., Any]
    writes: bool = False

    def __str__(self) -> str:
        return self.text.format(*(f"v{i}" for i in self.operands))


@dataclass(frozen=True)
class Program:
    """Steps, and the arrays that they start from.

    Attributes:
        inputs: Its inputs.
        dtype: Their dtype.
        steps: Its steps.
        seed: What it was drawn from.
    """

    inputs: tuple[Array, ...]
    dtype: str
    steps: tuple[Step, ...]
    seed: int

    def run(self, m: ModuleType, inputs: Sequence[Any]) -> list[Any]:
        """Return all values: the inputs, and the result of each step that has one."""
        values = list(inputs)
        for step in self.steps:
            result = step.run(m, *(values[i] for i in step.operands))
            if result is not None:
                values.append(result)
        return values

    def reference(self, inputs: Sequence[Array]) -> list[Array]:
        """Do the same with arrays."""
        values = [array.copy() for array in inputs]
        for step in self.steps:
            result = step.reference(*(values[i] for i in step.operands))
            if result is not None:
                values.append(np.asarray(result))
        return values

    def __str__(self) -> str:
        lines = [f"v{i} = {self.dtype}{list(a.shape)}" for i, a in enumerate(self.inputs)]
        position = len(lines)
        for step in self.steps:
            lines.append(str(step) if step.writes else f"v{position} = {step}")
            position += not step.writes
        return f"seed {self.seed}:\n  " + "\n  ".join(lines)


def _fresh(rng: Rng, shape: tuple[int, ...], dtype: str) -> Array:
    if dtype in FLOATS:
        return cast(rng.integers(-16, 17, shape) / 8, dtype)
    return cast(rng.integers(0, 2 if dtype == "bool" else 7, shape), dtype)


# Views ----------------------------------------------------------------------------------------------------------------


def _permute(rng: Rng, x: Array) -> tuple[str, Any, Any]:
    order = tuple(int(d) for d in rng.permutation(x.ndim))
    return f"{{}}.permute({order})", lambda m, t: t.permute(order), lambda a: a.transpose(order)


def _slice(rng: Rng, x: Array) -> tuple[str, Any, Any]:
    if not x.ndim:
        return _unsqueeze(rng, x)
    axis, step = int(rng.integers(x.ndim)), int(rng.integers(1, 3))
    start = int(rng.integers(0, x.shape[axis] + 1))
    index = (*(slice(None),) * axis, slice(start, None, step))
    return f"{{}}[{index}]", lambda m, t: t[index], lambda a: a[index]


def _select(rng: Rng, x: Array) -> tuple[str, Any, Any]:
    if not x.size or not x.ndim:
        return _unsqueeze(rng, x)
    axis = int(rng.integers(x.ndim))
    position = int(rng.integers(x.shape[axis]))
    index = (*(slice(None),) * axis, position, ...)  # the ellipsis makes NumPy return an array
    return f"{{}}.select({axis}, {position})", lambda m, t: t.select(axis, position), lambda a: a[index]


def _unsqueeze(rng: Rng, x: Array) -> tuple[str, Any, Any]:
    axis = int(rng.integers(x.ndim + 1))
    return f"{{}}.unsqueeze({axis})", lambda m, t: t.unsqueeze(axis), lambda a: np.expand_dims(a, axis)


def _diagonal(rng: Rng, x: Array) -> tuple[str, Any, Any]:
    if x.ndim < 2:
        return _permute(rng, x)

    def diagonal(a: Array) -> Array:
        result = a.diagonal(0, 0, 1)
        if a.flags.writeable:
            result.flags.writeable = True
        return result

    return "{}.diagonal(0, 0, 1)", lambda m, t: t.diagonal(0, 0, 1), diagonal


_VIEWS = (_permute, _slice, _slice, _select, _unsqueeze, _diagonal)


# Writes ---------------------------------------------------------------------------------------------------------------


def _write(values: Any, target: Array, dtype: str) -> None:
    target[...] = cast(values, dtype)


def _write_step(rng: Rng, values: Sequence[Array], position: int, dtype: str, *, smooth: bool) -> Step:
    """Draw a write to `values[position]`.

    Args:
        smooth: Whether the step must have a derivative.
    """
    x = values[position]
    number = float(rng.integers(-8, 9)) / 4 if dtype in FLOATS else int(rng.integers(0, 5))
    kind = int(rng.integers(7))
    if kind == 0:
        return Step(f"{{}}.fill_({number})", (position,), lambda m, t: _none(t.fill_(number)),
                    lambda a: _write(np.full(a.shape, number), a, dtype), writes=True)  # fmt: skip
    if kind == 1 and dtype != "bool":
        return Step(f"{{}}.add_({number})", (position,), lambda m, t: _none(t.add_(number)),
                    lambda a: _write(_exact(a, dtype) + number, a, dtype), writes=True)  # fmt: skip
    if kind == 2 and not smooth:
        return Step(f"{{0}}.masked_fill_({{0}} > 1, {number})", (position,),
                    lambda m, t: _none(t.masked_fill_(t > 1, number)),
                    lambda a: _write(np.where(a > 1, number, a), a, dtype), writes=True)  # fmt: skip
    if kind == 3 and x.ndim and x.size:
        row = int(rng.integers(x.shape[0]))
        return Step(f"{{}}[{row}] = {number}", (position,), lambda m, t: t.__setitem__(row, number),
                    lambda a: _write(np.full(a.shape[1:], number), a[row, ...], dtype), writes=True)  # fmt: skip
    sources = [i for i, v in enumerate(values) if _broadcasts(v.shape, x.shape)]
    source = int(sources[rng.integers(len(sources))])
    if kind in (4, 5) or dtype == "bool":
        return Step("{}.copy_({}.clone())", (position, source), lambda m, t, s: _none(t.copy_(s.clone())),
                    lambda a, b: _write(np.broadcast_to(b.copy(), a.shape), a, dtype), writes=True)  # fmt: skip
    return Step("{}.mul_({}.clone())", (position, source), lambda m, t, s: _none(t.mul_(s.clone())),
                lambda a, b: _write(_exact(a, dtype) * _exact(b, dtype), a, dtype), writes=True)  # fmt: skip


def _none(_: object) -> None:
    """Return None: a write has no result of its own."""


def _exact(array: Array, dtype: str) -> Array:
    return array.astype(np.float64) if dtype in FLOATS else array


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


# Functions ------------------------------------------------------------------------------------------------------------


def _clone_step(position: int) -> Step:
    return Step("{}.clone()", (position,), lambda m, t: t.clone(), lambda a: a.copy())


def _sum_step(rng: Rng, values: Sequence[Array], position: int) -> Step:
    x = values[position]
    if not x.ndim:
        return _clone_step(position)
    axis = int(rng.integers(x.ndim))
    return Step(f"{{}}.sum({axis}, True)", (position,), lambda m, t: t.sum(axis, True),
                lambda a: a.sum(axis=axis, keepdims=True))  # fmt: skip


_UNARY: tuple[tuple[str, Callable[..., Any], Callable[..., Any]], ...] = (
    ("{0}.sin()", lambda m, t: t.sin(), np.sin),
    ("{0}.tanh()", lambda m, t: t.tanh(), np.tanh),
    ("sigmoid({0})", lambda m, t: m.sigmoid(t), lambda a: 1 / (1 + np.exp(-a))),
    ("(-{0} * {0}).exp()", lambda m, t: (-t * t).exp(), lambda a: np.exp(-a * a)),
    ("(1 + {0} ** 2).sqrt()", lambda m, t: (1 + t**2).sqrt(), lambda a: np.sqrt(1 + a**2)),
    ("(1 + {0} ** 2).log()", lambda m, t: (1 + t**2).log(), lambda a: np.log(1 + a**2)),
    ("atan({0})", lambda m, t: m.atan(t), np.arctan),
    ("{0} / (2 + {0}.sin())", lambda m, t: t / (2 + t.sin()), lambda a: a / (2 + np.sin(a))),
    ("{0}.abs()", lambda m, t: t.abs(), np.abs),
    ("relu({0})", lambda m, t: m.relu(t), lambda a: np.maximum(a, 0)),
    ("{0}.reshape(-1).cumsum(0)", lambda m, t: t.reshape(-1).cumsum(0), lambda a: a.reshape(-1).cumsum(0)),
    ("{0}.tanh().reshape(-1).cumprod(0)", lambda m, t: t.tanh().reshape(-1).cumprod(0),
     lambda a: np.tanh(a).reshape(-1).cumprod(0)),
    ("softmax({0}.reshape(-1), 0)", lambda m, t: m.softmax(t.reshape(-1), 0),
     lambda a: np.exp(a.reshape(-1)) / np.exp(a.reshape(-1)).sum()),
    ("{0}.reshape(-1).logcumsumexp(0)", lambda m, t: t.reshape(-1).logcumsumexp(0),
     lambda a: np.log(np.exp(a.reshape(-1)).cumsum(0))),
    ("cat([{0}.reshape(-1), {0}.reshape(-1)])", lambda m, t: m.cat([t.reshape(-1), t.reshape(-1)]),
     lambda a: np.concatenate([a.reshape(-1), a.reshape(-1)])),
    ("{0}.reshape(-1).flip(0)", lambda m, t: t.reshape(-1).flip(0), lambda a: a.reshape(-1)[::-1].copy()),
)  # fmt: skip
_BINARY: tuple[tuple[str, Callable[..., Any], Callable[..., Any]], ...] = (
    ("{} + {}", lambda m, s, t: s + t, np.add), ("{} - {}", lambda m, s, t: s - t, np.subtract),
    ("{} * {}", lambda m, s, t: s * t, np.multiply),
    ("{} / (3 + {}.cos())", lambda m, s, t: s / (3 + t.cos()), lambda a, b: a / (3 + np.cos(b))),
    ("maximum({}, {})", lambda m, s, t: m.maximum(s, t), np.maximum),
    ("where({0} > 0, {0}, {1})", lambda m, s, t: m.where(s > 0, s, t), lambda a, b: np.where(a > 0, a, b)),
    ("atan2({}, 2 + {}.sin())", lambda m, s, t: m.atan2(s, 2 + t.sin()), lambda a, b: np.arctan2(a, 2 + np.sin(b))),
    ("lerp({}, {}, 0.25)", lambda m, s, t: m.lerp(s, t, 0.25), lambda a, b: a + 0.25 * (b - a)),
)  # fmt: skip


def draw_writes(seed: int, dtypes: Sequence[str]) -> Program:
    """Draw a program of views and writes in place."""
    rng = np.random.default_rng(seed)
    dtype = str(rng.choice(dtypes))
    shapes = ((4, 6), (3,), (2, 3, 4), (), (1, 5), (0, 2))
    inputs = tuple(_fresh(rng, shapes[rng.integers(len(shapes))], dtype) for _ in range(2))
    values = [array.copy() for array in inputs]
    steps: list[Step] = []
    for _ in range(int(rng.integers(3, 9))):
        position = int(rng.integers(len(values)))
        if rng.random() < 0.45:
            text, run, reference = _VIEWS[rng.integers(len(_VIEWS))](rng, values[position])
            step = Step(text, (position,), run, reference)
        else:
            step = _write_step(rng, values, position, dtype, smooth=False)
        result = step.reference(*(values[i] for i in step.operands))
        if result is not None:
            values.append(np.asarray(result))
        steps.append(step)
    return Program(inputs, dtype, tuple(steps), seed)


def draw_smooth(seed: int) -> Program:
    """Draw a program of float64 functions, views and writes, which has derivatives almost everywhere."""
    rng = np.random.default_rng(seed)
    shapes = ((2, 3), (3,), (2, 1), (), (4,))
    inputs = tuple(rng.normal(size=shapes[rng.integers(len(shapes))]) for _ in range(2))
    steps: list[Step] = [_clone_step(0), _clone_step(1)]  # leaves must not be written
    values = [array.copy() for array in (*inputs, *inputs)]
    for _ in range(int(rng.integers(4, 10))):
        position = int(rng.integers(2, len(values)))
        choice = rng.random()
        x = values[position]
        if choice < 0.2:
            text, run, reference = _VIEWS[rng.integers(len(_VIEWS))](rng, x)
            step = Step(text, (position,), run, reference)
        elif choice < 0.4:
            step = _write_step(rng, values, position, "float64", smooth=True)
        elif choice < 0.5:
            step = _sum_step(rng, values, position)
        elif choice < 0.75 or not x.size:
            text, run, reference = _UNARY[rng.integers(len(_UNARY))]
            step = Step(text, (position,), run, reference)
        else:
            partners = [i for i, v in enumerate(values) if _broadcasts(v.shape, x.shape)]
            text, run, reference = _BINARY[rng.integers(len(_BINARY))]
            step = Step(text, (position, int(partners[rng.integers(len(partners))])), run, reference)
        with np.errstate(all="ignore"):
            result = step.reference(*(values[i] for i in step.operands))
        if result is not None:
            values.append(np.asarray(result))
        steps.append(step)
    return Program(inputs, "float64", tuple(steps), seed)


def as_tensor(m: ModuleType, array: Array, dtype: str) -> Any:
    """Return a tensor of the module `m` with the values of an array."""
    return m.tensor(array.astype(numpy_dtype(dtype)).tolist(), dtype=getattr(m, dtype)).reshape(array.shape)
