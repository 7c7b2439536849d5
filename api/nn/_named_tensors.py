"""The parameters and buffers of a module and its submodules, by path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Self, TypeVar

from ..runtime.tensor import Tensor
from ._errors import NoSuchMember
from ._members import Members
from .parameter import Parameter

if TYPE_CHECKING:
    from .module import Module

__all__ = ["NamedTensors"]

_Tensor = TypeVar("_Tensor", bound=Tensor)


class NamedTensors(Members):
    """Base class of `Module`: iterates over parameters and buffers and finds them by path."""

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Yield (path, parameter).

        Args:
            prefix: Path of this module.
            recurse: Include submodules.
            remove_duplicate: Yield a parameter that has several paths only once.

        Returns:
            Iterator of pairs of path and parameter.

        Example:
            >>> [(path, tuple(p.shape)) for path, p in wg.nn.Sequential(wg.nn.Linear(2, 3)).named_parameters()]
            [('0.weight', (3, 2)), ('0.bias', (3,))]
        """
        return self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Yield the parameters, each once, as an optimizer needs them.

        Args:
            recurse: Include submodules.

        Returns:
            Iterator of parameters.

        Example:
            >>> [tuple(p.shape) for p in wg.nn.Linear(2, 3).parameters()]
            [(3, 2), (3,)]
        """
        return (tensor for _, tensor in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield (path, buffer); see `named_parameters`.

        Args:
            prefix: Path of this module.
            recurse: Include submodules.
            remove_duplicate: Yield a buffer that has several paths only once.

        Returns:
            Iterator of pairs of path and buffer.

        Example:
            >>> [path for path, _ in wg.nn.BatchNorm1d(2).named_buffers()]
            ['running_mean', 'running_var', 'num_batches_tracked']
        """
        return self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield the buffers, each once.

        Args:
            recurse: Include submodules.

        Returns:
            Iterator of tensors.

        Example:
            >>> [tuple(b.shape) for b in wg.nn.BatchNorm1d(2).buffers()]
            [(2,), (2,), ()]
        """
        return (tensor for _, tensor in self.named_buffers(recurse=recurse))

    def get_parameter(self, target: str) -> Parameter:
        """Return the parameter at a path such as `encoder.0.weight`.

        Args:
            target: Path of the module, a dot, and the parameter's name.

        Returns:
            The parameter.

        Raises:
            NoSuchMember: If there is none.

        Example:
            >>> wg.nn.Sequential(wg.nn.Linear(2, 3)).get_parameter('0.weight').shape
            weftgrad.Size([3, 2])
        """
        owner, name = self._get_owner(target)
        member = getattr(owner, name, None)
        if not isinstance(member, Parameter):
            raise NoSuchMember(f"{type(owner).__name__} has no parameter {name!r}")
        return member

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer at a path.

        Args:
            target: Path of the module, a dot, and the buffer's name.

        Returns:
            The buffer.

        Raises:
            NoSuchMember: If there is none.

        Example:
            >>> wg.nn.Sequential(wg.nn.BatchNorm1d(2)).get_buffer('0.running_mean')
            tensor([0., 0.])
        """
        owner, name = self._get_owner(target)
        buffer = owner._buffers.get(name)
        if buffer is None:
            raise NoSuchMember(f"{type(owner).__name__} has no buffer {name!r}")
        return buffer

    def _get_owner(self, target: str) -> tuple[Module, str]:
        """Return the module that the path of a tensor begins with, and the tensor's name in it."""
        path, _, name = target.rpartition(".")
        return self.get_submodule(path), name

    def _named_members(
        self,
        get_members_fn: Callable[[Members], Iterable[tuple[str, _Tensor | None]]],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, _Tensor]]:
        visited: set[int] = set()
        modules: Iterable[tuple[str, Members]] = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        )
        for path, module in modules:
            for name, tensor in get_members_fn(module):
                if tensor is None or (remove_duplicate and id(tensor) in visited):
                    continue
                visited.add(id(tensor))
                yield f"{path}.{name}" if path else name, tensor

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Choose whether gradients of the parameters are computed.

        Args:
            requires_grad: Whether gradients are computed.

        Returns:
            This module.

        Example:
            >>> wg.nn.Linear(2, 3).requires_grad_(False).weight.requires_grad
            False
        """
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters.

        Args:
            set_to_none: Set `grad` to None, which frees its memory. False fills it with zeros.

        Example:
            >>> layer = wg.nn.Linear(2, 1)
            >>> layer(wg.ones(2)).backward()
            >>> layer.zero_grad()
            >>> print(layer.weight.grad)
            None
        """
        for param in self.parameters():
            if set_to_none or param.grad is None:
                param.grad = None
            else:
                param.grad = param.grad.detach().zero_()
