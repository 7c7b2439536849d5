"""Custom differentiable functions: `Function`, its context `FunctionCtx`, and `once_differentiable`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, ParamSpec, TypeAlias

from ..runtime.autograd.node import Node, Recipe
from ..runtime.autograd.rules import cast_to, sum_to
from ..runtime.autograd.view_rules import zeros
from ..runtime.context import state
from ..runtime.device import Meta
from ..runtime.dispatch import is_recorded, refresh_views
from ..runtime.errors import FreedGraphError, GradientError, VersionError
from ..runtime.records import OpRecord
from ..runtime.tensor import Tensor
from .grad_mode import no_grad

__all__ = ["Function", "FunctionCtx", "once_differentiable"]

_P = ParamSpec("_P")
_Gradients: TypeAlias = Tensor | tuple[Tensor | None, ...] | None
"""What `backward` returns: the gradient of the only argument, or one for each."""

_DefinedBySubclass: TypeAlias = Any
"""The type of an argument or a result of `forward` or `backward`: every subclass has parameters of its own."""


class FunctionCtx:
    """The context of one call of a custom function: what `forward` stores for `backward`.

    Attributes:
        needs_input_grad: Per argument of `forward`, whether it requires grad.
        materialize: Whether `backward` gets zeros in place of missing gradients.
        dirty: The tensors passed to `mark_dirty`.
        non_differentiable: The `id`s of the tensors passed to `mark_non_differentiable`.
        freed: True after a backward has dropped the saved tensors.

    Example:
        >>> class Square(wg.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x * x
        ...     @staticmethod
        ...     def backward(ctx, grad):
        ...         (x,) = ctx.saved_tensors
        ...         return 2 * x * grad
        ...
        >>> x = wg.tensor(3.0, requires_grad=True)
        >>> Square.apply(x).backward()
        >>> x.grad
        tensor(6.)
    """

    materialize = True

    def __init__(self) -> None:
        self._saved: tuple[Tensor | None, ...] = ()
        self._versions: tuple[int, ...] = ()
        self.needs_input_grad: tuple[bool, ...] = ()
        self.dirty: tuple[Tensor, ...] = ()
        self.non_differentiable: set[int] = set()
        self.freed = False

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Save tensors for `backward`, together with their versions, so that in-place changes are detected.

        Args:
            *tensors: Inputs, outputs or intermediate tensors; None is allowed.
        """
        self._saved = tensors
        self._versions = tuple(0 if t is None else t.storage.version for t in tensors)

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors passed to `save_for_backward`.

        Raises:
            VersionError: If one was modified in place since.
            FreedGraphError: If the graph was freed.
        """
        if self.freed:
            raise FreedGraphError("the saved tensors of this function were freed; pass retain_graph=True to backward")
        for tensor, version in zip(self._saved, self._versions, strict=True):
            if tensor is not None and tensor.storage.version != version:
                raise VersionError(
                    f"a tensor of shape {list(tensor.meta.shape)} saved for backward was modified in place: it has "
                    f"version {tensor.storage.version}, and was saved at version {version}"
                )
        return self._saved

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Declare which inputs `forward` modified in place.

        Args:
            *tensors: Inputs of `forward`.
        """
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Declare which outputs have no gradient.

        Args:
            *tensors: Outputs of `forward`.
        """
        self.non_differentiable.update(id(t) for t in tensors)

    def set_materialize_grads(self, value: bool) -> None:
        """Choose whether `backward` gets zeros (True, the default) or None for outputs without a gradient.

        Args:
            value: True for zeros, False for None.
        """
        self.materialize = value


_MAX_RECIPES = 256  # per class; a class that reaches it starts anew with an empty cache
_OperandMetas: TypeAlias = tuple[Meta | None, ...]
_ResultMetas: TypeAlias = tuple[Meta, ...]


class Function:
    """Base class of differentiable functions with a backward of their own.

    Define static methods `forward(ctx, ...)` and `backward(ctx, *grads)`, and call `apply`. Alternatively, define
    `forward(...)` without a context and `setup_context(ctx, inputs, output)`, which saves what `backward` needs.

    Example:
        >>> class Double(wg.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x * 2
        ...     @staticmethod
        ...     def backward(ctx, grad):
        ...         return grad * 2
        ...
        >>> x = wg.tensor([1.0, 3.0], requires_grad=True)
        >>> Double.apply(x).sum().backward()
        >>> x.grad
        tensor([2., 2.])
    """

    _recipes: ClassVar[dict[tuple[_OperandMetas, _ResultMetas], Recipe]]
    holds_no_result: ClassVar[bool] = False  # see `_FunctionBackward`
    runs_backward: ClassVar[bool] = False  # see `_FunctionBackward`

    @staticmethod
    def forward(ctx: _DefinedBySubclass, *args: _DefinedBySubclass, **kwargs: _DefinedBySubclass) -> _DefinedBySubclass:
        """Compute the output. Subclasses override this static method.

        Args:
            ctx: The `FunctionCtx` of the call. It is missing if the subclass defines `setup_context`.
            *args: Arguments of `apply`.
            **kwargs: `apply` passes none.

        Returns:
            A tensor, or a tuple of tensors.

        Raises:
            NotImplementedError: If a subclass does not define the method.
        """
        raise NotImplementedError("a Function defines forward(ctx, ...)")

    @staticmethod
    def setup_context(ctx: _DefinedBySubclass, inputs: _DefinedBySubclass, output: _DefinedBySubclass) -> None:
        """Save in `ctx` what `backward` needs. If a subclass defines this method, its `forward` takes no `ctx`.

        Args:
            ctx: The `FunctionCtx` of the call.
            inputs: Arguments of `apply`.
            output: Result of `forward`.

        Raises:
            NotImplementedError: If a subclass calls it without having defined it.

        Example:
            >>> class Square(wg.autograd.Function):
            ...     @staticmethod
            ...     def forward(x):
            ...         return x * x
            ...     @staticmethod
            ...     def setup_context(ctx, inputs, output):
            ...         ctx.save_for_backward(*inputs)
            ...     @staticmethod
            ...     def backward(ctx, grad):
            ...         (x,) = ctx.saved_tensors
            ...         return 2 * x * grad
            ...
            >>> x = wg.tensor(3.0, requires_grad=True)
            >>> wg.autograd.grad(Square.apply(x), x)
            (tensor(6.),)
        """
        raise NotImplementedError("a Function that defines setup_context does so with (ctx, inputs, output)")

    @staticmethod
    def backward(
        ctx: _DefinedBySubclass, *grads: _DefinedBySubclass, **kwargs: _DefinedBySubclass
    ) -> _DefinedBySubclass:
        """Compute the gradients of the arguments. Subclasses override this static method.

        Args:
            ctx: The `FunctionCtx` of the call.
            *grads: Gradient of each output. A missing gradient is zeros, or None after `set_materialize_grads(False)`.

        Returns:
            One gradient for each argument of `forward`, None for arguments without a gradient; a tuple if there are
            several.

        Raises:
            NotImplementedError: If a subclass does not define the method.

        Example:
            >>> class Negate(wg.autograd.Function):
            ...     @staticmethod
            ...     def forward(ctx, x):
            ...         return -x
            ...     @staticmethod
            ...     def backward(ctx, grad):
            ...         return -grad
            ...
            >>> x = wg.tensor(3.0, requires_grad=True)
            >>> wg.autograd.grad(Negate.apply(x), x)
            (tensor(-1.),)
        """
        raise NotImplementedError("a Function defines backward(ctx, *grads)")

    @classmethod
    def apply(cls, *args: object) -> _DefinedBySubclass:
        """Call `forward`, and record `backward` if an argument requires grad.

        Args:
            *args: Arguments of `forward`. Tensors inside lists or dicts are not differentiated.

        Returns:
            Result of `forward`: a tensor, or a tuple of tensors.

        Raises:
            GradientError: From backward, if `backward` does not return one gradient for each argument, or a gradient's
                shape does not fit.

        Example:
            >>> class Negate(wg.autograd.Function):
            ...     @staticmethod
            ...     def forward(ctx, x):
            ...         return -x
            ...     @staticmethod
            ...     def backward(ctx, grad):
            ...         return -grad
            ...
            >>> Negate.apply(wg.tensor(3.0))
            tensor(-3.)
        """
        ctx = FunctionCtx()
        refresh_views(*args)
        is_grad_enabled = state().grad
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.needs_grad for a in args)
        with no_grad():
            if cls.setup_context is Function.setup_context:
                result = cls.forward(ctx, *args)
            else:
                result = cls.forward(*args)
                cls.setup_context(ctx, args, result)
        if not is_grad_enabled or not any(ctx.needs_input_grad):
            return result
        results = result if isinstance(result, tuple) else (result,)
        # An argument that `forward` returns unchanged keeps its own history: the output is a view of it.
        dirty_ids = {id(tensor) for tensor in ctx.dirty}
        outputs = [o.view_as(o) if any(o is a for a in args) and id(o) not in dirty_ids else o for o in results]
        _record_backward(cls, ctx, args, outputs)
        return tuple(outputs) if isinstance(result, tuple) else outputs[0]


class _FunctionBackward:
    """The backward function of one call. It refers to no tensors but those in `ctx`; `release` drops the saved ones.

    Args:
        cls: The class.
        ctx: The context of the call.
        arg_count: Number of arguments of `forward`.
        input_layouts: Position and layout of each argument that requires a gradient.
        output_layouts: Layouts of the results.
    """

    def __init__(
        self,
        cls: type[Function],
        ctx: FunctionCtx,
        arg_count: int,
        input_layouts: list[tuple[int, Meta]],
        output_layouts: _ResultMetas,
    ):
        self.cls = cls
        self.ctx = ctx
        self.arg_count = arg_count
        self.input_layouts = input_layouts
        self.output_layouts = output_layouts

    @property
    def holds_no_result(self) -> bool:
        """Whether nothing holds the gradients that `backward` returns, so that leaves need no copies."""
        return self.cls.holds_no_result

    @property
    def runs_backward(self) -> bool:
        """Whether `backward` runs backward itself, which may reach leaves that this graph does not contain."""
        return self.cls.runs_backward

    def __call__(self, node: Node, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Return the gradient of each argument in `input_layouts`, None for no gradient.

        Args:
            node: Not used; the engine passes it to every backward function.
            grads: The gradients of the results, None where none has arrived.

        Raises:
            GradientError: `backward` does not return one gradient for each argument, or a gradient is no tensor or does
                not fit its argument.
        """
        ctx = self.ctx
        output_grads = [
            zeros(layout) if grad is None and ctx.materialize else grad
            for grad, layout in zip(grads, self.output_layouts, strict=True)
        ]
        input_grads = self.cls.backward(ctx, *output_grads)
        input_grads = input_grads if isinstance(input_grads, tuple) else (input_grads,)
        if len(input_grads) < self.arg_count or any(g is not None for g in input_grads[self.arg_count :]):
            raise GradientError(
                f"{self.cls.__name__}.backward returned {len(input_grads)} gradients for {self.arg_count} arguments of "
                "forward; return one for each argument, None for those without a gradient"
            )
        return [
            None if input_grads[i] is None else self._match_input_layout(i, input_grads[i], layout)
            for i, layout in self.input_layouts
        ]

    def _match_input_layout(self, position: int, grad: object, layout: Meta) -> Tensor:
        """Return a gradient in the shape and dtype of its argument. Sum it over dimensions of which the argument has 1.

        Raises:
            GradientError: The gradient is no tensor, or its shape does not sum to that of the argument.
        """
        if not isinstance(grad, Tensor):
            raise GradientError(
                f"{self.cls.__name__}.backward: gradients are tensors or None, not {type(grad).__name__} at {position}"
            )
        shape = grad.meta.shape
        if shape != layout.shape:
            padded_shape = (1,) * (len(shape) - len(layout.shape)) + layout.shape
            if len(padded_shape) > len(shape) or any(n not in (1, m) for n, m in zip(padded_shape, shape, strict=True)):
                raise GradientError(
                    f"{self.cls.__name__}.backward: the gradient at {position} has shape {list(shape)}, which does not "
                    f"sum to {list(layout.shape)}, the shape of its argument"
                )
        return cast_to(sum_to(grad, layout.shape), layout)

    def release(self) -> None:
        """Drop the saved tensors. A call that saved none can run backward again."""
        ctx = self.ctx
        if ctx._saved:
            ctx.freed = True
            ctx._saved = ctx._versions = ()


def _cached_recipe(cls: type[Function], metas: _OperandMetas, out_metas: _ResultMetas) -> Recipe:
    """Return the recipe by which calls of `cls` with these layouts are recorded.

    It has no rules, because a `_FunctionBackward` computes the gradients. Recipes are cached on the class, because
    building one takes longer than a kernel launch.
    """
    recipes: dict[tuple[_OperandMetas, _ResultMetas], Recipe] | None = cls.__dict__.get("_recipes")
    if recipes is None or len(recipes) >= _MAX_RECIPES:
        recipes = {}
        cls._recipes = recipes
    recipe = recipes.get((metas, out_metas))
    if recipe is None:
        record = OpRecord(cls.__name__, "custom", (), gradients={})
        is_differentiable = [True] * len(out_metas)
        recipe = recipes[metas, out_metas] = Recipe(record, metas, out_metas, (), is_differentiable)
    return recipe


def _record_backward(cls: type[Function], ctx: FunctionCtx, args: tuple[object, ...], outs: list[Tensor]) -> None:
    """Make `outs` the results of a new node, whose edges lead to the arguments that require grad."""
    inputs = [(i, a) for i, a in enumerate(args) if isinstance(a, Tensor) and a.needs_grad]
    metas = tuple([a.meta if isinstance(a, Tensor) else None for a in args])
    out_metas = tuple([o.meta for o in outs])
    node = Node(_cached_recipe(cls, metas, out_metas), (), (), ())  # without edges, as the recipe has no rules
    node.edges = tuple([(a.node, a.output) if a.node is not None else (a, 0) for _, a in inputs])
    node.function = _FunctionBackward(cls, ctx, len(args), [(i, a.meta) for i, a in inputs], out_metas)
    for i, out in enumerate(outs):
        if id(out) not in ctx.non_differentiable and out.meta.dtype.kind == "f":
            out.node, out.output, out.needs_grad = node, i, True


def once_differentiable(backward: Callable[_P, _Gradients]) -> Callable[_P, _Gradients]:
    """Decorate a `backward` that cannot be differentiated, so that a second derivative raises `GradientError`.

    Without the decorator, autograd would differentiate the ops inside `backward`. That is wrong if it treats a value as
    constant that depends on the inputs.

    Args:
        backward: Static method `backward(ctx, *grads)`.

    Returns:
        The decorated function.

    Example:
        >>> from weftgrad.autograd.function import once_differentiable
        >>> class Double(wg.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x * 2
        ...     @staticmethod
        ...     @once_differentiable
        ...     def backward(ctx, grad):
        ...         return grad * 2
        ...
        >>> x = wg.tensor(1.0, requires_grad=True)
        >>> wg.autograd.grad(Double.apply(x), x)
        (tensor(2.),)
    """

    @functools.wraps(backward)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _Gradients:
        with no_grad():
            grad_inputs = backward(*args, **kwargs)
        grads = args[1:]  # the first argument is the context
        if not is_recorded(*grads):
            return grad_inputs
        if isinstance(grad_inputs, tuple):
            return tuple(
                _NonDifferentiable.apply(grad_input, *grads) if isinstance(grad_input, Tensor) else grad_input
                for grad_input in grad_inputs
            )
        if grad_inputs is None:
            return None
        result: Tensor = _NonDifferentiable.apply(grad_inputs, *grads)
        return result

    return wrapper


class _NonDifferentiable(Function):
    """Identity of `value` whose backward raises an error.

    It takes `grads`, too, so that its output requires grad if one of them does.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, value: Tensor, *grads: Tensor | None) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor | None) -> _Gradients:
        raise GradientError("backward of a function that is once_differentiable cannot be differentiated again")
