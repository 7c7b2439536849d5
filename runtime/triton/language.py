"""triton.language as interpreted kernels see it: the same names, bound to `Builder` in place of a compiler's builder.

Triton's own interpreter replaces attributes of triton.language while a kernel runs. Here nothing of Triton is replaced:
a kernel is compiled from its source into globals in which modules of triton.language are stand-ins (`Namespace`), JIT
functions are `Interpreted`, and operations return `Value`s, tensors whose methods and operators work on arrays. So
other threads may compile kernels meanwhile, and it does not matter whether TRITON_INTERPRET was set. One attribute is
wrapped for good, when this module is imported: `dtype.to_ir`, which does what it did for every builder but ours.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import triton.language as tl
from triton.language import core
from triton.language.semantic import TritonSemantic
from triton.runtime.interpreter import InterpretedFunction, TensorHandle
from triton.runtime.jit import JITFunction

from ..errors import LaunchError
from . import libdevice
from .builder import Builder, dtype_of
from .source import parsing

__all__ = ["BUILDER", "Descriptor", "Interpreted", "Value", "interpreted", "scalar", "value"]

Array = np.ndarray[Any, Any]

BUILDER = Builder()
_SEMANTIC = TritonSemantic(BUILDER)


def _patch_to_ir() -> None:
    plain = core.dtype.to_ir

    @functools.wraps(plain)
    def to_ir(self: Any, builder: Any) -> Any:
        return builder.element_type(self) if isinstance(builder, Builder) else plain(self, builder)

    core.dtype.to_ir = to_ir


_patch_to_ir()


# Values


class Value(tl.tensor):
    """A tensor that holds an array. Its operators and methods are those of `tl.tensor`, bound below."""

    @property
    def array(self) -> Array:
        return self.handle.data

    def __bool__(self) -> bool:
        if self.type.is_block():
            raise TypeError("a block has no truth value in Triton")
        return bool(self.array.item())

    def __index__(self) -> int:
        return int(self.array.item())

    def __repr__(self) -> str:
        return f"{self.dtype}{self.array!r}"

    __str__ = __repr__

    @property
    def T(self) -> Value:
        return _builtin(core.permute)(self, (*range(len(self.shape) - 2), len(self.shape) - 1, len(self.shape) - 2))


class Descriptor(tl.tensor_descriptor):
    """A tensor descriptor; its methods are bound below."""


def value(array: Array, dtype: Any) -> Value:
    """A block of `array`'s shape; a scalar, if that has no dimension."""
    kind = tl.block_type(dtype, list(array.shape)) if array.shape else dtype
    return Value(TensorHandle(array if array.shape else array.reshape(1), dtype), kind)


def scalar(number: Any, dtype: Any) -> Value:
    """A scalar of type `dtype`. Raises `OverflowError` for an integer that does not fit it."""
    if dtype == tl.bfloat16:
        return Value(BUILDER.get_bf16(number), dtype)
    kind = dtype_of(dtype)
    if kind.kind in "iu" and not np.iinfo(kind).min <= number <= np.iinfo(kind).max:
        raise OverflowError(f"{number} does not fit {dtype}")
    return Value(TensorHandle(np.array([number]).astype(kind), dtype), dtype)


def _adopt(made: Any) -> Any:
    """`made` by an operation of Triton's, as what kernels here are given."""
    kind = type(made)
    if kind is tl.tensor:
        made.__class__ = Value
    elif kind is tl.tensor_descriptor:
        made.__class__ = Descriptor
    elif kind in (tuple, list, tl.tuple):
        for each in made:
            _adopt(each)
    return made


def _number(item: Any) -> Any:
    return item.value if isinstance(item, tl.constexpr) else item


# What takes the place of what


