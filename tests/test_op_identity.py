"""Ops with the same spec are one op, wherever they are loaded from; different ops of one name are an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from weftgrad.codegen.generate import generate

SPEC = """
- op: "twin(input, weight, scale: Scalar = 2.0)"
  kind: pointwise
  doc: input * weight * scale.
  dtypes: float
  out: input * input * weight * scale
- op: "twin_rows(input, weight: Row | None = None, dim: int = -1)"
  kind: rowwise
  dtypes: float
  out: input * rsqrt(mean(input * input)) * weight
- op: twice_twin(input, weight)
  kind: composite
  out: twin(twin(input, weight), weight)
"""
USE = """
import weftgrad as wg
def check(*namespaces):
    for ops in namespaces:
        x = wg.tensor([[0.5, -1.0, 2.0]], dtype=wg.float64, requires_grad=True)
        weight = wg.tensor([1.0, 2.0, 3.0], dtype=wg.float64, requires_grad=True)
        assert (ops.twin(x, weight) - x * x * weight * 2).abs().max().item() == 0
        for function in (ops.twin, ops.twice_twin, ops.twin_rows):
            assert wg.autograd.gradcheck(function, (x, weight))
        assert wg.autograd.gradgradcheck(ops.twin, (x, weight))
    records = wg.runtime.records.registry
    print(sorted(record.name for record in records if record.name.startswith("twin") and "_v2" in record.name))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a spec file, and the packages `first` and `second` that are generated from it."""
    (tmp_path / "twin.yaml").write_text(SPEC)
    for name in ("first", "second"):
        generate(tmp_path / name, [tmp_path / "twin.yaml"])
    return tmp_path


def run(folder: Path, *lines: str) -> tuple[str, str]:
    """Run a program in a process of its own; return what it prints, and the last line of its errors."""
    program = "\n".join((USE, *lines))
    process = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    return process.stdout, (process.stderr.strip().splitlines() or [""])[-1]


LOAD, TEXT = "loaded = wg.ops.load('twin.yaml')", "text = wg.ops.load(open('twin.yaml').read())"


@pytest.mark.parametrize(
    "lines",
    [
        ("import first", LOAD, "check(first, loaded)"),
        (LOAD, "import first", "check(loaded, first)"),
        (LOAD, "check(loaded)", "import first", "check(first)"),
        ("import first, second", "check(first, second)"),
        (LOAD, TEXT, "check(loaded, text)"),
        (LOAD, "again = wg.ops.load('twin.yaml')", "check(loaded, again)", "assert wg.ops.twin is again.twin"),
    ],
    ids=["package and file", "file and package", "file, gradients, package", "two packages", "file and text", "twice"],
)
def test_an_op_from_two_places_is_one_op(folder: Path, lines: tuple[str, ...]) -> None:
    """No kernel is registered a second time under another name, and both functions have all derivatives."""
    output, error = run(folder, *lines)
    assert (set(output.splitlines()), error) == ({"[]"}, "")


def test_prose_makes_no_difference(folder: Path) -> None:
    path = folder / "prose.yaml"
    path.write_text(SPEC.replace("doc: input * weight * scale.", "doc: Another text.\n  sample: {input: [1, 2]}"))
    assert run(folder, LOAD, "check(loaded, wg.ops.load('prose.yaml'))") == ("[]\n", "")


CHANGED = SPEC.replace("* weight * scale\n", "+ weight * scale\n")


def test_a_file_with_another_op_of_the_name_says_where_and_what_differs(folder: Path) -> None:
    (folder / "changed.yaml").write_text(CHANGED)
    difference = "out is 'input * input + weight * scale' here, 'input * input * weight * scale' there"
    for first, source in ((LOAD, f"{folder}/twin.yaml"), ("import first", f"the package in {folder}/first, made from")):
        _, error = run(folder, first, "wg.ops.load('changed.yaml')")
        assert "SpecError: changed.yaml:2: op: an op named 'twin' exists already, in " + source in error
        assert error.endswith(f"({difference}); choose another name")


def test_a_package_with_another_op_of_the_name_says_where_and_what_differs(folder: Path) -> None:
    (folder / "changed.yaml").write_text(CHANGED)
    generate(folder / "changed", [folder / "changed.yaml"])
    _, error = run(folder, LOAD, "import changed")
    assert f"the package in {folder}/changed, made from changed.yaml: an op named 'twin' exists already" in error
    assert f", in {folder}/twin.yaml (out is 'input * input + weight * scale' here, 'input * input * weight" in error
    attempt = ("try:", "    import changed", "except wg.runtime.errors.ArgumentError:", "    check(first)")
    assert run(folder, "import first", *attempt) == ("[]\n", "")  # nothing of the second package is registered


def test_a_changed_file_replaces_its_own_ops_only(folder: Path) -> None:
    changed = f"open('twin.yaml', 'w').write({CHANGED!r})"
    output, error = run(folder, LOAD, changed, LOAD, "print(loaded.twin(wg.ones(1), wg.ones(1)).item())")
    assert (output, error) == ("3.0\n", "")
    _, error = run(folder, "import first", "first.twin", LOAD)
    assert "an op named 'twin' exists already, in the package in" in error
