"""Saving and loading a module's state: parameters, persistent buffers and what `get_extra_state` gives, by path."""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .. import _hosting
from ..autograd import no_grad
from ..methods import Handle
from ..runtime import dtypes
from ..runtime.device import device
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ._errors import StateDictError
from ._hooks import HookTable
from .parameter import Parameter, is_lazy

__all__ = ["IncompatibleKeys", "State"]

_EXTRA = "_extra_state"


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict` did not match."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class _Waiting(threading.local):
    """Copies that `load_state_dict` makes once all entries are known to fit; None outside of it."""

    copies: list[Callable[[], Any]] | None = None


_waiting = _Waiting()


class State:
    """What `Module` knows of its state."""

    _version = 1
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: HookTable
    _state_dict_pre_hooks: HookTable
    _load_state_dict_pre_hooks: HookTable
    _load_state_dict_post_hooks: HookTable

    # hooks

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call `hook(module, prefix, keep_vars)` before `state_dict` collects this module's entries."""
        return self._state_dict_pre_hooks.add(hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call `hook(module, state_dict, prefix, local_metadata)` once this module's entries are in `state_dict`,
        which it may change in place; it returns None."""
        return self._state_dict_hooks.add(hook, always=True)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> Handle:
        """As `register_state_dict_post_hook`, but what it returns, if anything, becomes the state dict."""
        return self._state_dict_hooks.add(hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call `hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`
        before this module's entries are looked at."""
        return self._load_state_dict_pre_hooks.add(hook, with_kwargs=True)

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., Any], with_module: bool = False) -> Handle:
        """As `register_load_state_dict_pre_hook`; the module is an argument only if `with_module`."""
        return self._load_state_dict_pre_hooks.add(hook, with_kwargs=with_module)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call `hook(module, incompatible_keys)` after this module and its parts were loaded; it may change the lists
        in place, and what is left of them counts for `strict`."""
        return self._load_state_dict_post_hooks.add(hook)

    # state that is no tensor

    def get_extra_state(self) -> Any:
        """What else `state_dict` holds of this module, under `_extra_state`. A class that has some overrides this."""
        raise StateDictError(f"{type(self).__name__} defines set_extra_state(...) but no get_extra_state()")

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` gave."""
        raise StateDictError(f"{type(self).__name__} defines get_extra_state() but no set_extra_state(...)")

    # saving

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Put this module's own entries, not those of its parts, in `destination`."""
        for name, tensor in self._parameters.items():
            if tensor is not None:
                destination[prefix + name] = tensor if keep_vars or is_lazy(tensor) else tensor.detach()
        for name, tensor in self._buffers.items():
            if tensor is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = tensor if keep_vars or is_lazy(tensor) else tensor.detach()
        if type(self).get_extra_state is not State.get_extra_state:
            destination[prefix + _EXTRA] = self.get_extra_state()

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Parameters and persistent buffers by path; the tensors share memory with the module.

        `_metadata` of the result holds each module's version, for `_load_from_state_dict` of later ones.
        """
        if args:  # as PyTorch once took them
            warnings.warn("state_dict: pass destination, prefix and keep_vars by name", FutureWarning, stacklevel=2)
            given = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False))
            destination, prefix = given["destination"], given.get("prefix", prefix)
            keep_vars = given.get("keep_vars", keep_vars)
        found: Any = OrderedDict() if destination is None else destination
        if destination is None:
            found._metadata = OrderedDict()
        local = {"version": self._version}
        if hasattr(found, "_metadata"):
            found._metadata[prefix[:-1]] = local
        for hook in list(self._state_dict_pre_hooks.values()):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(found, prefix, keep_vars)
        for name, part in self._modules.items():
            if part is not None:
                part.state_dict(destination=found, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for key, hook in list(self._state_dict_hooks.items()):
            given = hook(self, found, prefix, local)
            if given is None:
                continue
            if key in self._state_dict_hooks.always:
                raise StateDictError(
                    f"{type(self).__name__}: a state_dict post-hook returns None; it may change the dict in place"
                )
            found = given
        return found  # type: ignore[no-any-return]

    # loading

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Take this module's own entries, whose paths begin with `prefix`; override it to read older versions."""
        for key, hook in list(self._load_state_dict_pre_hooks.items()):
            given = (state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
            hook(*((self, *given) if key in self._load_state_dict_pre_hooks.kwargs else given))
        own = {**self._parameters}
        own.update((k, v) for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set)
        own = {k: v for k, v in own.items() if v is not None}
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, tensor in own.items():
            path = prefix + name
            if path in state_dict:
                self._take(name, tensor, path, state_dict[path], assign, error_msgs)
            elif strict:
                missing_keys.append(path)
        has_extra = type(self).set_extra_state is not State.set_extra_state
        if has_extra and prefix + _EXTRA in state_dict:
            _later(partial(self.set_extra_state, state_dict[prefix + _EXTRA]))
        elif has_extra and strict:
            missing_keys.append(prefix + _EXTRA)
        if strict:
            for path in state_dict:
                if path.startswith(prefix) and not (path == prefix + _EXTRA and has_extra):
                    first, _, rest = path[len(prefix) :].partition(".")
                    if (first not in self._modules) if rest else (first not in own):
                        unexpected_keys.append(path)

    def _take(self, name: str, tensor: Any, path: str, given: Any, assign: bool, error_msgs: list[str]) -> None:
        """Check one entry, and have it copied, or assigned, once all are known to fit."""
        if isinstance(given, (np.ndarray, np.generic)):
            array = np.asarray(given)
            given = _hosting.from_host(array, dtypes.parse(array.dtype), device("cpu"))
        if not isinstance(given, Tensor):
            error_msgs.append(f"{path}: must be a tensor, not {type(given).__name__}")
            return
        if is_lazy(tensor) or is_lazy(given):
            if not is_lazy(given):
                error_msgs.append(f"{path}: has no shape yet; run the module once before loading")
            elif not is_lazy(tensor):
                error_msgs.append(f"{path}: has no shape there yet, and the module's entry has one")
            return
        if not tensor.meta.ndim and given.meta.shape == (1,):
            given = given.reshape(())
        if given.meta.shape != tensor.meta.shape:
            error_msgs.append(
                f"{path}: has shape {list(given.meta.shape)} there and {list(tensor.meta.shape)} in the module"
            )
        elif not assign:
            _later(partial(tensor.copy_, given))
        else:
            if isinstance(tensor, Parameter) and not isinstance(given, Parameter):
                given = Parameter(given.detach(), tensor.needs)
            elif given.needs != tensor.needs:
                given.requires_grad_(tensor.needs)
            _later(partial(setattr, self, name, given))

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy the values of `state_dict` (tensors or NumPy arrays) into parameters and buffers.

        `assign` makes its tensors the module's own instead, with their dtypes and devices; parameters are other objects
        then, so make the optimizer afterwards. Raises `StateDictError` (a `RuntimeError` and a `ValueError`) that lists
        every missing, unexpected and wrongly shaped entry; nothing is copied then (unless a module has load post-hooks,
        which see what was loaded before them). What is missing or unexpected is returned where not `strict`.
        """
        if not isinstance(state_dict, Mapping):
            raise ArgumentError(f"load_state_dict: takes a mapping, not {type(state_dict).__name__}")
        missing: list[str] = []
        unexpected: list[str] = []
        faults: list[str] = []
        given: Any = OrderedDict(state_dict)
        metadata = getattr(state_dict, "_metadata", None) or {}
        if hasattr(state_dict, "_metadata"):
            given._metadata = state_dict._metadata
        before, _waiting.copies = _waiting.copies, []
        try:
            _load(self, given, "", metadata, assign, (missing, unexpected, faults))
            found = [f"missing: {', '.join(missing)}"] if strict and missing else []
            found += [f"unexpected: {', '.join(unexpected)}"] if strict and unexpected else []
            if found or faults:
                raise StateDictError(f"load_state_dict of {type(self).__name__}: {'; '.join(found + faults)}")
            _flush()
        finally:
            _waiting.copies = before
        return IncompatibleKeys(missing, unexpected)


def _load(
    module: Any,
    state_dict: Any,
    prefix: str,
    metadata: Mapping[str, Any],
    assign: bool,
    lists: tuple[list[str], list[str], list[str]],
) -> None:
    local = dict(metadata.get(prefix[:-1], {}))
    if assign:
        local["assign_to_params_buffers"] = True
    module._load_from_state_dict(state_dict, prefix, local, True, *lists)
    for name, part in module._modules.items():
        if part is not None:
            below = f"{prefix}{name}."
            own = OrderedDict((k, v) for k, v in state_dict.items() if k.startswith(below))
            _load(part, own, below, metadata, assign, lists)
    for hook in list(module._load_state_dict_post_hooks.values()):
        if not lists[2]:
            _flush()
        if hook(module, IncompatibleKeys(lists[0], lists[1])) is not None:
            raise StateDictError(
                f"{type(module).__name__}: a load_state_dict post-hook returns None; it may change the lists in place"
            )


def _later(copy: Callable[[], Any]) -> None:
    if _waiting.copies is None:
        with no_grad():
            copy()
    else:
        _waiting.copies.append(copy)


def _flush() -> None:
    copies, _waiting.copies = _waiting.copies or [], []
    with no_grad():
        for copy in copies:
            copy()
