"""The base class of layers that infer the shapes of their parameters from the first input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..arguments.descriptions import Docstring
from ..runtime.errors import DomainError
from ..runtime.tensor import Tensor
from .module import Module
from .parameter import is_lazy

if TYPE_CHECKING:
    from ._types import Argument

__all__ = ["LazyModuleMixin", "materialize"]


class LazyModuleMixin(Module):
    """Mixin for a module with `UninitializedParameter`s; write `class Lazy(LazyModuleMixin, Layer)`.

    `initialize_parameters(*args, **kwargs)` is called with the arguments of the first call, before `forward`, and gives
    the parameters their shapes. Loading a state dict does so as well. After the first call the module's class becomes
    `cls_to_become`.

    Args:
        *args: Arguments of the other base class.
        **kwargs: Arguments of the other base class.

    Raises:
        DomainError: From the first call, if `initialize_parameters` left a parameter without a shape.

    Example:
        >>> layer = wg.nn.LazyLinear(2)
        >>> output = layer(wg.ones(5, 4))
        >>> type(layer).__name__, layer.in_features
        ('Linear', 4)
    """

    cls_to_become: ClassVar[type | None] = None
    inferred_argument: ClassVar[str] = ""
    """The argument of `cls_to_become` that the lazy class infers. The docstring gets the rows of all others."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        layer = cls.cls_to_become
        if cls.inferred_argument and layer is not None and layer.__doc__ and cls.__doc__:  # python -OO has none
            docstring, layer_docstring = Docstring(cls.__doc__), Docstring(layer.__doc__)
            layer_docstring.remove_row("Args", cls.inferred_argument)
            docstring.sections.setdefault("Args", layer_docstring.sections["Args"])
            cls.__doc__ = str(docstring)

    def __init__(self, *args: Argument, **kwargs: Argument):
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def _lazy_load_hook(self, state_dict: Mapping[str, object], prefix: str, *_: object) -> None:
        for name, tensor in self._own_tensors():
            value = state_dict.get(prefix + name)
            if isinstance(value, (Tensor, np.ndarray)) and is_lazy(tensor) and not is_lazy(value):
                tensor.materialize(value.shape)

    def _own_tensors(self) -> list[tuple[str, Tensor | None]]:
        return [*self._parameters.items(), *self._buffers.items()]

    def initialize_parameters(self, *args: Argument, **kwargs: Argument) -> None:
        """Set shapes and values of the parameters from the arguments of the first call.

        Args:
            *args: Positional arguments of the first call.
            **kwargs: Keyword arguments of the first call.

        Raises:
            NotImplementedError: If a subclass does not define the method.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no initialize_parameters(...)")

    def has_uninitialized_params(self) -> bool:
        """Return whether a parameter or buffer has no shape yet.

        Returns:
            Python bool.

        Example:
            >>> wg.nn.LazyLinear(2).has_uninitialized_params()
            True
        """
        return any(is_lazy(tensor) for _, tensor in self._own_tensors())

    def _infer_parameters(
        self, module: LazyModuleMixin, args: tuple[object, ...], kwargs: dict[str, object] | None = None
    ) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise DomainError(
                f"{type(module).__name__}: initialize_parameters left a parameter without a shape; call materialize() "
                "on each"
            )
        for name in ("_initialize_hook", "_load_hook"):
            getattr(module, name).remove()
            delattr(module, name)
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def reset_parameters(self) -> None:
        """Draw new values, if the parameters have shapes."""
        if not self.has_uninitialized_params():
            super().reset_parameters()  # type: ignore[misc]


def materialize(weight: Tensor | None, bias: Tensor | None, weight_shape: tuple[int, ...], bias_size: int) -> None:
    """Give those of a layer's two parameters that are still lazy a shape. `bias` gets the shape `(bias_size,)`."""
    for tensor, shape in ((weight, weight_shape), (bias, (bias_size,))):
        if is_lazy(tensor):
            tensor.materialize(shape)
