"""Saving and loading of modules: parameters, persistent buffers and extra state, by path.

Loading is all or nothing: `load_state_dict` first checks every entry and queues the copies, then runs them.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..autograd import no_grad
from ..creation.foreign_tensors import copy_foreign_tensor, is_foreign_tensor
from ..runtime.errors import ArgumentError, DTypeError
from ..runtime.tensor import Tensor
from ..tensor_methods.hooks import Handle
from ._errors import StateDictError
from ._hook_tables import HookTable
from ._members import Members
from .parameter import Parameter, is_lazy

if TYPE_CHECKING:
    from ._types import Argument, Hook, StateDict

__all__ = ["IncompatibleKeys", "State"]

_EXTRA_KEY = "_extra_state"


class IncompatibleKeys(NamedTuple):
    """The paths that `load_state_dict` could not match.

    Attributes:
        missing_keys: Paths of the module's entries that the state dict lacks.
        unexpected_keys: Paths in the state dict that the module has no entry for.

    Example:
        >>> wg.nn.ReLU().load_state_dict({})
        <All keys matched successfully>
        >>> wg.nn.ReLU().load_state_dict({'bias': wg.ones(1)}, strict=False).unexpected_keys
        ['bias']
    """

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class _PendingCopies(threading.local):
    """Copies that `load_state_dict` runs after all entries were checked; None outside of it."""

    copies: list[Callable[[], object]] | None = None


_pending = _PendingCopies()


class State(Members):
    """Base class of `Module`: saves and loads its state."""

    _version = 1
    _state_dict_hooks: HookTable
    _state_dict_pre_hooks: HookTable
    _load_state_dict_pre_hooks: HookTable
    _load_state_dict_post_hooks: HookTable

    # hooks

    def register_state_dict_pre_hook(self, hook: Hook) -> Handle:
        """Call `hook(module, prefix, keep_vars)` before `state_dict` collects this module's entries.

        Args:
            hook: Function; its result is ignored.

        Returns:
            Handle, whose `remove()` unregisters the hook.

        Raises:
            ArgumentError: If `hook` is not callable.

        Example:
            >>> layer = wg.nn.ReLU()
            >>> handle = layer.register_state_dict_pre_hook(lambda module, prefix, keep_vars: print(module, keep_vars))
            >>> state = layer.state_dict()
            ReLU() False
        """
        return self._state_dict_pre_hooks.add(hook)

    def register_state_dict_post_hook(self, hook: Hook) -> Handle:
        """Call `hook(module, state_dict, prefix, local_metadata)` after this module's entries were added.

        The hook may change `state_dict` in place and must return None.

        Args:
            hook: Function; `state_dict` raises `StateDictError` if its result is not None.

        Returns:
            Handle, whose `remove()` unregisters the hook.

        Raises:
            ArgumentError: If `hook` is not callable.

        Example:
            >>> layer = wg.nn.Linear(2, 3)
            >>> def drop_bias(module, state_dict, prefix, local_metadata):
            ...     del state_dict[prefix + 'bias']
            ...
            >>> handle = layer.register_state_dict_post_hook(drop_bias)
            >>> list(layer.state_dict())
            ['weight']
        """
        return self._state_dict_hooks.add(hook, always=True)

    def _register_state_dict_hook(self, hook: Hook) -> Handle:
        """Like `register_state_dict_post_hook`, but a result other than None replaces the state dict."""
        return self._state_dict_hooks.add(hook)

    def register_load_state_dict_pre_hook(self, hook: Hook) -> Handle:
        """Call `hook` before this module's entries are read.

        Its arguments are `module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
        error_msgs`.

        Args:
            hook: Function; it may change `state_dict` and the lists in place, and its result is ignored.

        Returns:
            Handle, whose `remove()` unregisters the hook.

        Raises:
            ArgumentError: If `hook` is not callable.

        Example:
            >>> layer = wg.nn.Linear(1, 1)
            >>> def rename(module, state_dict, prefix, *_):
            ...     state_dict[prefix + 'weight'] = state_dict.pop(prefix + 'w')
            ...
            >>> handle = layer.register_load_state_dict_pre_hook(rename)
            >>> layer.load_state_dict({'w': wg.tensor([[2.0]]), 'bias': wg.tensor([1.0])})
            <All keys matched successfully>
        """
        return self._load_state_dict_pre_hooks.add(hook, with_kwargs=True)

    def _register_load_state_dict_pre_hook(self, hook: Hook, with_module: bool = False) -> Handle:
        """Like `register_load_state_dict_pre_hook`, but the module is passed only if `with_module`."""
        return self._load_state_dict_pre_hooks.add(hook, with_kwargs=with_module)

    def register_load_state_dict_post_hook(self, hook: Hook) -> Handle:
        """Call `hook(module, incompatible_keys)` after this module and its submodules were loaded.

        The hook may change the lists in place; `strict` applies to the changed lists.

        Args:
            hook: Function; `load_state_dict` raises `StateDictError` if its result is not None.

        Returns:
            Handle, whose `remove()` unregisters the hook.

        Raises:
            ArgumentError: If `hook` is not callable.

        Example:
            >>> layer = wg.nn.ReLU()
            >>> handle = layer.register_load_state_dict_post_hook(lambda module, keys: print(keys.unexpected_keys))
            >>> result = layer.load_state_dict({'bias': wg.ones(1)}, strict=False)
            ['bias']
        """
        return self._load_state_dict_post_hooks.add(hook)

    # extra state

    def get_extra_state(self) -> object:
        """Return further state, which `state_dict` stores under `_extra_state`.

        A class with extra state overrides this.

        Returns:
            An object that the format of the saved file can store.

        Raises:
            StateDictError: If the class overrides `set_extra_state` but not this method.

        Example:
            >>> class Counter(wg.nn.Module):
            ...     count = 3
            ...     def get_extra_state(self):
            ...         return self.count
            ...     def set_extra_state(self, state):
            ...         self.count = state
            ...
            >>> Counter().state_dict()['_extra_state']
            3
        """
        raise StateDictError(f"{type(self).__name__} defines set_extra_state(...) but no get_extra_state()")

    def set_extra_state(self, state: Argument) -> None:
        """Restore what `get_extra_state` returned.

        Args:
            state: The object that `get_extra_state` returned.

        Raises:
            StateDictError: If the class overrides `get_extra_state` but not this method.

        Example:
            >>> class Counter(wg.nn.Module):
            ...     count = 3
            ...     def get_extra_state(self):
            ...         return self.count
            ...     def set_extra_state(self, state):
            ...         self.count = state
            ...
            >>> counter = Counter()
            >>> counter.load_state_dict({'_extra_state': 5})
            <All keys matched successfully>
            >>> counter.count
            5
        """
        raise StateDictError(f"{type(self).__name__} defines get_extra_state() but no set_extra_state(...)")

    # saving

    def _save_to_state_dict(self, destination: StateDict, prefix: str, keep_vars: bool) -> None:
        """Add this module's own entries, without those of its submodules, to `destination`."""
        for name, tensor in self._parameters.items():
            if tensor is not None:
                destination[prefix + name] = tensor if keep_vars or is_lazy(tensor) else tensor.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = buffer if keep_vars or is_lazy(buffer) else buffer.detach()
        if type(self).get_extra_state is not State.get_extra_state:
            destination[prefix + _EXTRA_KEY] = self.get_extra_state()

    def state_dict(
        self,
        *args: StateDict | str | bool | None,
        destination: StateDict | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> StateDict:
        """Return parameters and persistent buffers by path. The tensors share memory with the module.

        The result's `_metadata` holds each module's version, which `_load_from_state_dict` of later versions reads.

        Args:
            *args: PyTorch's former positional form of the arguments below; deprecated.
            destination: Dict to fill; None creates one.
            prefix: Prefix of all paths.
            keep_vars: Return the parameters themselves instead of detached tensors.

        Returns:
            Dict from paths such as `0.weight` to tensors.

        Example:
            >>> list(wg.nn.Sequential(wg.nn.Linear(2, 3), wg.nn.ReLU()).state_dict())
            ['0.weight', '0.bias']
        """
        if args:  # PyTorch's former positional form
            warnings.warn("state_dict: pass destination, prefix and keep_vars by name", FutureWarning, stacklevel=2)
            for value in args:
                if isinstance(value, str):
                    prefix = value
                elif isinstance(value, bool):
                    keep_vars = value
                else:
                    destination = value
        output = _new_state_dict() if destination is None else destination
        local_metadata = {"version": self._version}
        if hasattr(output, "_metadata"):
            output._metadata[prefix[:-1]] = local_metadata
        for hook in list(self._state_dict_pre_hooks.values()):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(output, prefix, keep_vars)
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=output, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for key, hook in list(self._state_dict_hooks.items()):
            replacement = hook(self, output, prefix, local_metadata)
            if replacement is None:
                continue
            if key in self._state_dict_hooks.always:
                raise StateDictError(
                    f"{type(self).__name__}: a state_dict post-hook returns None; it may change the dict in place"
                )
            output = replacement
        return output

    # loading

    def _load_from_state_dict(
        self,
        state_dict: dict[str, object],
        prefix: str,
        local_metadata: dict[str, object],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load this module's own entries, whose paths begin with `prefix`. Override it to read older versions."""
        for key, hook in list(self._load_state_dict_pre_hooks.items()):
            hook_args = (state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
            hook(*((self, *hook_args) if key in self._load_state_dict_pre_hooks.kwargs else hook_args))
        persistent_buffers = {k: v for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set}
        members: dict[str, Tensor | None] = {**self._parameters, **persistent_buffers}
        own_tensors = {name: tensor for name, tensor in members.items() if tensor is not None}
        assign = bool(local_metadata.get("assign_to_params_buffers", False))
        for name, tensor in own_tensors.items():
            path = prefix + name
            if path in state_dict:
                self._load_entry(name, tensor, path, state_dict[path], assign, error_msgs)
            elif strict:
                missing_keys.append(path)
        has_extra = type(self).set_extra_state is not State.set_extra_state
        if has_extra and prefix + _EXTRA_KEY in state_dict:
            _run_or_defer(partial(self.set_extra_state, state_dict[prefix + _EXTRA_KEY]))
        elif has_extra and strict:
            missing_keys.append(prefix + _EXTRA_KEY)
        if strict:
            for path in state_dict:
                if path.startswith(prefix) and not (path == prefix + _EXTRA_KEY and has_extra):
                    first_name, _, remaining_path = path[len(prefix) :].partition(".")
                    if (first_name not in self._modules) if remaining_path else (first_name not in own_tensors):
                        unexpected_keys.append(path)

    def _load_entry(
        self, name: str, tensor: Tensor, path: str, value: object, assign: bool, error_msgs: list[str]
    ) -> None:
        """Check one entry and queue its copy (or assignment)."""
        if is_foreign_tensor(value):
            try:
                value = copy_foreign_tensor(value)
            except DTypeError as error:
                error_msgs.append(f"{path}: {error}")
                return
        if not isinstance(value, Tensor):
            error_msgs.append(f"{path}: must be a tensor, not {type(value).__name__}")
            return
        if is_lazy(tensor) or is_lazy(value):
            if not is_lazy(value):
                error_msgs.append(f"{path}: has no shape yet; run the module once before loading")
            elif not is_lazy(tensor):
                error_msgs.append(f"{path}: has no shape there yet, and the module's entry has one")
            return
        if not tensor.meta.ndim and value.meta.shape == (1,):
            value = value.reshape(())
        if value.meta.shape != tensor.meta.shape:
            error_msgs.append(
                f"{path}: has shape {list(value.meta.shape)} in the state dict, {list(tensor.meta.shape)} in the module"
            )
        elif not assign:
            _run_or_defer(partial(tensor.copy_, value))
        else:
            if isinstance(tensor, Parameter) and not isinstance(value, Parameter):
                value = Parameter(value.detach(), tensor.needs_grad)
            elif value.needs_grad != tensor.needs_grad:
                value.requires_grad_(tensor.needs_grad)
            _run_or_defer(partial(setattr, self, name, value))

    def load_state_dict(
        self, state_dict: Mapping[str, object], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy the values of `state_dict` into parameters and buffers.

        Args:
            state_dict: Values by path: tensors of weftgrad or PyTorch, or NumPy arrays, of the shapes of the module's
                own entries. They are converted to the dtypes of these.
            strict: Whether to raise an error for missing and unexpected paths.
            assign: Make the tensors of `state_dict` the module's own, with their dtypes and devices. Parameters become
                other objects, so create the optimizer afterwards.

        Returns:
            The missing and unexpected paths.

        Raises:
            StateDictError: Entries are missing, unexpected or of another shape; the message lists all of them. Nothing
                was copied then, except to submodules whose load post-hooks have run. It is a `RuntimeError` and a
                `ValueError`.
            ArgumentError: `state_dict` is not a mapping.

        Example:
            >>> layer = wg.nn.Linear(1, 1)
            >>> layer.load_state_dict({'weight': wg.tensor([[2.0]]), 'bias': wg.tensor([1.0])})
            <All keys matched successfully>
            >>> layer(wg.tensor([3.0])).item()
            7.0
        """
        if not isinstance(state_dict, Mapping):
            raise ArgumentError(f"load_state_dict: takes a mapping, not {type(state_dict).__name__}")
        missing: list[str] = []
        unexpected: list[str] = []
        error_msgs: list[str] = []
        entries = OrderedDict(state_dict)
        metadata = getattr(state_dict, "_metadata", None) or {}
        if hasattr(state_dict, "_metadata"):
            vars(entries)["_metadata"] = state_dict._metadata
        outer_copies, _pending.copies = _pending.copies, []
        try:
            _load(self, entries, "", metadata, assign, (missing, unexpected, error_msgs))
            problems = [f"missing: {', '.join(missing)}"] if strict and missing else []
            problems += [f"unexpected: {', '.join(unexpected)}"] if strict and unexpected else []
            if problems or error_msgs:
                raise StateDictError(f"load_state_dict of {type(self).__name__}: {'; '.join(problems + error_msgs)}")
            _run_pending()
        finally:
            _pending.copies = outer_copies
        return IncompatibleKeys(missing, unexpected)


def _new_state_dict() -> StateDict:
    """Return an empty dict with the attribute `_metadata`, which takes the modules' versions by path."""
    state_dict: OrderedDict[str, object] = OrderedDict()
    vars(state_dict)["_metadata"] = OrderedDict()
    return state_dict


def _load(
    module: State,
    state_dict: dict[str, object],
    prefix: str,
    metadata: Mapping[str, Mapping[str, object]],
    assign: bool,
    error_lists: tuple[list[str], list[str], list[str]],
) -> None:
    """Load a module and its submodules, and call their post-hooks.

    Args:
        module: The module.
        state_dict: Values by whole path, at least those below `prefix`.
        prefix: Path of the module, with a dot at its end; empty for the outermost one.
        metadata: The attribute `_metadata` of the state dict: versions by path.
        assign: Whether to assign the tensors instead of copying them.
        error_lists: Missing paths, unexpected paths and messages, to which problems are appended.
    """
    local_metadata = dict(metadata.get(prefix[:-1], {}))
    if assign:
        local_metadata["assign_to_params_buffers"] = True
    module._load_from_state_dict(state_dict, prefix, local_metadata, True, *error_lists)
    for name, child in module._modules.items():
        if child is not None:
            child_prefix = f"{prefix}{name}."
            child_state = OrderedDict((k, v) for k, v in state_dict.items() if k.startswith(child_prefix))
            _load(child, child_state, child_prefix, metadata, assign, error_lists)
    for hook in list(module._load_state_dict_post_hooks.values()):
        if not error_lists[2]:
            _run_pending()
        if hook(module, IncompatibleKeys(error_lists[0], error_lists[1])) is not None:
            raise StateDictError(
                f"{type(module).__name__}: a load_state_dict post-hook returns None; it may change the lists in place"
            )


def _run_or_defer(copy: Callable[[], object]) -> None:
    """Queue a copy if `load_state_dict` is active in this thread; otherwise run it."""
    if _pending.copies is None:
        with no_grad():
            copy()
    else:
        _pending.copies.append(copy)


def _run_pending() -> None:
    """Run the queued copies, and empty the queue."""
    copies, _pending.copies = _pending.copies or [], []
    with no_grad():
        for copy in copies:
            copy()
