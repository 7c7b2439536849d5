"""The table of operators: which function computes a node."""

from __future__ import annotations

from .elementwise_ops import ELEMENTWISE_OPS
from .layer_ops import LAYER_OPS
from .nodes import NodeFunction
from .recurrent_ops import RECURRENT_OPS
from .reduction_ops import REDUCTION_OPS
from .shape_ops import SHAPE_OPS

__all__ = ["TABLE"]

TABLE: dict[str, NodeFunction] = {**ELEMENTWISE_OPS, **LAYER_OPS, **RECURRENT_OPS, **REDUCTION_OPS, **SHAPE_OPS}
"""Functions by operator."""
