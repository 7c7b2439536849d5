"""Write the docstring of an op's Python function: the spec's prose, then sections that follow from the spec."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from .examples import doctest_lines, inplace_doctest_lines
from .kinds import OutputRow
from .model import MISSING, Op, Param

__all__ = ["docstring", "inplace_docstring"]

_DTYPES = {
    "float": "floating", "numeric": "integer or floating", "integer": "integer", "integral": "integer or bool",
    "bool": "bool", "all": "any",
}  # fmt: skip
_RESULT_DTYPES = {
    "promote": "promoted dtype of the operands",
    "float": "promoted dtype of the operands, or the default floating dtype if that is an integer or bool",
    "bool": "bool",
    "index": "int64",
    "accumulate": "dtype of `input`, or int64 if that is an integer or bool",
    "truth": "bool, or uint8 if `input` is uint8",
}
_OUT_TEXT = "Receives the result. It must have the result's shape, or no elements: then it gets memory for them."
_KINDS_WITH_FORMULA = ("pointwise", "composite")
_KINDS_WITH_DTYPE_ERROR = ("pointwise", "reduction", "rowwise", "contraction")
_FLOATING_RULE = "any dtype; integers become floating"
_WIDTH = 110


def docstring(op: Op, outputs: Sequence[OutputRow] = (), *, takes_out: bool = False, alias_count: int = 0) -> str:
    """Return the text of a docstring with quotes, in Google style.

    Args:
        op: The op.
        outputs: Its results, of which saved ones are not returned. Empty for a composite.
        takes_out: Whether the function has a parameter `out`.
        alias_count: Number of NumPy names among the parameters: `axis`, `keepdims`.
    """
    lines = (op.doc or f"{op.name}.").splitlines()
    if len(lines) > 1 and lines[0].endswith("."):
        lines[1:1] = [""] if lines[1] else []  # a summary is a paragraph of its own
    lines += _formula(op)
    facts = []
    if op.kind == "pointwise":
        broadcast_text = "Shapes broadcast. " if _tensor_count(op) > 1 else ""
        facts.append(f"{broadcast_text}A Python number does not change the dtype within its category.")
    if op.kind not in ("view", "composite"):
        facts.append("Half types compute in float32.")
    if op.grad == "none":
        facts.append("Not differentiable.")
    lines += ["", *facts] if facts else []
    arguments = [f"{p.name}: {_argument(op, p)}" for p in op.params]
    if takes_out:
        arguments.append(f"out: {_OUT_TEXT}")
    arguments += [f"{new}: NumPy's name of `{old}`." for new, old in _ALIASES[:alias_count]]
    lines += _section("Args", arguments)
    lines += _section("Returns", _returns(op, [o for o in outputs if not o.saved]))
    if op.kind in _KINDS_WITH_DTYPE_ERROR and op.dtypes != "all" and op.result != "float":
        lines += _section("Raises", ["UnsupportedDType: an operand has a dtype that is not allowed."])
    if op.example:
        lines += ["", "Example:", *(f"    {line}" for line in doctest_lines(op))]
    return _quoted(lines)


def inplace_docstring(op: Op, outputs: Sequence[OutputRow] = ()) -> str:
    """Return the docstring of the in-place form `NAME_`, whose arguments are those of `docstring`."""
    first = op.operands[0].name
    lines = [f"Compute `{op.name}` and write the result into `{first}`.", *_formula(op)]
    arguments = [f"{p.name}: {_argument(op, p)}" for p in op.params]
    arguments[0] = arguments[0].replace("Tensor or number", "Tensor").replace(_FLOATING_RULE, "floating dtype")
    lines += _section("Args", arguments)
    lines += _section("Returns", [f"`{first}`, whose version goes up by one."])
    errors = [f"GradientError: `{first}` is a leaf that requires a gradient, and gradients are on."]
    rule = next((o.result for o in outputs if not o.saved), "")
    if rule == "float":
        errors.append(f"DTypeError: `{first}` is an integer or bool tensor, which cannot hold a floating result.")
    elif rule == "promote" and len(op.operands) > 1 and op.dtypes != "float":
        errors.append(f"DTypeError: the result is floating, and `{first}` an integer or bool tensor.")
    if op.dtypes != "all" and op.result != "float":
        errors.append("UnsupportedDType: an operand has a dtype that is not allowed.")
    lines += _section("Raises", errors)
    if op.example and (example := inplace_doctest_lines(op)):
        lines += ["", "Example:", *(f"    {line}" for line in example)]
    return _quoted(lines)


_ALIASES = (("axis", "dim"), ("keepdims", "keepdim"))


def _formula(op: Op) -> list[str]:
    if op.kind not in _KINDS_WITH_FORMULA or len(op.outputs) != 1 or op.fields.get("let"):
        return []
    return ["", f"    out = {' '.join(next(iter(op.outputs.values())).split())}"]


def _argument(op: Op, param: Param) -> str:
    default = "" if param.default is MISSING else f" Default: {param.default!r}."
    return f"{_meaning(op, param)}{default}"


def _meaning(op: Op, param: Param) -> str:
    if param.name == "dim" and param.role == "static":
        if op.kind != "reduction":
            return "Dimension; negative values count from the last."
        several = "Dimension, or several, to reduce" if "Sequence" in param.annotation else "Dimension to reduce"
        return f"{several}; negative values count from the last" + ("; None: all." if param.default is None else ".")
    if param.name == "keepdim":
        return "Keep reduced dimensions, with size 1."
    if param.name == "dtype":
        return "Dtype in which elements are computed and returned; None: the rule below."
    if param.role == "static":
        return f"{param.annotation}."
    if param.role == "list":
        return f"Tensors of {_DTYPES[op.dtypes]} dtype."
    if param.role in ("scalar", "number"):
        return "Number, which does not change the result's dtype." if param.role == "number" else "Number."
    if param.role == "seed":
        return "Seed, an integer."
    return _tensor(op, param)


def _tensor(op: Op, param: Param) -> str:
    dtype = {"mask": "bool, or any dtype whose nonzero elements are true", "index": "int64"}.get(
        param.type, f"{_DTYPES[op.dtypes]} dtype" if op.result != "float" else _FLOATING_RULE
    )
    shape = {
        "column": ", one element for each position in a row", "row": ", one element for each row",
        "scalar": ", one element",
    }.get(param.scope, "")  # fmt: skip
    optional = ", or None" if param.role == "optional" else ""
    is_replaceable = op.kind == "pointwise" and op.takes_numbers and param.type == "value" and param.scope == "full"
    number = " or number" if is_replaceable else ""
    axes = _axes(op, param)
    return f"Tensor{number}{f' of shape {axes}' if axes else ''}{shape}, {dtype}{optional}."


def _axes(op: Op, param: Param) -> str:
    """Return the shape of a contraction's operand from its equation: `(m, k)` of `mk,kn->mn`."""
    equation = op.outputs.get("out", "") if op.kind == "contraction" else ""
    terms = equation.partition("->")[0].split(",")
    position = [p.name for p in op.operands].index(param.name)
    return _shape_text(terms[position]) if equation and position < len(terms) else ""


