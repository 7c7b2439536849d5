"""Generate the source of a program from kernel instances: OpenCL C for drivers, or C for the `cpu` device's compiler.

A kernel's text names its types by macros (ARCHITECTURE.md, "Kernel text"). `#define`s around the text set them, so
several instances of the same or of different texts fit into one program. A program of 32 kernels builds in a quarter of
the time of 32 programs.

The C source is the same text after `templates/opencl/as_c.h`, which defines OpenCL's keywords and functions in C. A
kernel becomes a static function that takes the position of its work-item. Next to it is an exported function that loops
over a range of the launch's work-items (`_work_item_loop`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from importlib import resources

from . import dtypes
from .backends.protocol import Instance, Slot

__all__ = ["Sections", "entry_name", "iota", "sections", "source"]

_MASK_ELEMENT = {"float": "int", "double": "long", "uchar": "char"}
_INTEGER_OF_SAME_WIDTH = {"float": "int", "double": "long"}
_BITS_OF_ONE = {"float16": "0x3c00", "bfloat16": "0x3f80"}  # 1.0 in the half types
_HALF_TYPES = {"float16": "half", "bfloat16": "bfloat16"}  # dtype -> the name in `wg_from_half`, also of the math file
_FP64 = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
_NO_FP64 = """\
#ifdef __clang__
#pragma clang diagnostic ignored "-Wkeyword-macro"
#endif
#define WG_NO_FLOAT64
#define double WG_NO_FLOAT64_HERE_USE_FLOAT32
"""
_C_TYPES = ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "float", "double")


@cache
def _math_sources() -> dict[str, str]:
    """Return the text of each file of the math library by its name."""
    from ..codegen import math_library  # lazy: start-up

    with resources.as_file(resources.files("weftgrad.templates") / "opencl" / "math") as folder:
        return math_library.sources(folder)


@cache
def _template(name: str) -> str:
    """Return the text of a file of `templates/opencl`."""
    return (resources.files("weftgrad.templates") / "opencl" / name).read_text(encoding="utf-8")


def vector_type(element: str, lanes: int) -> str:
    """Return OpenCL's name of a vector type, such as `float8`; one lane is the scalar type itself."""
    return element if lanes == 1 else f"{element}{lanes}"


def mask_type(element: str, lanes: int) -> str:
    """Return the type of a comparison: `int` for scalars, for vectors integers of the operands' width."""
    return "int" if lanes == 1 else f"{_MASK_ELEMENT.get(element, element)}{lanes}"


def iota(type_name: str, lanes: int) -> str:
    """Return the text of the vector 0, 1, 2, ... in both languages (see `WG_LIST` in header.cl)."""
    return f"(({type_name})WG_LIST {', '.join(map(str, range(lanes)))} WG_LIST_END)"


def entry_name(instance: Instance) -> str:
    """Return the kernel's name in a program: its entry's name, and 12 hex digits that are unique to the instance."""
    return f"{instance.entry}_{_digest(instance)}"


@cache
def _digest(instance: Instance) -> str:
    return hashlib.blake2s(repr(astuple(instance)).encode(), digest_size=6).hexdigest()


@dataclass(frozen=True, slots=True)
class Sections:
    """The parts of a program's source, in order.

    Attributes:
        header: What every program begins with: `as_c.h` or a pragma, `header.cl`, vector types without alignment.
        functions: The math functions that the kernels call, one text per element type.
        kernels: A text per instance, with the macros that set its types.
    """

    header: tuple[str, ...]
    functions: tuple[str, ...]
    kernels: tuple[str, ...]


