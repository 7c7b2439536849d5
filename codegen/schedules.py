"""Schedule spaces: `schedules.yaml` declares the parameters of each kernel template, their values and defaults.

    opencl-cpu/contraction:            target and style of device / kind of op
      about: …
      sizes: [m, n, k, batch]          problem sizes; the tuner stores one choice per power of two of each
      parameters:
        tile: {about: …, values: [auto, [6, 4, 128], …]}      auto: the planner decides
      constraints: ["tile is None or tile[0] * tile[1] <= 28"]   on parameters, sizes and device properties
      defaults:
        fallback: {tile: auto, …}      every parameter
        pocl: [{when: "m <= 8", set: {tile: [4, 6, 128]}}, …]  overrides for a class of devices; first match wins

The generator checks the file and prints it as Python literals: no process that runs ops reads YAML. Expressions are
Python arithmetic and comparisons over these names, `min`, `max` and `len`. `auto` is None.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

__all__ = ["CLASSES", "DEVICE", "Default", "Parameter", "Space", "load", "module_text", "parse"]

CLASSES = ("clang", "pocl", "intel_cpu", "opencl_gpu", "sm_80", "sm_90")
# Device properties that expressions may use, besides `itemsize`.
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

Value = None | int | float | tuple["Value", ...]  # None is `auto`: the planner decides


@dataclass(frozen=True, slots=True)
class Parameter:
    """One schedule parameter and its allowed values."""

    name: str
    about: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Default:
    """The default choice for a class of devices if `when` holds; an empty `when` always holds."""

    when: str
    choice: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Space:
    """The schedule space of one template. `fallback` sets every parameter; `defaults` override it per device class."""

    name: str
    about: str
    sizes: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    constraints: tuple[str, ...]
    fallback: Mapping[str, Value]
    defaults: Mapping[str, tuple[Default, ...]]


def load() -> tuple[Space, ...]:
    """Load the spaces of `schedules.yaml`."""
    return parse(yaml.safe_load(_PATH.read_text(encoding="utf-8")), _PATH.name)


def parse(document: object, file: str = "schedules.yaml") -> tuple[Space, ...]:
    """Check a document and return its spaces. Raises `ValueError` with file, template and field of the first error."""
    if not isinstance(document, dict):
        raise ValueError(f"{file}: must be a mapping of templates")
    return tuple(_space(name, entry, f"{file}: {name}") for name, entry in document.items())


def _space(name: str, entry: object, location: str) -> Space:
    target, _, kind = str(name).partition("/")
    if target not in _TARGETS or not kind.isidentifier():
        raise ValueError(f"{location}: a template is named TARGET/KIND, with a target of {', '.join(_TARGETS)}")
    fields = _mapping(entry, f"{location}: the entry")
    if set(fields) - _FIELDS or not {"parameters", "defaults"} <= set(fields):
        raise ValueError(f"{location}: has the fields {', '.join(sorted(_FIELDS))}, the last two always")
    sizes = tuple(map(str, _list(fields, "sizes", location)))
    parameters = tuple(
        _parameter(n, _mapping(p, f"{location}: {n}"), f"{location}: {n}")
        for n, p in _mapping(fields["parameters"], f"{location}: parameters").items()
    )
    by_name = {p.name: p for p in parameters}
    names = {*sizes, *DEVICE, "itemsize"}
    if names & set(by_name) or len(by_name) < len(parameters):
        raise ValueError(f"{location}: a parameter has the name of another one, of a size or of a device's property")
    known = names | set(by_name)
    constraint_texts = _list(fields, "constraints", location)
    constraints = tuple(_expression(text, known, f"{location}: constraints") for text in constraint_texts)
    class_defaults = dict(_mapping(fields["defaults"], f"{location}: defaults"))
    fallback = _choice(class_defaults.pop("fallback", None), by_name, f"{location}: fallback")
    if set(fallback) != set(by_name):
        raise ValueError(f"{location}: fallback needs a value for each of {', '.join(by_name)}")
    if set(class_defaults) - set(CLASSES):
        raise ValueError(f"{location}: defaults are for fallback, {', '.join(CLASSES)}")
    defaults = {}
    for device_class, rules in class_defaults.items():
        rule_list = rules if isinstance(rules, list) else [rules]
        defaults[device_class] = tuple(_default(d, by_name, names, f"{location}: {device_class}") for d in rule_list)
    return Space(str(name), str(fields.get("about", "")), sizes, parameters, constraints, fallback, defaults)


def _parameter(name: str, entry: Mapping[str, object], location: str) -> Parameter:
    values = entry.get("values")
    if not isinstance(values, list) or not values or set(entry) - {"about", "values"}:
        raise ValueError(f"{location}: needs a list of values, and may say what it is about")
    choices = tuple(_value(v, location) for v in values)
    if len(set(choices)) < len(choices) or not name.isidentifier():
        raise ValueError(f"{location}: names are identifiers, and values are unique")
    return Parameter(name, str(entry.get("about", "")), choices)


def _default(entry: object, parameters: Mapping[str, Parameter], names: Collection[str], location: str) -> Default:
    fields = _mapping(entry, location)
    if "set" not in fields:
        return Default("", _choice(fields, parameters, location))
    if set(fields) - {"when", "set"}:
        raise ValueError(f"{location}: has the fields when and set")
    when = _expression(fields["when"], names, location) if "when" in fields else ""
    return Default(when, _choice(fields["set"], parameters, location))


def _choice(entry: object, parameters: Mapping[str, Parameter], location: str) -> dict[str, Value]:
    choice = {name: _value(value, location) for name, value in _mapping(entry, location).items()}
    for name, value in choice.items():
        if name not in parameters or value not in parameters[name].values:
            raise ValueError(f"{location}: {name} has no value {value!r}")
    return choice


def _value(value: object, location: str) -> Value:
    if value == "auto":
        return None
    if isinstance(value, list):
        return tuple(_value(v, location) for v in value)
    if not isinstance(value, int | float):
        raise ValueError(f"{location}: values are auto, numbers and lists of numbers, not {value!r}")
    return value


def _mapping(value: object, location: str) -> Mapping[str, object]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{location}: must be a mapping")
    return value


def _list(fields: Mapping[str, object], field: str, location: str) -> list[object]:
    value = fields.get(field, [])
    if not isinstance(value, list):
        raise ValueError(f"{location}: {field} must be a list")
    return value


def _expression(text: object, names: Collection[str], location: str) -> str:
    """Return the expression `text`, normalised. Raises `ValueError` if it uses more than arithmetic on `names`."""
    try:
        tree = ast.parse(str(text), mode="eval")
    except SyntaxError as error:
        raise ValueError(f"{location}: {text!r} is no expression: {error.msg}") from None
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise ValueError(f"{location}: {text!r} has {type(node).__name__}, which is no arithmetic or comparison")
        if isinstance(node, ast.Name) and node.id not in names and node.id not in _FUNCTIONS:
            raise ValueError(f"{location}: {text!r} names {node.id!r}; there are {', '.join(sorted(names))}")
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS):
            raise ValueError(f"{location}: {text!r} calls something else than {', '.join(_FUNCTIONS)}")
    return ast.unparse(tree)


def module_text(spaces: Collection[Space], digest: str, runtime: str) -> str:
    """Return the text of the generated module, which declares every space to the runtime."""
    lines = [
        f'"""Generated by `weftgrad generate` from {_PATH.name}; do not edit. Inputs: {digest}."""', "",
        f"from {runtime}.schedules import declare", "",
    ]  # fmt: skip
    for space in spaces:
        rules = {
            device_class: tuple((d.when, dict(d.choice)) for d in rule_tuples)
            for device_class, rule_tuples in space.defaults.items()
        }
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
            *(f"        {device_class!r}: {rule_tuples!r}," for device_class, rule_tuples in rules.items()),
            "    },",
            ")",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"
