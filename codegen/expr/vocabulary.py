"""The functions of the language (`functions.yaml`), and applying one: typing happens here, once, for every printer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import add, mul, sub
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from .nodes import Expr, ExprError, Operand, Scope, Type, const, intern, join, name, topological

_PATH = Path(__file__).parent.parent / "functions.yaml"
ROW_LENGTH = Operand("value", "scalar")  # what the name `n` stands for beside row reductions
_LARGEST = 2**64  # constants stay within what some 64-bit type can hold
_EXACT: Mapping[str, Callable[[int, int], int]] = {"add": add, "sub": sub, "mul": mul}
_OF_MASKS = {"bitwise_and": "logical_and", "bitwise_or": "logical_or",
             "bitwise_xor": "logical_xor", "bitwise_not": "logical_not"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Function:
    """One entry of `functions.yaml`, which explains the fields. `grad` is None where no derivative exists."""

    name: str
    args: tuple[str, ...]
    takes: tuple[str, ...]
    gives: str
    symbol: str | None
    row: str | None
    random: bool
    grad: Mapping[str, str] | None
    spelling: Mapping[str, str]


@cache
def functions() -> Mapping[str, Function]:
    """The vocabulary by name, in the file's order."""
    entries = yaml.safe_load(_PATH.read_text(encoding="utf-8"))
    return {str(fn): _function(str(fn), entry) for fn, entry in entries.items()}


def _function(fn: str, entry: Mapping[str, object]) -> Function:
    unknown = set(entry) - {"args", "takes", "gives", "symbol", "row", "random", "grad", "opencl", "numpy", "triton"}
    if unknown:
        raise ValueError(f"functions.yaml: {fn} has unknown fields {sorted(unknown)}")
    args = tuple(_strings(entry["args"]))
    takes = entry.get("takes", "value")
    grad = entry["grad"]
    rules: Mapping[str, str] | None = None if grad == "none" else {}
    if isinstance(grad, Mapping):
        rules = {str(arg): str(rule) for arg, rule in grad.items() if str(rule) != "0"}
        if set(grad) != set(args):
            raise ValueError(f"functions.yaml: {fn} needs a derivative for each of {args}")
    return Function(
        name=fn,
        args=args,
        takes=(takes,) * len(args) if isinstance(takes, str) else tuple(_strings(takes)),
        gives=str(entry.get("gives", "value")),
        symbol=_text(entry, "symbol"),
        row=_text(entry, "row"),
        random=bool(entry.get("random", False)),
        grad=rules,
        spelling={target: str(entry[target]) for target in ("opencl", "numpy", "triton") if target in entry},
    )


def _strings(items: object) -> list[str]:
    if not isinstance(items, list):
        raise ValueError(f"functions.yaml: expected a list, found {items!r}")
    return [str(item) for item in items]


def _text(entry: Mapping[str, object], field: str) -> str | None:
    return str(entry[field]) if field in entry else None


def call(fn: str, *args: Expr) -> Expr:
    """The vocabulary function `fn` applied to `args`, which are converted to the types it takes.

    A mask becomes 1 or 0 where a number is needed; a number becomes `x != 0` where a mask is needed; an index becomes
    a value where values are needed, while an integer constant becomes whatever stands beside it.
    Raises ExprError for an unknown function or a wrong number of arguments.
    """
    function = functions().get(fn)
    if function is None:
        raise ExprError(f"unknown function {fn!r}")
    if len(args) != len(function.args):
        raise ExprError(f"{fn} takes {counted(len(function.args))}, got {len(args)}")
    if fn in _OF_MASKS and all(arg.type == "mask" for arg in args):
        return call(_OF_MASKS[fn], *args)
    common = _common(function, args)
    typed = tuple(_convert(arg, common if takes in ("number", "any") else takes)
                  for arg, takes in zip(args, function.takes, strict=True))  # fmt: skip
    folded = _fold(fn, typed, common)
    if folded is not None:
        return folded
    if fn in ("to_value", "index_to_value", "to_mask") and args[0].type == ("mask" if fn == "to_mask" else "value"):
        return args[0]  # nothing to convert
    if function.row and typed[0].scope in ("row", "scalar"):
        return _even_row(fn, typed[0])
    return intern(fn, typed, None, _gives(function, common), _scope(function, typed))


