"""Merge reports of one device each, as the processes of `device_processes` write them, and take them apart again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .report_types import DeviceFacts, Report

__all__ = ["device_report", "merge_reports"]


def merge_reports(parts: Sequence[Report]) -> Report:
    """Merge reports of one device each. Every row gets its `device`, every device the `places` of its peers."""
    first = parts[0]
    versions = dict(first["machine"]["versions"])
    for part in parts[1:]:
        versions |= {name: version for name, version in part["machine"]["versions"].items() if version}
    devices: list[DeviceFacts] = [
        {**device, "places": part["machine"].get("places", {})}
        for part in parts for device in part["machine"]["devices"]
    ]  # fmt: skip
    merged: Report = {
        **first,
        "machine": {**first["machine"], "devices": devices, "versions": versions},
        "host": [{"device": _first_device(part), **row} for part in parts for row in part["host"]],
        "kernels": [{"device": _first_device(part), **row} for part in parts for row in part["kernels"]],
    }
    if any("curves" in part for part in parts):
        merged["curves"] = [row for part in parts for row in part.get("curves", ())]
    if any("timelines" in part for part in parts):
        merged["timelines"] = [row for part in parts for row in part.get("timelines", ())]
    return merged


def _first_device(report: Report) -> str:
    return str(report["machine"]["devices"][0]["device"])


def device_report(report: Report | None, name: str) -> Report | None:
    """Return the report of one device as its process wrote it, or None if the merged report has none."""
    if report is None:
        return None
    devices = [each for each in report["machine"]["devices"] if each["device"] == name]
    if not devices:
        return None
    (device,) = devices
    places = device.get("places", report["machine"].get("places", {}))
    device = {**device}
    device.pop("places", None)
    part: Report = {
        **report,
        "machine": {**report["machine"], "devices": [device], "places": places},
        "host": [row for row in report["host"] if row.get("device", name) == name],
        "kernels": [
            row for row in report["kernels"] if row.get("device", name) == name and row["group"] != "process"
        ],
    }  # fmt: skip
    part.pop("curves", None)
    part.pop("timelines", None)
    return part
