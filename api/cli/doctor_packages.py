"""Check the installation: the C extension that calls ops, Python, required packages and extras."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlparse

from ..runtime import native
from .findings import NOTE, OK, Finding

__all__ = ["check_native", "check_packages", "native_remedy", "native_state"]

_C_COMPILERS = {
    "apt-get": "apt-get install gcc python3-dev",
    "dnf": "dnf install gcc python3-devel",
    "apk": "apk add gcc musl-dev python3-dev",
    "zypper": "zypper install gcc python3-devel",
    "xcode-select": "xcode-select --install",
}


# the C call path of ops


def native_state() -> tuple[bool, str, str]:
    """Return whether ops are called through the C extension and, if not, the reason and the remedy."""
    if native.present:
        return True, "", ""
    if os.environ.get("WEFTGRAD_NATIVE") == "0":
        return False, "WEFTGRAD_NATIVE=0", "unset WEFTGRAD_NATIVE"
    return False, "it was not compiled when weftgrad was installed", native_remedy()


def check_native() -> Iterator[Finding]:
    """Check that ops are called through the C extension."""
    is_present, reason, remedy = native_state()
    if is_present:
        yield Finding("calls of ops", "C path", OK, "ops are called through C", facts={"is_present": True})
        return
    yield Finding(
        "calls of ops", "C path", NOTE, f"ops are called through Python, about 3 us slower per call: {reason}", remedy,
        {"is_present": False, "reason": reason},
    )  # fmt: skip


def native_remedy() -> str:
    """Return the command that reinstalls weftgrad from its source, after a C compiler if there is none."""
    configured = (sysconfig.get_config_var("CC") or "cc").split()[0]
    has_compiler = any(shutil.which(name) for name in (configured, "cc", "gcc", "clang"))
    has_header = Path(sysconfig.get_path("include") or "", "Python.h").is_file()
    install = "" if has_compiler and has_header else _compiler_remedy()
    return f"{install} && {_reinstall()}" if install else _reinstall()


def _compiler_remedy() -> str:
    return next((command for program, command in _C_COMPILERS.items() if shutil.which(program)), "install a C compiler")


def _reinstall() -> str:
    source = "--no-binary weftgrad weftgrad"
    with suppress(Exception):  # not installed, or the installer recorded no source
        origin = json.loads(importlib.metadata.distribution("weftgrad").read_text("direct_url.json") or "")
        url = urlparse(origin["url"])
        source = unquote(url.path) if url.scheme == "file" else origin["url"]
        if origin.get("dir_info", {}).get("editable"):
            source = f"-e {source}"
    return f"pip install --force-reinstall --no-deps {source}"


# installed packages


def check_packages() -> Iterator[Finding]:
    """Check Python, the packages that weftgrad requires, and its extras."""
    topic = "packages"
    yield Finding(topic, "Python", OK, f"{platform.python_version()} ({sys.executable})")
    extras = _requirements()
    if not extras:
        yield Finding(
            topic, "weftgrad", NOTE, "it runs from its sources: which packages it requires is not known here",
            "pip install .", {"is_installed": False},
        )  # fmt: skip
    for extra, required in sorted(extras.items()):
        missing = [line for line in required if not _is_installed(line)]
        versions = {name: _version(name) for name in map(_name, required)}
        facts = {"missing": missing, "versions": versions}
        listed = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        if not missing:
            yield Finding(topic, extra or "required", OK, listed, facts=facts)
        elif extra:
            text = f"not installed, needed only for this extra: {', '.join(missing)} (pip install 'weftgrad[{extra}]')"
            yield Finding(topic, extra, OK, text, facts=facts)
        else:
            command = "pip install " + " ".join(f"'{line}'" for line in missing)
            yield Finding(topic, "required", NOTE, f"missing or too old: {', '.join(missing)}", command, facts)
    torch = _version("torch")
    text = f"{torch}; weftgrad does not need it" if torch else "not installed, and not needed"
    yield Finding(topic, "torch", OK, text, facts={"version": torch})


def _requirements() -> dict[str, list[str]]:
    """Return requirements such as `numpy>=1.26` by extra; those of the base installation have the key ""."""
    try:
        lines = importlib.metadata.requires("weftgrad") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    here = {"platform_system": platform.system(), "platform_machine": platform.machine()}
    result: dict[str, list[str]] = {"": []}
    for line in lines:
        requirement, _, marker = line.partition(";")
        conditions = dict(re.findall(r"(\w+)\s*==\s*['\"]([^'\"]+)['\"]", marker))
        if all(conditions.get(name, value) == value for name, value in here.items()):
            result.setdefault(conditions.get("extra", ""), []).append(requirement.strip())
    return result


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name) or ""
    except importlib.metadata.PackageNotFoundError:
        return ""


def _is_installed(requirement: str) -> bool:
    """Return whether a package is installed and satisfies its `>=` bound; an upper bound is ignored."""
    version, minimum = _version(_name(requirement)), re.search(r">=\s*([\d.]+)", requirement)
    return bool(version) and (minimum is None or _numbers(version) >= _numbers(minimum[1]))


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", re.split(r"[^\d.]", version, maxsplit=1)[0])]
