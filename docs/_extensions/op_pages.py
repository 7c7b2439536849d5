"""Write the page of every op and function to docs/ops, and docs/spec-language.md, before Sphinx reads the sources.

Neither is tracked. The site's sidebar lists the kinds of ops. The page of a kind links to the pages of its ops, which
are in no table of contents: Furo repeats all tables on every page, which took most of the build with 500 pages.

The text of a page and its kernels come from the functions behind `weftgrad show`, so that site and command agree.
"""

from __future__ import annotations

import inspect
import shutil
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from accuracy import accuracy_table
from function_pages import function_page

import weftgrad as wg
import weftgrad.nn
import weftgrad.special
from weftgrad._generated import ops as generated
from weftgrad.bench.report_files import load
from weftgrad.cli.op_markdown import KernelDevice, op_markdown
from weftgrad.cli.op_page import GROUPS
from weftgrad.cli.python_functions import called_ops, public_functions
from weftgrad.codegen import reference
from weftgrad.runtime.records import OpRecord, registry

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PUBLIC = (wg, wg.Tensor, wg.nn.functional, wg.special)  # an op that none of these has is a part of functions
KINDS_FIRST = ("pointwise", "reduction", "rowwise", "contraction", "scan", "window")
DEVICES = (
    KernelDevice("cpu", "C, compiled by clang for `cpu`", "c"), KernelDevice("cuda", "Triton, for `cuda:N`", "python"),
)  # fmt: skip

ORPHAN = "---\norphan: true\n---\n\n"  # no warning that the page is in no table of contents

INDEX = """# Ops

One page an op, made from its spec and from the kernels that a call compiles. Ops of one kind share their templates and
planners: [Extending](../extending.md) tells how to add a kind."""

FUNCTIONS_ABOUT = "Functions that resolve arguments, check shapes, and call one op or several."

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


def page(record: OpRecord, times: dict[str, list[str]]) -> str:
    """Return the page of an op in Markdown."""
    measurements = []
    if times.get(record.name):
        measurements += [
            "## Measured", "",
            "Minimum times on two cores. The ratio is PyTorch's time divided by ours: above 1, weftgrad is faster.", "",
            "| machine | call | weftgrad | torch / weftgrad |", "| --- | --- | ---: | ---: |",
            *times[record.name], "",
        ]  # fmt: skip
    measurements += accuracy_table(record)
    return op_markdown(record, generated.FUNCTIONS[record.name][0], DEVICES, measurements=measurements)


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
    """Write docs/ops: a page for every op and every function that calls ops, a page for each kind, and an index."""
    folder = Path(app.srcdir) / "ops"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    times = measured_times(Path(app.srcdir).parent / "bench" / "results")
    functions = {name: function for name, function in sorted(public_functions().items()) if called_ops(function)}
    parts = {op for function in functions.values() for op in called_ops(function)}
    groups = defaultdict(list)
    for record in sorted(registry, key=lambda record: record.name):
        is_public = record.name in parts or any(hasattr(namespace, record.name) for namespace in PUBLIC)
        if is_public and record.name in generated.FUNCTIONS:
            _write(folder / f"{record.name}.md", ORPHAN + page(record, times))
            groups[record.kind].append(record)
    names = {record.name for records in groups.values() for record in records}
    kinds = sorted(groups, key=lambda kind: (kind not in KINDS_FIRST, (*KINDS_FIRST, kind).index(kind), kind))
    for kind in kinds:
        rows = [_summary_row(record.name, str(record.spec.get("doc", "")).strip()) for record in groups[kind]]
        about = f"{GROUPS.get(kind, '')}.".capitalize()
        _write(folder / f"kind-{kind}.md", _list_page(kind, about, rows))
    functions = {name: function for name, function in functions.items() if name.lower() not in names}
    for name, function in functions.items():
        _write(folder / f"{name}.md", ORPHAN + function_page(name, function, names))
    rows = [_summary_row(name, inspect.getdoc(function) or "") for name, function in functions.items()]
    _write(folder / "kind-functions.md", _list_page("functions in Python", FUNCTIONS_ABOUT, rows))
    links = [f"| [{kind}](kind-{kind}.md) | {len(groups[kind])} | {GROUPS.get(kind, '')} |" for kind in kinds]
    links.append(f"| [functions in Python](kind-functions.md) | {len(functions)} | functions that call ops |")
    index = [INDEX, "", "| kind | ops | what they compute |", "| --- | ---: | --- |", *links, "", "```{toctree}",
             ":hidden:", "", *(f"kind-{kind}" for kind in (*kinds, "functions")), "```", ""]  # fmt: skip
    _write(folder / "index.md", "\n".join(index))
    _write(folder.parent / "spec-language.md", reference.language_reference() + EDITORS)


def _list_page(title: str, about: str, rows: list[str]) -> str:
    """Return a page that lists ops in a table."""
    return "\n".join([f"# {title}", "", about, "", "| | what it computes |", "| --- | --- |", *rows, ""])


def _summary_row(name: str, doc: str) -> str:
    summary = doc.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    return f"| [{name}]({name}.md) | {summary} |"


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    wg.set_default_device("cpu")
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True}
