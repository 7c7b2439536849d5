"""A tensor's state. What users call on it is installed by the api; here is only what the runtime itself needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .device import Device, Meta
from .dtypes import DType
from .storage import Storage

if TYPE_CHECKING:
    from .autograd.node import Node

__all__ = ["Extra", "Tensor"]

_NONE: Any = object()


class Extra:
    """What few tensors have: a gradient, hooks, the tensor they are a view of.

    base: the tensor whose history a write into this view rewrites. seen: the base's `rewrites` when this view's node
    was made; behind it, the node is made anew (see `autograd.inplace`). rewrites: how often this base was rewritten.
    stored: hooks that are called when a gradient was added to `grad`. retains: the key and the hook of `retain_grad`.
    """

    __slots__ = ("base", "grad", "hooks", "retains", "rewrites", "seen", "stored")

    def __init__(self, base: Tensor | None = None, seen: int = 0) -> None:
        self.grad: Tensor | None = None
        self.hooks: dict[int, Any] | None = None
        self.stored: dict[int, Any] | None = None
        self.retains: tuple[int, Any] | None = None
        self.base = base
        self.seen = seen
        self.rewrites = 0


class Tensor:
    """Storage, layout and autograd metadata.

    start: the first element's byte in `storage.buffer`. needs: whether gradients are wanted (`requires_grad`).
    node, output: what computed this tensor, and which of its
    results it is; None for a leaf. extra: see `Extra`; None for most.
    """

    __slots__ = ("__dict__", "__weakref__", "extra", "meta", "needs", "node", "output", "start", "storage")

    storage: Storage
    meta: Meta
    extra: Extra | None

    def __init__(
        self, storage: Storage = _NONE, meta: Meta = _NONE, start: int = _NONE, needs: bool = False,
        node: Node | None = None, output: int = 0,
    ):  # fmt: skip
        if meta.__class__ is not Meta:  # a user's call, of sizes or data
            storage, meta, start = Tensor.read(storage, meta, start, needs, node, output)
            needs, node, output = False, None, 0
        self.storage = storage
        self.meta = meta
        self.start = start
        self.needs = needs
        self.node = node
        self.output = output
        self.extra: Extra | None = None

    @staticmethod
    def read(*given: Any) -> tuple[Storage, Meta, int]:
        """What a user's call of the class is meant to make: the api knows, and replaces this."""
        raise NotImplementedError

    if TYPE_CHECKING:  # the api installs methods and operators at import; a type checker cannot see them

        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, item: Any) -> Any: ...
        def __setitem__(self, item: Any, value: Any) -> None: ...
        def __len__(self) -> int: ...
        def __add__(self, other: Any) -> Any: ...
        def __radd__(self, other: Any) -> Any: ...
        def __sub__(self, other: Any) -> Any: ...
        def __rsub__(self, other: Any) -> Any: ...
        def __mul__(self, other: Any) -> Any: ...
        def __rmul__(self, other: Any) -> Any: ...
        def __truediv__(self, other: Any) -> Any: ...
        def __rtruediv__(self, other: Any) -> Any: ...
        def __pow__(self, other: Any) -> Any: ...
        def __matmul__(self, other: Any) -> Any: ...
        def __neg__(self) -> Any: ...
        def __invert__(self) -> Any: ...
        def __and__(self, other: Any) -> Any: ...
        def __or__(self, other: Any) -> Any: ...
        def __lt__(self, other: Any) -> Any: ...
        def __le__(self, other: Any) -> Any: ...
        def __gt__(self, other: Any) -> Any: ...
        def __ge__(self, other: Any) -> Any: ...
        def __eq__(self, other: object) -> Any: ...
        def __ne__(self, other: object) -> Any: ...
        def __hash__(self) -> int: ...

    def more(self) -> Extra:
        """This tensor's `Extra`, made if it has none."""
        if self.extra is None:
            self.extra = Extra()
        return self.extra

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.meta.dtype

    @property
    def device(self) -> Device:
        """Where the memory is."""
        return self.meta.device

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.meta.ndim
