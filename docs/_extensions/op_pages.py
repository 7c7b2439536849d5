"""Write the page of every op to docs/ops, and docs/spec-language.md, before Sphinx reads the sources.

Neither is tracked.

The text of a page and its kernels come from the functions behind `weftgrad show`, so that site and command agree.
"""

from __future__ import annotations

import inspect
import shutil
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from docstring_markdown import to_markdown

import weftgrad as wg
import weftgrad.nn
import weftgrad.special
from weftgrad._generated import ops as generated
from weftgrad.bench.report_files import load
from weftgrad.cli.described_devices import find_device
from weftgrad.cli.kernel_text import SHAPE, distinct, kernel_text, planned_steps
from weftgrad.cli.op_page import op_page
from weftgrad.cli.terminal import Style
from weftgrad.codegen import reference
from weftgrad.runtime import dtypes
from weftgrad.runtime.errors import WeftgradError
from weftgrad.runtime.records import OpRecord, registry

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PUBLIC = (wg, wg.Tensor, wg.nn.functional, wg.special)  # ops that none of these has are parts of others
LABEL_WIDTH = 12  # of the fields of `weftgrad show`
CODE_FIELDS = ("formula", "example", "derivative", "saved", "spec")
COMMAND_FIELDS = ("next",)  # rows for readers of a terminal, at the end
KINDS_FIRST = ("pointwise", "reduction", "rowwise", "contraction", "scan", "window")
DEVICES = (("cpu", "C, compiled by clang for `cpu`", "c"), ("cuda", "Triton, for `cuda:N`", "python"))

EDITORS = """
## In an editor

`weftgrad generate --schema spec.schema.json` writes a JSON Schema of this page. With the YAML language server, of
which VS Code's YAML extension is one client, name it in the first line of a spec file:

```yaml
# yaml-language-server: $schema=spec.schema.json
```

Fields are completed and explained then, and mistakes are underlined. `weftgrad check FILE` finds what a schema
cannot: wrong expressions, names and shapes.
"""


class Plain(Style):
    """Text without colours, even if Sphinx runs on a terminal."""

    def __call__(self, kind: str, text: str) -> str:
        return text


def kernels(record: OpRecord, device_name: str) -> str:
    """Return the kernels that a call compiles, or why there is none."""
    device, _ = find_device(device_name)
    steps = distinct(planned_steps(record, device, dtypes.float32, "", SHAPE))
    return "\n".join(kernel_text(step, device).kernel.rstrip() for step in steps)


def facts(record: OpRecord) -> list[str]:
    """Return the page of `weftgrad show` as Markdown: the signature, and a table of its fields."""
    lines = [line.rstrip() for line in op_page(record, Plain())]
    end = lines.index("")
    fields: list[list[str]] = []
    for line in lines[end:]:
        label, text = line[:LABEL_WIDTH].strip(), line[LABEL_WIDTH:].strip()
        if label in COMMAND_FIELDS:
            break
        if label:
            fields.append([label, text])
        elif text:
            fields[-1][1] += f" {text}"
    table = ["| | |", "| --- | --- |"]
    for label, text in fields:
        cell = text.replace("|", "\\|")
        content = f"`{cell}`" if label in CODE_FIELDS else cell
        table.append(f"| {label} | {content} |")
    return ["```python", *lines[:1], *(line for line in lines[1:end] if line.startswith("    ")), "```", "", *table, ""]


def page(record: OpRecord, times: dict[str, list[str]]) -> str:
    """Return the page of an op in Markdown."""
    function = generated.FUNCTIONS[record.name][0]
    lines = [f"# {record.name}", "", (inspect.getdoc(function) or "").partition("\n")[0], "", *facts(record)]
    details = (inspect.getdoc(function) or "").partition("\n")[2].strip()
    if details:
        lines += to_markdown(details)
    if times.get(record.name):
        lines += [
            "## Measured", "",
            "Minimum times on two cores. The ratio is PyTorch's time divided by ours: above 1, weftgrad is faster.", "",
            "| machine | call | weftgrad | torch / weftgrad |", "| --- | --- | ---: | ---: |",
            *times[record.name], "",
        ]  # fmt: skip
    if record.texts:
        sentence = f"Of a call on float32 operands of {'x'.join(map(str, SHAPE))}."
        lines += ["## Kernels", "", f"{sentence} `float16` in C is a vector of 16 floats.", ""]
        for device_name, title, language in DEVICES:
            try:
                text = kernels(record, device_name)
            except WeftgradError as error:
                lines += [f"{title}: none ({str(error).splitlines()[0]})", ""]
                continue
            if text:
                lines += [f"### {title}", "", f"```{language}", text, "```", ""]
    return "\n".join(lines)


def measured_times(results: Path) -> dict[str, list[str]]:
    """Return, by op, table rows from the reports of Zen processors that the repository holds.

    A row belongs to an op if all kernels that it launched are the op's.
    """
    names = sorted((record.name for record in registry), key=len, reverse=True)
    rows = defaultdict(list)
    for path in sorted(results.glob("zen[0-9]-2-cores-*.json.gz")):
        report = load(path)
        for row in report["kernels"]:
            symbols = row.get("facts", {}).get("cpu", {}).get("schedule", [])
            ops = {next((name for name in names if symbol.startswith(f"{name}_")), "") for symbol in symbols}
            times = row.get("times", {})
            if len(ops) == 1 and "cpu" in times and "torch" in times:
                ours, theirs = times["cpu"]["least"], times["torch"]["least"]
                machine = path.name.removesuffix(".json.gz").removesuffix("-ops")
                rows[ops.pop()].append(f"| {machine} | {row['name']} | {ours * 1e6:.1f} µs | {theirs / ours:.2f} |")
    return rows


def write_pages(app: Sphinx) -> None:
    """Write docs/ops: a page for every op, and an index by kind."""
    folder = Path(app.srcdir) / "ops"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    times = measured_times(Path(app.srcdir).parent / "bench" / "results")
    groups = defaultdict(list)
    for record in sorted(registry, key=lambda record: record.name):
        if record.name not in generated.FUNCTIONS or not any(hasattr(place, record.name) for place in PUBLIC):
            continue
        (folder / f"{record.name}.md").write_text(page(record, times), encoding="utf-8")
        groups[record.kind].append(record)
    index = ["# Ops", "", "One page an op, made from its spec and from the kernels that a call compiles.", ""]
    for kind in sorted(groups, key=lambda kind: (kind not in KINDS_FIRST, (*KINDS_FIRST, kind).index(kind), kind)):
        records = groups[kind]
        index += [f"## {kind}", "", "| op | what it computes |", "| --- | --- |"]
        for record in records:
            summary = str(record.spec.get("doc", "")).strip().split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
            index.append(f"| [{record.name}]({record.name}.md) | {summary} |")
        index += ["", "```{toctree}", ":hidden:", "", *(record.name for record in records), "```", ""]
    (folder.parent / "spec-language.md").write_text(reference.language_reference() + EDITORS, encoding="utf-8")
    (folder / "index.md").write_text("\n".join(index), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    wg.set_default_device("cpu")
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True}
