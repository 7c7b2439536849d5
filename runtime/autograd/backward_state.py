"""The state of one run of backward, whose slots `engine` and its C version (csrc/backward.c) read and write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..records import registry
from ..tensor import Tensor
from .node import Node

if TYPE_CHECKING:
    from ..call_types import Edge

__all__ = ["BackwardState", "GradientSums"]


class GradientSums:
    """Sums of the gradients that arrive at a node, one for each output; or at a leaf, whose only sum has index 0.

    Attributes:
        grads: The sums; None while no gradient has arrived.
        is_owned: For each sum, whether only this object uses its memory, so that it may be added to in place.
    """

    __slots__ = ("grads", "is_owned")

    def __init__(self, count: int):
        self.grads: list[Tensor | None] = [None] * count
        self.is_owned = [False] * count


class BackwardState:
    """The state of one run of backward.

    Attributes:
        retain_graph: Keep the saved tensors of the graph.
        create_graph: Record the computation of the gradients.
        inputs: The tensors whose gradients are returned; None to accumulate into the leaves.
        node_sums: The sums for nodes that are in `heap`.
        leaves: Each leaf that a gradient has arrived at, and its sum, by the `id` of the leaf.
        heap: `(-sequence, node)` of nodes that wait to be processed. The latest call comes first.
        captured: Gradients of non-leaf `inputs`, by node and output.
        requested_nodes: Nodes that computed non-leaf `inputs`.
        requested_leaves: `id`s of the leaves in `inputs`.
        reaching_nodes: Nodes from which one of `inputs` can be reached; None without `inputs`.
        zero_edges: Edges whose gradient is zero, and not computed.
        user_storages: `id`s of storages that no leaf's `grad` may share, because user code may hold tensors in them:
            roots' gradients, and what hooks and custom functions return. Storages of freed tensors may stay in the
            set; a new storage with such an `id` costs a needless copy.
        add_record, copy_record, expand_record, fill_record, sum_record, view_record: The records of these ops.
    """

    __slots__ = (
        "add_record", "captured", "copy_record", "create_graph", "expand_record", "fill_record", "heap", "inputs",
        "leaves", "node_sums", "reaching_nodes", "requested_leaves", "requested_nodes", "retain_graph", "sum_record",
        "user_storages", "view_record", "zero_edges",
    )  # fmt: skip

    def __init__(self, retain_graph: bool, create_graph: bool, inputs: Sequence[Tensor] | None):
        self.retain_graph = retain_graph
        self.create_graph = create_graph
        self.inputs = inputs
        self.node_sums: dict[Node, GradientSums] = {}
        self.leaves: dict[int, tuple[Tensor, GradientSums]] = {}
        self.heap: list[tuple[int, Node]] = []
        self.captured: dict[tuple[Node, int], Tensor] = {}
        self.requested_nodes: set[Node] = set()
        self.requested_leaves: set[int] = set()
        for tensor in inputs or ():
            if tensor.node is None:
                self.requested_leaves.add(id(tensor))
            else:
                self.requested_nodes.add(tensor.node)
        self.reaching_nodes: set[Node] | None = None
        self.zero_edges: list[Edge] = []
        self.user_storages: set[int] = set()
        self.add_record, self.copy_record = registry["add"], registry["copy"]
        self.expand_record, self.fill_record = registry["expand"], registry["fill"]
        self.sum_record, self.view_record = registry["sum"], registry["view"]
