"""Functions of `torch._dynamo` that advise or query PyTorch's graph compiler, which does not exist here."""

from __future__ import annotations

from types import SimpleNamespace

from ...compiler import allow_in_graph, disable, is_compiling, reset

__all__ = [
    "allow_in_graph", "assume_constant_result", "config", "disable", "graph_break", "is_compiling",
    "is_dynamo_supported", "mark_dynamic", "mark_static", "mark_static_address", "maybe_mark_dynamic", "reset",
]  # fmt: skip

assume_constant_result = allow_in_graph
config = SimpleNamespace()  # settings of the compiler: programs set them, and nothing reads them


def graph_break(msg: str = "") -> None:
    """Do nothing: there is no graph."""


def is_dynamo_supported() -> bool:
    """Return False: calls run compiled kernels as they come."""
    return False


def _mark(t: object, *args: object, **options: object) -> None:
    """Do nothing: shapes are never constants of a compiled program."""


mark_dynamic = mark_static = mark_static_address = maybe_mark_dynamic = _mark
