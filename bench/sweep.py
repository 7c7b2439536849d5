"""The suite `specs`: ops by their specs, the package's own or a user's file, in any dtypes and shapes.

`sweep_operands` generates operands from an op's signature. The expected result comes from the spec's reference function
in float64. A spec without a reference is checked against the same op on float64 operands, which shows the rounding
error of float32 or bfloat16, but not whether the formula is the intended one. Gradients are checked as directional
derivatives, by central differences of the float64 function, independent of how the gradient was derived.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

import weftgrad as wg
from weftgrad import testing

from ..codegen.generate import own_specs
from ..codegen.loader import load_file
from ..codegen.model import MISSING, Op, SpecErrors
from ..runtime.dtypes import Array
from ..runtime.errors import ArgumentError, SpecError
from .cases import Case, Pairs, Work, rotated
from .sites import NotOffered, OurSite, Site
from .sweep_operands import (
    Shape,
    call_of_tensors,
    equation,
    fixed_arguments,
    random_arrays,
    tensor_shapes,
    valid_shapes,
)

if TYPE_CHECKING:
    from .library_types import Operation, Tensor

__all__ = ["DTYPES", "cases", "dtypes_of", "shapes_of"]

_WIDTH = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "int32": 4, "int64": 8, "int16": 2, "int8": 1,
          "uint8": 1, "bool": 1}  # fmt: skip
DTYPES = tuple(_WIDTH)  # every dtype of a tensor
# Relative to the largest value. A result rounded once has an error of 2^-9 in bfloat16 and 2^-12 in float16.
_TOLERANCE = {"float32": 1e-4, "float16": 2**-9, "bfloat16": 2**-7, "float64": 1e-9}
_GRAD_TOLERANCE = {"float32": 1e-3, "float16": 2**-7, "bfloat16": 2**-5, "float64": 1e-5}
_STEP = 1e-4  # step size of central differences
_SHAPES = ((1024,), (256, 1024), (4096, 1024))
_CONTRACTION_SHAPES = ((128,), (512,), (1024,))  # every dimension has the same size
_KINDS = ("pointwise", "rowwise", "reduction", "scan", "contraction", "composite")
# The default ops, some of each kind.
_OPS = ("add", "mul", "exp", "silu", "tanh", "softmax", "log_softmax", "sum", "mm", "bmm", "cumsum")


def dtypes_of(text: str) -> list[str]:
    """Return the dtypes of `float32,bfloat16`, or every dtype for `all`. Raise ArgumentError for an unknown one."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == ["all"]:
        return list(DTYPES)
    for name in names:
        if name not in DTYPES:
            raise ArgumentError(f"bench: --dtypes has no {name!r}: all, or one or more of {', '.join(DTYPES)}")
    if not names:
        raise ArgumentError(f"bench: --dtypes names no dtype: all, or one or more of {', '.join(DTYPES)}")
    return list(dict.fromkeys(names))


def shapes_of(text: str) -> list[Shape]:
    """Return the shapes of `1024,256x1024`. Raise ArgumentError for a malformed one."""
    try:
        shapes = [tuple(int(n) for n in part.split("x")) for part in text.split(",")]
    except ValueError:
        shapes = [()]
    if not all(shape and min(shape) > 0 for shape in shapes):
        raise ArgumentError(f"bench: --shapes takes shapes as 1024,256x1024, not {text!r}")
    return shapes


@dataclass(frozen=True)
class _Subject:
    """An op to measure. path: its name in the package, `nn.functional.silu`; empty for an op of a user's file."""

    op: Op
    function: Operation
    path: str = ""


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """Yield the forward row and, if there is one, the gradient row of every op in every dtype and shape.

    An op that cannot be measured has one case, whose `obstacle` is the reason. By default an op is measured in float32,
    or in int32 or bool if it takes no floating dtype.
    """
    shapes = shapes_of(options.shapes) if options.shapes else None
    for subject in _subjects(options.spec, options.ops):
        op = subject.op
        named_dtypes = dtypes_of(options.dtypes) if options.dtypes else DTYPES
        dtypes = [name for name in named_dtypes if _supports_dtype(op, name)]
        try:
            _check_operands(op)
            if not dtypes:
                raise ArgumentError(f"its dtypes are of the class {op.dtypes!r}; --dtypes has none of them")
            default_shapes = _CONTRACTION_SHAPES if op.kind == "contraction" else _SHAPES
            sides = valid_shapes(op, shapes) if shapes else default_shapes
        except ArgumentError as error:
            yield Case(op.kind, op.name, lambda site: None, obstacle=str(error).removeprefix("bench: "))
            continue
        for dtype in dtypes if options.dtypes else dtypes[:1]:
            for shape in sides:
                yield from _cases(subject, dtype, shape)


