"""Options of the suite, handling of packages that GPU machines lack, and the fake GPU."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bare
import pytest

bare.install()
os.environ.setdefault("WEFTGRAD_TUNE", "off")  # schedules tuned on this machine must not change the tests

QUICK = {
    "test_structure": "imports between layers, packed files, length of modules",
    "test_import_graph": "cycles of imports",
    "test_api": "public names",
    "test_expr": "expressions: syntax, equal nodes, values",
    "test_expr_derivatives": "derivatives of expressions",
    "test_expr_rows": "expressions with reductions over rows",
    "test_expr_printing": "expressions as OpenCL and NumPy print them",
    "test_golden": "the text of kernels",
    "test_native": "calls through C and through Python are the same",
    "test_native_processes": "calls through C under threads, forks and interrupts",
    "test_cpu_calls": "launches on `cpu`",
    "test_pool": "memory pools",
    "test_pool_training": "memory pools in training loops",
    "test_pool_threads": "memory pools under threads and finalizers",
    "test_inplace": "version counters and writes in place",
    "test_view_history": "gradients through views",
    "test_gradients_of_parts": "gradients of slices",
    "test_autograd_functions": "functions of users",
    "test_composed": "functions made of ops",
    "test_numeric": "numeric functions",
    "test_random": "random numbers",
    "test_losses": "losses",
    "test_norms": "norms",
    "test_modules": "hooks and states of modules",
    "test_module_containers": "containers of modules and lazy layers",
    "test_activation_checkpoints": "checkpoints of activations",
    "test_optim": "optimizers",
    "test_multi_tensor": "kernels for many tensors",
    "test_amp": "autocast",
    "test_serialization": "files",
    "test_torch_files": "files of PyTorch",
    "test_profiler": "profiles",
    "test_digits": "the packed data",
    "test_cuda_standin": "the CUDA backend, on a stand-in for the driver",
    "test_cuda_setup": "the CUDA backend where parts are missing",
    "test_cuda_memory": "memory of the CUDA backend",
    "test_cuda_graphs": "captured graphs of the CUDA backend",
    "test_bench_report_changes": "comparisons of reports",
}
"""Modules of the quick suite, and what a failure there is about. Of test_ops_generated: the values of ops on `cpu`,
of most ops in one dtype."""


def is_quick(item: pytest.Item) -> bool:
    """Return True if a test belongs to the quick suite."""
    if any(item.get_closest_marker(name) for name in ("slow", "gpu", "thorough")):
        return False
    if item.path.stem == "test_ops_generated":
        return item.name.startswith("test_values[") and item.name.endswith("-cpu]")
    return item.path.stem in QUICK


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`."""
    parser.addoption("--update-golden", action="store_true", help="accept what is emitted as tests/golden")


def pytest_configure(config: pytest.Config) -> None:
    """Cache the kernels of tests in pytest's cache folder, not the user's. Workers inherit the variables.

    Hypothesis may take as long as it needs.
    """
    if importlib.util.find_spec("hypothesis") and not config.getoption("--hypothesis-profile", None):
        from hypothesis import HealthCheck, settings

        # On a busy machine, drawing examples takes longer than Hypothesis thinks right.
        settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
        settings.load_profile("suite")
    if config.option.markexpr == "quick":
        os.environ["WEFTGRAD_TEST_QUICK"] = "1"  # fewer dtypes of most ops: see test_ops_generated.QUICK
    if "WEFTGRAD_CACHE" in os.environ or "XDG_CACHE_HOME" in os.environ:
        return
    folder = config.rootpath / ".pytest_cache" / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    os.environ["WEFTGRAD_CACHE"] = str(folder)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m quick` or `-m gpu`, import only modules with such tests.

    With `gpu`, others need packages that may be missing; with `quick`, importing them takes time.
    """
    if not collection_path.name.startswith("test_"):
        return None
    if config.option.markexpr == "quick":
        return collection_path.stem not in (*QUICK, "test_ops_generated") or None
    if config.option.markexpr != "gpu":
        return None
    return "pytest.mark.gpu\n" not in collection_path.read_text(encoding="utf-8") or None


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the quick suite; skip GPU tests if there is no GPU, and thorough tests unless they are asked for."""
    for item in items:
        if is_quick(item):
            item.add_marker("quick")
    if not os.environ.get("WEFTGRAD_TEST_THOROUGH"):
        for item in items:
            if item.get_closest_marker("thorough"):
                item.add_marker(pytest.mark.skip(reason="takes long; WEFTGRAD_TEST_THOROUGH=1 runs it"))
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = _why_no_gpu() if marked else ""
    for item in marked:
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


def _why_no_gpu() -> str:
    from weftgrad.runtime.backends import cuda_api
    from weftgrad.runtime.errors import DeviceError

    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if not cuda_api.may_exist():
        return "no NVIDIA GPU here"
    try:
        return "" if cuda_api.devices()[0].sm >= 80 else "the GPU is older than compute capability 8.0"
    except DeviceError as error:
        return str(error)


@pytest.fixture
def cuda() -> Iterator[Any]:
    """Use a fake driver library with two devices. The test fails if it misuses the library."""
    from cuda_running import KiB, use_standin
    from cuda_standin_objects import Gpu

    with use_standin(Gpu(), Gpu("Stand-in A100", (8, 0), 1 << 26, 108, 163 * KiB)) as standin:
        yield standin


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Use a compiler that records its requests, and returns fake machine code."""
    from cuda_running import Compiler, compiler

    counting_compiler = Compiler()
    monkeypatch.setattr(compiler, "binary", counting_compiler.binary)
    return counting_compiler


@pytest.fixture
def computing(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let kernels on the fake GPU compute their results, by Triton's interpreter."""
    pytest.importorskip("triton")
    from cuda_interpreting import Interpreting
    from cuda_running import compiler

    interpreter = Interpreting(cuda)
    monkeypatch.setattr(compiler, "binary", interpreter.binary)
    cuda.run_kernel = interpreter.run
    return interpreter


@pytest.fixture
def tuned_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Keep tuned schedules in a file of this test; see `tuning_calls`."""
    from tuning_calls import use_tuned_file

    with use_tuned_file(tmp_path, monkeypatch) as file:
        yield file


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let searches for schedules use scripted times and results."""
    from tuning_calls import script_search

    return script_search(monkeypatch)


@pytest.fixture
def tuned_calls(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Tune calls as with `WEFTGRAD_TUNE=1`, by a search that needs no time, and list them."""
    from tuning_calls import record_tuned_calls

    return record_tuned_calls(monkeypatch)
