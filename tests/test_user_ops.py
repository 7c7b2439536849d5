"""Check what a user gets for specs with ops of several kinds: generated tests, pages, and `weftgrad check`.

The specs are tests/user_ops/kinds.yaml, and the references beside it are those of a user, in NumPy.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import SkipTest

import pytest

import weftgrad as wg
from weftgrad.cli import main
from weftgrad.cli.check import check_op
from weftgrad.codegen.loader import load_file, load_text
from weftgrad.testing.op_tests import OpTests

FOLDER = Path(__file__).with_name("user_ops")
SPECS, REFERENCES = FOLDER / "kinds.yaml", FOLDER / "op_references.py"
OPS = {op.name: op for op in load_file(SPECS)}
ops = wg.ops.load(SPECS)
TESTS = OpTests(ops, references=REFERENCES)
DTYPES = ("float32", "bfloat16")  # one that kernels compute in, and one that they convert


def names(of: Callable[[list[str]], list[str]]) -> list[str]:
    return of(list(OPS))


# The checks pass


def test_the_specs_have_every_kind_with_a_formula() -> None:
    kinds = {"pointwise", "reduction", "rowwise", "scan", "contraction", "composite"}
    assert {op.kind for op in OPS.values()} == kinds


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPS)
def test_values_are_those_of_the_reference(name: str, dtype: str) -> None:
    TESTS.check_values(name, "cpu", dtype)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_values_of_integers(dtype: str) -> None:
    assert ("kinds_step", dtype) in TESTS.with_dtypes(OPS)
    TESTS.check_values("kinds_step", "cpu", dtype)


@pytest.mark.parametrize("name", names(TESTS.with_formula))
def test_kernels_compute_the_formula(name: str) -> None:
    TESTS.check_formula(name, "cpu", "float32")


@pytest.mark.parametrize("name", OPS)
def test_layouts(name: str) -> None:
    TESTS.check_layouts(name, "cpu")


@pytest.mark.parametrize("name", names(TESTS.with_shapes))
def test_no_elements(name: str) -> None:
    TESTS.check_no_elements(name, "cpu")


@pytest.mark.parametrize("name", names(TESTS.differentiable))
def test_derivatives(name: str) -> None:
    TESTS.check_derivatives(name, "cpu")


@pytest.mark.parametrize("name", ["kinds_snake", "kinds_power", "kinds_unit_rows", "kinds_product", "kinds_layer"])
def test_gradients(name: str) -> None:
    TESTS.check_gradients(name, "cpu", "float32")


def test_the_example_and_broadcasting() -> None:
    assert TESTS.with_example(OPS) == ["kinds_snake", "kinds_layer"]
    for name in TESTS.with_example(OPS):
        TESTS.check_example(name, "cpu")
    assert TESTS.broadcasting(OPS) == ["kinds_snake"]
    TESTS.check_broadcasting("kinds_snake", "cpu")


# The checks fail where something is wrong


def checks_of(name: str, function: Callable[..., Any]) -> OpTests:
    """Return the checks of a function in place of an op's."""
    return OpTests(SimpleNamespace(**{name: function}), references=REFERENCES)  # type: ignore[arg-type]


def fails(check: Callable[..., None], *arguments: str) -> str:
    with pytest.raises(AssertionError) as error:
        check(*arguments)
    return str(error.value)


def test_wrong_values_are_found_and_the_message_names_the_call() -> None:
    wrong = checks_of("kinds_mean", lambda input, dim, keepdim: ops.kinds_mean(input, dim, keepdim) * 1.001)
    for check, source in ((wrong.check_values, "the reference"), (wrong.check_formula, "the formula")):
        message = fails(check, "kinds_mean", "cpu", "float32")
        start = r"kinds_mean on cpu, float32, input \[\d+\], dim -1, keepdim False, against "
        assert re.match(start + source + ": Values are not close", message), message


def test_a_wrong_formula_is_found_by_the_reference_only() -> None:
    text = '[{op: "kinds_snake(input, alpha)", kind: pointwise, dtypes: float, out: input + sin(alpha * input)}]'
    with pytest.raises(wg.runtime.errors.SpecError, match="'kinds_snake' exists already"):
        wg.ops.load(text)
    mistaken = wg.ops.load(text.replace("kinds_snake", "mistaken_snake"))
    OpTests(mistaken).check_formula("mistaken_snake", "cpu", "float32")
    wrong = checks_of("kinds_snake", mistaken.mistaken_snake)
    assert "against the reference" in fails(wrong.check_values, "kinds_snake", "cpu", "float32")


