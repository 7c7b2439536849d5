"""From instances to the source of one program: OpenCL C for drivers, or C for the compiler of the `cpu` device.

A kernel's text is generic in dtype (ARCHITECTURE.md, "Kernel text"). Here its types become `#define`s around it, so
that several instances of one text, or of many, fit in one program: a batch of 32 kernels builds at a quarter of the
time that 32 programs take.

The C is the same text behind `templates/opencl/as_c.h`, which makes OpenCL's words C's. A kernel becomes a static
function that is told its work-item's position, and beside it stands the function that is exported: a loop over some of
a launch's work-items (`_work_item_loop`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from functools import cache
from importlib import resources

from . import dtypes
from .backends.protocol import Instance, Slot

__all__ = ["entry_name", "iota", "source"]

_MASK = {"float": "int", "double": "long", "uchar": "char"}
_WHOLE = {"float": "int", "double": "long"}  # integers as wide as what a truth is stored as
_BITS_OF_ONE = {"float16": "0x3c00", "bfloat16": "0x3f80"}
_ELEMENTS = ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "float", "double")


@cache
def _math_sources() -> dict[str, str]:
    from ..codegen import math_library

    with resources.as_file(resources.files("weftgrad.templates") / "opencl" / "math") as folder:
        return math_library.sources(folder)


@cache
def _template(name: str) -> str:
    return (resources.files("weftgrad.templates") / "opencl" / name).read_text(encoding="utf-8")


def vector(element: str, lanes: int) -> str:
    """OpenCL's name of a vector type; one lane is the scalar itself."""
    return element if lanes == 1 else f"{element}{lanes}"


def mask(element: str, lanes: int) -> str:
    """The type that comparing two values gives: `int` for scalars, an integer vector as wide as the operands else."""
    return "int" if lanes == 1 else f"{_MASK.get(element, element)}{lanes}"


def iota(vector_type: str, lanes: int) -> str:
    """Return the text of the vector 0, 1, 2, ... in both languages (see `WG_LIST` in header.cl)."""
    return f"(({vector_type})WG_LIST {', '.join(map(str, range(lanes)))} WG_LIST_END)"


def entry_name(instance: Instance) -> str:
    """The kernel's name in any program: that of the schedule, and 12 hexadecimal digits that no other instance has."""
    return f"{instance.entry}_{_digest(instance)}"


@cache
def _digest(instance: Instance) -> str:
    return hashlib.blake2s(repr(astuple(instance)).encode(), digest_size=6).hexdigest()


def source(instances: Sequence[Instance], builtins: bool = False, fp64: bool = True, as_c: bool = False) -> str:
    """Return the program of these instances, in order, with a kernel `entry_name(instance)` for each.

    Args:
        instances: The kernels, with their types.
        builtins: Call the compiler's own math functions, where OpenCL has them, instead of the library's.
        fp64: The device has float64.
        as_c: Make it C for clang, with an exported function a kernel (see `_work_item_loop`), instead of OpenCL C.
    """
    from ..codegen import math_library

    elements = [e for e in _ELEMENTS if fp64 or e != "double"]
    prelude = _template("as_c.h") if as_c else "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" if fp64 else ""
    parts = [prelude, _template("header.cl")]
    parts += [f"WG_UNALIGNED({e})\n" for e in elements]
    wanted: dict[tuple[str, int], set[str]] = {}
    for instance in instances:
        for lanes in {1, instance.lanes}:
            wanted.setdefault((instance.element, lanes), set()).update(instance.functions)
            for conversion in _conversions(instance.slots):
                wanted.setdefault(("float", lanes), set()).add(conversion)
    by_element: dict[str, dict[int, set[str]]] = {}
    for (element, lanes), names in wanted.items():
        by_element.setdefault(element, {})[lanes] = names
    for element, widths in sorted(by_element.items()):
        vocabulary = sorted(set().union(*widths.values()))
        if vocabulary:
            parts.append(
                math_library.program_text(vocabulary, element, sorted(widths), _math_sources(), builtin=builtins)
            )
    parts += [_instance(instance, as_c) for instance in instances]
    return "\n".join(parts)


_KERNEL_HEAD = re.compile(r"\bkernel void NAME\((\w+)\)\(")
_POSITION = "size_t wg_x, size_t wg_y, size_t wg_z, const size_t *wg_size"


def _work_item_loop(instance: Instance) -> str:
    """Return the exported C function of an instance, which the text of its kernel stands before.

    It runs the work-items `begin` up to `end` of a launch of `size[0] * size[1] * size[2]`, in row order with the first
    dimension innermost. `arguments` has the addresses of the arguments' values: of each pointer, of the geometry, and
    of the packed offsets and numbers.

    A work-item is a function that is not inlined into the loop: LLVM would hoist constants out of the loop over
    work-items, have no registers for all of them, and load them again in the loop over elements (exp takes 1.6 times
    as long then).
    """
    pointers = instance.pointers or len(instance.slots)
    values = ", ".join(f"*(void **)arguments[{i}]" for i in range(pointers))
    return f"""
static __attribute__((noinline)) void NAME(work_item)({_POSITION}, void *const *arguments) {{
    NAME(kernel_{instance.entry})(
        wg_x, wg_y, wg_z, wg_size, {values},
        *(const NAME(Geometry) *)arguments[{pointers}], *(const NAME(Dynamic) *)arguments[{pointers + 1}]);
}}
WG_EXPORT void {entry_name(instance)}(
    void *const *arguments, const size_t *size, size_t begin, size_t end) {{
    size_t x = begin % size[0], y = begin / size[0] % size[1], z = begin / size[0] / size[1];
    for (size_t i = begin; i < end; i++) {{
        NAME(work_item)(x, y, z, size, arguments);
        if (++x == size[0]) {{
            x = 0;
            if (++y == size[1]) y = 0, z++;
        }}
    }}
}}
"""


