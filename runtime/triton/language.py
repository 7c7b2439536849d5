"""triton.language for interpreted kernels: the same operations, computed on NumPy arrays by `Builder`.

Triton's own interpreter replaces attributes of triton.language while a kernel runs. This module replaces none. It
recompiles a kernel from its Python source with translated globals: a module of triton.language becomes a `Namespace`, a
JIT function becomes an `Interpreted`, and operations return `Value`s, which are tensors that hold an array. So other
threads may compile kernels at the same time, and TRITON_INTERPRET has no effect. The only change to Triton is a wrapper
around `dtype.to_ir`, installed when this module is imported; it changes the result for our builder only.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
import triton.language as tl
from triton.language import core
from triton.language.semantic import TritonSemantic
from triton.runtime.interpreter import InterpretedFunction, TensorHandle
from triton.runtime.jit import JITFunction

from ..dtypes import Array
from ..errors import LaunchError
from . import libdevice
from .builder import Builder, dtype_of
from .source import parsing

if TYPE_CHECKING:
    from .triton_types import TritonTensor, TritonType

__all__ = ["BUILDER", "Descriptor", "Interpreted", "Value", "interpreted", "scalar", "value"]


T = TypeVar("T")
Integer: TypeAlias = "int | tl.constexpr"
Flag: TypeAlias = "bool | tl.constexpr"
Tensors: TypeAlias = "TritonTensor | tuple[TritonTensor, ...]"

BUILDER = Builder()
_SEMANTIC = TritonSemantic(BUILDER)
_TUPLES = (tuple, list, tl.tuple)


def _patch_to_ir() -> None:
    original = core.dtype.to_ir

    @functools.wraps(original)
    def to_ir(self: TritonType, builder: object) -> object:
        return builder.element_type(self) if isinstance(builder, Builder) else original(self, builder)

    core.dtype.to_ir = to_ir


_patch_to_ir()


# Values


class Value(tl.tensor):
    """A tensor that holds an array. `_bind` adds the operators and methods of `tl.tensor`."""

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
        rank = len(self.shape)
        transposed = _builtin(core.permute)(self, (*range(rank - 2), rank - 1, rank - 2))
        assert isinstance(transposed, Value)
        return transposed


class Descriptor(tl.tensor_descriptor):
    """A tensor descriptor; `_bind` adds its methods."""


def value(array: Array, dtype: TritonType) -> Value:
    """Wrap an array in a block tensor of type `dtype`; in a scalar tensor if the array has no dimensions."""
    value_type = tl.block_type(dtype, list(array.shape)) if array.shape else dtype
    return Value(TensorHandle(array if array.shape else array.reshape(1), dtype), value_type)


def scalar(number: float, dtype: TritonType) -> Value:
    """Return a scalar tensor of type `dtype`. Raise `OverflowError` for an integer that does not fit."""
    if dtype == tl.bfloat16:
        return Value(BUILDER.get_bf16(number), dtype)
    numpy_dtype = dtype_of(dtype)
    if numpy_dtype.kind in "iu":
        limits = np.iinfo(numpy_dtype.name)
        if not limits.min <= number <= limits.max:
            raise OverflowError(f"{number} does not fit {dtype}")
    return Value(TensorHandle(np.array([number]).astype(numpy_dtype), dtype), dtype)


def _to_value_class(result: object) -> object:
    """Change the class of a Triton operation's results (also in tuples) to `Value` or `Descriptor`."""
    if isinstance(result, tl.tensor):
        result.__class__ = Value
    elif isinstance(result, tl.tensor_descriptor):
        result.__class__ = Descriptor
    elif isinstance(result, _TUPLES):
        for item in result:
            _to_value_class(item)
    return result


def _as_tuple(item: T | tuple[T, ...]) -> tuple[T, ...]:
    """Return the items of a tuple of tensors; a single tensor as a tuple of one."""
    return tuple(item) if isinstance(item, _TUPLES) else (item,)


def _constant_value(item: T | tl.constexpr) -> T:
    return item.value if isinstance(item, tl.constexpr) else item


# Translation of triton.language's functions and modules


@functools.cache
def _builtin(function: Callable[..., object]) -> Callable[..., object]:
    """Wrap an operation of triton.language so that it runs with our builder and returns `Value`s."""

    @functools.wraps(function)
    def call(*arguments: object, **kwargs: object) -> object:
        kwargs["_semantic"] = _SEMANTIC
        return _to_value_class(function(*arguments, **kwargs))

    return call


def _method(run: object) -> Callable[..., object]:
    assert callable(run)
    return lambda self, *arguments, **kwargs: run(self, *arguments, **kwargs)


