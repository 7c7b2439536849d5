"""Schedules as data: `schedules.yaml` declares, for each template and style of device, what may be chosen and what is.

    opencl-cpu/contraction:            target and style of device / kind of op
      about: …
      sizes: [m, n, k, batch]          what a choice may depend on; tuned choices are kept by their powers of two
      parameters:
        tile: {about: …, values: [auto, [6, 4, 128], …]}      auto: the planner's own rule
      constraints: ["tile is None or tile[0] * tile[1] <= 28"]   of parameters, sizes and the device
      defaults:
        fallback: {tile: auto, …}      every parameter
        pocl: [{when: "m <= 8", set: {tile: [4, 6, 128]}}, …]  what differs on a class of devices; the first that holds

What stands here is checked, frozen, and written out as literals by the generator: no process that runs ops reads YAML.
Expressions are Python's arithmetic and comparisons over the names below, `min`, `max` and `len`; `auto` is None.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["CLASSES", "DEVICE", "Default", "Parameter", "Space", "load", "module_text", "parse"]

CLASSES = ("clang", "pocl", "intel_cpu", "opencl_gpu", "sm_80", "sm_90")
# Names of the device's properties, with `itemsize`.
DEVICE = ("cores", "lanes", "max_group", "local_memory", "registers", "sm")
_PATH = Path(__file__).resolve().with_name("schedules.yaml")
_TARGETS = ("opencl-cpu", "opencl-gpu", "triton")
_FIELDS = frozenset(("about", "sizes", "parameters", "constraints", "defaults"))
_FUNCTIONS = ("min", "max", "len")
_NODES = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult,
    ast.FloorDiv, ast.Div, ast.Mod, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot,
    ast.In, ast.NotIn, ast.Name, ast.Load, ast.Constant, ast.Subscript, ast.Tuple, ast.IfExp, ast.Call,
)  # fmt: skip

Value = Any  # None (auto), a number, or a tuple of numbers


@dataclass(frozen=True, slots=True)
class Parameter:
    """One thing that may be chosen, and the values that it may have."""

    name: str
    about: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Default:
    """What is chosen for a class of devices where `when` holds; always where it is empty."""

    when: str
    choice: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Space:
    """One template's choices. defaults: by class of device, what differs from `fallback`, which has every parameter."""

    name: str
    about: str
    sizes: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    constraints: tuple[str, ...]
    fallback: Mapping[str, Value]
    defaults: Mapping[str, tuple[Default, ...]]


def load() -> tuple[Space, ...]:
    """The project's own spaces."""
    import yaml

    return parse(yaml.safe_load(_PATH.read_text(encoding="utf-8")), _PATH.name)


def parse(document: Any, file: str = "schedules.yaml") -> tuple[Space, ...]:
    """The spaces of a document. Raises `ValueError` with file, template and field of the first thing that is wrong."""
    if not isinstance(document, dict):
        raise ValueError(f"{file}: must be a mapping of templates")
    return tuple(_space(name, entry, f"{file}: {name}") for name, entry in document.items())


def _space(name: str, entry: Any, where: str) -> Space:
    target, _, kind = str(name).partition("/")
    if target not in _TARGETS or not kind.isidentifier():
        raise ValueError(f"{where}: a template is named TARGET/KIND, with a target of {', '.join(_TARGETS)}")
    fields = _mapping(entry, f"{where}: the entry")
    if set(fields) - _FIELDS or not {"parameters", "defaults"} <= set(fields):
        raise ValueError(f"{where}: has the fields {', '.join(sorted(_FIELDS))}, the last two always")
    sizes = tuple(fields.get("sizes", ()))
    parameters = tuple(
        _parameter(n, _mapping(p, f"{where}: {n}"), f"{where}: {n}")
        for n, p in _mapping(fields["parameters"], f"{where}: parameters").items()
    )
    by_name = {p.name: p for p in parameters}
    names = {*sizes, *DEVICE, "itemsize"}
    if names & set(by_name) or len(by_name) < len(parameters):
        raise ValueError(f"{where}: a parameter has the name of another one, of a size or of a device's property")
    known = names | set(by_name)
    constraints = tuple(_expression(c, known, f"{where}: constraints") for c in fields.get("constraints", ()))
    given = dict(_mapping(fields["defaults"], f"{where}: defaults"))
    fallback = _choice(given.pop("fallback", None), by_name, f"{where}: fallback")
    if set(fallback) != set(by_name):
        raise ValueError(f"{where}: fallback needs a value for each of {', '.join(by_name)}")
    if set(given) - set(CLASSES):
        raise ValueError(f"{where}: defaults are for fallback, {', '.join(CLASSES)}")
    defaults = {}
    for which, rules in given.items():
        every = rules if isinstance(rules, list) else [rules]
        defaults[which] = tuple(_default(d, by_name, names, f"{where}: {which}") for d in every)
    return Space(str(name), str(fields.get("about", "")), sizes, parameters, constraints, fallback, defaults)


