"""Ops from your own specs, in the running process.

    mine = wg.ops.load("my_ops.yaml")      # or the YAML itself
    mine.swish(x)                          # also wg.ops.swish(x)

A spec is data: loading one runs nothing of it. Its expressions become kernels through the same parser and printers as
the package's own ops, and its functions are Python text in which every string passed `repr`, an escape or an
identifier check. Only `kind: custom`, whose kernels are code, needs `trust=True`.
"""

from __future__ import annotations

import hashlib as _hashlib
import linecache as _linecache
import threading as _threading
from collections.abc import Callable as _Callable
from pathlib import Path as _Path
from types import SimpleNamespace as _SimpleNamespace
from typing import Any as _Any

from ._generated import ops as _generated
from ._generated import records as _records
from .runtime.errors import SpecError as _SpecError
from .runtime.records import registry as _registry

__all__ = ["beside", "load"]

_lock = _threading.RLock()
_loaded: dict[str, _Callable[..., _Any]] = {}
_names: dict[str, list[str]] = {}


class Namespace(_SimpleNamespace):
    """The functions of one spec file, as attributes."""

    def __iter__(self) -> _Any:
        return iter(vars(self))


def load(spec: str | _Path, trust: bool = False) -> Namespace:
    """The ops of a spec file, or of YAML given as a string, as functions with their signatures and docstrings.

    They are differentiable like the package's own, to any order, and reachable as `wg.ops.NAME` too. Loading a file
    again replaces what it gave before (a string replaces earlier strings); tensors computed before keep the derivatives
    they had. `trust` allows `kind: custom`, whose kernels are code.
    Raises `SpecError` with every error of the file: line, field, what was expected; also where an op would take the
    name of another one.
    """
    from .codegen.model import SpecErrors

    is_text = isinstance(spec, str) and ("\n" in spec or spec.lstrip().startswith(("- ", "[")))
    path = None if is_text else _Path(spec)
    file = "<text>" if path is None else str(path)
    owner = file if path is None else str(path.resolve())
    try:
        with _lock:
            return _load(str(spec) if path is None else path, file, owner, trust)
    except SpecErrors as error:
        raise _SpecError(str(error)) from None


def beside(owner: str = "") -> _Any:
    """What the ops of a spec stand beside, as `codegen.generate.Beside`: those of this process that are not `owner`'s,
    or without an owner, for a package to be imported elsewhere, those of weftgrad itself."""
    from .codegen.generate import Beside

    taken = {r.name for r in _registry} if owner else set(_records.NAMES)
    reserved = {n for n in taken if not owner or _registry.owner(n) != owner}
    reserved |= set(_generated.ALIASES) | set(_generated.INPLACE) | set(__all__)
    return Beside(_generated.FUNCTIONS, reserved, taken)


def _load(source: str | _Path, file: str, owner: str, trust: bool) -> Namespace:
    from .codegen.generate import functions_module, resolve, shown_names
    from .codegen.loader import load_file, load_text
    from .codegen.render import render_all
    from .runtime.derive import register_generated

    ops = load_text(source, file, trust=trust) if isinstance(source, str) else load_file(source, trust=trust)
    standing = beside(owner)
    known = resolve(ops, standing)
    made = render_all(ops, 0, taken=standing.taken)
    name = shown_names([_Path(file).name])
    digest = _hashlib.sha256(repr([op.spec for op in ops]).encode()).hexdigest()[:16]
    text = functions_module(
        ops, made, known, package=False, owner=None, sources=name, digest=digest, runtime="weftgrad.runtime"
    )
    shown = f"<weftgrad.ops {name} {digest}>"
    code = compile(text, shown, "exec")
    _registry.claim([op.name for op in ops], owner)
    register_generated(made)
    space: dict[str, _Any] = {"__name__": "weftgrad.ops"}
    exec(code, space)  # text made by the generator: see the module's docstring
    _linecache.cache[shown] = (len(text), None, text.splitlines(keepends=True), shown)
    functions = {n: entry[0] for n, entry in space["FUNCTIONS"].items()}
    functions |= {alias: functions[of] for alias, of in space["ALIASES"].items()}
    for old in _names.get(owner, ()):
        _loaded.pop(old, None)
    _names[owner] = list(functions)
    _loaded.update(functions)
    return Namespace(**functions)


def __getattr__(name: str) -> _Any:
    try:
        return _loaded[name]
    except KeyError:
        raise AttributeError(f"no op named {name!r} was loaded; weftgrad.ops.load(FILE) does that") from None


def __dir__() -> list[str]:
    return sorted([*__all__, *_loaded])
