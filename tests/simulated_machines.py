"""Machines and timelines for tests of the simulation."""

from weftgrad.distributed import simulate as sim

__all__ = ["LINK", "machine", "timeline"]

LINK = sim.Link(latency=3e-6, bandwidth=2e9)


def machine(devices=8, **changes):
    """Return a machine whose nodes have `devices` devices; the network is slower than the links in a node."""
    return sim.Machine("test", devices, intra=LINK, inter=sim.Link(20e-6, 5e8), **changes)


def timeline(layers=8, update=0.004, mbytes=4, role="replicated"):
    """Return a step of equal layers: 2 ms forward and 4 ms backward each, gradients from the last to the first."""
    return sim.Timeline(
        "net", "cpu",
        tuple(sim.Layer(f"l{i}", 0.002, 1 << 16, 1 << 18, mbytes << 20, role) for i in range(layers)),
        tuple(sim.Gradient(f"l{i}.weight", i, mbytes << 20, 0.004) for i in reversed(range(layers))),
        update, 2 * layers * mbytes << 20,
    )  # fmt: skip
