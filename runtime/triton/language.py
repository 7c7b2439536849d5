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
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

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

__all__ = ["BUILDER", "Descriptor", "Interpreted", "Value", "interpreted", "scalar", "value"]


BUILDER = Builder()
_SEMANTIC = TritonSemantic(BUILDER)


def _patch_to_ir() -> None:
    original = core.dtype.to_ir

    @functools.wraps(original)
    def to_ir(self: Any, builder: Any) -> Any:
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
        return _builtin(core.permute)(self, (*range(len(self.shape) - 2), len(self.shape) - 1, len(self.shape) - 2))


class Descriptor(tl.tensor_descriptor):
    """A tensor descriptor; `_bind` adds its methods."""


def value(array: Array, dtype: Any) -> Value:
    """Wrap an array in a block tensor of type `dtype`; in a scalar tensor if the array has no dimensions."""
    value_type = tl.block_type(dtype, list(array.shape)) if array.shape else dtype
    return Value(TensorHandle(array if array.shape else array.reshape(1), dtype), value_type)


def scalar(number: Any, dtype: Any) -> Value:
    """Return a scalar tensor of type `dtype`. Raise `OverflowError` for an integer that does not fit."""
    if dtype == tl.bfloat16:
        return Value(BUILDER.get_bf16(number), dtype)
    numpy_dtype = dtype_of(dtype)
    if numpy_dtype.kind in "iu" and not np.iinfo(numpy_dtype).min <= number <= np.iinfo(numpy_dtype).max:
        raise OverflowError(f"{number} does not fit {dtype}")
    return Value(TensorHandle(np.array([number]).astype(numpy_dtype), dtype), dtype)


def _to_value_class(result: Any) -> Any:
    """Change the class of a Triton operation's results (also in tuples) to `Value` or `Descriptor`."""
    result_class = type(result)
    if result_class is tl.tensor:
        result.__class__ = Value
    elif result_class is tl.tensor_descriptor:
        result.__class__ = Descriptor
    elif result_class in (tuple, list, tl.tuple):
        for item in result:
            _to_value_class(item)
    return result


def _constant_value(item: Any) -> Any:
    return item.value if isinstance(item, tl.constexpr) else item


# Translation of triton.language's functions and modules


@functools.cache
def _builtin(function: Any) -> Callable[..., Any]:
    """Wrap an operation of triton.language so that it runs with our builder and returns `Value`s."""

    @functools.wraps(function)
    def call(*arguments: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = _SEMANTIC
        return _to_value_class(function(*arguments, **kwargs))

    return call


def _method(run: Callable[..., Any]) -> Callable[..., Any]:
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

    def __getattr__(self, name: str) -> Any:
        translated = _translate(getattr(self._module, name))
        setattr(self, name, translated)
        return translated


class _Libdevice:
    """NVIDIA's math library, implemented by the NumPy functions of `libdevice.py`."""

    def __getattr__(self, name: str) -> Any:
        body = libdevice.FUNCTIONS.get(name)
        if body is None:
            raise LaunchError(f"libdevice.{name} has no NumPy body: add one to runtime/triton/libdevice.py")

        def call(*operands: Any, **kwargs: Any) -> Value:
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

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self._body: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any, **kwargs: Any) -> Any:
        kwargs.pop("_semantic", None)
        kwargs.pop("_generator", None)
        if self._body is None:
            with parsing:
                self._body = _compile(self.function)
        return self._body(*arguments, **kwargs)


@functools.cache
def _interpreted(function: Callable[..., Any]) -> Interpreted:
    return Interpreted(function)


def interpreted(function: Any) -> Interpreted:
    """Return the `Interpreted` of a function (with `@triton.jit` or without); the same object at every call."""
    return _interpreted(function.fn if isinstance(function, (JITFunction, InterpretedFunction)) else function)


@functools.cache
def _namespace(module: ModuleType) -> Any:
    return _Libdevice() if module.__name__.endswith(".libdevice") else Namespace(module)


def _translate(item: Any) -> Any:
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


def _range(start: Any, end: Any = None, step: Any = None, **hints: Any) -> Iterator[Value]:
    """Yield the values of a loop counter as scalars of the integer type that the compiler would infer."""
    start, end, step = (_constant_value(i) for i in (start, end, step))
    bounds = (0, start) if end is None else (start, end)
    tensors = [_SEMANTIC.to_tensor(i) for i in (*bounds, 1 if step is None else step)]
    dtype = functools.reduce(_SEMANTIC.integer_promote_impl, [t.dtype for t in tensors])
    for number in range(*(int(t.handle.data.item()) for t in tensors)):
        yield scalar(number, dtype)