@functools.cache
def _builtin(function: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        named["_semantic"] = _SEMANTIC
        return _adopt(function(*arguments, **named))

    return call


def _method(run: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *arguments, **named: run(self, *arguments, **named)


def _bind(made: type, plain: type) -> None:
    """Give `made` the operators and methods of `plain`. JIT functions do not bind, so they are found by name."""
    for name, member in inspect.getmembers(plain):
        function = getattr(tl, name, None)
        if isinstance(function, (JITFunction, InterpretedFunction)) or id(function) in _REPLACED:
            setattr(made, name, _method(_translate(function)))
        elif core.is_builtin(member):
            setattr(made, name, _builtin(member))


class Namespace:
    """The stand-in for a module of triton.language; names are translated when first used."""

    def __init__(self, module: ModuleType):
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = _translate(getattr(self._module, name))
        setattr(self, name, found)
        return found


class _Libdevice:
    """NVIDIA's math library by the NumPy bodies of `libdevice.py`."""

    def __getattr__(self, name: str) -> Any:
        body = libdevice.FUNCTIONS.get(name)
        if body is None:
            raise LaunchError(f"libdevice.{name} has no NumPy body: add one to runtime/triton/libdevice.py")

        def call(*operands: Any, **named: Any) -> Value:
            first, *others = (_SEMANTIC.to_tensor(o) for o in operands)
            for k, other in enumerate(others):
                first, others[k] = _SEMANTIC.binary_op_type_checking_impl(first, other)
            others = [_SEMANTIC.binary_op_type_checking_impl(first, other)[1] for other in others]
            if first.dtype in (tl.float16, tl.bfloat16):
                raise TypeError(f"libdevice.{name} takes float32 and float64, not {first.dtype}")
            found = np.asarray(body(first.handle.data, *(o.handle.data for o in others)))
            dtype = first.dtype if found.dtype.kind == "f" else _INTEGERS[found.dtype.name]
            array = found.astype(dtype_of(dtype), copy=False)
            return value(array if first.type.is_block() else array.reshape(()), dtype)

        setattr(self, name, call)
        return call


_INTEGERS = {"bool": tl.int1, "int32": tl.int32, "uint32": tl.uint32, "int64": tl.int64, "uint64": tl.uint64}


class Interpreted:
    """A JIT function that runs on arrays, as a kernel or called by another."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self._body: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        named.pop("_semantic", None)
        named.pop("_generator", None)
        if self._body is None:
            with parsing:
                self._body = _compile(self.function)
        return self._body(*arguments, **named)


@functools.cache
def _interpreted(function: Callable[..., Any]) -> Interpreted:
    return Interpreted(function)


def interpreted(function: Any) -> Interpreted:
    """`function` (with `@triton.jit` or plain) to be run on arrays; one object a function."""
    return _interpreted(function.fn if isinstance(function, (JITFunction, InterpretedFunction)) else function)


@functools.cache
def _namespace(module: ModuleType) -> Any:
    return _Libdevice() if module.__name__.endswith(".libdevice") else Namespace(module)


def _translate(item: Any) -> Any:
    """What `item`, a global or an attribute of triton.language, is to an interpreted kernel."""
    if isinstance(item, ModuleType):
        return _namespace(item) if item.__name__.startswith("triton.language") else item
    if isinstance(item, (JITFunction, InterpretedFunction)):
        return interpreted(item)
    if callable(item):
        replaced = _REPLACED.get(id(item))
        if replaced is not None:
            return replaced
        if core.is_builtin(item):
            return _builtin(item)
    return item


def _range(start: Any, end: Any = None, step: Any = None, **hints: Any) -> Iterator[Value]:
    """A loop's counter, of the type that the compiler gives it."""
    start, end, step = (_number(i) for i in (start, end, step))
    bounds = (0, start) if end is None else (start, end)
    tensors = [_SEMANTIC.to_tensor(i) for i in (*bounds, 1 if step is None else step)]
    dtype = functools.reduce(_SEMANTIC.integer_promote_impl, [t.dtype for t in tensors])
    for number in range(*(int(t.handle.data.item()) for t in tensors)):
        yield scalar(number, dtype)


def _static_range(*bounds: Any, **named: Any) -> range:
    steps = [named[k] for k in ("step",) if k in named]
    return range(*(int(_number(b)) for b in bounds), *(int(_number(s)) for s in steps))


def _static_assert(condition: Any, message: str = "", **_: Any) -> None:
    assert condition, message


def _multiple_of(input: Any, values: Any, **_: Any) -> Any:
    """The hint, held to: the first element must be such a multiple."""
    if isinstance(input, tl.tensor):
        first = int(input.handle.data.reshape(-1)[0])
        for number in values if isinstance(values, (list, tuple)) else [values]:
            if first % _number(number):
                raise LaunchError(f"{BUILDER.kernel}: {first} was said to be a multiple of {_number(number)}")
    return input


def _reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, **_: Any) -> Any:
    """`combine_fn` over neighbours, in as many rounds as halve the axis: the order of elements is kept."""
    many = isinstance(input, (tuple, list, tl.tuple))
    given = tuple(input) if many else (input,)
    axis, keep = _number(axis), _number(keep_dims)
    shape = given[0].handle.data.shape if given[0].type.is_block() else (1,)
    dtypes = [g.dtype for g in given]
    arrays = [g.handle.data.reshape(shape if axis is not None else -1) for g in given]
    arrays = [np.moveaxis(a, axis if axis is not None else 0, -1) for a in arrays]
    while arrays[0].shape[-1] > 1:
        arrays, dtypes = _combine(combine_fn, [a[..., 0::2] for a in arrays], [a[..., 1::2] for a in arrays], dtypes)
    arrays = [a[..., 0] for a in arrays]
    if keep:
        kept = tuple(1 if axis is None or k == axis % len(shape) else n for k, n in enumerate(shape))
        arrays = [a.reshape(kept) for a in arrays]
    found = tuple(value(np.asarray(a), d) for a, d in zip(arrays, dtypes, strict=True))
    return found if many else found[0]


def _reduce_with_indices(input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, **_: Any) -> Any:
    array, axis = input.handle.data, _number(axis)
    places = np.arange(array.size, dtype=np.int32).reshape(array.shape)
    if axis is not None:
        shape = [n if k == axis % array.ndim else 1 for k, n in enumerate(array.shape)]
        places = np.broadcast_to(np.arange(array.shape[axis], dtype=np.int32).reshape(shape), array.shape)
    return _reduce((input, value(places, tl.int32)), axis, combine_fn, keep_dims)


def _combine(function: Any, left: list[Array], right: list[Array], dtypes: list[Any]) -> tuple[list[Array], list[Any]]:
    operands = [value(np.ascontiguousarray(a), d) for side in (left, right) for a, d in zip(side, dtypes, strict=True)]
    made = function(*operands)
    made = made if isinstance(made, (tuple, list, tl.tuple)) else (made,)
    made = [m if m.type.is_block() else _SEMANTIC.splat(m, list(left[0].shape)) for m in map(_SEMANTIC.to_tensor, made)]
    return [m.handle.data for m in made], [m.dtype for m in made]


def _scan(input: Any, axis: Any, combine_fn: Any, reverse: Any = False, **_: Any) -> Any:
    """Every prefix combined, by recursion over pairs of neighbours."""
    many = isinstance(input, (tuple, list, tl.tuple))
    given = tuple(input) if many else (input,)
    axis, backwards = _number(axis), _number(reverse)
    dtypes = [g.dtype for g in given]

    def prefixes(arrays: list[Array]) -> list[Array]:
        if arrays[0].shape[-1] == 1:
            return arrays
        even, odd = [a[..., 0::2] for a in arrays], [a[..., 1::2] for a in arrays]
        pairs, _ = _combine(combine_fn, even, odd, dtypes)
        through = prefixes(pairs)
        before, _ = _combine(combine_fn, [np.roll(t, 1, -1) for t in through], even, dtypes)
        out = [np.empty_like(a, order="C") for a in arrays]
        for k, a in enumerate(out):
            a[..., 0::2], a[..., 1::2] = before[k], through[k]
            a[..., 0] = arrays[k][..., 0]
        return out

    arrays = [np.moveaxis(np.flip(g.handle.data, axis) if backwards else g.handle.data, axis, -1) for g in given]
    out = [np.moveaxis(a, -1, axis) for a in prefixes(arrays)]
    out = [np.ascontiguousarray(np.flip(a, axis) if backwards else a) for a in out]
    found = tuple(value(a, d) for a, d in zip(out, dtypes, strict=True))
    return found if many else found[0]


def _same(input: Any, *_: Any, **__: Any) -> Any:
    return input


_REPLACED: dict[int, Any] = {
    id(plain): ours
    for plain, ours in (
        (range, _range),
        (tl.range, _range),
        (tl.static_range, _static_range),
        (tl.static_assert, _static_assert),
        (tl.static_print, print),
        (tl.multiple_of, _multiple_of),
        (tl.max_contiguous, _same),
        (tl.max_constancy, _same),
        (tl.reduce, _reduce),
        (core._reduce_with_indices, _reduce_with_indices),
        (tl.associative_scan, _scan),
    )
}
_bind(Value, tl.tensor)
_bind(Descriptor, tl.tensor_descriptor)


# From a kernel's source to a function on arrays


def _carried(item: Any) -> Any:
    """A variable that a loop changes: a number becomes a tensor, as it does for the compiler."""
    return _adopt(_SEMANTIC.to_tensor(item)) if isinstance(item, (bool, int, float)) else item


def _logical(disjunction: bool, *parts: Callable[[], Any]) -> Any:
    """`and` and `or`: constants decide early, tensors are combined element by element."""
    found: Any = None
    for part in parts:
        item = part()
        if not isinstance(item, tl.tensor):
            if bool(item) is disjunction:
                return item
            found = item if found is None else found
        elif isinstance(found, tl.tensor):
            found = found.logical_or(item) if disjunction else found.logical_and(item)
        else:
            found = item
    return found


def _not(item: Any) -> Any:
    return item.__not__() if isinstance(item, tl.tensor) else not item


class _Rewriter(ast.NodeTransformer):
    """`and`, `or` and `not` as Triton has them. Numbers stay numbers, which promote as constants do, until a loop that
    is not unrolled assigns them."""

    def _loop(self, node: Any) -> Any:
        self.generic_visit(node)
        names = {
            n.id for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        lines = []
        for name in sorted(names):
            text = f"try: {name} = __wg_carried({name})\nexcept NameError: pass"
            lines += ast.parse(text).body
        return [*[ast.copy_location(line, node) for line in lines], node]

    visit_While = _loop

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        parts = ", ".join(f"lambda: {ast.unparse(self.visit(v))}" for v in node.values)
        text = f"__wg_logical({isinstance(node.op, ast.Or)}, {parts})"
        return ast.copy_location(ast.parse(text, mode="eval").body, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        return ast.copy_location(ast.Call(ast.Name("__wg_not", ast.Load()), [node.operand], []), node)

    def visit_For(self, node: ast.For) -> Any:
        if "static_range" in ast.unparse(node.iter):
            self.generic_visit(node)
            return node
        return self._loop(node)


_GLOBALS: dict[int, dict[str, Any]] = {}


def _space(function: Any) -> dict[str, Any]:
    """The translated globals of a function's module, one dict a module."""
    plain = function.__globals__
    own = {"range": _range, "__wg_carried": _carried, "__wg_logical": _logical, "__wg_not": _not, "__wg_module": plain}
    space = _GLOBALS.setdefault(id(plain), own)
    for name, item in {**plain, **inspect.getclosurevars(function).nonlocals}.items():
        if name not in space:
            space[name] = _translate(item)
    return space


def _compile(function: Any) -> Callable[..., Any]:
    lines, first = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    definition.returns = None
    for argument in ast.walk(definition.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    tree = ast.fix_missing_locations(_Rewriter().visit(tree))
    ast.increment_lineno(tree, first - 1)
    made: dict[str, Any] = {}
    exec(compile(tree, function.__code__.co_filename, "exec"), _space(function), made)
    return made[function.__name__]