def source(instances: Sequence[Instance], builtins: bool = False, fp64: bool = True, as_c: bool = False) -> str:
    """Return the source of a program with a kernel `entry_name(instance)` for each instance, in order.

    Args:
        instances: The kernels, with their types.
        builtins: Call the compiler's own math functions, if OpenCL has them, instead of the library's. Without
            `fp64` they are called in any case, because the library's compute some of them in double.
        fp64: The device has float64. Without it, the word `double` in a kernel is an error, also where the compiler
            knows the type.
        as_c: Generate C for clang, with one exported function per kernel (see `_work_item_loop`), not OpenCL C.

    Returns:
        The text of one translation unit.
    """
    parts = sections(instances, builtins, fp64, as_c)
    return "\n".join((*parts.header, *parts.functions, *parts.kernels))


def sections(instances: Sequence[Instance], builtins: bool = False, fp64: bool = True, as_c: bool = False) -> Sections:
    """Return the parts of `source`, for the same arguments."""
    from ..codegen import math_library  # lazy: start-up

    elements = [e for e in _C_TYPES if fp64 or e != "double"]
    prelude = _template("as_c.h") if as_c else _FP64 if fp64 else _NO_FP64
    header = (prelude, _template("header.cl"), *(f"WG_UNALIGNED({e})\n" for e in elements))
    # Math functions are defined per element type, each for all vector widths that a kernel of that type has. Kernels
    # also process single elements, the remainder of a row, so width 1 is always among them.
    functions_by_element: dict[str, tuple[set[str], set[int]]] = {}
    for instance in instances:
        calls = {instance.element: set(instance.functions)}
        if conversions := _conversion_files(instance.slots):
            calls.setdefault("float", set()).update(conversions)
        for element, names in calls.items():
            all_names, widths = functions_by_element.setdefault(element, (set(), set()))
            all_names |= names
            widths |= {1, instance.lanes}
    functions = tuple(
        math_library.program_text(sorted(names), element, sorted(widths), _math_sources(), builtins or not fp64, fp64)
        for element, (names, widths) in sorted(functions_by_element.items())
        if names
    )
    return Sections(header, functions, tuple(_kernel_text(instance, as_c) for instance in instances))


_KERNEL_HEAD = re.compile(r"\bkernel void NAME\((\w+)\)\(")
_POSITION_PARAMETERS = "size_t wg_x, size_t wg_y, size_t wg_z, const size_t *wg_size"