def _bind(value_class: type, triton_class: type) -> None:
    """Add the operators and methods of a Triton class to our subclass.

    Methods that are JIT functions do not bind to `self`; the function of the same name in triton.language is used.
    """
    for name, member in inspect.getmembers(triton_class):
        function = getattr(tl, name, None)
        if isinstance(function, (JITFunction, InterpretedFunction)) or id(function) in _REPLACED:
            setattr(value_class, name, _method(_translate(function)))
        elif core.is_builtin(member):
            setattr(value_class, name, _builtin(member))


class Namespace:
    """Stands in for a module of triton.language. An attribute is translated when it is first read."""

    def __init__(self, module: ModuleType):
        self._module = module

    def __getattr__(self, name: str) -> object:
        translated = _translate(getattr(self._module, name))
        setattr(self, name, translated)
        return translated


class _Libdevice:
    """NVIDIA's math library, implemented by the NumPy functions of `libdevice.py`."""

    def __getattr__(self, name: str) -> Callable[..., Value]:
        body = libdevice.FUNCTIONS.get(name)
        if body is None:
            raise LaunchError(f"libdevice.{name} has no NumPy body: add one to runtime/triton/libdevice.py")

        def call(*operands: object, **kwargs: object) -> Value:
            first, *others = (_SEMANTIC.to_tensor(o) for o in operands)
            # Promote `first` with all others; then every other operand with the result, to one shape and dtype.
            for k, other in enumerate(others):
                first, others[k] = _SEMANTIC.binary_op_type_checking_impl(first, other)
            others = [_SEMANTIC.binary_op_type_checking_impl(first, other)[1] for other in others]
            if first.dtype in (tl.float16, tl.bfloat16):
                raise TypeError(f"libdevice.{name} takes float32 and float64, not {first.dtype}")
            result = np.asarray(body(first.handle.data, *(o.handle.data for o in others)))
            dtype = first.dtype if result.dtype.kind == "f" else _INTEGERS[result.dtype.name]
            array = result.astype(dtype_of(dtype), copy=False)
            return value(array if first.type.is_block() else array.reshape(()), dtype)

        setattr(self, name, call)
        return call


_INTEGERS = {"bool": tl.int1, "int32": tl.int32, "uint32": tl.uint32, "int64": tl.int64, "uint64": tl.uint64}


class Interpreted:
    """A JIT function that runs on arrays, as a kernel or called by another kernel."""

    def __init__(self, function: FunctionType):
        self.function = function
        self._body: Callable[..., object] | None = None

    def __call__(self, *arguments: object, **kwargs: object) -> object:
        kwargs.pop("_semantic", None)
        kwargs.pop("_generator", None)
        if self._body is None:
            with parsing:
                self._body = _compile(self.function)
        return self._body(*arguments, **kwargs)


@functools.cache
def _interpreted(function: FunctionType) -> Interpreted:
    return Interpreted(function)


def interpreted(function: object) -> Interpreted:
    """Return the `Interpreted` of a function (with `@triton.jit` or without); the same object at every call."""
    body = function.fn if isinstance(function, (JITFunction, InterpretedFunction)) else function
    assert isinstance(body, FunctionType)
    return _interpreted(body)


@functools.cache
def _namespace(module: ModuleType) -> object:
    return _Libdevice() if module.__name__.endswith(".libdevice") else Namespace(module)


def _translate(item: object) -> object:
    """Return what an interpreted kernel sees in place of a global, or of an attribute of triton.language."""
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


def _range(
    start: Integer | Value, end: Integer | Value | None = None, step: Integer | Value | None = None, **hints: object
) -> Iterator[Value]:
    """Yield the values of a loop counter as scalars of the integer type that the compiler would infer."""
    start, end, step = (_constant_value(i) for i in (start, end, step))
    bounds = (0, start) if end is None else (start, end)
    tensors = [_SEMANTIC.to_tensor(i) for i in (*bounds, 1 if step is None else step)]
    dtype = functools.reduce(_SEMANTIC.integer_promote_impl, [t.dtype for t in tensors])
    for number in range(*(int(t.handle.data.item()) for t in tensors)):
        yield scalar(number, dtype)


def _static_range(start: Integer, end: Integer | None = None, step: Integer = 1) -> range:
    bounds = (0, start) if end is None else (start, end)
    return range(*(int(_constant_value(number)) for number in (*bounds, step)))


def _static_assert(condition: object, message: str = "", **_: object) -> None:
    assert condition, message


