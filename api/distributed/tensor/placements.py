"""How a tensor is placed on the ranks of a group: on each the whole, or on each a part."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Placement", "Replicate", "Shard"]


class Placement:
    """Base class of placements."""


@dataclass(frozen=True)
class Replicate(Placement):
    """Every rank has the whole tensor."""


@dataclass(frozen=True)
class Shard(Placement):
    """Every rank has an equal part along a dimension.

    Attributes:
        dim: The dimension; negative ones count from the end.
    """

    dim: int