def _static_range(start: Any, end: Any = None, step: Any = 1) -> range:
    bounds = (0, start) if end is None else (start, end)
    return range(*(int(_constant_value(number)) for number in (*bounds, step)))


def _static_assert(condition: Any, message: str = "", **_: Any) -> None:
    assert condition, message


def _multiple_of(input: Any, values: Any, **_: Any) -> Any:
    """Return `input`. Raise `LaunchError` if its first element is not a multiple of `values`."""
    if isinstance(input, tl.tensor):
        first = int(input.handle.data.reshape(-1)[0])
        for number in values if isinstance(values, (list, tuple)) else [values]:
            if first % _constant_value(number):
                raise LaunchError(f"{BUILDER.kernel}: {first} was said to be a multiple of {_constant_value(number)}")
    return input


def _reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, **_: Any) -> Any:
    """Reduce by combining neighbours until the axis has one element; `combine_fn` need not be commutative."""
    is_tuple = isinstance(input, (tuple, list, tl.tuple))
    operands = tuple(input) if is_tuple else (input,)
    axis, keeps_dims = _constant_value(axis), _constant_value(keep_dims)
    shape = operands[0].handle.data.shape if operands[0].type.is_block() else (1,)
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
    return results if is_tuple else results[0]


def _reduce_with_indices(input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, **_: Any) -> Any:
    array, axis = input.handle.data, _constant_value(axis)
    indices = np.arange(array.size, dtype=np.int32).reshape(array.shape)
    if axis is not None:
        shape = [n if k == axis % array.ndim else 1 for k, n in enumerate(array.shape)]
        indices = np.broadcast_to(np.arange(array.shape[axis], dtype=np.int32).reshape(shape), array.shape)
    return _reduce((input, value(indices, tl.int32)), axis, combine_fn, keep_dims)


def _combine(function: Any, left: list[Array], right: list[Array], dtypes: list[Any]) -> tuple[list[Array], list[Any]]:
    """Apply a kernel's `combine_fn` elementwise to arrays, and return the arrays and dtypes of its results."""
    operands = [value(np.ascontiguousarray(a), d) for side in (left, right) for a, d in zip(side, dtypes, strict=True)]
    results = function(*operands)
    results = results if isinstance(results, (tuple, list, tl.tuple)) else (results,)
    results = [
        r if r.type.is_block() else _SEMANTIC.splat(r, list(left[0].shape)) for r in map(_SEMANTIC.to_tensor, results)
    ]
    return [r.handle.data for r in results], [r.dtype for r in results]


def _scan(input: Any, axis: Any, combine_fn: Any, reverse: Any = False, **_: Any) -> Any:
    """Compute an inclusive scan: combine pairs of neighbours, scan these recursively, then fill the even positions."""
    is_tuple = isinstance(input, (tuple, list, tl.tuple))
    operands = tuple(input) if is_tuple else (input,)
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
    return results if is_tuple else results[0]


def _identity(input: Any, *_: Any, **__: Any) -> Any:
    return input


_REPLACED: dict[int, Any] = {
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


def _loop_variable(item: Any) -> Any:
    """Return the value with which a loop starts for a variable that its body assigns: numbers become tensors."""
    return _to_value_class(_SEMANTIC.to_tensor(item)) if isinstance(item, (bool, int, float)) else item


def _logical(disjunction: bool, *parts: Callable[[], Any]) -> Any:
    """Evaluate `or` (if `disjunction`) or `and`: constants short-circuit, tensors are combined elementwise."""
    combined: Any = None
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


def _not(item: Any) -> Any:
    return item.__not__() if isinstance(item, tl.tensor) else not item


class _Rewriter(ast.NodeTransformer):
    """Give `and`, `or`, `not` and loop variables the semantics that Triton's compiler gives them.

    A Python number promotes like a constant. Before a loop that is not unrolled, the numbers that its body assigns are
    converted to tensors, because the compiler carries them through the loop as tensors.
    """

    def _loop(self, node: Any) -> Any:
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


def _translated_globals(function: Any) -> dict[str, Any]:
    """Return the translated globals of a function's module, with the function's closure; one dict per module."""
    module_globals = function.__globals__
    helpers = {
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


def _compile(function: Any) -> Callable[..., Any]:
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
    namespace: dict[str, Any] = {}
    exec(compile(tree, function.__code__.co_filename, "exec"), _translated_globals(function), namespace)
    return namespace[function.__name__]
