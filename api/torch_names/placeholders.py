"""Placeholders for classes, functions and modules of PyTorch that weftgrad has nothing for.

Libraries import names that they use only under some option, derive classes from them, and ask `isinstance`. All of that
works on a placeholder. Whatever would compute something raises `NotSupported` with the name and a remedy.
"""

from __future__ import annotations

from abc import ABCMeta
from types import ModuleType

from ..runtime.errors import NotSupported

__all__ = ["PlaceholderModule", "placeholder", "placeholder_error"]

_EXCEPTION_MODULES = ("exc", "errors", "error")


class _PlaceholderType(ABCMeta):
    """The metaclass of placeholders: a program can derive classes from them, but cannot construct objects.

    It is an `ABCMeta`, so that a class can derive from a placeholder and from `abc.ABC`.
    """

    torch_name: str
    remedy: str

    def __call__(cls, *args: object, **kwargs: object) -> object:
        raise placeholder_error(cls.torch_name, cls.remedy)

    def __getattr__(cls, name: str) -> type:
        if name.startswith("_"):
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        value = placeholder(f"{cls.torch_name}.{name}", cls.remedy)
        setattr(cls, name, value)  # so that the same name is the same class: `isinstance`, `is`
        return value

    def __getitem__(cls, parameters: object) -> type:
        return cls  # in annotations: `Future[int]`

    def __iter__(cls) -> object:
        raise placeholder_error(cls.torch_name, cls.remedy)

    def __repr__(cls) -> str:
        return f"<placeholder of {cls.torch_name}>"


def placeholder(torch_name: str, remedy: str) -> type:
    """Return a class that stands for a name of PyTorch, and raises `NotSupported` when it is called.

    Args:
        torch_name: The whole name, such as `torch.fx.GraphModule`.
        remedy: A sentence that says what to do instead.

    Returns:
        The class. Its subclasses raise as well. Names that end in `Error` or `Exception`, and names of modules such as
        `torch._dynamo.exc`, become subclasses of `Exception`, which can be constructed.

    Example:
        >>> from weftgrad.torch_names.placeholders import placeholder
        >>> isinstance(1, placeholder('torch.fx.Proxy', 'Run the module itself.'))
        False
    """
    module, _, name = torch_name.rpartition(".")
    is_exception = name.endswith(("Error", "Exception")) or module.rpartition(".")[2] in _EXCEPTION_MODULES
    namespace = {"torch_name": torch_name, "remedy": remedy, "__module__": module}
    if is_exception:
        return type(name, (Exception,), namespace)
    return _PlaceholderType(name, (), namespace)


def placeholder_error(torch_name: str, remedy: str) -> NotSupported:
    """Return the exception for a use of something that weftgrad does not have.

    Args:
        torch_name: The whole name in PyTorch.
        remedy: A sentence that says what to do instead.

    Returns:
        The exception, to be raised.

    Example:
        >>> from weftgrad.torch_names.placeholders import placeholder_error
        >>> str(placeholder_error('torch.hub.load', 'Load the weights from a file.'))
        'torch.hub.load: weftgrad has nothing for this name of PyTorch. Load the weights from a file.'
    """
    return NotSupported(f"{torch_name}: weftgrad has nothing for this name of PyTorch. {remedy}")


class PlaceholderModule(ModuleType):
    """A module whose every public name is a placeholder.

    Args:
        name: The module's name, such as `torch.fx`.
        remedy: A sentence that says what to do instead of using the module.
    """

    def __init__(self, name: str, remedy: str):
        super().__init__(name, f"Names of {name}, which raise when they are used. {remedy}")
        self.__path__: list[str] = []
        self._remedy = remedy

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = placeholder(f"{self.__name__}.{name}", self._remedy)
        setattr(self, name, value)  # so that the same name is the same class: `isinstance`, `is`
        return value
