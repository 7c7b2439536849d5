"""Check that the Python of README and of the pages in docs/ runs, and that tables of PyTorch's names are up to date."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import weftgrad as wg

ROOT = Path(os.environ.get("WEFTGRAD_CHECKOUT") or Path(__file__).resolve().parent.parent)
PAGES = (
    "README.md", "docs/index.md", "docs/tutorial.md", "docs/training.md", "docs/files.md",
    "docs/memory-and-streams.md", "docs/onnx.md", "docs/simulating.md", "docs/your-own-op.md",
    "docs/array-api.md",
)  # fmt: skip
pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="needs the checkout: set WEFTGRAD_CHECKOUT")


def blocks(page: str) -> list[tuple[str, str, int]]:
    """Return (language, text, line) of each block of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    pattern = re.compile(r"^```(python|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [(m[1], m[2], text.count("\n", 0, m.start()) + 1) for m in pattern.finditer(text)]


TRAINING = """
train_epoch()
train_epoch()
assert evaluate() > 0.8
save("run.pt")
resume("run.pt")
"""


@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_a_page_run_in_order(page: str, tmp_path: Path) -> None:
    """A block of YAML is a file, `my_ops.yaml` if it names none. Blocks of Python are one program, as in a session."""
    if page == "docs/onnx.md":
        pytest.importorskip("onnx")
    program = ""
    for language, text, line in blocks(page):
        if language == "yaml":
            name = re.match(r"# (\w+\.yaml)\n", text)  # a block may begin with the name of its file
            (tmp_path / (name[1] if name else "my_ops.yaml")).write_text(text, encoding="utf-8")
            continue
        program += "\n" * (line - program.count("\n")) + text  # lines of an error are those of the page
    assert program
    if page == "docs/training.md":
        program += TRAINING
    process = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, f"{page}: {process.stderr[-2000:]}"


@pytest.mark.parametrize(("module", "name"), [("test_new_kind", "KIND"), ("test_new_backend", "BACKEND")])
def test_code_of_extensions_is_the_code_that_tests_run(module: str, name: str) -> None:
    code = getattr(importlib.import_module(module), name).strip()
    assert f"```text\n{code}\n```" in (ROOT / "docs/extending.md").read_text(encoding="utf-8")


def coverage_page(names: dict[str, Any]) -> str:
    spec = importlib.util.spec_from_file_location("coverage_pages", ROOT / "docs/_extensions/coverage_pages.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.page(names))


def test_the_coverage_table_counts_what_is_here() -> None:
    page = coverage_page({"version": "0", "torch": ["add", "no_such_name"], "torch.Tensor": ["sum"]})
    assert "| `torch` | 1 | 2 | 50% |" in page
    assert "| `torch.Tensor` | 1 | 1 | 100% |" in page
    assert "`no_such_name`" in page


def test_most_names_of_pytorch_are_here() -> None:
    """Tensor's methods and nn's layers are the bulk of what programs use."""
    names = json.loads((ROOT / "docs/_data/torch_names.json").read_text(encoding="utf-8"))
    for owner, key, share in ((wg.Tensor, "torch.Tensor", 0.8), (wg.nn, "torch.nn", 0.95)):
        present = [name for name in names[key] if hasattr(owner, name)]
        assert len(present) > share * len(names[key]), key


def test_links_between_pages_and_files_lead_somewhere() -> None:
    """On the site Sphinx checks them; this holds for readers of the repository."""
    built = {"docs/ops/index.md", "docs/coverage.md", "docs/spec-language.md"}
    for page in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]:
        prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
            if "://" in target or target.startswith("mailto:"):
                continue
            path = Path(os.path.normpath(page.parent / target))
            assert path.exists() or path.relative_to(ROOT).as_posix() in built, f"{page.name} links to {target}"
