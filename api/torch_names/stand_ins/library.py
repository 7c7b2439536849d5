"""`torch.library`: ops that Python code defines. They are Python functions here, which `torch.ops` finds by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import update_wrapper
from typing import Any, TypeVar

from ...autograd import Function
from ...runtime.errors import GradientError
from ...runtime.tensor import Tensor
from ..placeholders import placeholder, placeholder_error
from .ops import define_op

__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "impl", "register_autocast", "register_autograd", "register_fake",
    "register_kernel", "triton_op", "wrap_triton",
]  # fmt: skip

_Function = TypeVar("_Function", bound=Callable[..., object])
_REMEDY = "Call the function itself; give it a gradient with torch.autograd.Function."
define, impl = placeholder("torch.library.define", _REMEDY), placeholder("torch.library.impl", _REMEDY)
wrap_triton = placeholder("torch.library.wrap_triton", "Write the op as a spec, and load it with weftgrad.ops.load.")
triton_op = placeholder("torch.library.triton_op", "Write the op as a spec, and load it with weftgrad.ops.load.")
_ops: dict[str, CustomOpDef] = {}


class CustomOpDef:
    """An op that `custom_op` defines: a function, with a gradient if `register_autograd` gave it one.

    Args:
        name: Name of the op, such as `mylib::square`.
        function: The function.
    """

    def __init__(self, name: str, function: Callable[..., Any]):
        self._name = name
        self._function = function
        self._kernels: dict[str, Callable[..., Any]] = {}
        self._backward: Callable[..., Any] | None = None
        self._setup_context: Callable[..., Any] | None = None
        self._signature = inspect.signature(function)
        update_wrapper(self, function)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = bound.args + tuple(bound.kwargs.values())  # keyword-only parameters come last
        tensors = [value for value in values if isinstance(value, Tensor)]
        function = self._kernels.get(tensors[0].device.type, self._function) if tensors else self._function
        names = tuple(bound.kwargs)

        def run(*values: object) -> Any:
            count = len(values) - len(names)
            return function(*values[:count], **dict(zip(names, values[count:], strict=True)))

        if not any(tensor.requires_grad for tensor in tensors):
            return run(*values)
        return self._differentiable(run, values)

    def _differentiable(self, run: Callable[..., Any], values: Sequence[object]) -> Any:
        """Call `run` as a function whose gradient is the registered one."""
        op = self

        class Op(Function):
            @staticmethod
            def forward(ctx: Any, *values: object) -> Any:
                output = run(*values)
                if op._setup_context is not None:
                    op._setup_context(ctx, inputs=values, output=output)
                return output

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                if op._backward is None:
                    raise GradientError(f"{op._name}: the op has no gradient; give it one with register_autograd")
                return op._backward(ctx, *grads)

        return Op.apply(*values)

    def register_fake(self, fn: _Function, /) -> _Function:
        """Return `fn`, which computes shapes for a tracer, unchanged."""
        return fn

    register_vmap = register_fake

    def register_kernel(
        self, device_types: str | Sequence[str] | None, fn: _Function | None = None, /
    ) -> _Function | Callable[[_Function], _Function]:
        """Set the function for tensors on some types of devices; without one, return a decorator."""

        def register(fn: _Function) -> _Function:
            for device_type in [device_types] if isinstance(device_types, str) else device_types or ():
                self._kernels[device_type] = fn
            if device_types is None:
                self._function = fn
            return fn

        return register if fn is None else register(fn)

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Set the gradient: `backward(ctx, *grads)`, and `setup_context(ctx, inputs, output)`, which saves values."""
        self._backward, self._setup_context = backward, setup_context


