"""Run the programs of docs/third_party_programs on weftgrad and on PyTorch, compare, and write docs/third-party.md.

    python docs/refresh_third_party.py --weftgrad PYTHON --torch PYTHON --results FOLDER

The first Python has weftgrad and the packages but no torch, the second torch and the packages. Install the packages by
`pip install --no-deps`, because most of them require torch. Results that are in the folder already are not computed
again.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
PROGRAMS = FOLDER / "third_party_programs" / "programs.py"
PAGE = FOLDER / "third-party.md"
_TIMEOUT = 600  # seconds of one program
_VERSIONS = (
    "import importlib.metadata, json, sys; "
    "print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))"
)

_HEAD = """# Third-party packages

Packages written for PyTorch run unchanged if `import torch` means weftgrad in the process:

    import weftgrad.torch_compat       # first; then import torch and the packages as always
    python -m weftgrad.as_torch train.py --epochs 3          # or so, for a whole program

Install such packages with `pip install --no-deps`: most of them require `torch`, which is not needed. Nothing else of
the environment changes, and an installed PyTorch is not imported.

The table is written by `docs/refresh_third_party.py`, which runs the programs in `docs/third_party_programs` on both
libraries, on `cpu`, with the same weights and inputs. *Difference* is the largest difference of an output, gradient or
trained weight from PyTorch's, divided by the largest magnitude of that array (for gradients that are zero in theory, by
1e-4 of the largest one of the program). Models run forward and backward; everything is float32. The transforms resize
pixels of uint8, where a difference of one of 256 levels is 9e-03 after normalising.

"""
_TAIL = """
## What is only a name

`torch.fx`, `torch.export`, `torch._dynamo`, `torch.jit.trace`, `torch.fft`, `torch.distributions`,
`torch.sparse`, `torch.nested`, quantization and complex and float8 dtypes can be imported,
subclassed and tested for with `isinstance`, because libraries do so. Using them raises `NotSupported`, which says what
to do instead.
`torch.distributed` has its collectives ([docs](distributed.md)); of its submodules, `nn` works, others are names.
`torch.compile` and `torch.jit.script` return their argument. The list is in `api/torch_names/tables.py`.

Calls on subclasses of Tensor are not intercepted (`__torch_function__`), so results of ops are plain tensors.
Compiled extensions of PyTorch cannot be loaded. Of torchvision's, weftgrad has `nms`, `roi_align` and `roi_pool`
itself; `ps_roi_align`, `ps_roi_pool`, `deform_conv2d` and the reading of images are missing.
`torch.hub.load` runs the `hubconf.py` of local folders (`source="local"`), and downloads no repositories.
"""


@dataclass(frozen=True)
class Outcome:
    """What came of one program.

    Attributes:
        package: The package that it uses.
        summary: What it does.
        difference: Largest relative difference from PyTorch; None if one of the two did not run.
        error: Last line of the error, or "".
    """

    package: str
    summary: str
    difference: float | None
    error: str


def load_programs() -> dict[str, tuple[str, str]]:
    """Return for each program its package and the first line of its docstring, without importing torch."""
    programs = {}
    for node in ast.parse(PROGRAMS.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            decorator = node.decorator_list[0]
            assert isinstance(decorator, ast.Call)
            package = ast.literal_eval(decorator.args[0])
            programs[node.name] = (package, (ast.get_docstring(node) or "").partition("\n")[0].rstrip("."))
    return programs


def run_program(command: list[str], name: str, results: Path) -> str:
    """Run one program unless its results exist; return the last line of its error, or ""."""
    if results.exists():
        return ""
    process = subprocess.run(
        [*command, str(PROGRAMS), name, str(results)], capture_output=True, text=True, timeout=_TIMEOUT, check=False
    )
    if process.returncode == 0:
        return ""
    lines = process.stderr.strip().splitlines()
    return lines[-1] if lines else f"ended with status {process.returncode}"


def difference(own: Path, reference: Path) -> float:
    """Return the largest relative difference between two files of arrays."""
    own_arrays, arrays = np.load(own), np.load(reference)
    if set(own_arrays.files) != set(arrays.files):
        raise SystemExit(f"{own} and {reference} have other names: {set(own_arrays.files) ^ set(arrays.files)}")
    gradients = [np.abs(arrays[name]).max() for name in arrays.files if name.startswith("grad.")]
    floor = max(1e-6, 1e-4 * float(max(gradients, default=0)))
    largest = 0.0
    for name in arrays.files:
        value, expected = own_arrays[name].astype(np.float64), arrays[name].astype(np.float64)
        if value.shape != expected.shape:
            raise SystemExit(f"{own}: {name} has shape {value.shape}, PyTorch's {expected.shape}")
        if expected.size:
            error = np.abs(value - expected).max() / max(np.abs(expected).max(), floor)
            largest = max(largest, float(error))
    return largest


def write_page(outcomes: list[Outcome], versions: dict[str, str]) -> str:
    """Return the text of the page."""
    rows = ["| package | program | state | difference |", "| --- | --- | --- | --- |"]
    for outcome in outcomes:
        state = f"missing: {outcome.error}" if outcome.error else "as it is"
        number = "" if outcome.difference is None else "0" if not outcome.difference else f"{outcome.difference:.0e}"
        package = f"{outcome.package} {versions[outcome.package]}"
        rows.append(f"| {package} | {outcome.summary} | {state} | {number} |")
    return _HEAD + "\n".join(rows) + "\n" + _TAIL


def main() -> None:
    """Run what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--weftgrad", default=sys.executable, help="a Python with weftgrad and the packages")
    parser.add_argument("--torch", required=True, help="a Python with PyTorch and the packages")
    parser.add_argument("--results", type=Path, required=True, help="a folder for results")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    programs = load_programs()
    outcomes = []
    for name, (package, summary) in programs.items():
        own, reference = (options.results / f"{name}.{library}.npz" for library in ("wg", "torch"))
        torch_error = run_program([options.torch, "-W", "ignore"], name, reference)
        error = run_program([options.weftgrad, "-W", "ignore", "-m", "weftgrad.as_torch"], name, own)
        print(f"{name}: {error or 'runs'}{f' (PyTorch: {torch_error})' if torch_error else ''}", flush=True)
        number = None if error or torch_error else difference(own, reference)
        outcomes.append(Outcome(package, summary, number, error.replace("|", "\\|")[:160]))
    names = list(dict.fromkeys(package for package, _ in programs.values()))
    distributions = ["pytorch-ignite" if name == "ignite" else name for name in names]
    output = subprocess.run(
        [options.weftgrad, "-c", _VERSIONS, *distributions], capture_output=True, text=True, check=True
    ).stdout
    versions = dict(zip(names, json.loads(output).values(), strict=True))
    PAGE.write_text(write_page(outcomes, versions), encoding="utf-8")


if __name__ == "__main__":
    main()
