"""`torch.utils._pytree`: flatten nested containers to lists of leaves, and rebuild them."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...runtime.errors import ArgumentError

__all__ = [
    "SUPPORTED_NODES", "Context", "KeyEntry", "LeafSpec", "MappingKey", "NodeDef", "PyTree", "SequenceKey", "TreeSpec",
    "register_pytree_node", "tree_all", "tree_any", "tree_flatten", "tree_iter", "tree_leaves", "tree_map",
    "tree_map_", "tree_map_only", "tree_structure", "tree_unflatten",
]  # fmt: skip

PyTree: TypeAlias = Any
Context: TypeAlias = Any
KeyEntry: TypeAlias = Any
IsLeaf: TypeAlias = Callable[[PyTree], bool] | None
_namedtuple = namedtuple  # the key of all named tuples in `SUPPORTED_NODES`, as in PyTorch


@dataclass(frozen=True)
class SequenceKey:
    """The key of an item of a list or tuple.

    Attributes:
        idx: Index of the item.
    """

    idx: int


@dataclass(frozen=True)
class MappingKey:
    """The key of a value of a dict.

    Attributes:
        key: Key of the value.
    """

    key: object


@dataclass(frozen=True)
class NodeDef:
    """How containers of one type are flattened and rebuilt.

    Attributes:
        type: The type.
        flatten_fn: Returns the children of a container, and what else is needed to rebuild it (the context).
        unflatten_fn: Returns the container of these children and context.
        flatten_with_keys_fn: As `flatten_fn`, with a key for each child; or None.
    """

    type: type
    flatten_fn: Callable[[PyTree], tuple[list[PyTree], Context]]
    unflatten_fn: Callable[[Iterable[PyTree], Context], PyTree]
    flatten_with_keys_fn: Callable[[PyTree], tuple[list[tuple[KeyEntry, PyTree]], Context]] | None = None


@dataclass(frozen=True)
class TreeSpec:
    """The structure of a nested container.

    Attributes:
        type: Type of the container; None for a leaf.
        context: What `unflatten_fn` of the type needs beside the children: the keys of a dict.
        children_specs: Structures of the children.
        num_leaves: Number of leaves.
    """

    type: Any
    context: Context
    children_specs: list[TreeSpec]
    num_leaves: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_leaves", sum(child.num_leaves for child in self.children_specs))

    def is_leaf(self) -> bool:
        """Return whether this is the structure of a leaf."""
        return isinstance(self, LeafSpec)

    def children(self) -> list[TreeSpec]:
        """Return the structures of the children."""
        return list(self.children_specs)

    @property
    def num_children(self) -> int:
        """Number of children; 0 for a leaf."""
        return len(self.children_specs)


class LeafSpec(TreeSpec):
    """The structure of a leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])
        object.__setattr__(self, "num_leaves", 1)


SUPPORTED_NODES: dict[type, NodeDef] = {}
"""The container types. Objects of all other types are leaves."""


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[PyTree], tuple[list[PyTree], Context]],
    unflatten_fn: Callable[[Iterable[PyTree], Context], PyTree],
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: object = None,
    from_dumpable_context: object = None,
    flatten_with_keys_fn: Callable[[PyTree], tuple[list[tuple[KeyEntry, PyTree]], Context]] | None = None,
) -> None:
    """Treat objects of a class as containers.

    Args:
        cls: The class; not its subclasses.
        flatten_fn: Returns the children of an object, and its context.
        unflatten_fn: Returns the object of these children and context.
        serialized_type_name: Ignored: structures are not written to files.
        to_dumpable_context: Ignored.
        from_dumpable_context: Ignored.
        flatten_with_keys_fn: As `flatten_fn`, with a key for each child.

    Raises:
        ArgumentError: The class is a container already.
    """
    if cls in SUPPORTED_NODES:
        raise ArgumentError(f"register_pytree_node: {cls} is registered already")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


_register_pytree_node = register_pytree_node  # PyTorch's older name, which libraries still import


def _dict_flatten(tree: dict[object, PyTree]) -> tuple[list[PyTree], Context]:
    return list(tree.values()), list(tree)


def _dict_unflatten(values: Iterable[PyTree], keys: Context) -> dict[object, PyTree]:
    return dict(zip(keys, values, strict=True))


def _dict_flatten_with_keys(tree: dict[object, PyTree]) -> tuple[list[tuple[KeyEntry, PyTree]], Context]:
    return [(MappingKey(key), value) for key, value in tree.items()], list(tree)


