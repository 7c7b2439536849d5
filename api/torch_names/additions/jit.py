"""Names of `torch.jit` for TorchScript, which weftgrad does not have: decorators for its compiler, classes to test for.

`weftgrad.jit` has what works: its decorators return their function.
"""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import TypeVar, Union, get_args, get_origin

from ...jit import script_if_tracing
from ..placeholders import placeholder

__all__ = [
    "Attribute", "CompilationUnit", "RecursiveScriptModule", "ScriptFunction", "ScriptModule", "TracerWarning",
    "_isinstance", "_overload", "_overload_method", "_script_if_tracing", "freeze", "interface", "isinstance",
    "load", "optimize_for_inference", "optimized_execution", "save", "script_method", "trace_module",
]  # fmt: skip

_Function = TypeVar("_Function", bound=Callable[..., object])
_REMEDY = "Call the module or function itself; save its state_dict with torch.save."


def _placeholder(name: str) -> type:
    return placeholder(f"torch.jit.{name}", _REMEDY)


Attribute, CompilationUnit = _placeholder("Attribute"), _placeholder("CompilationUnit")
ScriptFunction, ScriptModule = _placeholder("ScriptFunction"), _placeholder("ScriptModule")
RecursiveScriptModule = _placeholder("RecursiveScriptModule")
freeze, load, save = _placeholder("freeze"), _placeholder("load"), _placeholder("save")
trace_module, optimize_for_inference = _placeholder("trace_module"), _placeholder("optimize_for_inference")
optimized_execution = _placeholder("optimized_execution")


class TracerWarning(Warning):
    """The category of warnings of PyTorch's tracer, which programs filter. There are none here."""


def _overload(fn: _Function) -> _Function:
    """Return the function: overloads are for TorchScript's compiler."""
    return fn


_overload_method = interface = script_method = _overload
_script_if_tracing = script_if_tracing


def _isinstance(obj: object, target_type: type) -> bool:
    """Return whether `obj` is of a type or of one type of a union; of `list[int]` only `list` is compared."""
    origin = get_origin(target_type)
    if origin in (Union, UnionType):
        return any(_isinstance(obj, member) for member in get_args(target_type))
    return _builtin_isinstance(obj, origin or target_type)


_builtin_isinstance = isinstance
isinstance = _isinstance
