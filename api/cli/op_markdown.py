"""The page of an op in Markdown: what `weftgrad show` tells, its docstring, and the kernels that a call compiles.

`weftgrad generate --docs` writes such pages for a user's ops, and the documentation site for weftgrad's own.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..runtime import dtypes
from ..runtime.errors import WeftgradError
from ..runtime.records import OpRecord
from .described_devices import find_device
from .docstring_markdown import escape, to_markdown
from .kernel_text import SHAPE, first_launches, kernel_text, planned_steps
from .op_page import op_page
from .terminal import Style

__all__ = ["DESCRIBED_DEVICES", "KernelDevice", "index_page", "op_markdown", "wrap_signature"]

_WIDTH = 88  # columns of a block in Furo's middle column
_LABEL_WIDTH = 12  # of the fields of `weftgrad show`
_CODE_FIELDS = ("formula", "example", "derivative", "saved", "spec")
_COMMAND_FIELDS = ("next",)  # rows for readers of a terminal, at the end


@dataclass(frozen=True, slots=True)
class KernelDevice:
    """A device whose kernels a page shows.

    Attributes:
        name: A device of this machine, or a described one.
        title: The heading.
        language: The language for highlighting.
    """

    name: str
    title: str
    language: str


DESCRIBED_DEVICES = (
    KernelDevice("x86-avx2", "C, for processors with AVX2", "c"),
    KernelDevice("sm_90", "Triton, for NVIDIA GPUs (sm_90)", "python"),
)
"""Devices that no machine needs to have: pages with their kernels are the same on every machine."""


class _Plain(Style):
    """Text without colours, even on a terminal."""

    def __call__(self, kind: str, text: str) -> str:
        return text


def wrap_signature(signature: str) -> list[str]:
    """Return a signature in lines that fit the page without a scroll bar."""
    return textwrap.wrap(signature, _WIDTH, subsequent_indent="    ", break_long_words=False)


def op_markdown(
    record: OpRecord,
    function: Callable[..., object],
    devices: Sequence[KernelDevice] = DESCRIBED_DEVICES,
    *,
    spec_file: str = "",
    measurements: Sequence[str] = (),
) -> str:
    """Return the page of an op.

    Args:
        record: The op.
        function: Its function, for signature and docstring.
        devices: The devices whose kernels the page shows.
        spec_file: Name of the file with the op's spec, if it is a user's.
        measurements: Lines of Markdown between the docstring and the kernels.
    """
    summary, _, details = (inspect.getdoc(function) or "").partition("\n")
    lines = [f"# {record.name}", "", escape(summary), "", *_facts(record, spec_file)]
    if details.strip():
        lines += to_markdown(details)
    lines += measurements
    if record.texts and devices:
        sentence = f"Of a call on float32 operands of {'x'.join(map(str, SHAPE))}."
        lines += ["## Kernels", "", f"{sentence} In C, `float8` is a vector of 8 floats.", ""]
        for device in devices:
            lines += _kernel_section(record, device)
    return "\n".join(lines)


def _facts(record: OpRecord, spec_file: str) -> list[str]:
    """Return what `weftgrad show` prints as Markdown: the signature, and a table of its fields."""
    lines = [line.rstrip() for line in op_page(record, _Plain(), spec_file)]
    end = lines.index("")
    fields: list[list[str]] = []
    for line in lines[end:]:
        label, text = line[:_LABEL_WIDTH].strip(), line[_LABEL_WIDTH:].strip()
        if label in _COMMAND_FIELDS:
            break
        if label:
            fields.append([label, text])
        elif text:
            fields[-1][1] += f" {text}"
    table = ["| | |", "| --- | --- |"]
    for label, text in fields:
        cell = text.replace("|", "\\|")
        content = f"`{cell}`" if label in _CODE_FIELDS else cell
        table.append(f"| {label} | {content} |")
    signature = " ".join(line.strip() for line in lines[:end] if line is lines[0] or line.startswith("    "))
    return ["```python", *wrap_signature(signature), "```", "", *table, ""]


def _kernel_section(record: OpRecord, device: KernelDevice) -> list[str]:
    """Return the section with the kernels that a call compiles, or a sentence that says why there is none."""
    try:
        target, _ = find_device(device.name)
        steps = first_launches(planned_steps(record, target, dtypes.float32, "", SHAPE))
        text = "\n".join(kernel_text(step, target).kernel.rstrip() for step in steps)
    except WeftgradError as error:
        return [f"{device.title}: none ({str(error).splitlines()[0]})", ""]
    return [f"### {device.title}", "", f"```{device.language}", text, "```", ""] if text else []


def index_page(records: Iterable[OpRecord]) -> str:
    """Return a page that lists ops: name, kind and the summary of each, with links to `ops/NAME.md`."""
    rows = []
    for record in records:
        summary = (str(record.spec.get("doc", "")).strip().splitlines() or [""])[0]
        rows.append(f"| [{record.name}](ops/{record.name}.md) | {record.kind} | {escape(summary)} |")
    return "\n".join(["# Ops", "", "| op | kind | |", "| --- | --- | --- |", *rows, ""])
