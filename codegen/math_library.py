"""The math functions of `templates/opencl/math`: which file holds a function, what it needs, and the text to compile.

A file holds plain OpenCL C and is included once per type, after `header(element, lanes)` has defined what F, I, K(1.0)
and the like mean; `undefine()` takes those names away again, so they never meet the names a kernel's text uses.
Every emitted block has an include guard: asking twice for a function, or for two types that share one, is harmless.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

# element -> (signed integer, unsigned integer, bits)
ELEMENTS: dict[str, tuple[str, str, int]] = {
    "char": ("char", "uchar", 8),
    "uchar": ("char", "uchar", 8),
    "short": ("short", "ushort", 16),
    "ushort": ("short", "ushort", 16),
    "int": ("int", "uint", 32),
    "uint": ("int", "uint", 32),
    "long": ("long", "ulong", 64),
    "ulong": ("long", "ulong", 64),
    "float": ("int", "uint", 32),
    "double": ("long", "ulong", 64),
}
CLASSES = {"float": "f32", "double": "f64"}
WIDTHS = (1, 2, 4, 8, 16)

# The spelling of a function of float or double on devices whose compilers inline the built-in of the same meaning.
_UNARY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc lgamma floor ceil trunc"
)
BUILTIN: dict[str, str] = {name: f"{name}({{x}})" for name in _UNARY.split()} | {
    "abs": "fabs({x})",
    "reciprocal_guess": "1 / {x}",
    "round": "rint({x})",
    "atan2": "atan2({x}, {y})",
    "hypot": "hypot({x}, {y})",
    "pow": "pow({x}, {y})",
    "fmod": "fmod({x}, {y})",
    "copysign": "copysign({x}, {y})",
}

# Of these, what a few operators do in half the time that a built-in was seen to take (Intel's runtime for CPUs), and
# with fewer ULPs than OpenCL allows a built-in (16).
OWN = {("erf", "float")}

# The elements of a vector literal, `(float2)WG_LIST 0, 1 WG_LIST_END`, are in braces in C (templates/opencl/as_c.h).
# Whether any lane of a mask holds: a clang built-in where there is one (2 instructions), halving where not.
ANY_LANE = """\
#ifndef WG_LIST
#define WG_LIST (
#define WG_LIST_END )
#endif
#ifndef WG_ANY2
#if defined(__has_builtin)
#if __has_builtin(__builtin_reduce_or)
#define WG_ANY2(m) __builtin_reduce_or(m)
#define WG_ANY4(m) __builtin_reduce_or(m)
#define WG_ANY8(m) __builtin_reduce_or(m)
#define WG_ANY16(m) __builtin_reduce_or(m)
#endif
#endif
#endif
#ifndef WG_ANY2
#define WG_ANY2(m) ((m).lo | (m).hi)
#define WG_ANY4(m) WG_ANY2((m).lo | (m).hi)
#define WG_ANY8(m) WG_ANY4((m).lo | (m).hi)
#define WG_ANY16(m) WG_ANY8((m).lo | (m).hi)
#endif
"""


def element_class(element: str) -> str:
    """The part of a file name that stands for an element type: f32, f64 or int."""
    if element not in ELEMENTS:
        raise KeyError(f"unknown element type {element!r}; known: {', '.join(ELEMENTS)}")
    return CLASSES.get(element, "int")


def sources(folder: Path) -> dict[str, str]:
    """The texts of a folder by file stem: {"exp.f32": "// needs: ..."}."""
    return {path.name.removesuffix(".cl"): path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.cl"))}


@functools.cache
def needs(text: str) -> tuple[str, ...]:
    """The functions a text asks for in its first line, `// needs: exp, log2_wide.f64`."""
    match = re.match(r"// needs:([^\n]*)(?:\n|$)", text)
    if match is None:
        raise ValueError(f"the first line must be '// needs: ...', not {text.splitlines()[:1]}")
    return tuple(name.strip() for name in match[1].split(",") if name.strip())


@functools.cache
def is_fixed(text: str) -> bool:
    """Whether a text's types do not depend on the element type (its second line says `// fixed types`)."""
    return text.split("\n", 2)[1:2] == ["// fixed types"]


def find(name: str, element: str, texts: Mapping[str, str]) -> str | None:
    """The stem that holds a function for an element type: the specific file first, then the generic one."""
    return next((stem for stem in (f"{name}.{element_class(element)}", name) if stem in texts), None)


def _plan(
    names: Iterable[str], element: str, texts: Mapping[str, str], builtin: bool = False
) -> list[tuple[str, str, str]]:
    """(function, stem or "" for a built-in, element) in an order in which every function follows what it needs."""
    done: dict[tuple[str, str], tuple[str, str, str]] = {}
    path: list[tuple[str, str]] = []

    def visit(name: str, wanted: str) -> None:
        base, dot, suffix = name.partition(".")
        if dot:  # "lgamma.f64": computed in another type
            wanted = {"f32": "float", "f64": "double"}.get(suffix, wanted)
        key = (base, wanted)
        if key in done:
            return
        if key in path:
            raise ValueError(f"circular needs: {' -> '.join(n for n, _ in [*path, key])}")
        if builtin and wanted in CLASSES and base in BUILTIN and key not in OWN:
            done[key] = (base, "", wanted)
            return
        stem = find(base, wanted, texts)
        if stem is None:
            via = f", needed by {' -> '.join(n for n, _ in path)}" if path else ""
            raise KeyError(f"no math function {base!r} for {wanted}{via}")
        path.append(key)
        for needed in needs(texts[stem]):
            visit(needed, wanted)
        path.pop()
        done[key] = (base, stem, wanted)

    for name in names:
        visit(name, element)
    return list(done.values())


