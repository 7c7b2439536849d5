"""Check examples/user_project: generate its package, tests and pages by the command line, run the tests, and train."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import weftgrad as wg

ROOT = Path(os.environ.get("WEFTGRAD_CHECKOUT") or Path(__file__).resolve().parent.parent)
PROJECT = ROOT / "examples/user_project"
pytestmark = pytest.mark.skipif(not PROJECT.is_dir(), reason="needs the checkout: set WEFTGRAD_CHECKOUT")


def run(folder, *command):
    """Run a command in the project's folder with this Python and with warnings as errors."""
    command = [sys.executable, "-W", "error", *command]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def generate(folder, *options):
    """Run the command of the project's README."""
    specs = sorted(path.relative_to(folder) for path in folder.glob("specs/*.yaml"))
    outputs = ("-o", "gated_layers/ops", "--tests", "tests/test_ops.py", "--docs", "docs")
    return run(folder, "-m", "weftgrad.cli", "generate", *map(str, specs), *outputs, *options)


def copy_project(folder):
    return Path(shutil.copytree(PROJECT, folder / "project", ignore=shutil.ignore_patterns("ops", "__pycache__")))


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = copy_project(tmp_path_factory.mktemp("user"))
    process = generate(folder)
    assert process.returncode == 0, process.stderr
    return folder