def _shape_text(term: str) -> str:
    names = ["..." if part == "..." else part for part in _letters(term.strip())]
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def _letters(term: str) -> Iterable[str]:
    before, dots, after = term.partition("...")
    return [*before, *([dots] if dots else []), *after]


def _returns(op: Op, outputs: Sequence[OutputRow]) -> list[str]:
    if op.kind == "view":
        return ["A view of `input`: it shares memory, dtype and device with it."]
    if op.kind == "composite" or not outputs:
        return ["The result."]
    texts = [_result(op, output) for output in outputs]
    return texts if len(texts) == 1 else [f"{o.name}: {t}" for o, t in zip(outputs, texts, strict=True)]


def _result(op: Op, output: OutputRow) -> str:
    rule = output.result
    dtype = f"dtype of `{rule[5:]}`" if rule.startswith("like:") else _RESULT_DTYPES.get(rule, rule)
    if _tensor_count(op) == 1:
        first = next(p.name for p in op.operands if p.is_tensor)
        dtype = dtype.replace("promoted dtype of the operands", f"dtype of `{first}`")
    if "dtype" in {p.name for p in op.statics}:
        dtype = f"`dtype` if it is not None, else {dtype}"
    shape = ""
    if op.kind == "pointwise":
        shape = " of the broadcast shape" if _tensor_count(op) > 1 else " of the same shape"
    elif op.kind == "reduction":
        shape = " of the shape of `input` without the reduced dimensions, or with size 1 there if `keepdim` is true"
    elif op.kind == "rowwise" and output.scope == "full":
        shape = " of the shape of `input`"
    elif op.kind == "contraction" and "->" in op.outputs.get("out", ""):
        shape = f" of shape {_shape_text(op.outputs['out'].partition('->')[2])}"
    return f"Tensor{shape}; {dtype}."


def _tensor_count(op: Op) -> int:
    return sum(p.is_tensor for p in op.operands)


def _section(title: str, rows: Sequence[str]) -> list[str]:
    lines = ["", f"{title}:"] if rows else []
    for row in rows:
        lines += textwrap.wrap(row, _WIDTH, initial_indent="    ", subsequent_indent="        ")
    return lines


def _quoted(lines: Sequence[str]) -> str:
    body = [_inside_quotes(line) for line in lines]
    closes_on_last_line = len(body) == 1 and not body[0].endswith(('"', "\\"))
    return '"""' + "\n".join(body) + ('"""' if closes_on_last_line else '\n"""')


def _inside_quotes(line: str) -> str:
    """Escape a line of prose, so that it cannot end a triple-quoted string or contain invisible or bidi characters."""
    text = line.rstrip().replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