def _multiple_of(input: object, values: Integer | Sequence[Integer], **_: object) -> object:
    """Return `input`. Raise `LaunchError` if its first element is not a multiple of `values`."""
    if isinstance(input, tl.tensor):
        first = int(input.handle.data.reshape(-1)[0])
        for number in values if isinstance(values, (list, tuple)) else [values]:
            if first % _constant_value(number):
                raise LaunchError(f"{BUILDER.kernel}: {first} was said to be a multiple of {_constant_value(number)}")
    return input


def _reduce(
    input: Tensors,
    axis: Integer | None,
    combine_fn: Callable[..., object],
    keep_dims: Flag = False,
    **_: object,
) -> object:
    """Reduce by combining neighbours until the axis has one element; `combine_fn` need not be commutative."""
    operands = _as_tuple(input)
    axis, keeps_dims = _constant_value(axis), _constant_value(keep_dims)
    shape: tuple[int, ...] = operands[0].handle.data.shape if operands[0].type.is_block() else (1,)
    dtypes = [o.dtype for o in operands]
    arrays = [o.handle.data.reshape(shape if axis is not None else -1) for o in operands]
    arrays = [np.moveaxis(a, axis if axis is not None else 0, -1) for a in arrays]
    while arrays[0].shape[-1] > 1:
        arrays, dtypes = _combine(combine_fn, [a[..., 0::2] for a in arrays], [a[..., 1::2] for a in arrays], dtypes)
    arrays = [a[..., 0] for a in arrays]
    if keeps_dims:
        keepdim_shape = tuple(1 if axis is None or k == axis % len(shape) else n for k, n in enumerate(shape))
        arrays = [a.reshape(keepdim_shape) for a in arrays]
    results = tuple(value(np.asarray(a), d) for a, d in zip(arrays, dtypes, strict=True))
    return results if isinstance(input, _TUPLES) else results[0]


def _reduce_with_indices(
    input: TritonTensor,
    axis: Integer | None,
    combine_fn: Callable[..., object],
    keep_dims: Flag = False,
    **_: object,
) -> object:
    array, axis = input.handle.data, _constant_value(axis)
    indices = np.arange(array.size, dtype=np.int32).reshape(array.shape)
    if axis is not None:
        shape = [n if k == axis % array.ndim else 1 for k, n in enumerate(array.shape)]
        indices = np.broadcast_to(np.arange(array.shape[axis], dtype=np.int32).reshape(shape), array.shape)
    return _reduce((input, value(indices, tl.int32)), axis, combine_fn, keep_dims)


def _combine(
    function: Callable[..., object], left: list[Array], right: list[Array], dtypes: list[TritonType]
) -> tuple[list[Array], list[TritonType]]:
    """Apply a kernel's `combine_fn` elementwise to arrays, and return the arrays and dtypes of its results."""
    operands = [value(np.ascontiguousarray(a), d) for side in (left, right) for a, d in zip(side, dtypes, strict=True)]
    results = [
        r if r.type.is_block() else _SEMANTIC.splat(r, list(left[0].shape))
        for r in map(_SEMANTIC.to_tensor, _as_tuple(function(*operands)))
    ]
    return [r.handle.data for r in results], [r.dtype for r in results]


def _scan(
    input: Tensors,
    axis: Integer,
    combine_fn: Callable[..., object],
    reverse: Flag = False,
    **_: object,
) -> object:
    """Compute an inclusive scan: combine pairs of neighbours, scan these recursively, then fill the even positions."""
    operands = _as_tuple(input)
    axis, is_reversed = _constant_value(axis), _constant_value(reverse)
    dtypes = [o.dtype for o in operands]

    def prefixes(arrays: list[Array]) -> list[Array]:
        if arrays[0].shape[-1] == 1:
            return arrays
        even, odd = [a[..., 0::2] for a in arrays], [a[..., 1::2] for a in arrays]
        pairs, _ = _combine(combine_fn, even, odd, dtypes)
        pair_prefixes = prefixes(pairs)
        # The prefix at an even position combines the prefix of the pair before it with the element there.
        even_prefixes, _ = _combine(combine_fn, [np.roll(p, 1, -1) for p in pair_prefixes], even, dtypes)
        out = [np.empty_like(a, order="C") for a in arrays]
        for k, a in enumerate(out):
            a[..., 0::2], a[..., 1::2] = even_prefixes[k], pair_prefixes[k]
            a[..., 0] = arrays[k][..., 0]  # no pair is before it: `roll` moved the last one there
        return out

    arrays = [np.moveaxis(np.flip(o.handle.data, axis) if is_reversed else o.handle.data, axis, -1) for o in operands]
    out = [np.moveaxis(a, -1, axis) for a in prefixes(arrays)]
    out = [np.ascontiguousarray(np.flip(a, axis) if is_reversed else a) for a in out]
    results = tuple(value(a, d) for a, d in zip(out, dtypes, strict=True))
    return results if isinstance(input, _TUPLES) else results[0]


