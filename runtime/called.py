"""Kernels' text rewritten so that a kernel is a function, too, whose address a second kernel tells.

For drivers for CPUs whose kernels have a form of their own, but which compile other functions of a program as C
compilers do. The function has the form that PoCL gives its kernels (`runtime/csrc/direct.c`): the places of the
arguments' values, the launch, and which work-group of it this is. Taking an address needs a line of assembler, of
x86-64, since OpenCL C has no pointers to functions.
"""

from __future__ import annotations

import re
from functools import cache

__all__ = ["PREAMBLE", "place_name", "with_function"]

# Work-items of a group that meet, or share memory, cannot be calls one after another.
_OF_GROUPS = re.compile(r"\b(barrier|local)\b")
_ASKED = ("global_id", "global_size", "group_id", "num_groups", "local_id", "local_size")

PREAMBLE = """
typedef struct { ulong num_groups[3]; } wg_launch_t; // as far as it is read here
#define WG_TEXT_(x) #x
#define WG_TEXT(x) WG_TEXT_(x)
"""
_DEFINES = "".join(f"#define get_{name}(d) wg_at[{3 * i} + (d)]\n" for i, name in enumerate(_ASKED))
_UNDEFINES = "".join(f"#undef get_{name}\n" for name in _ASKED)


def place_name(kernel: str) -> str:
    """The name of the kernel that writes a function's address, from the name of the kernel that it is."""
    entry, _, digest = kernel.rpartition("_")
    return f"{entry}_place_{digest}"


@cache
def with_function(text: str, entry: str, slots: int) -> str | None:
    """The text of an instance whose kernel `entry` is a function, too; None where that cannot be.

    The kernel's parameters are, as everywhere, pointers, a NAME(Geometry) and a NAME(Dynamic).
    """
    heads = list(re.finditer(rf"^((?:\w+ )?)kernel void NAME\({entry}\)\(", text, re.MULTILINE))
    last = text.find("const NAME(Geometry) geo", heads[0].end()) if len(heads) == 1 else -1
    if last < 0:
        return None
    head = heads[0]
    named = re.findall(r"\*\s*(\w+)", text[head.end() : last])
    # Those of the slots are p0, p1, …, as many as the instance has, whatever `#if` leaves of them; kernels over many
    # tensors (pointwise.cl.j2) have others.
    pointers = named if "table" in named else [f"p{i}" for i in range(slots)]
    end = text.find("\n}\n", head.end()) + 2  # other kernels, and what chooses between them, may stand around it
    if end < 2 or _OF_GROUPS.search(text, head.end(), end):
        return None
    buffers = len(pointers)
    parameters = ", ".join(f"global void *{name}" for name in pointers)
    attribute = "WG_ONE " if head[1] else ""
    at = ", ".join(f"get_{name}({d})" for name in _ASKED for d in range(3))
    sizes = ", ".join(f"launch->num_groups[{d}]" for d in range(3))
    given = ", ".join(f"*(global void *global *)given[{i}]" for i in range(buffers))
    return f"""#undef WG_ONE
#define WG_ONE
{text[: head.start()]}{_DEFINES}\
static __attribute__((noinline)) void NAME({entry}_work)(const ulong *wg_at, {text[head.end() : end]}
{_UNDEFINES}{text[end:].rstrip()}

// The kernel, and the same as a function for one work-group of one work-item.
#undef WG_ONE
#define WG_ONE WG_ALONE
{attribute}kernel void NAME({entry})({parameters}, const NAME(Geometry) geo, const NAME(Dynamic) dyn) {{
    const ulong at[] = {{{at}}};
    NAME({entry}_work)(at, {", ".join(pointers)}, geo, dyn);
}}
__attribute__((used, noinline)) void NAME({entry}_call)(
    global void *global *given, global const wg_launch_t *launch, ulong x, ulong y, ulong z) {{
    const ulong at[] = {{x, y, z, {sizes}, x, y, z, {sizes}, 0, 0, 0, 1, 1, 1}};
    NAME({entry}_work)(
        at, {given},
        *(global const NAME(Geometry) *)given[{buffers}], *(global const NAME(Dynamic) *)given[{buffers + 1}]);
}}
kernel void NAME({entry}_place)(global ulong *to) {{
    ulong place;
    __asm__ volatile("leaq " WG_TEXT(NAME({entry}_call)) "(%%rip), %0" : "=r"(place));
    *to = place;
}}
"""
