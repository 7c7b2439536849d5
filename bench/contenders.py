"""All contenders of a benchmark: our devices, and the peers that run on the same hardware."""

from __future__ import annotations

from collections.abc import Sequence

from .peers import peer_sites
from .sites import OurSite, Site

__all__ = ["all_sites"]


def all_sites(
    devices: Sequence[str], scale: int = 1, peers: Sequence[str] | None = None, label: str = ""
) -> list[Site]:  # fmt: skip
    """Return the contenders: our devices, then the peers.

    Args:
        devices: names of our devices.
        scale: divides the sizes of rows, for quick trials.
        peers: names of libraries, or None for all that are installed and run on the same hardware.
        label: the first device's name in a report.
    """
    own = [OurSite(name, scale, label if i == 0 else "") for i, name in enumerate(devices)]
    return [*own, *peer_sites(own, scale, peers)]
