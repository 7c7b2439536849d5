"""The suite `specs`: ops by their specs, the package's own or those of a user's file, in any dtypes and shapes.

Operands are made from an op's signature. What is right comes from the function that the spec names as its reference,
in float64; a spec that names none is checked against the same op on float64 operands, which shows what float32 or
bfloat16 cost and not that the formula is the one that was meant. Gradients are checked as directional derivatives,
by central differences of that float64 function: independent of how the gradient was derived.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import weftgrad as wg
from weftgrad import testing

from ..codegen.generate import own_specs
from ..codegen.loader import load_file
from ..codegen.model import MISSING, Op, SpecErrors
from ..runtime.errors import ArgumentError, SpecError
from .cases import Case, Pairs, Work, rotated
from .sites import NotOffered, Site

__all__ = ["DTYPES", "cases", "dtypes_of", "shapes_of"]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
DTYPES = ("float32", "float16", "bfloat16", "float64", "int32", "int64")
_WIDTH = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "int32": 4, "int64": 8}
# Of an error relative to the largest value; a result rounded once has 2^-9 of a bfloat16 and 2^-12 of a float16.
_TOLERANCE = {"float32": 1e-4, "float16": 2**-9, "bfloat16": 2**-7, "float64": 1e-9}
_SLOPE_TOLERANCE = {"float32": 1e-3, "float16": 2**-7, "bfloat16": 2**-5, "float64": 1e-5}
_STEP = 1e-4  # of central differences
_SHAPES = ((1024,), (256, 1024), (4096, 1024))
_SIDES = ((128,), (512,), (1024,))  # of contractions, where every dimension has the same size
_KINDS = ("pointwise", "rowwise", "reduction", "scan", "contraction", "composite")
# Each kind of its own: what is moved, what is computed, rows, sums, products.
_OPS = ("add", "mul", "exp", "silu", "tanh", "softmax", "log_softmax", "sum", "mm", "bmm", "cumsum")


def dtypes_of(text: str) -> list[str]:
    """The dtypes of `float32,bfloat16`."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in DTYPES:
            raise ArgumentError(f"bench: --dtypes has no {name!r}: one or more of {', '.join(DTYPES)}")
    return list(dict.fromkeys(names))


def shapes_of(text: str) -> list[Shape]:
    """The shapes of `1024,256x1024`."""
    try:
        found = [tuple(int(n) for n in part.split("x")) for part in text.split(",")]
    except ValueError:
        found = [()]
    if not all(shape and min(shape) > 0 for shape in found):
        raise ArgumentError(f"bench: --shapes takes shapes as 1024,256x1024, not {text!r}")
    return found


@dataclass(frozen=True)
class _Subject:
    """An op to measure. path: what the package calls it; empty for an op of a user's file."""

    op: Op
    function: Callable[..., Any]
    path: str = ""


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """Forward, then backward where there is one, of every op in every dtype and shape."""
    dtypes = dtypes_of(options.dtypes) if options.dtypes else ["float32"]
    shapes = shapes_of(options.shapes) if options.shapes else None
    for subject in _subjects(options.spec, options.ops):
        sides = _SIDES if subject.op.kind == "contraction" else _SHAPES
        for dtype in dtypes:
            if not _takes(subject.op, dtype):
                continue
            for shape in _fitting(subject.op, shapes) if shapes else sides:
                yield from _cases(subject, dtype, shape)


