"""Options of the suite, what may be missing where only a GPU is tested, and the stand-in for a GPU."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bare
import pytest

bare.install()
os.environ.setdefault("WEFTGRAD_TUNE", "off")  # what a developer tuned does not change what is tested

def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`."""
    parser.addoption("--update-golden", action="store_true", help="accept what is emitted as tests/golden")


def pytest_configure(config: pytest.Config) -> None:
    """Keep kernels that tests compile out of the user's cache: beside pytest's own. Workers inherit the variable."""
    if "WEFTGRAD_CACHE" in os.environ or "XDG_CACHE_HOME" in os.environ:
        return
    folder = config.rootpath / ".pytest_cache" / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    os.environ["WEFTGRAD_CACHE"] = str(folder)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m gpu`, only the modules with such tests are imported: the others need packages that may be missing."""
    if config.option.markexpr != "gpu" or not collection_path.name.startswith("test_"):
        return None
    return "pytest.mark.gpu\n" not in collection_path.read_text(encoding="utf-8") or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of a GPU are skipped where there is none."""
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
    """A stand-in for the driver library, with two devices; no misuse of it may be noted in the test."""
    from cuda_running import KiB, in_place
    from cuda_standin import Gpu

    with in_place(Gpu(), Gpu("Stand-in A100", (8, 0), 1 << 26, 108, 163 * KiB)) as made:
        yield made


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A compiler that counts what it is asked for, and gives machine code of the stand-in."""
    from cuda_running import Compiler, compiler

    made = Compiler()
    monkeypatch.setattr(compiler, "binary", made.binary)
    return made


@pytest.fixture
def computing(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Kernels on the stand-in do what they should, by Triton's interpreter."""
    pytest.importorskip("triton")
    from cuda_running import compiler
    from cuda_standin import Interpreting

    made = Interpreting(cuda)
    monkeypatch.setattr(compiler, "binary", made.binary)
    cuda.run_kernel = made.run
    return made
