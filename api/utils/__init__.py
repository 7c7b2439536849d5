"""What is neither a tensor nor a layer: data loading."""

from . import data

__all__ = ["data"]