def _subjects(spec: Path | None, names: str) -> Iterator[_Subject]:
    wanted = [name.strip() for name in (names or "").split(",") if name.strip()]
    if spec is not None:
        functions = wg.ops.load(spec)
        try:
            found = {op.name: _Subject(op, getattr(functions, op.name)) for op in load_file(spec)}
        except SpecErrors as error:
            raise SpecError(str(error)) from None
    else:
        wanted = wanted or list(_OPS)
        found = {}
        for name in wanted:
            path = name if callable(getattr(wg, name, None)) else f"nn.functional.{name}"
            op, function = _own_op(name), _by_path(wg, path)
            if op is not None and function is not None:
                found[name] = _Subject(op, function, path)
    for name in wanted or found:
        if name not in found:
            where = str(spec) if spec is not None else "weftgrad"
            raise ArgumentError(f"bench: --ops: {where} has no op {name!r} with a spec of that name")
        if found[name].op.kind not in _KINDS:
            kind = found[name].op.kind
            raise ArgumentError(
                f"bench: {name} is of kind {kind}, whose operands no rule here makes; kinds that have one: "
                f"{', '.join(_KINDS)}. The suite `ops` has rows of the others"
            )
        yield found[name]


def _own_op(name: str) -> Op | None:
    """An op of the package as its spec has it. Reading all files would take seconds."""
    for path in own_specs():
        if f'op: "{name}(' in path.read_text(encoding="utf-8"):
            return _own_file(path).get(name)
    return None


@cache
def _own_file(path: Path) -> dict[str, Op]:
    return {op.name: op for op in load_file(path, trust=True)}


def _by_path(library: Any, path: str) -> Callable[..., Any] | None:
    for part in path.split("."):
        library = getattr(library, part, None)
    return library  # type: ignore[no-any-return]


def _takes(op: Op, dtype: str) -> bool:
    floating = not dtype.startswith("int")
    return {"float": floating, "numeric": True, "all": True, "integer": not floating, "integral": not floating,
            "bool": False}.get(op.dtypes, True)  # fmt: skip


# Operands


def _sizes(op: Op, shape: Shape) -> list[Shape]:
    """The shapes of an op's tensors."""
    tensors = [p for p in op.params if p.role == "tensor"]
    if op.kind != "contraction":
        by_scope = {"full": shape, "column": shape[-1:], "row": shape[:-1]}
        return [by_scope.get(p.scope, shape) for p in tensors]
    terms = _equation(op)[0]
    letters = _letters(op)
    size = dict(zip(letters, shape * len(letters) if len(shape) == 1 else shape, strict=True))
    return [tuple(size[letter] for letter in term) for term in terms]


def _equation(op: Op) -> tuple[list[str], str]:
    """The operands' letters and the result's, without leading dimensions."""
    from ..codegen.kinds.contraction import letters, terms

    out = terms(op)[2].replace("...", "")
    return [term.replace("...", "") for term in letters(op).values()], out


def _letters(op: Op) -> list[str]:
    return list(dict.fromkeys("".join(_equation(op)[0])))


def _fitting(op: Op, shapes: Sequence[Shape]) -> list[Shape]:
    """Those that an op can have: all, but for a contraction one size, or one for each letter."""
    if op.kind != "contraction":
        return list(shapes)
    letters = _letters(op)
    found = [shape for shape in shapes if len(shape) in (1, len(letters))]
    if not found:
        raise ArgumentError(
            f"bench: --shapes has none for {op.name}: one size for all of its dimensions, or one for each of "
            f"{', '.join(letters)}, as in {'x'.join(['64'] * len(letters))}"
        )
    return found


def _arrays(op: Op, shape: Shape, dtype: str) -> list[Array]:
    """Random values: normal, or of the range that the spec's `sample` gives; integers of -50 to 50."""
    rng = np.random.default_rng(0)
    ranges: Mapping[str, Any] = op.spec.get("sample") or {}
    found: list[Array] = []
    for param, size in zip([p for p in op.params if p.role == "tensor"], _sizes(op, shape), strict=True):
        low, high = ranges.get(param.name, (None, None)) if isinstance(ranges, Mapping) else (None, None)
        if param.type == "mask":
            found.append(rng.random(size) < 0.5)
        elif param.type == "index" or dtype.startswith("int"):
            span = (-50, 51) if low is None else (math.ceil(low), math.floor(high) + 1)
            values = rng.integers(span[0], span[1], size)
            found.append(values.astype(dtype) if dtype.startswith("int") else values)
        elif low is None:
            found.append(rng.standard_normal(size, dtype=np.float32))
        else:
            found.append(rng.uniform(low, high, size).astype(np.float32))
    return found


