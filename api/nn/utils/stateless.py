"""Call a module with other tensors in place of its parameters and buffers.

The public function is `weftgrad.func.functional_call`; `functional_call` here is PyTorch's deprecated one. A path is a
name as in `named_parameters()`, such as `layer1.weight`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...runtime.errors import ArgumentError
from ...runtime.tensor import Tensor
from .._errors import NoSuchMember, StateDictError
from ..module import Module

if TYPE_CHECKING:
    from .._types import Output

__all__ = ["functional_call"]


def functional_call(
    module: Module,
    parameters_and_buffers: Mapping[str, Tensor],
    args: object = None,
    kwargs: Mapping[str, object] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Output:
    """Deprecated alias of `func.functional_call`.

    Args:
        module: The module.
        parameters_and_buffers: Tensors by path.
        args: Positional arguments: a tuple, or the only one.
        kwargs: Keyword arguments.
        tie_weights: Replace a tensor that has several paths at all of them.
        strict: Require a tensor for every parameter and buffer, and no others.

    Returns:
        The output of the module.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter('ignore')
        ...     weights = {'weight': wg.tensor([[2.0]]), 'bias': wg.tensor([1.0])}
        ...     wg.nn.utils.stateless.functional_call(wg.nn.Linear(1, 1), weights, wg.tensor([3.0]))
        ...
        tensor([7.])
    """
    warnings.warn("nn.utils.stateless is deprecated: use func.functional_call", FutureWarning, stacklevel=2)
    return call_with_tensors(module, parameters_and_buffers, args, kwargs, tie_weights, strict)


def call_with_tensors(
    module: Module,
    parameters_and_buffers: object,
    args: object,
    kwargs: Mapping[str, object] | None,
    tie_weights: bool,
    strict: bool,
) -> Output:
    """Return `module(*args, **kwargs)`, computed with `parameters_and_buffers`; see `func.functional_call`."""
    tensors = _merge_mappings(parameters_and_buffers)
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    with _swap_tensors(module, tensors, tie_weights, strict):
        result = module(*positional, **(kwargs or {}))
    if isinstance(parameters_and_buffers, dict):  # report tensors that forward assigned to the module
        parameters_and_buffers.update(
            (path, tensor) for path, tensor in tensors.items() if parameters_and_buffers[path] is not tensor
        )
    return result


def _merge_mappings(mappings: object) -> dict[str, Tensor | None]:
    """Return one dict from path to tensor; `mappings` is one mapping, or a sequence of them without common paths."""
    tensor_by_path: dict[str, Tensor | None] = {}
    for mapping in list(mappings) if isinstance(mappings, Sequence) else [mappings]:
        if not isinstance(mapping, Mapping):
            raise ArgumentError(f"functional_call: takes a mapping from paths to tensors, or several, not {mappings!r}")
        for path, tensor in mapping.items():
            if path in tensor_by_path:
                raise ArgumentError(f"functional_call: {path!r} is in two of the mappings")
            if not isinstance(tensor, Tensor):
                raise ArgumentError(f"functional_call: {path!r} must be a tensor, not {type(tensor).__name__}")
            tensor_by_path[path] = tensor
    return tensor_by_path


@contextmanager
def _swap_tensors(module: Module, tensors: dict[str, Tensor | None], tie_weights: bool, strict: bool) -> Iterator[None]:
    """Put `tensors` into the module inside the `with` block, then restore the module's own tensors.

    If forward assigns a new tensor to one of the paths in `tensors`, it replaces the entry in `tensors`.
    """
    own_tensors: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
    own_tensors.update(module.named_buffers(remove_duplicate=False))
    replacements = dict(tensors)
    if tie_weights:
        _tie(replacements, own_tensors)
    missing, unexpected = (
        [k for k in own_tensors if k not in replacements],
        [k for k in replacements if k not in own_tensors],
    )
    if strict and (missing or unexpected):
        raise StateDictError(
            f"functional_call of {type(module).__name__}: missing: {', '.join(missing) or 'nothing'}; "
            f"unexpected: {', '.join(unexpected) or 'nothing'}"
        )
    if unexpected:
        raise NoSuchMember(f"{type(module).__name__} has no parameter or buffer {', '.join(map(repr, unexpected))}")
    slots = []
    originals: dict[tuple[int, str], Tensor | None] = {}
    for path, tensor in replacements.items():
        module_path, _, name = path.rpartition(".")
        owner = module.get_submodule(module_path)
        # During the call, `_parameters` may hold tensors that are no `Parameter`s.
        members: dict[str, Tensor | None] = vars(owner)["_parameters" if name in owner._parameters else "_buffers"]
        slots.append((members, name, path))
        # A module that is registered twice has two paths to one slot; its own tensor is the first that was there.
        originals.setdefault((id(members), name), members[name])
        members[name] = tensor
    try:
        yield
    finally:
        for members, name, path in slots:
            if path in tensors and members[name] is not tensors[path]:
                tensors[path] = members[name]
        for members, name, _ in slots:
            members[name] = originals[id(members), name]


def _tie(replacements: dict[str, Tensor | None], own_tensors: dict[str, Tensor]) -> None:
    """If one path of a tensor that has several paths is replaced, replace its other paths by the same tensor."""
    paths_by_id: dict[int, list[str]] = {}
    for path, tensor in own_tensors.items():
        paths_by_id.setdefault(id(tensor), []).append(path)
    for paths in paths_by_id.values():
        replaced_paths = [p for p in paths if p in replacements]
        if not replaced_paths:
            continue
        if any(replacements[p] is not replacements[replaced_paths[0]] for p in replaced_paths):
            raise ArgumentError(
                f"functional_call: {', '.join(map(repr, replaced_paths))} are one tensor in the module; "
                "pass one tensor for all, or tie_weights=False"
            )
        replacements.update(dict.fromkeys(paths, replacements[replaced_paths[0]]))
