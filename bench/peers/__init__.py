"""Peers: the libraries that benchmarks compare weftgrad with. Each has a module of its name here.

The module defines `site(our_sites, scale)`. It returns a `Site`, which runs benchmarks with the library on the hardware
of our first device, or None if the library cannot run there. `site` imports the library itself, so that only measured
libraries are loaded. It raises ImportError if the library is not installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from ...runtime.errors import ArgumentError
from ..sites import OurSite, Site

__all__ = ["COMPILED_TORCH", "NAMES", "check_installed", "parse", "peer_sites"]

COMPILED_TORCH = "torch.compile"
"""PyTorch with its compiler, a peer of the suite `models` for those who ask for it: it compiles for minutes."""
NAMES = ("torch", "numpy", "cupy", "jax", "tinygrad", COMPILED_TORCH)


def parse(text: str | None) -> list[str] | None:
    """Parse the option `--peers`.

    Args:
        text: Names separated by commas (`torch,jax`), `all`, `none`, or None if the option is absent.

    Returns:
        The names without duplicates; [] for `none`; None, which stands for all installed peers but `torch.compile`,
        for `all` or None.

    Raises:
        ArgumentError: A name is unknown.
    """
    if text is None or text == "all":
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == ["none"]:
        return []
    for name in names:
        if name not in NAMES:
            raise ArgumentError(f"bench: --peers has no {name!r}: one or more of {', '.join(NAMES)}, all or none")
    return list(dict.fromkeys(names))


def check_installed(names: Sequence[str] | None) -> None:
    """Raise ArgumentError if a library that `--peers` names is not installed. It is not imported."""
    for name in names or ():
        package = name.partition(".")[0]
        if find_spec(package) is None:
            raise ArgumentError(f"bench: --peers {name}: it is not installed (pip install {package})")


def peer_sites(our_sites: Sequence[OurSite], scale: int, peer_names: Sequence[str] | None) -> list[Site]:
    """Return one site for each peer that can run here.

    Args:
        our_sites: Our own sites; peers run on the hardware of the first one.
        scale: Divisor of the benchmark sizes, for quick trials.
        peer_names: Peers to use; None for all that are installed.

    Raises:
        ArgumentError: A peer in `peer_names` is not installed.
    """
    sites = []
    for name in [name for name in NAMES if name != COMPILED_TORCH] if peer_names is None else peer_names:
        try:
            site = import_module(f".{name.replace('.', '_')}", __name__).site(our_sites, scale)
        except ImportError as error:
            if peer_names is not None:
                raise ArgumentError(f"bench: --peers {name}: it does not import here ({error})") from None
            continue
        if site is not None:
            sites.append(site)
    return sites
