"""Write the page of every op to docs/ops, and docs/spec-language.md, before Sphinx reads the sources.

Neither is tracked.

The text of a page and its kernels come from the functions behind `weftgrad show`, so that site and command agree.
"""

import inspect
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import weftgrad as wg
from weftgrad._generated import ops as generated
from weftgrad.cli.described_devices import find_device
from weftgrad.cli.kernel_text import SHAPE, distinct, kernel_text, planned_steps
from weftgrad.cli.op_page import op_page
from weftgrad.cli.terminal import Style
from weftgrad.codegen import reference
from weftgrad.runtime import dtypes
from weftgrad.runtime.errors import WeftgradError
from weftgrad.runtime.records import OpRecord, registry

DEVICES = (("cpu", "C, compiled by clang for `cpu`", "c"), ("cuda", "Triton, for `cuda:N`", "python"))

EDITORS = """
## In an editor

`weftgrad generate --schema spec.schema.json` writes a JSON Schema of this page. With the YAML language server, of which VS Code's
YAML extension is one client, name it in the first line of a spec file:

```yaml
# yaml-language-server: $schema=spec.schema.json
```

Fields are completed and explained then, and mistakes are underlined. `weftgrad check FILE` finds what a schema cannot: wrong
expressions, names and shapes.
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


def page(record: OpRecord, times: dict[str, list[str]]) -> str:
    """Return the page of an op in Markdown."""
    function = generated.FUNCTIONS.get(record.name, (None,))[0]
    lines = [f"# {record.name}", "", "```text", *(line.rstrip() for line in op_page(record, Plain())), "```", ""]
    documentation = inspect.getdoc(function) if function is not None else None
    if documentation:
        lines += ["## Docstring", "", "```text", documentation, "```", ""]
    if times.get(record.name):
        lines += ["## Measured", "", "| machine | row | weftgrad | torch / weftgrad |", "| --- | --- | ---: | ---: |"]
        lines += [*times[record.name], ""]
    if record.texts:
        lines += ["## Kernels", "", f"Of a call on float32 operands of {'x'.join(map(str, SHAPE))}.", ""]
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
    """Return, by op, table rows from the newest reports of the op library that the repository holds."""
    from weftgrad.bench.report_files import load

    rows = defaultdict(list)
    for path in sorted(results.glob("zen*-ops.json.gz")):
        report = load(path)
        machine = path.name.removesuffix("-ops.json.gz")
        devices = [device["device"] for device in report["machine"]["devices"]]
        for row in report["kernels"]:
            times = row.get("times", {})
            ours = next((times[name] for name in devices if name in times), None)
            theirs = next((times[name] for name in times if name.startswith("torch")), None)
            if ours and ours.get("least") and row.get("op", row["name"].split()[0]) in registry:
                ratio = f"{theirs['least'] / ours['least']:.2f}" if theirs and theirs.get("least") else ""
                name = row.get("op", row["name"].split()[0])
                rows[name].append(f"| {machine} | {row['name']} | {ours['least'] * 1e6:.1f} µs | {ratio} |")
    return rows


def write_pages(app: Any) -> None:
    """Write docs/ops: a page for every op, and an index by kind."""
    folder = Path(app.srcdir) / "ops"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    times = measured_times(Path(app.srcdir).parent / "bench" / "results")
    groups = defaultdict(list)
    for record in sorted(registry, key=lambda record: record.name):
        if "_grad_" in record.name or record.name.startswith("_") or record.name not in generated.FUNCTIONS:
            continue
        (folder / f"{record.name}.md").write_text(page(record, times), encoding="utf-8")
        groups[record.kind].append(record)
    index = ["# Ops", "", "One page an op, made from its spec and from the kernels that a call compiles.", ""]
    for kind, records in sorted(groups.items()):
        index += [f"## {kind}", "", "| op | |", "| --- | --- |"]
        for record in records:
            summary = str(record.spec.get("doc", "")).strip().split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
            index.append(f"| [{record.name}]({record.name}.md) | {summary} |")
        index += ["", "```{toctree}", ":hidden:", "", *(record.name for record in records), "```", ""]
    (folder.parent / "spec-language.md").write_text(reference.language_reference() + EDITORS, encoding="utf-8")
    (folder / "index.md").write_text("\n".join(index), encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Register the extension."""
    wg.set_default_device("cpu")
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True}