@pytest.fixture(scope="module")
def layers(project):
    """Import the project's package, with the ops that were generated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(project)
        yield importlib.import_module("gated_layers")
        for name in [name for name in sys.modules if name.partition(".")[0] == "gated_layers"]:
            del sys.modules[name]


@pytest.fixture(scope="module")
def program(project, layers):
    spec = importlib.util.spec_from_file_location("user_project_train", project / "train.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def operands(*shape):
    rng = np.random.default_rng(0)
    return rng.standard_normal(shape), rng.standard_normal(shape), rng.standard_normal(shape[-1:])


def tensors(*arrays):
    return [wg.tensor(array, requires_grad=True) for array in arrays]


def test_the_generated_package_is_up_to_date_and_needs_no_yaml(project, layers):
    assert generate(project, "--check").returncode == 0
    code = "import sys, gated_layers; print([name for name in ('yaml', 'jinja2') if name in sys.modules])"
    process = run(project, "-c", code)
    assert (process.stdout, process.stderr) == ("[]\n", "")


def test_everything_generated_is_part_of_the_package(project):
    settings = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["setuptools"]
    packaged = {path for pattern in settings["package-data"]["gated_layers.ops"]
                for path in (project / "gated_layers/ops").glob(pattern)}  # fmt: skip
    for path in (project / "gated_layers").rglob("*.*"):
        folder = ".".join(path.parent.relative_to(project).parts)
        assert path in packaged or folder in settings["packages"] or "__pycache__" in path.parts, path
    assert len({path.suffix for path in packaged} - {".pyc"}) == 2  # OpenCL and Triton


def test_the_commands_of_the_readme_are_those_that_run_here(project):
    text = (PROJECT / "README.md").read_text()
    assert "weftgrad generate specs/*.yaml -o gated_layers/ops --tests tests/test_ops.py --docs docs\n" in text
    ignored = (PROJECT / ".gitignore").read_text().split()
    assert {"/gated_layers/ops/", "/tests/test_ops.py", "/docs/"} <= set(ignored)


@pytest.mark.slow
def test_the_generated_tests_pass_and_none_is_skipped(project):
    process = run(project, "-m", "pytest", "-p", "no:cacheprovider", "-q", "tests", "-k", "cpu")
    assert process.returncode == 0, process.stdout
    match = re.search(r"^(\d+) passed, \d+ deselected in", process.stdout, re.MULTILINE)
    assert match, process.stdout
    assert int(match[1]) > 30


def test_the_generated_pages_tell_formula_derivative_and_kernels(project):
    assert "[gated_rms_norm](ops/gated_rms_norm.md) | rowwise |" in (project / "docs/index.md").read_text()
    page = (project / "docs/ops/swiglu.md").read_text()
    for text in ("Multiply `input` by gate", "`out = input * gate * logistic(gate)`", "| derivative | `d input = ",
                 "| spec | `gated.yaml` |", ">>> swiglu(wg.tensor", "kernel void swiglu_", "@triton.jit"):  # fmt: skip
        assert text in page, text


def test_ops_compute_what_numpy_computes(layers):
    x, gate, weight = operands(5, 7)
    gated = x * gate / (1 + np.exp(-gate))
    np.testing.assert_allclose(layers.swiglu(*tensors(x, gate)).detach().numpy(), gated, rtol=1e-12)
    root = np.sqrt(np.mean(gated**2, -1, keepdims=True) + 1e-5)
    result = layers.gated_rms_norm(*tensors(x, gate), (7,), *tensors(weight))
    np.testing.assert_allclose(result.detach().numpy(), gated / root * weight, rtol=1e-12)


def test_gradients_are_those_of_finite_differences(layers):
    x, gate, weight = tensors(*operands(3, 4))

    def norm(x, gate, weight):
        return layers.gated_rms_norm(x, gate, (4,), weight)

    assert wg.autograd.gradcheck(layers.swiglu, (x, gate))
    assert wg.autograd.gradgradcheck(layers.swiglu, (x, gate))
    assert wg.autograd.gradcheck(norm, (x, gate, weight))
    assert wg.autograd.gradgradcheck(norm, (x, gate, weight))


def test_results_and_gradients_are_those_of_the_composed_version(layers, program):
    arrays = operands(6, 33)
    gradients = []
    for function in (layers.gated_rms_norm, program.composed_gated_rms_norm):
        x, gate, weight = tensors(*arrays)
        (function(x, gate, (33,), weight) ** 2).sum().backward()
        gradients.append([t.grad.numpy() for t in (x, gate, weight)])
    for fused, composed in zip(*gradients, strict=True):
        np.testing.assert_allclose(fused, composed, rtol=1e-9, atol=1e-12)


def test_a_network_with_the_ops_learns(program):
    wg.manual_seed(0)
    images, labels, *_ = (wg.tensor(array) for array in program.digits.load())
    losses = program.train(program.Classifier(), images.flatten(1), labels, steps=30)
    assert losses[0] > 2
    assert np.mean(losses[-5:]) < 0.8


def test_the_program_prints_times_and_accuracy(project):
    process = run(project, "train.py", "--steps", "60", "--rows", "64", "--repeats", "3")
    assert process.returncode == 0, process.stderr
    differences = re.findall(r"^(\w+) +.* MiB +([\d.e+-]+)$", process.stdout, re.MULTILINE)
    assert [name for name, _ in differences] == ["swiglu", "gated_rms_norm"]
    assert all(float(difference) < 1e-4 for _, difference in differences)
    assert float(re.search(r"test accuracy ([\d.]+)%", process.stdout)[1]) > 80


@pytest.mark.parametrize(
    ("correct", "wrong", "message"),
    [
        ("* logistic(", "* sigmoid(", "out: unknown function 'sigmoid' at column 16 (did you mean 'logistic'?)"),
        ("weight: Row", "weight: row", "parameter weight: unknown annotation 'row' (did you mean 'Row'?)"),
        ("  kind:", "\tkind:", "not YAML: found character '\\t' that cannot start any token (indent by spaces)"),
        (" + eps)", " + eps", "let.scale: not an expression: '(' was never closed at column 6"),
        ("swiglu", "relu", "op: an op named 'relu' exists already; choose another name"),
    ],
)  # fmt: skip
def test_a_wrong_spec_gives_a_readable_error_and_no_package(tmp_path, correct, wrong, message):
    folder = copy_project(tmp_path)
    path = folder / "specs/gated.yaml"
    text = path.read_text()
    assert correct in text
    path.write_text(text.replace(correct, wrong))
    process = generate(folder)
    assert (process.returncode, process.stdout) == (1, "")
    assert "Traceback" not in process.stderr
    assert f"{message}\n" in process.stderr
    assert re.match(r"weftgrad: specs/gated\.yaml:\d+: ", process.stderr)
    assert not (folder / "gated_layers/ops").exists()