def test_wrong_layouts_broadcasting_shapes_and_dtypes_are_found() -> None:
    def wrong_if(condition: Callable[[Any], bool]) -> Callable[..., Any]:
        def function(input: Any, alpha: Any) -> Any:
            return ops.kinds_snake(input, alpha) * (1.5 if condition(input) else 1)

        return function

    strided = checks_of("kinds_snake", wrong_if(lambda x: not x.is_contiguous()))
    assert "transposed operands, against contiguous ones" in fails(strided.check_layouts, "kinds_snake", "cpu")
    scalar = checks_of("kinds_snake", wrong_if(lambda x: x.ndim < 3))
    assert "shapes [(17,), (5, 3, 17)]" in fails(scalar.check_broadcasting, "kinds_snake", "cpu")
    empty = checks_of("kinds_snake", one_row_of_none)
    assert "of (0, 7) operands a result of [[1, 7]]" in fails(empty.check_no_elements, "kinds_snake", "cpu")
    wide = checks_of("kinds_snake", lambda input, alpha: ops.kinds_snake(input, alpha).double())
    assert "the result is float64" in fails(wide.check_values, "kinds_snake", "cpu", "float32")


def one_row_of_none(input: Any, alpha: Any) -> Any:
    return ops.kinds_snake(input, alpha) if len(input) else wg.ones(1, 7)


def test_wrong_derivatives_are_found() -> None:
    def detached(input: Any, weight: Any, dim: int) -> Any:
        return ops.kinds_unit_rows(input, weight.detach() + 0 * weight, dim)

    wrong = checks_of("kinds_unit_rows", detached)
    message = fails(wrong.check_derivatives, "kinds_unit_rows", "cpu")
    assert message.startswith("kinds_unit_rows on cpu, first derivatives: ")


def test_a_wrong_example_is_found() -> None:
    wrong = checks_of("kinds_snake", lambda input, alpha: ops.kinds_snake(input, alpha) + 1)
    assert fails(wrong.check_example, "kinds_snake", "cpu").endswith("the example prints tensor([1.0000, 2.7081])")


def test_an_op_without_a_reference_says_how_to_write_one() -> None:
    tests = OpTests(ops, references=FOLDER / "missing.py")
    with pytest.raises(SkipTest, match=r"write `def kinds_mean\(input, dim, keepdim\)` with NumPy into op_ref"):
        tests.check_values("kinds_mean", "cpu", "float32")
    tests.check_values("kinds_tanh", "cpu", "float32")  # its spec names numpy.tanh


def test_a_reference_of_too_few_results_is_found(tmp_path: Path) -> None:
    path = tmp_path / "op_references.py"
    path.write_text("def both_parts(input):\n    return abs(input)\n")
    spec = '[{op: "both_parts(input)", kind: pointwise, dtypes: float, out: {size: abs(input), half: input / 2}}]'
    loaded = wg.ops.load(spec)
    message = "both_parts: the reference returns 1 results, the op 2"
    assert fails(OpTests(loaded, references=path).check_values, "both_parts", "cpu", "float32") == message
    path.write_text("def both_parts(input):\n    return abs(input), input / 2\n")
    OpTests(loaded, references=path).check_values("both_parts", "cpu", "float32")


def test_tolerances_of_the_user_count(tmp_path: Path) -> None:
    path = tmp_path / "op_references.py"
    path.write_text(REFERENCES.read_text() + "\n\nTOLERANCES = {'kinds_mean': {'float32': (0.0, 0.0)}}\n")
    assert "Values are not" in fails(OpTests(ops, references=path).check_values, "kinds_mean", "cpu", "float32")


# weftgrad check


@pytest.mark.parametrize("name", OPS)
def test_check_passes(name: str) -> None:
    """Reductions and scans along a dimension have a formula, too, and a scan without gradient is no failure."""
    row = check_op(OPS[name], vars(ops)[name], wg.device("cpu"))
    assert not row.failed, row.notes
    has_expected_values = name in TESTS.with_formula([name]) or OPS[name].reference
    assert ("(" in row.error) == bool(has_expected_values)


def test_check_shows_that_there_is_no_gradient() -> None:
    text = '[{op: "kinds_squares(input, dim: int)", kind: scan, dtypes: float, '
    text += "scan: {identity: 0, map: input * input, combine: a + b}}]"
    user_ops = wg.ops.load(text)
    (op,) = load_text(text)
    row = check_op(op, user_ops.kinds_squares, wg.device("cpu"))
    assert (row.gradcheck, row.failed) == ("none", ())


@pytest.mark.parametrize("passes", [False, True])
def test_shapes_of_composites_come_from_the_example(passes: bool) -> None:
    name = f"kinds_trace_{passes}".lower()
    text = f"- op: {name}(x, y)\n  kind: composite\n  out: sum(mm(x, y)) / 2\n"
    text += f"  example: {name}(ones(2, 3), ones(3, 2)) -> tensor(6.)\n" if passes else ""
    user_ops = wg.ops.load(text)
    (op,) = load_text(text)
    row = check_op(op, vars(user_ops)[name], wg.device("cpu"))
    assert bool(row.failed) != passes
    assert passes or "shapes of the field `example`" in row.notes[0]


