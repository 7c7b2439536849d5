"""Load ops from your own specs into the running process.

    mine = wg.ops.load("my_ops.yaml")      # or the YAML itself
    mine.swish(x)                          # also wg.ops.swish(x)

A spec is data: loading it runs no code from it. Its expressions become kernels through the same parser and printers as
the package's own ops. Its Python functions are generated source in which every string went through `repr`, an escape
or an identifier check. Only `kind: custom`, whose kernels are code, needs `trust=True`.
"""

from __future__ import annotations

import hashlib as _hashlib
import linecache as _linecache
import threading as _threading
from collections.abc import Callable as _Callable
from collections.abc import Iterator as _Iterator
from dataclasses import replace as _replace
from pathlib import Path as _Path
from types import ModuleType as _ModuleType
from types import SimpleNamespace as _SimpleNamespace
from typing import TYPE_CHECKING
from typing import Any as _Any

from ._generated import ops as _generated
from ._generated import records as _records
from .runtime.derive import register_generated as _register_generated
from .runtime.errors import SpecError as _SpecError
from .runtime.records import registry as _registry

if TYPE_CHECKING:
    from .codegen.generate import ExistingOps as _ExistingOps

__all__ = ["existing_ops", "load"]

_FUNCTION_NAMES = frozenset((*_generated.ALIASES, *_generated.INPLACE, *__all__))
_lock = _threading.RLock()
_loaded: dict[str, _Callable[..., object]] = {}
_names: dict[str, list[str]] = {}


class Namespace(_SimpleNamespace):
    """The functions of one spec file, as attributes."""

    def __iter__(self) -> _Iterator[str]:
        return iter(vars(self))


def load(spec: str | _Path, trust: bool = False) -> Namespace:
    """Load the ops of a spec as Python functions with signatures and docstrings.

    The functions are differentiable to any order, like the package's own, and also available as `wg.ops.NAME`. Loading
    a file again replaces its earlier ops (a string replaces earlier strings). Tensors that were computed before keep
    their derivatives. Ops with the same spec are one op, wherever they come from: a file may be loaded beside the
    package that `weftgrad generate` wrote from it.

    Args:
        spec: Path of a YAML file, or the YAML text itself.
        trust: Allow `kind: custom`, whose kernels are code.

    Returns:
        A namespace with one attribute for each function.

    Raises:
        SpecError: With every error of the spec (line, field, expected value), or where an op would redefine another one
            with a different spec.

    Example:
        >>> spec = '[{op: "cube_plus_one(input)", kind: pointwise, dtypes: float, out: input * input * input + 1}]'
        >>> wg.ops.load(spec).cube_plus_one(wg.tensor([2.0]))
        tensor([9.])
    """
    from .codegen.model import SpecErrors  # lazy: start-up, as all imports from codegen, which imports PyYAML

    is_text = isinstance(spec, str) and ("\n" in spec or spec.lstrip().startswith(("- ", "[")))
    path = None if is_text else _Path(spec)
    file = "<text>" if path is None else str(path)
    owner = file if path is None else str(path.resolve())
    try:
        with _lock:
            return _load(str(spec) if path is None else path, file, owner, trust)
    except SpecErrors as error:
        raise _SpecError(str(error)) from None


def existing_ops(owner: str = "") -> _ExistingOps:
    """Return the ops and names that a new spec must not redefine, as `codegen.generate.ExistingOps`.

    Args:
        owner: The file whose ops may be replaced: then the ops are all others of this process. Empty: only weftgrad's
            own ops, for a package that is generated now and imported elsewhere.

    Returns:
        `ExistingOps`: functions, reserved names, and names of records.

    Example:
        >>> 'relu' in wg.ops.existing_ops().record_names
        True
    """
    from .codegen.generate import ExistingOps  # lazy: start-up

    record_names = {r.name for r in _registry} if owner else set(_records.NAMES)
    reserved = {n for n in record_names if not owner or _registry.owner(n) != owner}
    return ExistingOps(_generated.FUNCTIONS, reserved | _FUNCTION_NAMES, record_names)


def _load(source: str | _Path, file: str, owner: str, trust: bool) -> Namespace:
    from .codegen.generate import functions_module, resolve_calls, shown_names  # lazy: start-up
    from .codegen.loader import load_file, load_text  # lazy: start-up
    from .codegen.render import Generated, render_all  # lazy: start-up

    ops = load_text(source, file, trust=trust) if isinstance(source, str) else load_file(source, trust=trust)
    existing = existing_ops(owner)
    conflicts = {op.name: _registry.conflict(op.name, op.spec) for op in ops if _registry.owner(op.name)}
    registered_names = {op_name for op_name, detail in conflicts.items() if not detail}
    reserved = frozenset(existing.reserved) - registered_names
    known = resolve_calls(ops, _replace(existing, reserved=reserved, conflicts=conflicts))
    new_ops = [op for op in ops if op.name not in registered_names]
    rendered = render_all(new_ops, 0, existing.record_names, _registry.specs())
    registered = render_all([op for op in ops if op.name in registered_names], 0)
    records = Generated(registered.records | rendered.records)
    name = shown_names([_Path(file).name])
    digest = _hashlib.sha256(repr([op.spec for op in ops]).encode()).hexdigest()[:16]
    text = functions_module(
        ops, records, known, package=False, owner=None, sources=name, digest=digest, runtime="weftgrad.runtime"
    )
    filename = f"<weftgrad.ops {name} {digest}>"
    code = compile(text, filename, "exec")
    _registry.claim([op.name for op in new_ops], owner)
    _register_generated(rendered)
    module = _ModuleType("weftgrad.ops")
    exec(code, vars(module))  # generated source: see the docstring of this file
    _linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    functions = {n: entry[0] for n, entry in module.FUNCTIONS.items()}
    functions |= {alias: functions[of] for alias, of in module.ALIASES.items()}
    for old in _names.get(owner, ()):
        _loaded.pop(old, None)
    _names[owner] = list(functions)
    _loaded.update(functions)
    return Namespace(**functions)


def __getattr__(name: str) -> _Callable[..., _Any]:  # a loaded op returns one tensor or several
    try:
        return _loaded[name]
    except KeyError:
        raise AttributeError(f"no op named {name!r} was loaded; weftgrad.ops.load(FILE) does that") from None


def __dir__() -> list[str]:
    return sorted([*__all__, *_loaded])
