"""Run the programs of docs/third_party_programs on weftgrad and on PyTorch, compare, and write the tables of the docs.

    python docs/refresh_third_party.py --weftgrad PYTHON --torch PYTHON --results FOLDER

The first Python has weftgrad and the packages but no torch, the second torch and the packages; `CI_THIRD_PARTY=1
.ci/run` makes both. The tables are those of docs/third-party.md and docs/pretrained.md, between comments. Results that
are in the folder already are not computed again. Programs that fail, or whose results differ by more than their bound,
are listed at the end, and the exit status is 1 then.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
PROGRAMS = FOLDER / "third_party_programs"
_TIMEOUT = 900  # seconds of one program
_BOUND = 5e-5  # of programs that name none, as in `registration.program`
_CHECKPOINT_BOUND = 1e-5
_NO_EXTENSION = "Couldn't load custom C++ ops"  # torchvision's error where its compiled ops are missing
_DISTRIBUTIONS = {"ignite": "pytorch-ignite"}  # where the name on PyPI is another one
_VERSIONS = (
    "import importlib.metadata, json, sys; "
    "print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))"
)


@dataclass(frozen=True)
class Program:
    """A function of docs/third_party_programs.

    Attributes:
        file: Its file.
        name: Its name.
        package: The package that it uses.
        summary: What it does.
        bound: Largest difference that passes.
        needs_extension: Whether the reference needs compiled ops, without which results are not compared.
    """

    file: Path
    name: str
    package: str
    summary: str
    bound: float
    needs_extension: bool


@dataclass
class Outcome:
    """What came of one program.

    Attributes:
        program: The program.
        difference: Largest relative difference from PyTorch; None if one of the two did not run.
        error: Last line of the error, or "".
        lacks_reference: Whether weftgrad ran it, and PyTorch's side has no compiled ops.
        shown: For each result that a page shows, weftgrad's value and the other one.
    """

    program: Program
    difference: float | None = None
    error: str = ""
    shown: dict[str, tuple[float, float]] = field(default_factory=dict)
    lacks_reference: bool = False

    @property
    def passes(self) -> bool:
        """Whether both libraries ran it, with results within its bound, or weftgrad alone where it is not compared."""
        return self.lacks_reference or (self.difference is not None and self.difference <= self.program.bound)


def load_programs(path: Path) -> list[Program]:
    """Return the programs of a file, without importing it."""
    programs = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            decorator = node.decorator_list[0]
            assert isinstance(decorator, ast.Call)
            package = ast.literal_eval(decorator.args[0])
            options = {k.arg: ast.literal_eval(k.value) for k in decorator.keywords}
            summary = (ast.get_docstring(node) or "").partition("\n")[0].rstrip(".")
            bound, needs_extension = options.get("bound", _BOUND), options.get("needs_extension", False)
            programs.append(Program(path, node.name, package, summary, bound, needs_extension))
    return programs


def run(command: list[str]) -> tuple[str, str]:
    """Run a command; return what it prints, and the last line of its error, or ""."""
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return "", f"no result after {_TIMEOUT} s"
    if process.returncode == 0:
        return process.stdout, ""
    lines = process.stderr.strip().splitlines()
    return process.stdout, lines[-1] if lines else f"ended with status {process.returncode}"


def run_program(command: list[str], program: Program, results: Path) -> str:
    """Run one program unless its results exist; return the last line of its error, or ""."""
    if results.exists():
        return ""
    return run([*command, str(program.file), program.name, str(results)])[1]


def compare(own: Path, reference: Path) -> tuple[float, dict[str, tuple[float, float]], str]:
    """Compare two files of arrays.

    Returns:
        The largest relative difference, the results to show, and what is wrong with names or shapes, or "".
    """
    own_arrays, arrays = np.load(own), np.load(reference)
    if set(own_arrays.files) != set(arrays.files):
        return np.inf, {}, f"other results than PyTorch's: {sorted(set(own_arrays.files) ^ set(arrays.files))[:5]}"
    gradients = [np.abs(arrays[name]).max() for name in arrays.files if name.startswith("grad.")]
    floor = max(1e-6, 1e-4 * float(max(gradients, default=0)))
    largest = 0.0
    shown = {}
    for name in arrays.files:
        value, expected = own_arrays[name].astype(np.float64), arrays[name].astype(np.float64)
        if value.shape != expected.shape:
            return np.inf, {}, f"{name} has shape {value.shape}, PyTorch's {expected.shape}"
        if not np.array_equal(np.isnan(value), np.isnan(expected)):
            return np.inf, {}, f"{name}: other elements are NaN than in PyTorch"
        if expected.size:
            error = np.nanmax(np.abs(value - expected)) / max(np.nanmax(np.abs(expected)), floor)
            largest = max(largest, float(error))
        if name.startswith("shown."):
            shown[name.removeprefix("shown.")] = (float(value), float(expected))
    return largest, shown, ""


def run_programs(programs: list[Program], weftgrad: str, torch: str, results: Path) -> list[Outcome]:
    """Run programs on both libraries, and compare their results."""
    outcomes = []
    for program in programs:
        own, reference = (results / f"{program.name}.{library}.npz" for library in ("wg", "torch"))
        torch_error = run_program([torch, "-W", "ignore"], program, reference)
        outcome = Outcome(program)
        outcome.error = run_program([weftgrad, "-W", "ignore", "-m", "weftgrad.as_torch"], program, own)
        outcome.lacks_reference = not outcome.error and program.needs_extension and _NO_EXTENSION in torch_error
        if torch_error and not outcome.lacks_reference:
            outcome.error = outcome.error or f"PyTorch: {torch_error}"
        if not outcome.error and not outcome.lacks_reference:
            outcome.difference, outcome.shown, outcome.error = compare(own, reference)
        state = "ok" if outcome.passes else "FAILS"
        number = "" if outcome.difference is None else f"{outcome.difference:.1e}, may be {program.bound:.0e}"
        number = "runs, and is not compared: PyTorch's side has no compiled ops" if outcome.lacks_reference else number
        print(f"{program.name}: {state} {number} {outcome.error}".rstrip(), flush=True)
        outcomes.append(outcome)
    return outcomes


def exchange_checkpoints(weftgrad: str, torch: str, results: Path) -> tuple[list[str], list[str]]:
    """Let each library write checkpoints, and the other one read them.

    Returns:
        The rows of the table, and what failed.
    """
    rows, failures = [], []
    pythons = {"torch": torch, "weftgrad": weftgrad}
    for writer, reader in (("torch", "weftgrad"), ("weftgrad", "torch")):
        folder, script = results / f"checkpoints-{writer}", str(PROGRAMS / "checkpoints.py")
        _, error = run([pythons[writer], "-W", "ignore", script, "write", writer, str(folder)])
        output = ""
        if not error:
            output, error = run([pythons[reader], "-W", "ignore", script, "read", reader, str(folder)])
        if error:
            failures.append(f"checkpoints of {writer}, read by {reader}: {error}")
            print(f"{failures[-1]}: FAILS", flush=True)
            continue
        for name, result in json.loads(output.splitlines()[-1]).items():
            difference, wrong = result["difference"], result["wrong"]
            is_far = difference is not None and not difference <= _CHECKPOINT_BOUND
            if wrong or is_far:
                failures.append(f"{name} of {writer}, read by {reader}: {wrong[:5]}, weights differ by {difference}")
            print(f"checkpoint {name}, {writer} to {reader}: {'FAILS' if wrong or is_far else 'ok'}", flush=True)
            equal = result["values"] - len(wrong)
            rows.append(
                f"| {writer} | `{name}` | {reader} | {equal} of {result['values']} | {_number(difference)} |"
            )  # fmt: skip
    return rows, failures


def _number(difference: float | None) -> str:
    return "" if difference is None else "0" if not difference else f"{difference:.0e}"


def program_rows(outcomes: list[Outcome], versions: dict[str, str]) -> list[str]:
    """Return the rows of the table of programs."""
    rows = []
    for outcome in outcomes:
        error = outcome.error.replace("|", "\\|")[:160]
        state = f"missing: {error}" if error else "as it is"
        package = f"{outcome.program.package} {versions[outcome.program.package]}"
        number = "not compared" if outcome.lacks_reference else _number(outcome.difference)
        rows.append(f"| {package} | {outcome.program.summary} | {state} | {number} |")
    return rows


def pretrained_rows(outcomes: list[Outcome], versions: dict[str, str]) -> list[str]:
    """Return the rows of the table of pretrained networks: each row is a result, the first one names the network."""
    rows = []
    for outcome in outcomes:
        package = f"{outcome.program.package} {versions[outcome.program.package]}"
        name = f"{outcome.program.summary}; `pip install {outcome.program.package}`, {package.rpartition(' ')[2]}"
        number = f"missing: {outcome.error}" if outcome.error else _number(outcome.difference)
        for label, (own, expected) in outcome.shown.items() or {"": (np.nan, np.nan)}.items():
            rows.append(f"| {name} | {label} | {own:.6g} | {expected:.6g} | {number} |")
            name = number = ""
    return rows


def replace_table(page: Path, label: str, columns: tuple[str, ...], rows: list[str]) -> None:
    """Replace the lines between the comments `<!-- label … -->` and `<!-- end -->` of a page by a table."""
    text = page.read_text(encoding="utf-8")
    begin = f"<!-- {label}: written by refresh_third_party.py -->\n"
    if begin not in text:
        raise SystemExit(f"{page}: has no line {begin.strip()}")
    before, _, rest = text.partition(begin)
    _, end, after = rest.partition("\n<!-- end -->")
    table = [f"| {' | '.join(columns)} |", "| " + " | ".join("---" for _ in columns) + " |", *rows]
    page.write_text(f"{before}{begin}\n" + "\n".join(table) + f"\n{end}{after}", encoding="utf-8")


def main() -> None:
    """Run what is missing, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--weftgrad", default=sys.executable, help="a Python with weftgrad and the packages")
    parser.add_argument("--torch", required=True, help="a Python with PyTorch and the packages")
    parser.add_argument("--results", type=Path, required=True, help="a folder for results")
    parser.add_argument("--only", nargs="*", default=(), help="words in names of programs; then no table is written")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    pythons = (options.weftgrad, options.torch)
    outcomes = {}
    for stem in ("programs", "pretrained"):
        programs = load_programs(PROGRAMS / f"{stem}.py")
        if options.only:
            programs = [p for p in programs if any(word in p.name for word in options.only)]
        outcomes[stem] = run_programs(programs, *pythons, options.results)
    failures = [
        f"{o.program.name}: {o.error or o.difference}" for part in outcomes.values() for o in part if not o.passes
    ]
    if not options.only:
        rows, checkpoint_failures = exchange_checkpoints(*pythons, options.results)
        failures += checkpoint_failures
        packages = list(dict.fromkeys(o.program.package for part in outcomes.values() for o in part))
        output, error = run([options.weftgrad, "-c", _VERSIONS, *(_DISTRIBUTIONS.get(p, p) for p in packages)])
        if error:
            raise SystemExit(error)
        versions = dict(zip(packages, json.loads(output).values(), strict=True))
        page = FOLDER / "third-party.md"
        columns = ("package", "program", "state", "difference")
        replace_table(page, "programs", columns, program_rows(outcomes["programs"], versions))
        columns = ("written by", "file", "read by", "equal values", "difference after training on")
        replace_table(page, "checkpoints", columns, rows)
        columns = ("network", "result", "weftgrad", "PyTorch", "largest difference")
        replace_table(FOLDER / "pretrained.md", "networks", columns, pretrained_rows(outcomes["pretrained"], versions))
    count = sum(map(len, outcomes.values()))
    print(f"{count - sum(not o.passes for part in outcomes.values() for o in part)} of {count} programs pass")
    if failures:
        raise SystemExit("failed:\n" + "\n".join(failures))


if __name__ == "__main__":
    main()