def _identity(input: object, *_: object, **__: object) -> object:
    return input


_REPLACED: dict[int, Callable[..., object]] = {
    id(original): replacement
    for original, replacement in (
        (range, _range),
        (tl.range, _range),
        (tl.static_range, _static_range),
        (tl.static_assert, _static_assert),
        (tl.static_print, print),
        (tl.multiple_of, _multiple_of),
        (tl.max_contiguous, _identity),
        (tl.max_constancy, _identity),
        (tl.reduce, _reduce),
        (core._reduce_with_indices, _reduce_with_indices),
        (tl.associative_scan, _scan),
    )
}
_bind(Value, tl.tensor)
_bind(Descriptor, tl.tensor_descriptor)


# From a kernel's source to a function on arrays


def _loop_variable(item: object) -> object:
    """Return the value with which a loop starts for a variable that its body assigns: numbers become tensors."""
    return _to_value_class(_SEMANTIC.to_tensor(item)) if isinstance(item, (bool, int, float)) else item


def _logical(disjunction: bool, *parts: Callable[[], object]) -> object:
    """Evaluate `or` (if `disjunction`) or `and`: constants short-circuit, tensors are combined elementwise."""
    combined: object = None
    for part in parts:
        item = part()
        if not isinstance(item, tl.tensor):
            if bool(item) is disjunction:
                return item
            combined = item if combined is None else combined
        elif isinstance(combined, tl.tensor):
            combined = combined.logical_or(item) if disjunction else combined.logical_and(item)
        else:
            combined = item
    return combined


def _not(item: object) -> object:
    return item.__not__() if isinstance(item, tl.tensor) else not item


class _Rewriter(ast.NodeTransformer):
    """Give `and`, `or`, `not` and loop variables the semantics that Triton's compiler gives them.

    A Python number promotes like a constant. Before a loop that is not unrolled, the numbers that its body assigns are
    converted to tensors, because the compiler carries them through the loop as tensors.
    """

    def _loop(self, node: ast.While | ast.For) -> list[ast.AST]:
        self.generic_visit(node)
        names = {
            n.id for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        conversions = []
        for name in sorted(names):
            text = f"try: {name} = __wg_carried({name})\nexcept NameError: pass"
            conversions += ast.parse(text).body
        return [*[ast.copy_location(statement, node) for statement in conversions], node]

    visit_While = _loop

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        parts = ", ".join(f"lambda: {ast.unparse(self.visit(v))}" for v in node.values)
        text = f"__wg_logical({isinstance(node.op, ast.Or)}, {parts})"
        return ast.copy_location(ast.parse(text, mode="eval").body, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        return ast.copy_location(ast.Call(ast.Name("__wg_not", ast.Load()), [node.operand], []), node)

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.AST]:
        if "static_range" in ast.unparse(node.iter):
            self.generic_visit(node)
            return node
        return self._loop(node)


_GLOBALS: dict[int, dict[str, object]] = {}


def _translated_globals(function: FunctionType) -> dict[str, object]:
    """Return the translated globals of a function's module, with the function's closure; one dict per module."""
    module_globals = function.__globals__
    helpers: dict[str, object] = {
        "range": _range,
        "__wg_carried": _loop_variable,
        "__wg_logical": _logical,
        "__wg_not": _not,
        "__wg_module": module_globals,  # keeps the dict alive, so that its id stays unique
    }
    namespace = _GLOBALS.setdefault(id(module_globals), helpers)
    for name, item in {**module_globals, **inspect.getclosurevars(function).nonlocals}.items():
        if name not in namespace:
            namespace[name] = _translate(item)
    return namespace


def _compile(function: FunctionType) -> Callable[..., object]:
    """Compile a function's source, rewritten by `_Rewriter`, with translated globals."""
    lines, first_line = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    definition.returns = None
    for argument in ast.walk(definition.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    tree = ast.fix_missing_locations(_Rewriter().visit(tree))
    ast.increment_lineno(tree, first_line - 1)
    namespace: dict[str, Callable[..., object]] = {}
    exec(compile(tree, function.__code__.co_filename, "exec"), _translated_globals(function), namespace)
    return namespace[function.__name__]
