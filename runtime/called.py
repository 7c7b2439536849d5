"""Kernels' text rewritten so that what a kernel does is a function of its own, or that the kernel is a function, too.

`apart`: PoCL puts what asks for a work-item's place into functions of its own making, without the kernel's attributes.
If these say that the processor has AVX-512, that is lost. A function that is told its place keeps what it has.

`with_function`: for drivers for CPUs whose kernels have a form of their own, but which compile other functions of a
program as C compilers do. The function has the form that PoCL gives its kernels (`runtime/csrc/direct.c`): the places
of the arguments' values, the launch, and which work-group of it this is. A second kernel tells its address. Taking
that needs a line of assembler, of x86-64, since OpenCL C has no pointers to functions.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

__all__ = ["PREAMBLE", "apart", "place_name", "with_function"]

# Work-items of a group that meet, or share memory, cannot be calls one after another.
_OF_GROUPS = re.compile(r"\b(barrier|local)\b")
_ASKED = ("global_id", "global_size", "group_id", "num_groups", "local_id", "local_size")

PREAMBLE = """
typedef struct { ulong num_groups[3]; } wg_launch_t; // as far as it is read here
#define WG_TEXT_(x) #x
#define WG_TEXT(x) WG_TEXT_(x)
"""
# What a work-group of one work-item is told, by what it asks for: dimension d of a launch.
_OF_ONE = {
    "global_id": "{at}", "group_id": "{at}", "global_size": "launch->num_groups[{d}]",
    "num_groups": "launch->num_groups[{d}]", "local_id": "0", "local_size": "1",
}  # fmt: skip


def place_name(kernel: str) -> str:
    """The name of the kernel that writes a function's address, from the name of the kernel that it is."""
    entry, _, digest = kernel.rpartition("_")
    return f"{entry}_place_{digest}"


class _Apart(NamedTuple):
    text: str  # with the kernel, which calls its body
    pointers: list[str]
    asked: list[str]


def apart(text: str, entry: str, slots: int) -> str | None:
    """The text of an instance with the body of its kernel `entry` in a function; None where that cannot be.

    The kernel's parameters are, as everywhere, pointers, a NAME(Geometry) and a NAME(Dynamic).
    """
    made = _apart(text, entry, slots)
    return None if made is None else made.text


@cache
def with_function(text: str, entry: str, slots: int) -> str | None:
    """The text of an instance whose kernel `entry` is a function, too; None where that cannot be."""
    made = _apart(text, entry, slots)
    if made is None:
        return None
    buffers = len(made.pointers)
    given = ", ".join(f"*(global void *global *)given[{i}]" for i in range(buffers))
    at = ", ".join(_OF_ONE[name].format(at="xyz"[d], d=d) for name in made.asked for d in range(3))
    return f"""{made.text}
// The same as a function for one work-group of one work-item.
__attribute__((used, noinline)) void NAME({entry}_call)(
    global void *global *given, global const wg_launch_t *launch, ulong x, ulong y, ulong z) {{
    const ulong at[] = {{{at}}};
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


@cache
def _apart(text: str, entry: str, slots: int) -> _Apart | None:
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
    asked = [name for name in _ASKED if f"get_{name}(" in text] or ["global_id"]  # macros before it may ask, too
    parameters = ", ".join(f"global void *{name}" for name in pointers)
    at = ", ".join(f"get_{name}({d})" for name in asked for d in range(3))
    defines = "".join(f"#define get_{name}(d) wg_at[{3 * i} + (d)]\n" for i, name in enumerate(asked))
    undefines = "".join(f"#undef get_{name}\n" for name in asked)
    return _Apart(
        f"""#undef WG_ONE
#define WG_ONE
{text[: head.start()]}{defines}\
static __attribute__((noinline)) void NAME({entry}_work)(const ulong *wg_at, {text[head.end() : end]}
{undefines}{text[end:].rstrip()}

// The kernel.
#undef WG_ONE
#define WG_ONE WG_ALONE
{"WG_ONE " if head[1] else ""}kernel void NAME({entry})(
    {parameters}, const NAME(Geometry) geo, const NAME(Dynamic) dyn) {{
    const ulong at[] = {{{at}}};
    NAME({entry}_work)(at, {", ".join(pointers)}, geo, dyn);
}}
""",
        pointers,
        asked,
    )
