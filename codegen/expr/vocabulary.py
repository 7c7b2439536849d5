"""The functions of the language (`functions.yaml`). `call` applies one and checks and converts the types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import add, mul, sub
from pathlib import Path

import yaml

from .nodes import Expr, ExprError, Operand, Scope, Type, const, intern, join_scopes, topological, variable

_PATH = Path(__file__).parent.parent / "functions.yaml"
ROW_LENGTH = Operand("value", "scalar")  # the name `n` in expressions with row reductions
_INTEGER_LIMIT = 2**64  # integer constants must fit a 64-bit type
_INTEGER_FOLDS: Mapping[str, Callable[[int, int], int]] = {"add": add, "sub": sub, "mul": mul}
_MASK_FUNCTIONS = {"bitwise_and": "logical_and", "bitwise_or": "logical_or",
             "bitwise_xor": "logical_xor", "bitwise_not": "logical_not"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Function:
    """One entry of `functions.yaml`, which documents the fields. `grad` is None if there is no derivative."""

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
    """Return the functions by name, in the order of the file."""
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
    """Apply the vocabulary function `fn` to `args`, converted to the types that it takes.

    Where a number is needed, a mask becomes 1 or 0. Where a mask is needed, a number becomes `x != 0`. Where a value is
    needed, an index becomes a value. An integer constant takes the type of the other arguments.

    Raises:
        ExprError: the function is unknown, or the number of arguments is wrong.
    """
    function = functions().get(fn)
    if function is None:
        raise ExprError(f"unknown function {fn!r}")
    if len(args) != len(function.args):
        raise ExprError(f"{fn} takes {counted(len(function.args))}, got {len(args)}")
    if fn in _MASK_FUNCTIONS and all(arg.type == "mask" for arg in args):
        return call(_MASK_FUNCTIONS[fn], *args)
    common_type = _common_type(function, args)
    converted = tuple(_convert(arg, common_type if takes in ("number", "any") else takes)
                  for arg, takes in zip(args, function.takes, strict=True))  # fmt: skip
    folded = _fold_integers(fn, converted, common_type)
    if folded is not None:
        return folded
    if fn in ("to_value", "index_to_value", "to_mask") and args[0].type == ("mask" if fn == "to_mask" else "value"):
        return args[0]  # no conversion needed
    if function.row and converted[0].scope in ("row", "scalar"):
        return _uniform_row_reduction(fn, converted[0])
    return intern(fn, converted, None, _result_type(function, common_type), _result_scope(function, converted))


def counted(arguments: int) -> str:
    """Return `1 argument`, `2 arguments`, ..."""
    return f"{arguments} argument{'' if arguments == 1 else 's'}"


def _common_type(function: Function, args: Sequence[Expr]) -> Type:
    """Return the type to which the `number` and `any` arguments are promoted."""
    common_args = [arg for arg, takes in zip(args, function.takes, strict=True) if takes in ("number", "any")]
    if common_args and "any" in function.takes and all(arg.type == "mask" for arg in common_args):
        return "mask"
    if any(arg.type == "index" for arg in common_args) and all(
        arg.type == "index" or _is_integer(arg) for arg in common_args
    ):
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


def _fold_integers(fn: str, args: tuple[Expr, ...], common_type: Type) -> Expr | None:
    """Fold exact arithmetic of integer constants and the sign of a literal. `canonical` folds the rest."""
    values = [arg.value for arg in args if arg.fn == "const"]
    if len(values) != len(args):
        return None
    if fn == "neg" and isinstance(values[0], (int, float)):
        return const(-values[0], common_type)
    if fn in _INTEGER_FOLDS and isinstance(values[0], int) and isinstance(values[1], int):
        result = _INTEGER_FOLDS[fn](values[0], values[1])
        return const(result, common_type) if abs(result) < _INTEGER_LIMIT else None
    return None


def _uniform_row_reduction(fn: str, x: Expr) -> Expr:
    """Return the reduction of a per-row value without a sweep: arguments of reductions always vary along the row."""
    if fn in ("row_max", "row_min"):
        return x
    length = variable("n", ROW_LENGTH)
    return call("mul", length, x) if fn == "row_sum" else call("pow", x, length)


def _result_type(function: Function, common_type: Type) -> Type:
    if function.gives == "same":
        return common_type
    return "mask" if function.gives == "mask" else "index" if function.gives == "index" else "value"


def _result_scope(function: Function, args: Sequence[Expr]) -> Scope:
    if function.row:
        return "row"
    return "full" if function.random else join_scopes(arg.scope for arg in args)


def power(base: Expr, exponent: Expr) -> Expr:
    """Return `base ** exponent`: products for the exponents 0 to 4, roots and reciprocals for 0.5, -0.5 and -1."""
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
    """Replace names in `expr` by expressions; types and scopes are computed anew."""
    return rebuild([expr], lambda node: replacements.get(str(node.value)) if node.fn == "name" else None)[expr]


def rebuild(roots: Sequence[Expr], replace: Callable[[Expr], Expr | None]) -> dict[Expr, Expr]:
    """Rebuild all nodes of `roots` and return old node -> new node.

    replace: returns the new node, or None to rebuild the node from its new arguments.
    """
    rebuilt: dict[Expr, Expr] = {}
    for node in topological(roots):
        replaced = replace(node)
        if replaced is None:
            args = [rebuilt[arg] for arg in node.args]
            unchanged = all(old is arg for old, arg in zip(node.args, args, strict=True))
            replaced = node if unchanged else call(node.fn, *args)
        rebuilt[node] = replaced
    return rebuilt
