"""The gradient of connectionist temporal classification. It has none itself, as PyTorch's has not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..dispatch import call
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from ..views import contiguous
from .node import Node

__all__ = ["rules"]

_READ = ("grad_losses", "log_probs", "targets", "places", "losses", "alpha")


def rules(record: OpRecord) -> Mapping[str, Rule]:
    """The gradient rule of the log-probabilities."""
    return {"log_probs": Rule(function=_gradient, operands=_READ)}


def _gradient(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    grad, *others = (values[name] for name in _READ)
    blank = node.statics[node.recipe.record.statics.index("blank")]
    return call(registry["ctc_gradient"], (contiguous(grad), *others), (blank,))  # type: ignore[no-any-return]
