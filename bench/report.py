"""Format each row as a terminal line when it has been measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .colours import Paint, by_share, plain
from .doubts import load_doubts, sample_doubts
from .roofline import LIMITS, Limit, Share
from .rows import throughput, throughput_text

if TYPE_CHECKING:
    from .report_types import DeviceFacts, HostRow, KernelRow, Machine

__all__ = ["HOST_HEAD", "KERNEL_HEAD", "host_line", "kernel_line", "row_doubts", "title"]

HOST_HEAD = f"{'host cost, pipelined':28s} {'min us':>8s} {'median':>8s} {'target':>12s}   others, min us"
KERNEL_HEAD = (
    f"{'kernel':48s} {'us':>10s} {'GB/s':>7s} {'of copy':>7s} {'GFLOP/s':>9s} {'of roof':>7s}   others' time by "
    "ours, minima (medians): above 1 we win"
)


def title(machine: Machine) -> str:
    """Return the headline of a run: `NVIDIA H200 (cuda:0), torch 2.11.0 on cuda:0`."""
    devices = " beside ".join(f"{d['name']} ({_device_text(d)})" for d in machine["devices"])
    versions = machine["versions"]
    torch = f", torch {versions['torch']} on {machine['torch']}" if machine["torch"] else ", without torch"
    other_peers = [
        f", {name} {versions.get(name.partition('.')[0])} on {place}"  # torch.compile has torch's version
        for name, place in machine.get("places", {}).items() if name != "torch"
    ]  # fmt: skip
    return devices + torch + "".join(other_peers)


def _device_text(device: DeviceFacts) -> str:
    """Return the device's name; for a CPU also its OpenCL platform: `cpu; CPU by Portable Computing Language`."""
    if device.get("kind") != "CPU":
        return str(device["device"])
    return f"{device['device']}; CPU" + (f" by {device['platform']}" if "platform" in device else "")


def host_line(row: HostRow, paint: Paint = plain) -> str:
    """Format a row of host costs."""
    if "problem" in row:
        return f"{row['name']:28s} {paint(row['problem'], 'bad')}"
    target_minimum, target_median = row["target_us"]
    peer_times = "  ".join(f"{name} {t['least'] * 1e6:.2f}" for name, t in row["peers"].items())
    doubts = [*load_doubts(row.get("load")), *sample_doubts(row)]
    least_text = "~" * bool(doubts) + format(row["least"] * 1e6, ".2f")
    times = paint(f"{least_text:>8s} {row['median'] * 1e6:8.2f}", "good" if row["met"] else "bad")
    notes = "".join(f"   {note}" for note in doubts)
    target = f"{target_minimum:5.0f} / {target_median:<4.0f} {' ' if row['met'] else 'x'}"
    return f"{row['name']:28s} {times} {target}  {peer_times}{notes}".rstrip()


def _rates(row: KernelRow) -> tuple[str, str, str]:
    """Return GB/s, the share of a copy's bandwidth, and GFLOP/s as text; empty if the row has none."""
    copy = row["ratios"].get("copy")
    return (
        f"{row['bytes'] / row['least'] * 1e-9:.1f}" if row["bytes"] else "",
        f"{copy[0]:.2f}" if copy else "",
        f"{row['flops'] / row['least'] * 1e-9:.1f}" if row["flops"] else "",
    )


def _throughputs(row: KernelRow) -> list[str]:
    """Return each contender's throughput as text; nothing for rows without one."""
    rates = {name: throughput(row.get("items", 0), time) for name, time in row.get("times", {}).items()}
    return [f"{name} {throughput_text(rate, row['unit'])}" for name, rate in rates.items() if rate]


def row_doubts(row: KernelRow) -> list[str]:
    """Return the reasons why a row's times are uncertain: those of its first device, then those of the others."""
    doubts = [*load_doubts(row.get("load"))]
    for index, (name, time) in enumerate(row.get("times", {}).items()):
        doubts += sample_doubts(time, name if index else "")
    return doubts


def _roof_text(row: KernelRow, paint: Paint) -> str:
    """Return the largest share of the roofline among the row's devices, in 7 cells."""
    shares = row.get("share", {})
    if not shares:
        return " " * 7
    device = max(shares, key=lambda name: shares[name])
    limit = row.get("limit", {}).get(device)
    known_limits: list[Limit] = [name for name in LIMITS if name == limit] or ["memory"]
    return paint(f"{Share(shares[device], known_limits[0])!s:>7s}", by_share(shares[device]))


def kernel_line(row: KernelRow, paint: Paint = plain) -> str:
    """Format a row of kernels. Ratios are coloured by whether they reach their aim."""
    if "problem" in row:
        return f"{row['name']:48s} {paint(row['problem'], 'bad')}"
    rate, copy, flops = _rates(row)
    target = row["target"] or {}
    roles = dict.fromkeys(target, "good") | dict.fromkeys(row["missed"], "bad")
    times = row.get("times", {})
    marks = {name: "~" if name in times and sample_doubts(times[name]) else "" for name in row["ratios"]}
    ratios = "  ".join(
        paint(f"{name} {marks[name]}{minimum:.2f} ({median:.2f})", roles.get(name, ""))
        for name, (minimum, median) in row["ratios"].items() if name != "copy"
    )  # fmt: skip
    copy = paint(f"{copy:>7s}", by_share(row["ratios"]["copy"][0])) if copy else copy
    roof = _roof_text(row, paint)
    missed = "   x " + ", ".join(f"{n} {target[n]}" for n in row["missed"]) if row["missed"] else ""
    doubts = row_doubts(row)
    first_time = next(iter(times.values()), None)
    is_uncertain = bool(load_doubts(row.get("load")) or (first_time and sample_doubts(first_time)))
    least = "~" * is_uncertain + format(row["least"] * 1e6, ".1f")
    notes = "".join(f"   {note}" for note in [*_throughputs(row), *row["notes"], *doubts])
    return (
        f"{row['name']:48s} {least:>10s} {rate:>7s} {copy:>7s} {flops:>9s} {roof}   {ratios}{missed}{notes}"
    ).rstrip()
