"""Run programs written for PyTorch, each in a process of its own: `torch` means weftgrad in the whole process."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path


def run(*command: str, status: int = 0, folder: Path | None = None) -> str:
    """Run Python with these arguments, and return what it printed; fail unless it ends with `status`."""
    process = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=300, cwd=folder, check=False
    )
    assert process.returncode == status, process.stderr[-3000:]
    return process.stdout if status == 0 else process.stderr


def run_program(source: str) -> str:
    """Run a program in which `torch` is weftgrad, and return what it printed."""
    return run("-c", "import weftgrad.torch_compat\n" + textwrap.dedent(source))