register_pytree_node(dict, _dict_flatten, _dict_unflatten, flatten_with_keys_fn=_dict_flatten_with_keys)
register_pytree_node(list, lambda tree: (list(tree), None), lambda values, context: list(values))
register_pytree_node(tuple, lambda tree: (list(tree), None), lambda values, context: tuple(values))
register_pytree_node(
    OrderedDict, _dict_flatten, lambda values, keys: OrderedDict(zip(keys, values, strict=True)),
    flatten_with_keys_fn=_dict_flatten_with_keys,
)  # fmt: skip
register_pytree_node(
    defaultdict, lambda tree: (list(tree.values()), (tree.default_factory, list(tree))),
    lambda values, context: defaultdict(context[0], zip(context[1], values, strict=True)),
)  # fmt: skip
register_pytree_node(deque, lambda tree: (list(tree), tree.maxlen), lambda values, maxlen: deque(values, maxlen=maxlen))
register_pytree_node(_namedtuple, lambda tree: (list(tree), type(tree)), lambda values, cls: cls(*values))  # type: ignore[arg-type]


def _get_node_type(tree: PyTree) -> Any:
    """Return the key of `SUPPORTED_NODES` for `tree`: its type, and for named tuples `namedtuple`."""
    is_named = isinstance(tree, tuple) and type(tree) not in SUPPORTED_NODES and hasattr(tree, "_fields")
    return _namedtuple if is_named else type(tree)


def _is_leaf(tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    return (is_leaf is not None and is_leaf(tree)) or _get_node_type(tree) not in SUPPORTED_NODES


def tree_flatten(tree: PyTree, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """Return the leaves of a nested container, and its structure.

    Args:
        tree: Nested lists, tuples, dicts, and containers of registered types.
        is_leaf: Returns True for containers to treat as leaves.

    Returns:
        List of leaves, and `TreeSpec`.
    """
    if _is_leaf(tree, is_leaf):
        return [tree], LeafSpec()
    node_type = _get_node_type(tree)
    children, context = SUPPORTED_NODES[node_type].flatten_fn(tree)
    leaves: list[Any] = []
    specs = []
    for child in children:
        child_leaves, spec = tree_flatten(child, is_leaf)
        leaves += child_leaves
        specs.append(spec)
    return leaves, TreeSpec(node_type, context, specs)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """Return the nested container of these leaves and this structure.

    Args:
        leaves: The leaves, in the order of `tree_flatten`.
        treespec: The structure.

    Returns:
        The container.

    Raises:
        ArgumentError: The structure has another number of leaves.
    """
    values = list(leaves)
    if len(values) != treespec.num_leaves:
        raise ArgumentError(f"tree_unflatten: {len(values)} leaves for a structure with {treespec.num_leaves}")
    if treespec.is_leaf():
        return values[0]
    children = []
    start = 0
    for spec in treespec.children_specs:
        children.append(tree_unflatten(values[start : start + spec.num_leaves], spec))
        start += spec.num_leaves
    return SUPPORTED_NODES[treespec.type].unflatten_fn(children, treespec.context)


def tree_leaves(tree: PyTree, is_leaf: IsLeaf = None) -> list[Any]:
    """Return the leaves of a nested container."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: PyTree, is_leaf: IsLeaf = None) -> Iterable[Any]:
    """Return an iterator over the leaves."""
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: PyTree, is_leaf: IsLeaf = None) -> TreeSpec:
    """Return the structure of a nested container."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """Replace each leaf by `func(leaf, *rest_leaves)`, with the leaves at the same position in `rests`."""
    leaves, spec = tree_flatten(tree, is_leaf)
    leaf_lists = [leaves, *(tree_leaves(rest, is_leaf) for rest in rests)]
    return tree_unflatten([func(*corresponding) for corresponding in zip(*leaf_lists, strict=True)], spec)


def tree_map_(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """Call `func` for every leaf, and return `tree` itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(type_or_types: Any, func: Callable[..., Any], tree: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """Call `func` for leaves of a type (or of several, or those for which a function returns True); keep the others."""
    is_type = isinstance(type_or_types, (type, tuple)) or hasattr(type_or_types, "__args__")
    matches = (lambda leaf: isinstance(leaf, type_or_types)) if is_type else type_or_types
    return tree_map(lambda leaf: func(leaf) if matches(leaf) else leaf, tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Return whether `pred` is true for every leaf."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Return whether `pred` is true for any leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))