def _call(op: Op, function: Callable[..., Any]) -> Callable[..., Any]:
    """The op as a function of its tensors alone: numbers that it needs are 0.5, `dim` is the last one, and what has a
    default keeps it. `dim` is said where it has one, because PyTorch's softmax needs it."""
    keywords: dict[str, Any] = {}
    places: list[Any] = []
    for param in op.params:
        if param.role == "tensor":
            places.append(None)
        elif param.default is not MISSING:
            if param.name == "dim" and param.default is not None:
                keywords["dim"] = param.default
        elif param.role in ("scalar", "number"):
            places.append((0.5,))
        elif param.name == "dim":
            places.append((-1,))
        else:
            raise ArgumentError(f"bench: {op.name} needs {param.name}, for which no rule here has a value")

    def call(*tensors: Any) -> Any:
        rest = iter(tensors)
        result = function(*[next(rest) if place is None else place[0] for place in places], **keywords)
        return result[0] if isinstance(result, tuple) else result

    return call


# What is right


def _reference(op: Op, function: Callable[..., Any]) -> tuple[Callable[..., Array], str]:
    """A function of a site and of float64 arrays, and its name for a row."""
    axis = next((p for p in op.params if p.name == "dim"), None)
    if op.reference and len(op.params) == len([p for p in op.params if p.role == "tensor"]) + (axis is not None):
        try:
            right = testing.resolve_reference(op.reference)
        except ImportError:  # SciPy is no part of the package's needs
            right = None
        if right is not None:
            value = axis and (-1 if axis.default is MISSING else axis.default)
            named = partial(right, axis=value) if axis is not None else right
            return lambda site, *arrays: np.asarray(named(*arrays)), f"{op.reference} in float64"

    own = _call(op, function)

    def same(site: Site, *arrays: Array) -> Array:
        """On the device that is measured if it computes in float64, else on `cpu`."""
        device = site.device if site.ours and site.device.driver.capabilities.fp64 else "cpu"
        with wg.no_grad():
            result = own(*[wg.tensor(a, device=device) for a in arrays])
        values = np.asarray(result.cpu().numpy())
        return values.astype(np.float64) if values.dtype.kind == "f" else values

    return same, "its own float64"


# Rows


def _cases(subject: _Subject, dtype: str, shape: Shape) -> Iterator[Case]:
    op = subject.op
    name = f"{op.name} {dtype} {'x'.join(map(str, shape))}"
    sizes = _sizes(op, shape)
    right, against = _reference(op, subject.function)
    integral = dtype.startswith("int")
    numbers = [math.prod(size) for size in sizes]
    results, flops = max(1, len(op.outputs)) * max(numbers, default=0), 0
    if op.kind == "contraction":
        results, flops = _product_counts(op, sizes)
    elif op.kind == "reduction":
        results = 0
    width = _WIDTH[dtype]
    facts: dict[str, Any] = {"dtype": dtype, "against": against}
    counted = op.kind != "composite"  # what one moves depends on its parts
    yield Case(op.kind, name, partial(_forward, subject, shape, dtype, right), flops=flops,
               bytes=width * (sum(numbers) + results) * counted, tolerance=0 if integral else _TOLERANCE[dtype],
               **facts)  # fmt: skip
    wanted = [] if integral or op.grad == "none" else _differentiable(op)
    if wanted:
        # Read: the gradient and the operands. Written: theirs.
        moved = (results + sum(numbers) + sum(numbers[i] for i in wanted)) * (op.kind in ("pointwise", "rowwise"))
        yield Case(op.kind, f"{name}, gradient", partial(_backward, subject, shape, dtype, right, wanted),
                   flops=flops * len(wanted), bytes=width * moved, tolerance=_SLOPE_TOLERANCE[dtype], values=False,
                   **facts)  # fmt: skip


