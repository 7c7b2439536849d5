"""Tensor's methods and properties for autograd: gradients, history and hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .. import autograd
from ..runtime.autograd.inplace import Retained
from ..runtime.autograd.node import Node
from ..runtime.dispatch import refresh_views
from ..runtime.errors import ArgumentError, DeviceError, DTypeError, GradientError, ShapeError
from ..runtime.tensor import Tensor
from .hooks import Handle, next_key

__all__ = ["AutogradMethods"]

if TYPE_CHECKING:
    from ..runtime.tensor import Tensor as TensorBase
else:
    TensorBase = object


class AutogradMethods(TensorBase):
    """Methods that `methods.install` copies to `Tensor`, so `self` is a Tensor."""

    @property
    def requires_grad(self) -> bool:
        """Whether autograd records operations on this tensor."""
        refresh_views(self)
        return bool(self.needs_grad)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set whether autograd records operations on this tensor.

        Args:
            requires_grad: Whether to record operations on this tensor.

        Returns:
            This tensor.

        Raises:
            GradientError: `requires_grad` is False for a tensor that is not a leaf, or True for one that is not
                floating.

        Example:
            >>> wg.ones(2).requires_grad_()
            tensor([1., 1.], requires_grad=True)
        """
        if self.node is not None and not requires_grad:
            raise GradientError(
                "requires_grad_: only leaves can be changed; use .detach() for a tensor without history"
            )
        if requires_grad and self.meta.dtype.kind != "f":
            raise GradientError(f"requires_grad_: only floating tensors have gradients, not {self.meta.dtype.name}")
        self.needs_grad = bool(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded call computed this tensor."""
        refresh_views(self)
        return self.node is None

    @property
    def grad_fn(self) -> Node | None:
        """The recorded call that computed this tensor, or None."""
        refresh_views(self)
        return self.node

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient of a leaf, or None."""
        return None if self.extra is None else self.extra.grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise ArgumentError(f"grad: must be a tensor or None, not {type(value).__name__}")
            if value.meta.shape != self.meta.shape:
                raise ShapeError(f"grad: has shape {list(value.meta.shape)}, the tensor {list(self.meta.shape)}")
            if value.meta.dtype is not self.meta.dtype:
                raise DTypeError(
                    f"grad: is {value.meta.dtype.name}, the tensor {self.meta.dtype.name}; convert it with .to(tensor)"
                )
            if value.meta.device is not self.meta.device:
                raise DeviceError(
                    f"grad: is on {value.meta.device}, the tensor on {self.meta.device}; move it with .to(tensor)"
                )
        self.ensure_extra().grad = value

    @grad.deleter
    def grad(self) -> None:
        if self.extra is not None:
            self.extra.grad = None

    @property
    def _version(self) -> int:
        """How often the memory was written in place."""
        return int(self.storage.version)

    @property
    def _base(self) -> Tensor | None:
        """The tensor this is a view of, or None."""
        return None if self.extra is None else self.extra.base

    def _is_view(self) -> bool:
        return self.extra is not None and self.extra.base is not None

    @property
    def output_nr(self) -> int:
        """Which result of `grad_fn` this tensor is."""
        return int(self.output)

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Tensor | Sequence[Tensor] | None = None,
    ) -> None:
        """Compute gradients and add them to the `grad` of every leaf that this tensor depends on.

        Args:
            gradient: Gradient of this tensor; 1 by default, for a tensor of one element.
            retain_graph: Whether to keep saved tensors for another backward; None: as `create_graph`.
            create_graph: Whether to record the computation of the gradients.
            inputs: Tensors to compute gradients for, instead of all leaves.

        Raises:
            GradientError: If this tensor does not require grad, has several elements and no `gradient`, or the graph
                was freed.

        Example:
            >>> x = wg.tensor([1.0, 2.0], requires_grad=True)
            >>> (x * x).sum().backward()
            >>> x.grad
            tensor([2., 4.])
        """
        autograd.backward(self, gradient, retain_graph, create_graph, inputs)

    def detach(self) -> Tensor:
        """Return a tensor without history that shares this memory.

        Returns:
            Tensor that does not require grad.

        Example:
            >>> wg.ones(2, requires_grad=True).detach()
            tensor([1., 1.])
        """
        out = Tensor(self.storage, self.meta, self.start)
        return out

    def detach_(self) -> Tensor:
        """Drop this tensor's history in place; a view is no longer a view of its base.

        Returns:
            This tensor.

        Example:
            >>> (wg.ones(2, requires_grad=True) * 2).detach_()
            tensor([2., 2.])
        """
        self.node = None
        self.needs_grad = False
        if self.extra is not None:
            self.extra.base = None
        return self

    @property
    def data(self) -> Tensor:
        """The same memory without history."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise ArgumentError(f"data: must be a tensor, not {type(value).__name__}; make one with tensor()")
        self.storage, self.meta, self.start = value.storage, value.meta, value.start

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> Handle:
        """Call `hook(grad)` when the gradient of this tensor is computed.

        Args:
            hook: Function; its result, if not None, replaces the gradient.

        Returns:
            Handle, whose `remove()` removes the hook.

        Raises:
            GradientError: If the tensor does not require grad. From backward, if the result of `hook` has another
                shape, dtype or device than the gradient.

        Example:
            >>> x = wg.ones(2, requires_grad=True)
            >>> handle = x.register_hook(lambda grad: grad * 10)
            >>> x.sum().backward()
            >>> x.grad
            tensor([10., 10.])
        """
        refresh_views(self)
        if not self.needs_grad:
            raise GradientError("register_hook: the tensor does not require grad")
        key = next_key()
        if self.node is None:
            extra = self.ensure_extra()
            extra.hooks = extra.hooks or {}
            extra.hooks[key] = hook
            return Handle(extra.hooks, key)
        self.node.hooks = self.node.hooks or {}
        self.node.hooks[key] = (self.output, hook)
        return Handle(self.node.hooks, key)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> Handle:
        """Call `hook(tensor)` whenever a backward has added to this leaf's `grad`, for example for an optimizer step.

        Args:
            hook: Function that returns None.

        Returns:
            Handle, whose `remove()` removes the hook.

        Raises:
            GradientError: If the tensor is not a leaf or does not require grad.

        Example:
            >>> x = wg.ones(2, requires_grad=True)
            >>> handle = x.register_post_accumulate_grad_hook(lambda tensor: print(tensor.grad))
            >>> x.sum().backward()
            tensor([1., 1.])
        """
        refresh_views(self)
        if not self.needs_grad or self.node is not None:
            raise GradientError("register_post_accumulate_grad_hook: takes leaves that require grad")
        extra = self.ensure_extra()
        extra.accumulation_hooks = extra.accumulation_hooks or {}
        key = next_key()
        extra.accumulation_hooks[key] = hook
        return Handle(extra.accumulation_hooks, key)

    def retain_grad(self) -> None:
        """Store the gradient of this non-leaf tensor in `grad`.

        Raises:
            GradientError: If the tensor does not require grad.

        Example:
            >>> y = wg.ones(2, requires_grad=True) * 2
            >>> y.retain_grad()
            >>> y.sum().backward()
            >>> y.grad
            tensor([1., 1.])
        """
        refresh_views(self)
        if not self.needs_grad:
            raise GradientError("retain_grad: the tensor does not require grad, so none will be there to keep")
        extra = self.ensure_extra()
        if self.node is None or extra.retains:
            return
        retained = Retained(extra)
        extra.retains = (self.register_hook(retained).key, retained)

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called."""
        return self.extra is not None and bool(self.extra.retains)
