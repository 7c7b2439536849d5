"""Runs of `weftgrad doctor` and `weftgrad cache` in this process, for their tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from weftgrad import cli

__all__ = ["HASH", "SETTINGS", "command_runner"]

HASH = "ab" + "0123456789" * 6 + "cd"
SETTINGS = ("WEFTGRAD_CLANG", "WEFTGRAD_CAPABILITIES", "WEFTGRAD_DEVICE", "WEFTGRAD_NATIVE", "WEFTGRAD_CPU_PLATFORM")


def command_runner(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str]]:
    """Return a function that runs a command in this process and returns its status and output."""
    monkeypatch.setenv("NO_COLOR", "1")
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)

    def run(*words: str) -> tuple[int, str]:
        status = cli.main(list(words))
        return status, capsys.readouterr().out

    return run
