"""The OpenCL math library in `templates/opencl/math`: find a function's file, its dependencies, and its source.

A file is plain OpenCL C and is included once per type. `header(element, lanes)` defines the macros F, I, K(1.0) and so
on for that type, and `undefine()` removes them again, so they never clash with names in kernels. Every block has an
include guard: a function may be requested twice, or for two types that share a definition.
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

# Function -> OpenCL built-in, for float and double on devices whose compilers inline the built-ins.
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

# Functions for which our own code is preferred to the built-in: it takes half the time of the built-in in Intel's CPU
# runtime, and its error is below the 16 ULP that OpenCL allows a built-in.
PREFER_OWN = {("erf", "float")}

# WG_LIST: a vector literal is `(float2)WG_LIST 0, 1 WG_LIST_END`, because C needs braces (templates/opencl/as_c.h).
# WG_ANY: whether any lane of a mask is set: clang's built-in (2 instructions) where the text is compiled for a known
# processor, else repeated halving. Translators from LLVM to SPIR-V (Intel's GPUs, Mesa) abort at its instruction.
ANY_LANE_MACROS = """\
#ifndef WG_LIST
#define WG_LIST (
#define WG_LIST_END )
#endif
#ifndef WG_ANY2
#if defined(__has_builtin) && (defined(WG_AS_C) || defined(__x86_64__) || defined(__aarch64__))
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
    """Return the suffix of file names for an element type: f32, f64 or int."""
    if element not in ELEMENTS:
        raise KeyError(f"unknown element type {element!r}; known: {', '.join(ELEMENTS)}")
    return CLASSES.get(element, "int")


def sources(folder: Path) -> dict[str, str]:
    """Read the files of a folder: stem -> text, such as {"exp.f32": "// needs: ..."}."""
    return {path.name.removesuffix(".cl"): path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.cl"))}


@functools.cache
def needs(text: str) -> tuple[str, ...]:
    """Return the functions that a text lists in its first line, `// needs: exp, log2_wide.f64`."""
    match = re.match(r"// needs:([^\n]*)(?:\n|$)", text)
    if match is None:
        raise ValueError(f"the first line must be '// needs: ...', not {text.splitlines()[:1]}")
    return tuple(name.strip() for name in match[1].split(",") if name.strip())


@functools.cache
def is_fixed(text: str) -> bool:
    """Return True if a text does not depend on the element type: its second line is `// fixed types`."""
    return text.split("\n", 2)[1:2] == ["// fixed types"]


def find(name: str, element: str, texts: Mapping[str, str], fp64: bool = True) -> str | None:
    """Return the stem of the file with a function for an element type: the type's own file before the generic one.

    Without `fp64`, a file such as `digamma.no_f64` comes first: it does in float what the others do in double.
    So does the generic file where the one for float would call it in double.
    """
    stems = [f"{name}.{element_class(element)}", name]
    if not fp64 and element == "float":
        stems = [
            f"{name}.no_f64",
            *(stem for stem in stems if f"{name}.f64" not in needs(texts.get(stem, "// needs:"))),
        ]
    return next((stem for stem in stems if stem in texts), None)


def _resolve_order(
    names: Iterable[str], element: str, texts: Mapping[str, str], builtin: bool = False, fp64: bool = True
) -> list[tuple[str, str, str]]:
    """Return (function, stem or "" for a built-in, element) with dependencies before their users."""
    resolved: dict[tuple[str, str], tuple[str, str, str]] = {}
    visiting: list[tuple[str, str]] = []

    def visit(name: str, element_type: str) -> None:
        base, dot, suffix = name.partition(".")
        if dot:  # "lgamma.f64": computed in another type
            element_type = {"f32": "float", "f64": "double"}.get(suffix, element_type)
        key = (base, element_type)
        if key in resolved:
            return
        if key in visiting:
            raise ValueError(f"circular needs: {' -> '.join(n for n, _ in [*visiting, key])}")
        if builtin and element_type in CLASSES and base in BUILTIN and key not in PREFER_OWN:
            resolved[key] = (base, "", element_type)
            return
        stem = find(base, element_type, texts, fp64)
        if stem is None:
            via = f", needed by {' -> '.join(n for n, _ in visiting)}" if visiting else ""
            raise KeyError(f"no math function {base!r} for {element_type}{via}")
        visiting.append(key)
        for dependency in needs(texts[stem]):
            visit(dependency, element_type)
        visiting.pop()
        resolved[key] = (base, stem, element_type)

    for name in names:
        visit(name, element)
    return list(resolved.values())


def resolve(names: Iterable[str], element: str, texts: Mapping[str, str]) -> list[str]:
    """Return the stems to compile for functions of an element type, dependencies first."""
    return list(dict.fromkeys(stem for _, stem, _ in _resolve_order(names, element, texts)))


@functools.cache
def _definitions(element: str, lanes: int, builtin: bool) -> tuple[tuple[str, str], ...]:
    signed, unsigned, bits = ELEMENTS[element]
    if lanes not in WIDTHS:
        raise ValueError(f"{lanes} lanes; OpenCL has {WIDTHS}")
    n = "" if lanes == 1 else str(lanes)

    def cast(target: str) -> str:
        if lanes == 1:
            return f"(({target})(x))"
        return f"convert_{target}{n}(x)" if builtin else f"__builtin_convertvector((x), {target}{n})"

    def bits_as(target: str) -> str:
        return f"as_{target}{n}(x)" if builtin else f"__builtin_astype((x), {target}{n})"

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
    if element in CLASSES:  # adding MAGIC moves the integer part of a small number into the low bits
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
    """Return the #defines for one type.

    F is the value type, E its element, I and U integers of its width, M its mask type. D, L, W, S and H are double,
    ulong, uint, float and ushort with the same number of lanes. K(1.5) is a literal of type E.
    """
    element_class(element)
    return "".join(f"#define {name} {value}\n" for name, value in _definitions(element, lanes, builtin))


def undefine(element: str, lanes: int) -> str:
    """Return the #undefs for all macros of `header`."""
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
    fp64: bool = True,
) -> str:
    """Return source that defines functions for one element type, for scalars and for vectors.

    A program may contain it several times, for several types.

    Args:
        names: the functions; their dependencies are added.
        element: the element type, a key of `ELEMENTS`.
        lanes_list: the vector widths.
        texts: the result of `sources`.
        builtin: call OpenCL's built-ins where they exist. Right if the compiler inlines them (GPUs); 10 times too slow
            if it does not (PoCL).
        fp64: the compiler has double. Without it, functions that use double for precision are replaced by their
            `.no_f64` files; pass `builtin`, because others have no such file.
    """
    plan = _resolve_order(names, element, texts, builtin, fp64)
    parts: list[str] = [ANY_LANE_MACROS]
    for lanes in sorted({1, *lanes_list}):
        current = None
        for name, stem, element_type in plan:
            text = texts[stem] if stem else _builtin_text(name)
            if current != element_type:
                if current is not None:
                    parts.append(undefine(current, lanes))
                parts.append(header(element_type, lanes, builtin))
                current = element_type
            guard = f"WG_{name}_{'any' if stem and is_fixed(text) else element_type}_{lanes}".upper()
            parts.append(f"#ifndef {guard}\n#define {guard}\n{text.rstrip()}\n#endif\n")
        if current is not None:
            parts.append(undefine(current, lanes))
    return "".join(parts)