def _check_operands(op: Op) -> None:
    """Raise ArgumentError unless `sweep_operands` has rules for all of an op's operands."""
    if op.kind not in _KINDS:
        raise ArgumentError(
            f"it is of kind {op.kind}, whose operands no rule here makes; kinds that have one: {', '.join(_KINDS)}. "
            "The suite `ops` has rows of the others"
        )
    fixed_arguments(op)


def _subjects(spec: Path | None, names: str) -> Iterator[_Subject]:
    op_names = [name.strip() for name in (names or "").split(",") if name.strip()]
    if spec is not None:
        functions = wg.ops.load(spec)
        try:
            subjects = {op.name: _Subject(op, getattr(functions, op.name)) for op in load_file(spec)}
        except SpecErrors as error:
            raise SpecError(str(error)) from None
    else:
        op_names = op_names or list(_OPS)
        subjects = {}
        for name in op_names:
            path = name if callable(getattr(wg, name, None)) else f"nn.functional.{name}"
            op, function = _own_op(name), _by_path(wg, path)
            if op is not None and function is not None:
                subjects[name] = _Subject(op, function, path)
    for name in op_names or subjects:
        if name not in subjects:
            source = str(spec) if spec is not None else "weftgrad"
            raise ArgumentError(f"bench: --ops: {source} has no op {name!r} with a spec of that name")
        yield subjects[name]


def _own_op(name: str) -> Op | None:
    """Return a package op's spec, parsing only the file that contains it: parsing all files would take seconds."""
    for path in own_specs():
        if f'op: "{name}(' in path.read_text(encoding="utf-8"):
            return _own_file(path).get(name)
    return None


@cache
def _own_file(path: Path) -> dict[str, Op]:
    return {op.name: op for op in load_file(path, trust=True)}


def _by_path(library: ModuleType, path: str) -> Operation | None:
    """Return `library.nn.functional.silu` for `nn.functional.silu`, or None if the library has no such function."""
    folder, _, name = path.rpartition(".")
    owner: object = library
    for part in filter(None, folder.split(".")):
        owner = getattr(owner, part, None)
    return getattr(owner, name, None)


def _supports_dtype(op: Op, dtype: str) -> bool:
    floating, boolean = "float" in dtype, dtype == "bool"
    return {"float": floating, "all": True, "integer": not floating and not boolean, "integral": not floating,
            "bool": boolean}.get(op.dtypes, not boolean)  # fmt: skip


# References


def _reference(op: Op, function: Operation) -> tuple[Callable[..., Array], str]:
    """Return the reference, a function of a site and float64 arrays, and its name for the report."""
    axis = next((p for p in op.params if p.name == "dim"), None)
    if op.reference and len(op.params) == len([p for p in op.params if p.role == "tensor"]) + (axis is not None):
        try:
            spec_reference = testing.resolve_reference(op.reference)
        except ImportError:  # SciPy is optional
            spec_reference = None
        if spec_reference is not None:
            value = axis and (-1 if axis.default is MISSING else axis.default)
            with_axis = partial(spec_reference, axis=value) if axis is not None else spec_reference
            return lambda site, *arrays: np.asarray(with_axis(*arrays)), f"{op.reference} in float64"

    op_call = call_of_tensors(op, function)

    def same(site: Site, *arrays: Array) -> Array:
        """Compute on the measured device if it supports float64, else on `cpu`."""
        device = site.device if isinstance(site, OurSite) and site.device.driver.capabilities.fp64 else "cpu"
        with wg.no_grad():
            result = op_call(*[wg.tensor(a, device=device) for a in arrays])
        values = np.asarray(result.cpu().numpy())
        return values.astype(np.float64) if values.dtype.kind == "f" else values

    return same, "its own float64"


# Rows


def _cases(subject: _Subject, dtype: str, shape: Shape) -> Iterator[Case]:
    op = subject.op
    name = f"{op.name} {dtype} {'x'.join(map(str, shape))}"
    sizes = tensor_shapes(op, shape)
    reference, against = _reference(op, subject.function)
    integral = "float" not in dtype
    numbers = [math.prod(size) for size in sizes]
    results, flops = max(1, len(op.outputs)) * max(numbers, default=0), 0
    if op.kind == "contraction":
        results, flops = _product_counts(op, sizes)
    elif op.kind == "reduction":
        results = 0
    width = _WIDTH[dtype]
    has_byte_count = op.kind != "composite"  # a composite's memory traffic depends on its parts
    yield Case(op.kind, name, partial(_forward, subject, shape, dtype, reference), flops=flops,
               bytes=width * (sum(numbers) + results) * has_byte_count, tolerance=0 if integral else _TOLERANCE[dtype],
               dtype=dtype, against=against)  # fmt: skip
    grad_indices = [] if integral or op.grad == "none" else _differentiable(op)
    if grad_indices:
        # Read: the result's gradient and the operands. Written: the operands' gradients.
        elements = (results + sum(numbers) + sum(numbers[i] for i in grad_indices)) * (
            op.kind in ("pointwise", "rowwise")
        )
        yield Case(op.kind, f"{name}, gradient", partial(_backward, subject, shape, dtype, reference, grad_indices),
                   flops=flops * len(grad_indices), bytes=width * elements, tolerance=_GRAD_TOLERANCE[dtype],
                   values=False, dtype=dtype, against=against)  # fmt: skip


