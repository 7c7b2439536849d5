"""Check that kernels of `cpu` compile and link for other machines: x86-64 and ARM on Linux, macOS and Windows.

Nothing is run here. A batch has kernels of every kind of op and of every class of dtype. Each target compiles and links
it with the flags and the link command of the driver. The resulting library must export every kernel and need no other
library. `.ci/aarch64` also runs kernels for ARM.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import weftgrad as wg
from weftgrad.cli import prebuild
from weftgrad.runtime import dtypes, program
from weftgrad.runtime.backends import processor
from weftgrad.runtime.backends.cpu import compilers, driver
from weftgrad.runtime.backends.protocol import Instance

# platform.machine(), platform.system(), the instruction set
TARGETS = [
    ("aarch64", "Linux", "neon"),
    ("x86_64", "Linux", "sse"),
    ("x86_64", "Linux", "avx2"),
    ("x86_64", "Linux", "avx512"),
    ("arm64", "Darwin", "neon"),
    ("x86_64", "Darwin", "avx2"),
    ("AMD64", "Windows", "avx2"),
    ("ARM64", "Windows", "neon"),
]
# Ops of every kind and template, each with a dtype.
OPS = {
    "sigmoid": "float32", "pow": "float64", "tanh": "float16", "floor_divide": "int32", "logical_not": "bool",
    "sum": "bfloat16", "argmax": "int64", "prod": "uint8", "softmax": "float32", "layer_norm": "float16",
    "matmul_batched": "float32", "dropout_draw": "float32", "cumsum": "int16", "logcumsumexp": "float64",
    "max_windows": "float32", "average_windows_back": "float64", "gather": "float32", "scatter": "float64",
    "sort_along": "int8", "search_sorted": "float64", "convolution": "float32", "attention": "float32",
    "ctc_alpha": "float32", "pair_norms": "float64", "join": "bool", "pad_copy": "float16", "resample": "float32",
    "sample_grid": "float64", "triangle": "int64", "lu_factorize": "float64", "cholesky_factorize": "float32",
    "factored_solve": "float32", "orthogonalize_rows": "float32", "qr_factorize": "float64",
}  # fmt: skip
# Symbols that a library may take from the C library of the process, or on macOS from the dynamic linker.
C_LIBRARY = {"memset", "memcpy", "memmove", "bzero", "__bzero", "memset_pattern16", "dyld_stub_binder"}


@pytest.fixture(scope="module")
def compiler() -> compilers.Compiler:
    wheel = compilers._from_wheel([])
    return wheel or pytest.skip("ziglang is not installed")


@cache
def batch(lanes: int, registers: int) -> list[Instance]:
    """Return one kernel of each op, planned for a processor with `lanes` floats a vector and `registers` registers."""
    device = wg.device("cpu")
    capabilities = replace(driver.capabilities_here(), lanes=lanes, registers=registers, ahead=True)
    instances = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device.driver, "_capabilities", capabilities)
        for op, dtype in OPS.items():
            instances.append(prebuild.instances(device, [op], [dtypes.parse(dtype)])[0])
    return list(dict.fromkeys(instances))


@pytest.mark.parametrize(("machine", "system", "instructions"), TARGETS)
def test_kernels_compile_and_link(
    machine: str, system: str, instructions: str, compiler: compilers.Compiler, tmp_path: Path
) -> None:
    instances = batch(*processor.vector_registers(instructions))
    source = program.source(instances, as_c=True)
    flags = compilers.flags(instructions, machine, system, optimize=False, prefetch=True)
    object_file, library = str(tmp_path / "kernels.o"), str(tmp_path / "kernels.lib")
    run([*compiler.compile, *flags, "-c", "-o", object_file, "-"], source)
    run(compilers.link_command(compiler, [object_file], library, machine, system), "")
    content = Path(library).read_bytes()
    exported, undefined, needed = {"Linux": elf, "Darwin": mach_o, "Windows": portable_executable}[system](content)
    assert {program.entry_name(i) for i in instances} <= exported
    assert undefined <= (C_LIBRARY if system != "Windows" else set())
    assert needed == (["/usr/lib/libSystem.B.dylib"] if system == "Darwin" else [])


def run(command: list[str], text: str) -> None:
    process = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert not process.returncode, process.stderr[-2000:]


# Parsers of shared libraries: they return the exported symbols, the undefined symbols and the required libraries.

Symbols = tuple[set[str], set[str], list[str]]


def text_at(content: bytes, start: int) -> str:
    return content[start : content.index(b"\0", start)].decode()


def records(layout: str, content: bytes, start: int, size: int) -> Iterator[tuple[int, ...]]:
    return struct.iter_unpack(layout, content[start : start + size])


def elf(content: bytes) -> Symbols:
    """Read the tables `.dynsym` and `.dynamic` of an ELF64 library."""
    assert content[:5] == b"\x7fELF\2"
    start, (size, count) = struct.unpack_from("<Q", content, 40)[0], struct.unpack_from("<HH", content, 58)
    sections = list(records("<IIQQQQIIQQ", content, start, size * count))
    dynamic, symbols = (next(s for s in sections if s[1] == kind) for kind in (6, 11))
    names = sections[symbols[6]][4]
    exported, undefined = set(), set()
    for name, _, _, section, _, _ in records("<IBBHQQ", content, symbols[4], symbols[5]):
        if name:
            (exported if section else undefined).add(text_at(content, names + name))
    needed = [
        text_at(content, names + name_offset)
        for tag, name_offset in records("<QQ", content, dynamic[4], dynamic[5])
        if tag == 1
    ]
    return exported, undefined, needed


def mach_o(content: bytes) -> Symbols:
    """Read the symbol table and the load commands of a Mach-O library. On ARM it must be signed."""
    magic, processor_type, _, _, count, _, _, _ = struct.unpack_from("<8I", content)
    assert magic == 0xFEEDFACF
    exported, undefined, needed, commands, position = set[str](), set[str](), [], [], 32
    for _ in range(count):
        command, size = struct.unpack_from("<II", content, position)
        commands.append(command)
        if command == 12:
            needed.append(text_at(content, position + struct.unpack_from("<I", content, position + 8)[0]))
        elif command == 2:
            table, number, names, _ = struct.unpack_from("<4I", content, position + 8)
            for name, kind, _, _, _ in records("<IBBHQ", content, table, 16 * number):
                if kind & 1:
                    (exported if kind & 14 else undefined).add(text_at(content, names + name).removeprefix("_"))
        position += size
    assert processor_type != 0x0100000C or 29 in commands, "not signed"
    return exported, undefined, needed


def portable_executable(content: bytes) -> Symbols:
    """Read the export and import directories of a 64-bit DLL."""
    header = struct.unpack_from("<I", content, 60)[0]
    assert content[header : header + 4] == b"PE\0\0"
    count, size = struct.unpack_from("<H", content, header + 6)[0], struct.unpack_from("<H", content, header + 20)[0]
    sections = list(records("<8s4I16x", content, header + 24 + size, 40 * count))

    def offset(address: int) -> int:
        return next(
            address - virtual_start + raw_start
            for _, length, virtual_start, _, raw_start in sections
            if virtual_start <= address < virtual_start + length
        )

    exports, _, imports, imports_size = struct.unpack_from("<4I", content, header + 24 + 112)
    assert not imports
    assert not imports_size
    number, _, names = struct.unpack_from("<3I", content, offset(exports) + 24)
    addresses = records("<I", content, offset(names), 4 * number)
    return {text_at(content, offset(a)) for (a,) in addresses}, set(), []
