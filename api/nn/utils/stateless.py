"""A module called with other parameters and buffers than its own, which stay as they are."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...runtime.errors import ArgumentError
from ...runtime.tensor import Tensor
from .._errors import NoSuchPart, StateDictError
from ..module import Module

__all__ = ["functional_call"]


def functional_call(
    module: Module,
    parameters_and_buffers: Mapping[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """The old place of `func.functional_call`."""
    warnings.warn("nn.utils.stateless is deprecated: use func.functional_call", FutureWarning, stacklevel=2)
    return called(module, parameters_and_buffers, args, kwargs, tie_weights, strict)


def called(
    module: Module, given: Any, args: Any, kwargs: dict[str, Any] | None, tie_weights: bool, strict: bool
) -> Any:
    """`module(*args, **kwargs)` while its parameters and buffers are those of `given`; see `func.functional_call`."""
    tensors = _merged(given)
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    with _swapped(module, tensors, tie_weights, strict):
        result = module(*positional, **(kwargs or {}))
    if isinstance(given, dict):  # what forward assigned anew is the caller's, not the module's
        given.update((path, tensor) for path, tensor in tensors.items() if given[path] is not tensor)
    return result


def _merged(given: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in [given] if isinstance(given, Mapping) else list(given) if isinstance(given, Sequence) else [None]:
        if not isinstance(each, Mapping):
            raise ArgumentError(f"functional_call: takes a mapping from paths to tensors, or several, not {given!r}")
        for path, tensor in each.items():
            if path in found:
                raise ArgumentError(f"functional_call: {path!r} is given twice")
            if not isinstance(tensor, Tensor):
                raise ArgumentError(f"functional_call: {path!r} must be a tensor, not {type(tensor).__name__}")
            found[path] = tensor
    return found


@contextmanager
def _swapped(module: Module, tensors: dict[str, Any], tie_weights: bool, strict: bool) -> Iterator[None]:
    own: dict[str, Any] = dict(module.named_parameters(remove_duplicate=False))
    own.update(module.named_buffers(remove_duplicate=False))
    wanted = dict(tensors)
    if tie_weights:
        _tie(wanted, own)
    missing, unexpected = [k for k in own if k not in wanted], [k for k in wanted if k not in own]
    if strict and (missing or unexpected):
        raise StateDictError(
            f"functional_call of {type(module).__name__}: missing: {', '.join(missing) or 'nothing'}; "
            f"unexpected: {', '.join(unexpected) or 'nothing'}"
        )
    if unexpected:
        raise NoSuchPart(f"{type(module).__name__} has no parameter or buffer {', '.join(map(repr, unexpected))}")
    holders = []
    for path, tensor in wanted.items():
        place, _, name = path.rpartition(".")
        holder = module.get_submodule(place)
        held = holder._parameters if name in holder._parameters else holder._buffers
        holders.append((held, name, path, held[name]))
        held[name] = tensor
    try:
        yield
    finally:
        for held, name, path, before in holders:
            if path in tensors and held[name] is not tensors[path]:
                tensors[path] = held[name]
            held[name] = before


def _tie(wanted: dict[str, Any], own: dict[str, Any]) -> None:
    """Give every path of a shared tensor what one of its paths is given."""
    same: dict[int, list[str]] = {}
    for path, tensor in own.items():
        same.setdefault(id(tensor), []).append(path)
    for paths in same.values():
        named = [p for p in paths if p in wanted]
        if not named:
            continue
        if any(wanted[p] is not wanted[named[0]] for p in named):
            raise ArgumentError(
                f"functional_call: {', '.join(map(repr, named))} are one tensor in the module, and several here; "
                "pass the same, or tie_weights=False"
            )
        wanted.update(dict.fromkeys(paths, wanted[named[0]]))