def resolve(names: Iterable[str], element: str, texts: Mapping[str, str]) -> list[str]:
    """The stems to compile for some functions of an element type, dependencies first."""
    return list(dict.fromkeys(stem for _, stem, _ in _plan(names, element, texts)))


@functools.cache
def _definitions(element: str, lanes: int, builtin: bool) -> tuple[tuple[str, str], ...]:
    signed, unsigned, bits = ELEMENTS[element]
    if lanes not in WIDTHS:
        raise ValueError(f"{lanes} lanes; OpenCL has {WIDTHS}")
    n = "" if lanes == 1 else str(lanes)

    def cast(to: str) -> str:
        if lanes == 1:
            return f"(({to})(x))"
        return f"convert_{to}{n}(x)" if builtin else f"__builtin_convertvector((x), {to}{n})"

    def bits_as(to: str) -> str:
        return f"as_{to}{n}(x)" if builtin else f"__builtin_astype((x), {to}{n})"

    double = element == "double"
    table = [
        ("F", element + n),
        ("E", element),
        ("I", signed + n),
        ("U", unsigned + n),
        ("M", "int" if lanes == 1 else signed + n),
        ("D", "double" + n),
        ("L", "ulong" + n),
        ("W", "uint" + n),
        ("S", "float" + n),
        ("H", "ushort" + n),
        ("WIDTH", str(lanes)),
        ("BITS", str(bits)),
        ("TO_F(x)", cast(element)),
        ("TO_I(x)", cast(signed)),
        ("TO_D(x)", cast("double")),
        ("TO_L(x)", cast("ulong")),
        ("TO_W(x)", cast("uint")),
        ("TO_S(x)", cast("float")),
        ("TO_H(x)", cast("ushort")),
        ("AS_F(x)", bits_as(element)),
        ("AS_I(x)", bits_as(signed)),
        ("AS_U(x)", bits_as(unsigned)),
        ("AS_D(x)", bits_as("double")),
        ("AS_L(x)", bits_as("ulong")),
        ("AS_W(x)", bits_as("uint")),
        ("AS_S(x)", bits_as("float")),
        ("LANE(x, i)", "(x)" if lanes == 1 else "((x)[i])"),
        ("ANY(m)", "(m)" if lanes == 1 else f"WG_ANY{lanes}(m)"),
    ]
    if element in CLASSES:  # MAGIC pushes the integer part of a small number into the low bits
        table += [
            ("K(x)", "x" if double else "x##f"),
            ("MANTISSA", "52" if double else "23"),
            ("BIAS", "1023" if double else "127"),
            ("SIGN", "((I)(-0x7fffffffffffffffL - 1))" if double else "((I)(-0x7fffffff - 1))"),
            ("INF", f"((F)({'(double)' if double else ''}INFINITY))"),
            ("NOT_A_NUMBER", f"((F)({'(double)' if double else ''}NAN))"),
            ("MAGIC", "6755399441055744.0" if double else "12582912.0f"),
            ("INT_TO_F(i)", "(AS_F((i) + AS_I((F)(MAGIC))) - MAGIC)"),
        ]
    return tuple(table)


def header(element: str, lanes: int, builtin: bool = False) -> str:
    """The #defines for one type. F: the value type, E: its element, I/U: integers of its width, M: its mask type;
    D, L, W, S, H: double, ulong, uint, float, ushort with as many lanes; K(1.5): a literal of type E."""
    element_class(element)
    return "".join(f"#define {name} {value}\n" for name, value in _definitions(element, lanes, builtin))


def undefine(element: str, lanes: int) -> str:
    """The #undefs for everything `header` defined."""
    return "".join(f"#undef {name.partition('(')[0]}\n" for name, _ in _definitions(element, lanes, False))


def _builtin_text(name: str) -> str:
    spelling = BUILTIN[name]
    parameters = "F x, F y" if "{y}" in spelling else "F x"
    body = spelling.format(x="x", y="y")
    return f"static inline __attribute__((overloadable)) F wg_{name}({parameters}) {{ return {body}; }}\n"


def program_text(
    names: Sequence[str],
    element: str,
    lanes_list: Sequence[int],
    texts: Mapping[str, str],
    builtin: bool = False,
) -> str:
    """The text that defines some functions for one element type, as scalars and for each further number of lanes.

    It may stand in a program several times, for several types. With `builtin`, functions that OpenCL has itself
    become calls of those: right where the compiler inlines them (GPUs), 10 times too slow where it does not (PoCL).
    """
    plan = _plan(names, element, texts, builtin)
    parts: list[str] = [ANY_LANE]
    for lanes in sorted({1, *lanes_list}):
        current = None
        for name, stem, wanted in plan:
            text = texts[stem] if stem else _builtin_text(name)
            if current != wanted:
                if current is not None:
                    parts.append(undefine(current, lanes))
                parts.append(header(wanted, lanes, builtin))
                current = wanted
            guard = f"WG_{name}_{'any' if stem and is_fixed(text) else wanted}_{lanes}".upper()
            parts.append(f"#ifndef {guard}\n#define {guard}\n{text.rstrip()}\n#endif\n")
        if current is not None:
            parts.append(undefine(current, lanes))
    return "".join(parts)