def _product_counts(op: Op, sizes: Sequence[Shape]) -> tuple[int, int]:
    """Results of a contraction, and its multiplications and additions."""
    terms, out = _equation(op)
    size = {letter: n for term, shape in zip(terms, sizes, strict=True) for letter, n in zip(term, shape, strict=True)}
    return math.prod(size[letter] for letter in out), 2 * math.prod(size.values())


def _differentiable(op: Op) -> list[int]:
    tensors = [p for p in op.params if p.role == "tensor"]
    rules = op.grad if isinstance(op.grad, Mapping) else None
    return [i for i, p in enumerate(tensors)
            if p.type == "value" and (rules is None or rules.get(p.name, "none") != "none")]  # fmt: skip


def _on(subject: _Subject, site: Site) -> Callable[..., Any] | None:
    """`function(library, *tensors)` on a site; None where it has no such op."""
    if site.ours:
        own = _call(subject.op, subject.function)
        return lambda _, *tensors: own(*tensors)
    if site.arrays:
        named = subject.op.reference or ""
        path = named.removeprefix("numpy.") if named.startswith("numpy.") else ""
    else:
        path = subject.path
    if not path or (site.arrays and subject.op.kind not in ("pointwise", "contraction")):
        return None

    def call(library: Any, *tensors: Any) -> Any:
        found = _by_path(library, path)
        if found is None:
            raise NotOffered(f"{site.name}: no {path}")
        return _call(subject.op, found)(*tensors)

    return call


def _operands(subject: _Subject, shape: Shape, dtype: str, site: Site, wanted: Sequence[int] = ()) -> list[Any]:
    return [site.tensor(a, grad=i in wanted, dtype=dtype if a.dtype.kind == "f" else "")
            for i, a in enumerate(_arrays(subject.op, shape, dtype))]  # fmt: skip


def _forward(subject: _Subject, shape: Shape, dtype: str, right: Callable[..., Array], site: Site) -> Work | None:
    function = _on(subject, site)
    if function is None:
        return None
    run = site.ready(function)
    operands, call = rotated(site, lambda: _operands(subject, shape, dtype, site), run)

    def pairs() -> Pairs:
        return [(site.host(run(*operands)), right(site, *map(site.host, operands)))]

    return Work(call, pairs)


def _backward(
    subject: _Subject, shape: Shape, dtype: str, right: Callable[..., Array], wanted: Sequence[int], site: Site
) -> Work | None:  # fmt: skip
    function = None if site.arrays else _on(subject, site)
    if function is None:
        return None
    operands = _operands(subject, shape, dtype, site, wanted)
    seeds: list[Any] = []

    def seeded(size: Shape) -> Array:
        seeds.append(np.random.default_rng(1).standard_normal(size, dtype=np.float32))
        return seeds[0]  # type: ignore[no-any-return]

    call = site.slopes(function, operands, wanted, seeded)

    def pairs() -> Pairs:
        rng, wide = np.random.default_rng(2), [site.host(t) for t in operands]
        seed = site.host(site.like(seeds[0], operands[wanted[0]]))  # as the dtype has it
        found = []
        for i, slope in zip(wanted, call(), strict=True):
            way, got = rng.standard_normal(wide[i].shape), site.host(slope)
            ends = [np.sum(seed * right(site, *(a + h * way if k == i else a for k, a in enumerate(wide))))
                    for h in (_STEP, -_STEP)]  # fmt: skip
            # Relative to what a random slope of this length gives: their product may be near 0 by chance.
            length = float(np.linalg.norm(got))
            found.append((np.array([np.sum(got * way), length]),
                          np.array([(ends[0] - ends[1]) / (2 * _STEP), length])))  # fmt: skip
        return found

    return Work(call, pairs)