def custom_op(
    name: str, fn: Callable[..., Any] | None = None, /, *, mutates_args: str | Iterable[str],
    device_types: str | Sequence[str] | None = None, schema: str | None = None, tags: object = None,
) -> CustomOpDef | Callable[[Callable[..., Any]], CustomOpDef]:  # fmt: skip
    """Define an op, which `torch.ops` has under its name.

    Args:
        name: The name: `mylib::square`.
        fn: The function; None: return a decorator.
        mutates_args: Ignored: writing in place is seen as it happens.
        device_types: Ignored.
        schema: Ignored.
        tags: Ignored.

    Returns:
        `CustomOpDef`, or a decorator.
    """

    def define_function(function: Callable[..., Any]) -> CustomOpDef:
        op = CustomOpDef(name, function)
        _ops[name] = op
        namespace, _, op_name = name.partition("::")
        define_op(namespace, op_name, op)
        return op

    return define_function if fn is None else define_function(fn)


class Library:
    """A library of ops. `impl` sets the function of an op; definitions alone serve a tracer, and do nothing.

    Args:
        ns: Name of the library.
        kind: `DEF`, `IMPL` or `FRAGMENT`.
        dispatch_key: Ignored.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = ""):
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema: str, alias_analysis: str = "", *, tags: Iterable[object] = ()) -> str:
        """Return the op's name. The op itself is undefined in `torch.ops` until `impl` sets its function."""
        return schema.partition("(")[0]

    def impl(self, op_name: object, fn: Callable[..., object], dispatch_key: str = "", **options: object) -> None:
        """Let `torch.ops` call `fn` for this op, unless it is for a tracer (dispatch key `Meta`) or for autocast.

        Functions for autocast convert operands and call the op again; ops here take operands as they are.

        Raises:
            NotSupported: The library is PyTorch's own, `aten`: its functions cannot be replaced.
        """
        if self.ns == "aten":
            where = f"torch.library.Library.impl({op_name!r})"
            raise placeholder_error(where, "Functions of torch cannot be replaced.")
        key = dispatch_key or self.dispatch_key
        if isinstance(op_name, str) and key != "Meta" and not key.startswith("Autocast"):
            define_op(self.ns, op_name.rpartition("::")[2].partition(".")[0], fn)


def register_fake(
    op: object, func: _Function | None = None, /, **options: object
) -> _Function | Callable[[_Function], _Function]:
    """Return the function, which computes shapes for a tracer, unchanged.

    Args:
        op: The op or its name.
        func: The function; None: return a decorator.
        **options: Ignored.

    Returns:
        The function, or a decorator.
    """
    return (lambda function: function) if func is None else func


def register_autograd(
    op: str | CustomOpDef, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None,
    lib: object = None,
) -> None:  # fmt: skip
    """Set the gradient of an op of `custom_op`. An op of a compiled library cannot be called, and needs none.

    Args:
        op: The op or its name.
        backward: Function `(ctx, *grads)`.
        setup_context: Function `(ctx, inputs, output)`.
        lib: Ignored.
    """
    target = _ops.get(op) if isinstance(op, str) else op
    if target is not None:
        target.register_autograd(backward, setup_context=setup_context)


def register_kernel(
    op: str | CustomOpDef, device_types: str | Sequence[str] | None, func: _Function | None = None, /,
    **options: object,
) -> _Function | Callable[[_Function], _Function]:  # fmt: skip
    """Set the function of an op of `custom_op` for some types of devices.

    Args:
        op: The op or its name.
        device_types: Types of devices; None: all.
        func: The function; None: return a decorator.
        **options: Ignored.

    Returns:
        The function, or a decorator.
    """
    target = _ops.get(op) if isinstance(op, str) else op
    if target is not None:
        return target.register_kernel(device_types, func)
    return (lambda function: function) if func is None else func


def register_autocast(op: object, device_type: str, cast_inputs: object, /, **options: object) -> None:
    """Raise for an op that can be called: its operands are not converted.

    Args:
        op: The op or its name.
        device_type: Type of devices.
        cast_inputs: The dtype.
        **options: Ignored.

    Raises:
        NotSupported: The op was defined by `custom_op`.
    """
    if isinstance(op, CustomOpDef) or op in _ops:
        raise placeholder_error("torch.library.register_autocast", "Convert the operands in the function.")