def _product_counts(op: Op, sizes: Sequence[Shape]) -> tuple[int, int]:
    """Return the number of a contraction's results, and of its multiplications and additions."""
    terms, out = equation(op)
    size = {letter: n for term, shape in zip(terms, sizes, strict=True) for letter, n in zip(term, shape, strict=True)}
    return math.prod(size[letter] for letter in out), 2 * math.prod(size.values())


def _differentiable(op: Op) -> list[int]:
    tensors = [p for p in op.params if p.role == "tensor"]
    rules = op.grad if isinstance(op.grad, Mapping) else None
    return [i for i, p in enumerate(tensors)
            if p.type == "value" and (rules is None or rules.get(p.name, "none") != "none")]  # fmt: skip


def _site_function(subject: _Subject, site: Site) -> Operation | None:
    """Return `function(library, *tensors)` for a site, or None if it has no such op."""
    if site.ours:
        op_call = call_of_tensors(subject.op, subject.function)
        return lambda _, *tensors: op_call(*tensors)
    if site.arrays:
        reference_name = subject.op.reference or ""
        path = reference_name.removeprefix("numpy.") if reference_name.startswith("numpy.") else ""
    else:
        path = subject.path
    if not path or (site.arrays and subject.op.kind not in ("pointwise", "contraction")):
        return None

    def call(library: ModuleType, *tensors: Tensor) -> Tensor:
        peer_function = _by_path(library, path)
        if peer_function is None:
            raise NotOffered(f"{site.name}: no {path}")
        return call_of_tensors(subject.op, peer_function)(*tensors)

    return call


def _operands(
    subject: _Subject, shape: Shape, dtype: str, site: Site, grad_indices: Sequence[int] = ()
) -> list[Tensor]:
    return [site.tensor(a, grad=i in grad_indices, dtype=dtype if a.dtype.kind == "f" else "")
            for i, a in enumerate(random_arrays(subject.op, shape, dtype))]  # fmt: skip


def _forward(subject: _Subject, shape: Shape, dtype: str, reference: Callable[..., Array], site: Site) -> Work | None:
    function = _site_function(subject, site)
    if function is None:
        return None
    run = site.ready(function)
    operands, call = rotated(site, lambda: _operands(subject, shape, dtype, site), run)

    def pairs() -> Pairs:
        return [(site.host(run(*operands)), reference(site, *map(site.host, operands)))]

    return Work(call, pairs)


def _backward(
    subject: _Subject, shape: Shape, dtype: str, reference: Callable[..., Array], grad_indices: Sequence[int],
    site: Site,
) -> Work | None:  # fmt: skip
    function = None if site.arrays else _site_function(subject, site)
    if function is None:
        return None
    operands = _operands(subject, shape, dtype, site, grad_indices)
    seeds: list[Array] = []

    def seeded(size: Shape) -> Array:
        seeds.append(np.random.default_rng(1).standard_normal(size, dtype=np.float32))
        return seeds[0]

    call = site.backward_call(function, operands, grad_indices, seeded)

    def pairs() -> Pairs:
        rng, arrays64 = np.random.default_rng(2), [site.host(t) for t in operands]
        seed = site.host(site.like(seeds[0], operands[grad_indices[0]]))  # rounded to the dtype
        derivatives = []
        for i, grad in zip(grad_indices, call(), strict=True):
            direction, grad_values = rng.standard_normal(arrays64[i].shape), site.host(grad)
            ends = [
                np.sum(seed * reference(site, *(a + h * direction if k == i else a for k, a in enumerate(arrays64))))
                for h in (_STEP, -_STEP)
            ]
            # The gradient's norm joins the pair, so that the error is relative to it: the dot product itself may be
            # near 0 by chance.
            length = float(np.linalg.norm(grad_values))
            derivatives.append((np.array([np.sum(grad_values * direction), length]),
                          np.array([(ends[0] - ends[1]) / (2 * _STEP), length])))  # fmt: skip
        return derivatives

    return Work(call, pairs)
