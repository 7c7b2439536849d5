"""`Tensor.__torch_function__`, which subclasses inherit: results of their calls get their class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ..runtime.overriding import Disabled
from ..runtime.tensor import Tensor

__all__ = ["OverrideMethods", "convert", "unconverted_functions"]

if TYPE_CHECKING:
    from ..runtime.tensor import Tensor as TensorBase
else:
    TensorBase = object


class OverrideMethods(TensorBase):
    """A method that `methods.install` copies to `Tensor`."""

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., object], types: Sequence[type], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:  # fmt: skip
        """Call a function on tensors of a subclass, and return its tensors as instances of the subclass.

        A subclass that defines this method gets each call of a public function or method with its instances among the
        arguments, and may call `super().__torch_function__(func, types, args, kwargs)`.

        Args:
            func: The function; for a property, its `__get__` or `__set__`.
            types: The classes of the arguments that define `__torch_function__`.
            args: The positional arguments.
            kwargs: The keyword arguments.

        Returns:
            The result, or NotImplemented if the subclass is no subclass of one of `types`.

        Example:
            >>> class Named(wg.Tensor):
            ...     @classmethod
            ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
            ...         print(func.__name__)
            ...         return super().__torch_function__(func, types, args, kwargs)
            >>> type(wg.cat([wg.ones(2).as_subclass(Named), wg.zeros(2)])).__name__
            cat
            'Named'
        """
        if not all(issubclass(cls, kind) for kind in types):
            return NotImplemented
        with Disabled():
            result = func(*args, **(kwargs or {}))
            return result if func in unconverted_functions() else convert(result, cls)


def convert(result: Any, cls: type[Tensor]) -> Any:
    """Return a function's result with its tensors as instances of `cls`.

    Args:
        result: A tensor, a list or tuple with tensors, or anything else, which is returned as it is.
        cls: The class.

    Returns:
        The converted result.
    """
    if isinstance(result, Tensor):
        return result if isinstance(result, cls) else result.as_subclass(cls)
    if isinstance(result, (list, tuple)) and any(isinstance(item, (Tensor, list, tuple)) for item in result):
        items = [convert(item, cls) for item in result]
        return result._make(items) if hasattr(result, "_make") else type(result)(items)
    return result


@cache
def unconverted_functions() -> frozenset[Callable[..., object]]:
    """Return the functions whose results are tensors that are stored in an argument, and keep their class."""
    return frozenset(vars(Tensor)[name].__get__ for name in ("_base", "grad"))
