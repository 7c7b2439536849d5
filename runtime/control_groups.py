"""The CPU and memory limits of this process's Linux control groups (v1 and v2).

A container on a host with 64 cores may be limited to the CPU time of two. Neither `os.cpu_count()` nor the affinity
shows that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["cpu_quota", "memory_limits"]


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the CPU time that the control groups allow, in cores, or None without a limit."""
    quotas = []
    for group, is_v1 in _groups(root, "cpu"):
        with suppress(OSError, ValueError, ZeroDivisionError):
            quotas.append(_read_quota(group, is_v1))
    return min((quota for quota in quotas if quota > 0), default=None)


def memory_limits(root: Path = Path("/")) -> list[int]:
    """Return the limits in bytes of the process's control group and of every group above it."""
    limits = []
    for group, is_v1 in _groups(root, "memory"):
        with suppress(OSError, ValueError):  # `max` is no limit
            limits.append(int((group / ("memory.limit_in_bytes" if is_v1 else "memory.max")).read_text()))
    return limits


def _groups(root: Path, controller: str) -> Iterator[tuple[Path, bool]]:
    """Yield the folder of each group that limits this process, and whether it is v1.

    Inside a container the path in /proc/self/cgroup may be the host's and lead nowhere; the walk up then ends at the
    mount's own root, which is the container's group. Without /proc only that root is left.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except (OSError, ValueError):
        lines = []
    for line in [*lines, "0::/", f"1:{controller}:/"]:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / (controller if controllers else "")
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            yield mount.joinpath(*parts[:depth]), bool(controllers)


def _read_quota(group: Path, is_v1: bool) -> float:
    """Return the CPU time limit of one group, in cores. Raises `ValueError` for `max`, `OSError` without a file."""
    if is_v1:
        return int((group / "cpu.cfs_quota_us").read_text()) / int((group / "cpu.cfs_period_us").read_text())
    quota, period = (group / "cpu.max").read_text().split()
    return int(quota) / int(period)