def counted(arguments: int) -> str:
    """`1 argument`, `2 arguments`."""
    return f"{arguments} argument{'' if arguments == 1 else 's'}"


def _common(function: Function, args: Sequence[Expr]) -> Type:
    """The type the `number` and `any` arguments take together."""
    group = [arg for arg, takes in zip(args, function.takes, strict=True) if takes in ("number", "any")]
    if group and "any" in function.takes and all(arg.type == "mask" for arg in group):
        return "mask"
    if any(arg.type == "index" for arg in group) and all(arg.type == "index" or _is_integer(arg) for arg in group):
        return "index"
    return "value"


def _is_integer(arg: Expr) -> bool:
    return arg.fn == "const" and isinstance(arg.value, int) and arg.type != "mask"


def _convert(arg: Expr, type: str) -> Expr:
    if type == "literal":
        if not _is_integer(arg):
            raise ExprError("expected a constant integer")
        return const(int(arg.value or 0), "index")
    if arg.type == type:
        return arg
    if _is_integer(arg) and type != "mask":
        return const(int(arg.value or 0), "index" if type == "index" else "value")
    if type == "mask":
        return call("to_mask", arg)
    if type == "value":
        return call("to_value" if arg.type == "mask" else "index_to_value", arg)
    raise ExprError(f"expected an index, found a {arg.type}")


def _fold(fn: str, args: tuple[Expr, ...], common: Type) -> Expr | None:
    """Exact arithmetic of integer constants, and the sign of a literal; more would be `canonical`'s business."""
    values = [arg.value for arg in args if arg.fn == "const"]
    if len(values) != len(args):
        return None
    if fn == "neg" and isinstance(values[0], (int, float)):
        return const(-values[0], common)
    if fn in _EXACT and isinstance(values[0], int) and isinstance(values[1], int):
        result = _EXACT[fn](values[0], values[1])
        return const(result, common) if abs(result) < _LARGEST else None
    return None


def _even_row(fn: str, x: Expr) -> Expr:
    """The reduction of what is the same all over the row. So a reduction's argument always varies along the row."""
    if fn in ("row_max", "row_min"):
        return x
    length = name("n", ROW_LENGTH)
    return call("mul", length, x) if fn == "row_sum" else call("pow", x, length)


def _gives(function: Function, common: Type) -> Type:
    if function.gives == "same":
        return common
    return "mask" if function.gives == "mask" else "index" if function.gives == "index" else "value"


def _scope(function: Function, args: Sequence[Expr]) -> Scope:
    if function.row:
        return "row"
    return "full" if function.random else join(arg.scope for arg in args)


def power(base: Expr, exponent: Expr) -> Expr:
    """`base ** exponent`: products for the integers 0 to 4, roots and reciprocals where they say the same."""
    if exponent.fn == "const" and exponent.type != "mask":
        if exponent.value == 0:
            return const(1, base.type if base.type == "index" else "value")
        if exponent.value == 1:
            return base
        if exponent.value in (2, 3, 4):
            squared = call("mul", base, base)
            return {2: squared, 3: call("mul", squared, base), 4: call("mul", squared, squared)}[int(exponent.value)]
        if exponent.value in (0.5, -0.5, -1):
            return call({0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}[float(exponent.value)], base)
    return call("pow", base, exponent)


def substitute(expr: Expr, replacements: Mapping[str, Expr]) -> Expr:
    """`expr` with names replaced by expressions; types and scopes follow from the new parts."""
    return rebuild([expr], lambda node: replacements.get(str(node.value)) if node.fn == "name" else None)[expr]


def rebuild(roots: Sequence[Expr], replace: Callable[[Expr], Expr | None]) -> dict[Expr, Expr]:
    """What each node of `roots` becomes when `replace` may give a new one for it (None: only its arguments change)."""
    new: dict[Expr, Expr] = {}
    for node in topological(roots):
        replaced = replace(node)
        if replaced is None:
            args = [new[arg] for arg in node.args]
            unchanged = all(old is arg for old, arg in zip(node.args, args, strict=True))
            replaced = node if unchanged else call(node.fn, *args)
        new[node] = replaced
    return new