def _work_item_loop(instance: Instance) -> str:
    """Return the exported C function of an instance, to be placed after the text of its kernel.

    It runs the work-items from `begin` up to `end` of a launch of `size[0] * size[1] * size[2]`, with the first
    dimension innermost. `arguments` holds the addresses of the argument values: each pointer, the geometry, and the
    packed offsets and numbers.

    The function of a work-item is not inlined into the loop. Otherwise LLVM hoists constants out of the loop over
    work-items, runs out of registers, and reloads them in the loop over elements (which makes exp 1.6 times slower).
    """
    pointers = instance.pointers or len(instance.slots)
    values = ", ".join(f"*(void **)arguments[{i}]" for i in range(pointers))
    return f"""
static __attribute__((noinline)) void NAME(work_item)({_POSITION_PARAMETERS}, void *const *arguments) {{
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


def _conversion_files(slots: Iterable[Slot]) -> list[str]:
    """Return the math files with the conversions between float32 and the half types of `slots`."""
    return sorted({_HALF_TYPES[slot.dtype] for slot in slots if slot.type == "value" and slot.dtype in _HALF_TYPES})


def _kernel_text(instance: Instance, as_c: bool) -> str:
    """Return an instance's text between the `#define`s and `#undef`s of its types, loads and stores."""
    element, lanes = instance.element, instance.lanes
    text = instance.text
    if as_c:
        function_head = rf"static void NAME(kernel_\1)({_POSITION_PARAMETERS}, "
        text = _KERNEL_HEAD.sub(function_head, text) + _work_item_loop(instance)
    defines: list[tuple[str, str]] = [
        ("NAME(x)", f"x##_{_digest(instance)}"),
        ("C", element),
        ("LANES", str(lanes)),
        ("V", vector_type(element, lanes)),
        ("M", mask_type(element, lanes)),
        ("L", _index_vector(element, lanes)),
        ("TO_MASK(x)", "(x)" if lanes == 1 else f"WG_CONVERT(x, {mask_type(element, lanes)})"),
        ("TO_VALUE(x)", f"({element})(x)" if lanes == 1 else f"WG_CONVERT(x, {vector_type(element, lanes)})"),
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
    """Return the type of positions in a row: `long` for scalars, for vectors integers of the operands' width."""
    return "long" if lanes == 1 else f"{_MASK_ELEMENT.get(element, element)}{lanes}"


def _pointed_to(p: str, stored: str, lanes: int, qualifier: str = "") -> str:
    """Return the expression of the `lanes` stored elements at the address `p`."""
    return f"(*(global {qualifier}{stored}{f'{lanes}_u' if lanes > 1 else ''} *)({p}))"


def _load(slot: Slot, stored: str, element: str, lanes: int) -> str:
    """Return the macro text that reads `lanes` elements at `p` and converts them to the kernel's types.

    Args:
        slot: The buffer.
        stored: The C type of its elements in memory.
        element: The compute type.
        lanes: 1, or the width of a vector.
    """
    raw = _pointed_to("p", stored, lanes, "const ")
    if slot.type == "raw":
        return raw
    if slot.type == "mask":
        # Compared as stored: 0.5 is true, and the negative zero of a half type is not.
        stored_vector = vector_type(stored, lanes)
        magnitude = f"({raw} & ({stored_vector})(0x7fff))" if slot.dtype in _HALF_TYPES else raw
        truth = f"({magnitude} != ({stored_vector})(0))"
        return truth if lanes == 1 else f"WG_CONVERT({truth}, {mask_type(element, lanes)})"
    if slot.type == "index":
        return f"((long){raw})" if lanes == 1 else f"WG_CONVERT({raw}, {_index_vector(element, lanes)})"
    target = vector_type(element, lanes)
    if slot.dtype in _HALF_TYPES:
        as_float32 = f"wg_from_{_HALF_TYPES[slot.dtype]}({raw})"
        return as_float32 if element == "float" else _convert(as_float32, target, lanes)
    return raw if stored == element else _convert(raw, target, lanes)


def _store(slot: Slot, stored: str, element: str, lanes: int) -> str:
    """Return the macro text that converts `v` to the stored type and writes it at `p`. Arguments as for `_load`.

    True is stored as 1 of any dtype, also a value other than 0 in a bool.
    """
    destination = _pointed_to("p", stored, lanes)
    target = vector_type(stored, lanes)
    if slot.type == "mask" or slot.dtype == "bool":
        truth = "(v)" if slot.type == "mask" else f"((v) != ({vector_type(element, lanes)})(0))"
        integer_type = vector_type(_INTEGER_OF_SAME_WIDTH.get(stored, stored), lanes)
        one = f"(uchar)({truth} != 0)" if lanes == 1 else f"(WG_CONVERT({truth}, {integer_type}) & ({integer_type})(1))"
        if slot.dtype in _BITS_OF_ONE:
            one = f"{one} * ({target})({_BITS_OF_ONE[slot.dtype]})"
        elif integer_type != target:
            one = _convert(one, target, lanes)
        return f"({destination} = {one})"
    if slot.type == "raw" or (stored == element and slot.dtype not in _HALF_TYPES):
        return f"({destination} = (v))"
    if slot.dtype in _HALF_TYPES:
        as_float32 = "(v)" if element == "float" else _convert("(v)", vector_type("float", lanes), lanes)
        return f"({destination} = wg_to_{_HALF_TYPES[slot.dtype]}({as_float32}))"
    return f"({destination} = {_convert('(v)', target, lanes)})"


def _convert(value: str, target: str, lanes: int) -> str:
    """Return the expression of `value` converted to the scalar or vector type `target`."""
    return f"(({target}){value})" if lanes == 1 else f"WG_CONVERT({value}, {target})"