# What `weftgrad generate` writes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a user's folder with a spec file and references, which is the current one."""
    shutil.copy(SPECS, tmp_path)
    (tmp_path / "tests").mkdir()
    shutil.copy(REFERENCES, tmp_path / "tests")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.*") if path.is_file()}


GENERATE = ("generate", "kinds.yaml", "--tests", "tests/test_kinds.py", "--docs", "pages")


def generate(folder: Path, *options: str, **variables: str) -> dict[str, str]:
    """Run the command in a process of its own: this one has loaded the specs from another place."""
    command = [sys.executable, "-W", "error", "-m", "weftgrad.cli", *GENERATE, *options]
    process = subprocess.run(command, cwd=folder, env=os.environ | variables, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return files(folder)


@pytest.mark.slow
def test_generated_files_are_the_same_on_every_machine(folder: Path) -> None:
    first = generate(folder, "-o", "kinds_ops")
    generate(folder, "-o", "kinds_ops", "--check", WEFTGRAD_CAPABILITIES="lanes=4,registers=16,cores=7")
    assert "import kinds_ops\n\nTESTS = OpTests(\n    kinds_ops,\n" in first["tests/test_kinds.py"]
    assert str(folder) not in "".join(text for name, text in first.items() if name.endswith((".md", "_kinds.py")))


def test_the_test_module_is_short_and_loads_the_specs_without_a_package(folder: Path) -> None:
    text = generate(folder)["tests/test_kinds.py"]
    assert '    wg.ops.load(FOLDER / "../kinds.yaml"),\n' in text
    functions = [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    assert len(functions) == 8
    assert max(map(len, text.splitlines())) <= 88
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", "-k", "example and cpu"]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert re.search(r"^2 passed, \d+ deselected", process.stdout, re.MULTILINE), process.stdout


def test_pages_of_every_op_and_an_index(folder: Path) -> None:
    (folder / "pages/ops").mkdir(parents=True)
    header = "<!-- Generated by `weftgrad generate` from kinds.yaml; do not edit. -->\n"
    (folder / "pages/ops/gone.md").write_text(header)
    (folder / "pages/mine.md").write_text("# Mine\n")
    pages = {name: text for name, text in generate(folder).items() if name.startswith("pages/")}
    assert set(pages) == {"pages/index.md", "pages/mine.md", *(f"pages/ops/{name}.md" for name in OPS)}
    for name, op in OPS.items():
        page = pages[f"pages/ops/{name}.md"]
        assert page.startswith(f"{header}\n# {name}\n")
        parts = ["| kind | ", "| dtypes | ", "| cost | ", "| spec | `kinds.yaml` |", "**Args**"]
        parts += [] if op.kind == "composite" else ["| derivative | ", "### C, for processors", "### Triton, for"]
        assert [part for part in parts if part not in page] == []
        assert f"[{name}](ops/{name}.md) | {op.kind} |" in pages["pages/index.md"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("generate", "kinds.yaml", "--tests", "tests/kinds.py"), "pytest does not collect 'kinds.py'"),
        (("generate", "--tests", "tests/test_kinds.py"), "--tests needs the spec files"),
        (("generate", "kinds.yaml"), "-o DIR says where the package of these specs goes"),
    ],
)
def test_wrong_options(folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_check_finds_a_test_module_that_is_out_of_date(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", "kinds.yaml", "--tests", "tests/test_kinds.py"]
    assert main([*arguments, "--check"]) == 1
    assert main(arguments) == 0
    assert main([*arguments, "--check"]) == 0
    with (folder / "kinds.yaml").open("a") as file:
        file.write("\n- {op: kinds_more(input), kind: pointwise, dtypes: float, out: input + 1}\n")
    assert main([*arguments, "--check"]) == 1
    assert capsys.readouterr().err.endswith("out of date; run weftgrad generate\n  test_kinds.py\n")


# weftgrad show


def test_show_names_commands_that_work(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page of an op in a file ends with commands that have the file in them."""
    path = str(SPECS)  # loaded in this process already
    assert main(["show", path, "kinds_snake"]) == 0
    output = capsys.readouterr().out
    commands = re.findall(r"weftgrad (show \S+ .*?)(?:    \(.*)?$", output, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        assert main(command.split()) == 0, command
    assert main(["show", path, "kinds_snake_grad_input_grad_input"]) == 0
    assert main(["show", path, "kinds_other"]) == 2
    assert "has no op named 'kinds_other'; it has kinds_snake, " in capsys.readouterr().err
