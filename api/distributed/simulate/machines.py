"""Described machines: links by latency and bandwidth, nodes of several devices, and the groups of ranks on them.

A link is Hockney's model (R. W. Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2",
Parallel Computing 20(3), 1994): a message of n bytes takes `latency + n / bandwidth`, which the literature writes
α + nβ.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...runtime.errors import ArgumentError

__all__ = ["DGX_A100", "DGX_H100", "ETHERNET_CLUSTER", "MACHINES", "Group", "Link", "Machine"]


@dataclass(frozen=True, slots=True)
class Link:
    """A connection in one direction, by Hockney's model.

    Args:
        latency: Seconds that a message of no bytes takes (α).
        bandwidth: Bytes per second of a long message (1/β).

    Raises:
        ArgumentError: `latency` is negative, or `bandwidth` is not positive.

    Example:
        >>> from weftgrad.distributed.simulate import Link
        >>> Link(latency=1e-6, bandwidth=1e9).seconds(1000)
        2e-06
    """

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        if self.latency < 0 or not self.bandwidth > 0:
            raise ArgumentError(
                f"Link: latency is 0 or more seconds and bandwidth more than 0 bytes/s, not {self.latency} and "
                f"{self.bandwidth}"
            )

    def seconds(self, nbytes: float) -> float:
        """Return the seconds that a message takes.

        Args:
            nbytes: Bytes of the message.

        Returns:
            Seconds.
        """
        return self.latency + nbytes / self.bandwidth


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that communicate: how many, and how they are spread over nodes.

    Args:
        size: Number of ranks.
        per_node: Number of its ranks on each node; the last node may have fewer.

    Example:
        >>> from weftgrad.distributed.simulate import Group
        >>> Group(size=20, per_node=8).nodes
        3
    """

    size: int
    per_node: int

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return -(-self.size // self.per_node)


@dataclass(frozen=True, slots=True)
class Machine:
    """A cluster of equal nodes.

    Args:
        name: Name, as tables print it.
        devices_per_node: Devices of a node; each has one rank.
        intra: Link of a device to another one in its node.
        inter: Link of one network adapter of a node.
        adapters_per_node: Network adapters of a node. The devices share them equally.
        memory: Bytes of a device's memory; 0 if it is not described.
        cores_per_node: Processor cores that the ranks of a node share when they compute; None if each device computes
            on its own.
        waits_spin: Whether a rank that waits for a message keeps its core busy, as MPICH's does. Only with
            `cores_per_node`.
        slowdown: Factor by which computing is slower when all devices of a node compute, as they share its memory.
        seconds_per_reduced_byte: Time to add one received byte to a local one (γ); 0 if it is part of the bandwidth.
        sources: Where the figures come from.

    Raises:
        ArgumentError: A number is out of range.

    Example:
        >>> from weftgrad.distributed.simulate import DGX_H100
        >>> DGX_H100.group(16).nodes
        2
    """

    name: str
    devices_per_node: int
    intra: Link
    inter: Link
    adapters_per_node: int = 1
    memory: int = 0
    cores_per_node: int | None = None
    waits_spin: bool = False
    slowdown: float = 1.0
    seconds_per_reduced_byte: float = 0.0
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        counts = (self.devices_per_node, self.adapters_per_node, self.cores_per_node or 1)
        if min(counts) < 1 or self.slowdown < 1 or self.seconds_per_reduced_byte < 0:
            raise ArgumentError(
                f"Machine {self.name!r}: devices, adapters and cores are 1 or more, slowdown 1 or more, "
                "seconds_per_reduced_byte 0 or more"
            )

    @property
    def network_share(self) -> Link:
        """The link between nodes that one device has while all devices of its node use the network."""
        return Link(self.inter.latency, self.inter.bandwidth * self.adapters_per_node / self.devices_per_node)

    def group(self, size: int, stride: int = 1) -> Group:
        """Return a group of ranks that are `stride` apart. Ranks fill a node before the next one.

        Args:
            size: Number of ranks.
            stride: Distance of neighbouring ranks.

        Returns:
            `Group`.
        """
        return Group(size, max(1, min(size, self.devices_per_node // stride)))

    def link_between(self, rank: int, other: int) -> Link:
        """Return the link between two ranks.

        Args:
            rank: A rank.
            other: Another rank.

        Returns:
            `Link`: `intra`, or `network_share` if they are on different nodes.
        """
        is_local = rank // self.devices_per_node == other // self.devices_per_node
        return self.intra if is_local else self.network_share


_NCCL_LATENCY = "latencies: NCCL's src/graph/tuning.cc, ring with protocol Simple (NVLink 3.4 us, network 9.6 us)"

DGX_H100 = Machine(
    "dgx-h100", 8, intra=Link(3.4e-6, 450e9), inter=Link(9.6e-6, 50e9), adapters_per_node=8, memory=80 * 10**9,
    sources=(
        "NVIDIA DGX H100 data sheet: 8 H100 of 80 GB, NVLink 900 GB/s in both directions together, "
        "8 ConnectX-7 of 400 Gb/s for the compute network",
        _NCCL_LATENCY,
    ),
)  # fmt: skip
DGX_A100 = Machine(
    "dgx-a100", 8, intra=Link(3.4e-6, 300e9), inter=Link(9.6e-6, 25e9), adapters_per_node=8, memory=80 * 10**9,
    sources=(
        "NVIDIA DGX A100 data sheet: 8 A100 of 80 GB, NVLink 600 GB/s in both directions together, "
        "8 ConnectX-6 of 200 Gb/s for the compute network",
        _NCCL_LATENCY,
    ),
)  # fmt: skip
ETHERNET_CLUSTER = Machine(
    "ethernet", 8, intra=Link(5.7e-6, 31.5e9), inter=Link(25e-6, 12.5e9), adapters_per_node=1, memory=24 * 10**9,
    sources=(
        "8 cards of 24 GB per node on PCI Express 4.0 x16 (31.5 GB/s), one adapter of 100 Gb/s Ethernet",
        "latency in a node: NCCL's src/graph/tuning.cc, ring over PCI with protocol Simple (5.7 us)",
        "latency between nodes: an assumption for TCP through the kernel, without a source",
    ),
)  # fmt: skip
MACHINES = {machine.name: machine for machine in (DGX_H100, DGX_A100, ETHERNET_CLUSTER)}
"""Described machines by name."""
