"""The gradient of connectionist temporal classification. As in PyTorch, it cannot be differentiated again."""

from __future__ import annotations

from collections.abc import Mapping

from ..dispatch import call
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from ..views import contiguous
from .node import Node

__all__ = ["rules"]

_READS = ("grad_losses", "log_probs", "targets", "places", "losses", "alpha")


def rules(record: OpRecord) -> Mapping[str, Rule]:
    """Return the gradient rule of the log-probabilities."""
    return {"log_probs": Rule(function=_gradient, operands=_READS)}


def _gradient(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    grad, *operands = (values[name] for name in _READS)
    return call(registry["ctc_gradient"], (contiguous(grad), *operands), (node.static("blank"),))