def _conversions(slots: Iterable[Slot]) -> list[str]:
    used = {slot.dtype for slot in slots if slot.type == "value"}
    return sorted({"float16": "half", "bfloat16": "bfloat16"}[d] for d in used & {"float16", "bfloat16"})


def _conversion_names(dtype: str) -> tuple[str, str]:
    short = "half" if dtype == "float16" else "bfloat16"
    return f"from_{short}", f"to_{short}"


def _instance(instance: Instance, as_c: bool) -> str:
    element, lanes = instance.element, instance.lanes
    text = instance.text
    if as_c:
        text = _KERNEL_HEAD.sub(rf"static void NAME(kernel_\1)({_POSITION}, ", text) + _work_item_loop(instance)
    defines: list[tuple[str, str]] = [
        ("NAME(x)", f"x##_{_digest(instance)}"),
        ("C", element),
        ("LANES", str(lanes)),
        ("V", vector(element, lanes)),
        ("M", mask(element, lanes)),
        ("L", _index_vector(element, lanes)),
        ("TO_MASK(x)", "(x)" if lanes == 1 else f"WG_CONVERT(x, {mask(element, lanes)})"),
        ("TO_VALUE(x)", f"({element})(x)" if lanes == 1 else f"WG_CONVERT(x, {vector(element, lanes)})"),
    ]
    for i, slot in enumerate(instance.slots):
        stored = dtypes.BY_NAME[slot.dtype].storage
        defines.append((f"S{i}", stored))
        for suffix, width in (("", 1), ("V", lanes)):
            defines.append((f"LOAD{suffix}{i}(p)", _load(slot, stored, element, width)))
            defines.append((f"STORE{suffix}{i}(p, v)", _store(slot, stored, element, width)))
    defines += [(name, str(value)) for name, value in instance.defines]
    lines = [f"#define {name} {value}" for name, value in defines]
    undefines = [f"#undef {name.partition('(')[0]}" for name, _ in defines]
    return "\n".join([f"// ---- {instance.name}: {instance.entry}", *lines, text.rstrip(), *undefines, ""])


def _index_vector(element: str, lanes: int) -> str:
    return "long" if lanes == 1 else f"{_MASK.get(element, element)}{lanes}"


def _load(slot: Slot, stored: str, element: str, lanes: int) -> str:
    space = f"global const {stored}{f'{lanes}_u' if lanes > 1 else ''}"
    raw = f"(*({space} *)(p))"
    if slot.type == "raw":
        return raw
    if slot.type == "mask":
        # Compared as stored: 0.5 is true, and the negative zero of a half type is not.
        wide = vector(stored, lanes)
        value = f"({raw} & ({wide})(0x7fff))" if slot.dtype in ("float16", "bfloat16") else raw
        truth = f"({value} != ({wide})(0))"
        return truth if lanes == 1 else f"WG_CONVERT({truth}, {mask(element, lanes)})"
    if slot.type == "index":
        return f"((long){raw})" if lanes == 1 else f"WG_CONVERT({raw}, {_index_vector(element, lanes)})"
    target = vector(element, lanes)
    if slot.dtype in ("float16", "bfloat16"):
        single = f"wg_{_conversion_names(slot.dtype)[0]}({raw})"
        return single if element == "float" else _convert(single, target, lanes)
    return raw if stored == element else _convert(raw, target, lanes)


def _store(slot: Slot, stored: str, element: str, lanes: int) -> str:
    place = f"(*(global {stored}{f'{lanes}_u' if lanes > 1 else ''} *)(p))"
    target = vector(stored, lanes)
    if slot.type == "mask" or slot.dtype == "bool":
        truth = "(v)" if slot.type == "mask" else f"((v) != ({vector(element, lanes)})(0))"
        whole = vector(_WHOLE.get(stored, stored), lanes)
        one = f"(uchar)({truth} != 0)" if lanes == 1 else f"(WG_CONVERT({truth}, {whole}) & ({whole})(1))"
        if slot.dtype in _BITS_OF_ONE:
            one = f"{one} * ({target})({_BITS_OF_ONE[slot.dtype]})"
        elif whole != target:
            one = _convert(one, target, lanes)
        return f"({place} = {one})"
    if slot.type == "raw" or (stored == element and slot.dtype not in ("float16", "bfloat16")):
        return f"({place} = (v))"
    if slot.dtype in ("float16", "bfloat16"):
        single = "(v)" if element == "float" else _convert("(v)", vector("float", lanes), lanes)
        return f"({place} = wg_{_conversion_names(slot.dtype)[1]}({single}))"
    return f"({place} = {_convert('(v)', target, lanes)})"


def _convert(value: str, target: str, lanes: int) -> str:
    return f"(({target}){value})" if lanes == 1 else f"WG_CONVERT({value}, {target})"
