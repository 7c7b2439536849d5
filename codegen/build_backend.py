"""PEP 517 build backend: render the op specs into `api/_generated`, then call setuptools.

Every hook that reads the list of files renders first: a frontend may run each hook in its own process and may skip
optional hooks (`--no-build-isolation` never asks for requirements). Rendering writes only changed files, so repeating
it costs little and changes no time stamps.

Frontends find this file through `backend-path = ["codegen"]`. During a build the modules of that folder shadow the
standard library, so none may have the name of a standard module (a test checks this).
"""

import functools
import shutil
import sys
from pathlib import Path

from setuptools import build_meta as _setuptools

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parent.parent

Settings = dict[str, object] | None  # PEP 517 leaves keys and values to the backend


@functools.cache
def _render() -> None:
    """Render the specs, with `codegen` imported as a top-level package: `weftgrad` does not exist yet."""
    sys.path.insert(0, str(ROOT))
    try:
        from codegen.generate import generate  # lazy: the folder must be on sys.path first

        generate(ROOT / "api" / "_generated")
    finally:
        sys.path.remove(str(ROOT))


def _forget_earlier_builds() -> None:
    """Remove setuptools' staging folder: a module deleted since the last build would travel in the wheel."""
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Return nothing: `build-system.requires` is complete."""
    return []


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """Return nothing: `build-system.requires` is complete."""
    return []


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    """Return nothing: `build-system.requires` is complete."""
    return []


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    """Render the specs, then let setuptools write the metadata."""
    _render()
    return _setuptools.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Settings = None) -> str:
    """Render the specs, then let setuptools write the metadata."""
    _render()
    return _setuptools.prepare_metadata_for_build_editable(metadata_directory, config_settings)


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Render the specs, then let setuptools build the wheel from a clean staging folder."""
    _render()
    _forget_earlier_builds()
    return _setuptools.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Render the specs, then let setuptools point an environment at this checkout."""
    _render()
    return _setuptools.build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Render the specs, then let setuptools pack the sources."""
    _render()
    return _setuptools.build_sdist(sdist_directory, config_settings)
