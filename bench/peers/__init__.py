"""The libraries that rows are compared with, one file each: its place beside a device, its calls and its clock.

A peer's file has `site(own, scale)`: a `Site` whose library runs where the first of our devices does, or None where it
cannot. It imports its library there, so that a library that is not measured is not loaded. ImportError: not installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from ...runtime.errors import ArgumentError
from ..sites import OurSite, Site

__all__ = ["NAMES", "beside", "parse"]

NAMES = ("torch", "numpy", "cupy", "jax", "tinygrad")


def parse(text: str | None) -> list[str] | None:
    """The peers of `torch,jax`; none for `none`, and None, which is all that are installed, for nothing."""
    if text is None or text == "all":
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == ["none"]:
        return []
    for name in names:
        if name not in NAMES:
            raise ArgumentError(f"bench: --peers has no {name!r}: one or more of {', '.join(NAMES)}, all or none")
    return list(dict.fromkeys(names))


def beside(own: Sequence[OurSite], scale: int, wanted: Sequence[str] | None) -> list[Site]:
    """The peers that take part. ArgumentError if one that was asked for by name is not installed."""
    found = []
    for name in NAMES if wanted is None else wanted:
        try:
            made = import_module(f".{name}", __name__).site(own, scale)
        except ImportError as error:
            if wanted is not None:
                raise ArgumentError(f"bench: --peers {name}: it does not import here ({error})") from None
            continue
        if made is not None:
            found.append(made)
    return found