def _parameter(name: str, entry: Mapping[str, Any], where: str) -> Parameter:
    values = entry.get("values")
    if not isinstance(values, list) or not values or set(entry) - {"about", "values"}:
        raise ValueError(f"{where}: needs a list of values, and may say what it is about")
    found = tuple(_value(v, where) for v in values)
    if len(set(found)) < len(found) or not name.isidentifier():
        raise ValueError(f"{where}: names are identifiers, and values are there once")
    return Parameter(name, str(entry.get("about", "")), found)


def _default(entry: Any, parameters: Mapping[str, Parameter], names: Collection[str], where: str) -> Default:
    fields = _mapping(entry, where)
    if "set" not in fields:
        return Default("", _choice(fields, parameters, where))
    if set(fields) - {"when", "set"}:
        raise ValueError(f"{where}: has the fields when and set")
    when = _expression(fields["when"], names, where) if "when" in fields else ""
    return Default(when, _choice(fields["set"], parameters, where))


def _choice(entry: Any, parameters: Mapping[str, Parameter], where: str) -> dict[str, Value]:
    chosen = {name: _value(value, where) for name, value in _mapping(entry, where).items()}
    for name, value in chosen.items():
        if name not in parameters or value not in parameters[name].values:
            raise ValueError(f"{where}: {name} has no value {value!r}")
    return chosen


def _value(value: Any, where: str) -> Value:
    if value == "auto":
        return None
    if isinstance(value, list):
        return tuple(_value(v, where) for v in value)
    if not isinstance(value, int | float):
        raise ValueError(f"{where}: values are auto, numbers and lists of numbers, not {value!r}")
    return value


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{where}: must be a mapping")
    return value


def _expression(text: Any, names: Collection[str], where: str) -> str:
    """`text`, if it is an expression that does nothing but compute from `names`."""
    try:
        tree = ast.parse(str(text), mode="eval")
    except SyntaxError as error:
        raise ValueError(f"{where}: {text!r} is no expression: {error.msg}") from None
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise ValueError(f"{where}: {text!r} has {type(node).__name__}, which is no arithmetic or comparison")
        if isinstance(node, ast.Name) and node.id not in names and node.id not in _FUNCTIONS:
            raise ValueError(f"{where}: {text!r} names {node.id!r}; there are {', '.join(sorted(names))}")
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS):
            raise ValueError(f"{where}: {text!r} calls something else than {', '.join(_FUNCTIONS)}")
    return ast.unparse(tree)


def module_text(spaces: Collection[Space], digest: str, runtime: str) -> str:
    """The generated module: it hands every space to the runtime."""
    lines = [
        f'"""Generated by `weftgrad generate` from {_PATH.name}; do not edit. Inputs: {digest}."""', "",
        f"from {runtime}.schedules import declare", "",
    ]  # fmt: skip
    for space in spaces:
        rules = {which: tuple((d.when, dict(d.choice)) for d in found) for which, found in space.defaults.items()}
        lines += [
            "declare(",
            f"    {space.name!r},",
            f"    about={space.about!r},",
            f"    sizes={space.sizes!r},",
            "    parameters={",
            *(f"        {p.name!r}: ({p.about!r}, {p.values!r})," for p in space.parameters),
            "    },",
            f"    constraints={space.constraints!r},",
            f"    fallback={dict(space.fallback)!r},",
            "    defaults={",
            *(f"        {which!r}: {found!r}," for which, found in rules.items()),
            "    },",
            ")",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"
