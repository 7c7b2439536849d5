"""The `Tensor` class with the attributes that the runtime needs. The `api` package adds the methods that users call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from . import overriding
from .device import Device, Meta
from .dtypes import Array, DType
from .storage import Storage

if TYPE_CHECKING:  # `api` adds methods and operators at import; the generated stub declares them
    from .._generated.tensor_methods import TensorMethods
    from .autograd.node import Node
    from .call_types import GradientHook, ReadyHook
else:
    TensorMethods = object

__all__ = ["Extra", "Tensor"]

_NONE: Any = object()


class Extra:
    """Attributes that few tensors have.

    Attributes:
        grad: The gradient that backward has accumulated.
        hooks: Hooks of `register_hook` on a leaf, by key. They get the gradient before it is accumulated.
        accumulation_hooks: Hooks that are called after a gradient was accumulated in `grad`, by key.
        ready_hook: Takes the gradient of a leaf as soon as it is complete (see `autograd.ready_leaves`), or None.
        retains: Key and hook of `retain_grad`, or None.
        base: The tensor that this view belongs to, or None. Writing to the view changes the base's node, too.
        rewrites: Number of in-place writes to this tensor or its views, if it is the base of views.
        seen_rewrites: The base's `rewrites` when this view's node was created. If the base's count is higher now, the
            node is out of date (see `autograd.inplace`).
    """

    __slots__ = ("accumulation_hooks", "base", "grad", "hooks", "ready_hook", "retains", "rewrites", "seen_rewrites")

    def __init__(self, base: Tensor | None = None, seen_rewrites: int = 0) -> None:
        self.grad: Tensor | None = None
        self.hooks: dict[int, GradientHook] | None = None
        self.accumulation_hooks: dict[int, GradientHook] | None = None
        self.ready_hook: ReadyHook | None = None
        self.retains: tuple[int, GradientHook] | None = None
        self.base = base
        self.seen_rewrites = seen_rewrites
        self.rewrites = 0


class Tensor(TensorMethods):
    """A tensor: storage, layout and autograd metadata.

    Args:
        storage: Memory; or, in a user's call, the first size or the data.
        meta: Layout; or the second size.
        start: Offset of the first element in bytes; or the third size.
        needs_grad: `requires_grad`.
        node: The node of the call that computed the tensor; None for a leaf.
        output: Which result of that call it is.

    Attributes:
        meta: Shape, strides, dtype and device.
        start: Offset of the first element in `storage.buffer`, in bytes.
        needs_grad: `requires_grad`.
        node: The node of the call that computed this tensor; None for a leaf.
        output: Which result of that call it is.
        extra: Rare attributes (see `Extra`), or None.

    Example:
        >>> wg.Tensor([1, 2])
        tensor([1., 2.])
        >>> wg.Tensor(2, 3).shape
        weftgrad.Size([2, 3])
    """

    __slots__ = ("__dict__", "__weakref__", "extra", "meta", "needs_grad", "node", "output", "start", "storage")

    storage: Storage
    meta: Meta
    extra: Extra | None

    @overload
    def __init__(
        self,
        storage: Storage,
        meta: Meta,
        start: int,
        needs_grad: bool = False,
        node: Node | None = None,
        output: int = 0,
    ) -> None: ...
    @overload
    def __init__(self, *sizes: int) -> None: ...
    @overload
    def __init__(self, data: Tensor | Array | Sequence[object]) -> None: ...
    def __init__(  # type: ignore[misc]  # `read` takes what the second and third form pass
        self, storage: Storage = _NONE, meta: Meta = _NONE, start: int = _NONE, needs_grad: bool = False,
        node: Node | None = None, output: int = 0,
    ):  # fmt: skip
        if meta.__class__ is not Meta:  # a user called `Tensor(*sizes)` or `Tensor(data)`
            if self.__class__.__new__ is not object.__new__ and hasattr(self, "storage"):
                return  # `__new__` of a subclass has returned a finished tensor
            storage, meta, start = Tensor.read(storage, meta, start, needs_grad, node, output)
            needs_grad, node, output = False, None, 0
        self.storage = storage
        self.meta = meta
        self.start = start
        self.needs_grad = needs_grad
        self.node = node
        self.output = output
        self.extra: Extra | None = None

    def __init_subclass__(cls, **options: object) -> None:
        """Let a subclass construct its tensors in `__new__`, after which Python calls `__init__` with all arguments.

        Also let it take over calls, unless its `__torch_function__` is `overriding.disabled_torch_function`.
        """
        super().__init_subclass__(**options)
        if "__new__" in cls.__dict__ and "__init__" not in cls.__dict__:
            type.__setattr__(cls, "__init__", _keep_tensor)
        overriding.register(cls)

    @staticmethod
    def read(*args: object) -> tuple[Storage, Meta, int]:
        """Return storage, layout and start for a user's `Tensor(*args)`. The `api` package replaces this function."""
        raise NotImplementedError

    def ensure_extra(self) -> Extra:
        """Return this tensor's `Extra`; create it if there is none.

        Returns:
            `Extra`.

        Example:
            >>> wg.ones(2).ensure_extra().hooks is None
            True
        """
        if self.extra is None:
            self.extra = Extra()
        return self.extra

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.meta.dtype

    @property
    def device(self) -> Device:
        """The device that holds the memory."""
        return self.meta.device

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.meta.ndim


def _keep_tensor(self: Tensor, *args: object, **options: object) -> None:
    """Do nothing for a tensor that `__new__` has returned; construct any other one from the arguments."""
    if not hasattr(self, "storage"):
        construct: Callable[..., None] = Tensor.__init__  # `Tensor.read` checks the arguments
        construct(self, *args, **options)


overriding.PLAIN_TYPES.add(Tensor)
