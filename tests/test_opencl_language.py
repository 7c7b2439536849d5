"""Check that kernels for GPUs are strict OpenCL C 1.2 and 3.0, with and without double: what every vendor compiles.

By default each kernel is compiled once per compute type for float32 and int32; in a thorough run for one dtype of each
class and size. WEFTGRAD_TEST_EVERY_KERNEL=1 compiles all kernels of all dtypes, and those of float32 and int32 once per
compute type for NVIDIA's and AMD's GPUs by LLVM's code generators, and for Intel's by ocloc where it is on PATH.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace

import pytest
from op_devices import THOROUGH
from opencl_language import (
    BATCH,
    Language,
    compile_for_gpu,
    compile_for_intel,
    compile_text,
    find_clang,
    intel_memory,
    kernels,
    refused,
)

from weftgrad.codegen import math_library
from weftgrad.runtime import program
from weftgrad.runtime.backends.protocol import Instance

EVERY = bool(os.environ.get("WEFTGRAD_TEST_EVERY_KERNEL"))
LANGUAGES = [Language(version, fp64) for fp64 in (True, False) for version in ("CL1.2", "CL3.0")]
# LLVM's intrinsic functions that llvm-spirv translates. At others, such as llvm.prefetch, it ends the whole process:
# Intel's and Mesa's drivers run it inside ours.
TRANSLATED = {"fmuladd", "lifetime", "memcpy", "memset"}

GPUS = {
    "NVIDIA A100": ("-target", "nvptx64", "-march=sm_80"),
    "NVIDIA H100": ("-target", "nvptx64", "-march=sm_90"),
    "AMD MI210": ("-target", "amdgcn-amd-amdhsa", "-nogpulib", "-mcpu=gfx90a"),
    "AMD RX 7900": ("-target", "amdgcn-amd-amdhsa", "-nogpulib", "-mcpu=gfx1100"),
}


@functools.cache
def planned(fp64: bool) -> list[Instance]:
    value_dtypes = ["float32", "int32"]
    if THOROUGH or EVERY:
        value_dtypes += ["float16", "uint8", "int64"] + ["float64"] * fp64
    if EVERY:
        value_dtypes += ["bfloat16", "int8", "int16", "bool"]
    return kernels(value_dtypes, fp64, EVERY)


@pytest.fixture(scope="module")
def clang() -> tuple[str, ...]:
    command = find_clang()
    if not command:
        pytest.skip("no clang here compiles OpenCL C: install ziglang and pocl-binary-distribution, or clang")
    return command


@pytest.mark.parametrize("language", LANGUAGES, ids=str)
def test_kernels_are_strict_opencl_c(language: Language, clang: tuple[str, ...]) -> None:
    instances = planned(language.fp64)
    assert len(instances) > 500
    lines = refused(instances, language, clang)
    assert not lines, f"{len(lines)} of {len(instances)} kernels:\n" + "\n".join(lines)


def test_kernels_need_no_instruction_that_spirv_lacks(clang: tuple[str, ...]) -> None:
    instances = planned(True)
    options = ("-S", "-emit-llvm", "-Xclang", "-disable-llvm-passes", "-o", "-")
    users: dict[str, str] = {}
    for start in range(0, len(instances), BATCH):
        batch = instances[start : start + BATCH]
        code = compile_text(program.source(batch, builtins=True), LANGUAGES[0], clang, options)
        for function in re.split(r"^define ", code, flags=re.MULTILINE)[1:]:
            name = re.search(r"@([\w$.]+)\(", function)
            for intrinsic in set(re.findall(r"call [^@\n]*@llvm\.(\w+)", function)) - TRANSLATED:
                users[intrinsic] = name[1] if name else function
    assert not users


def test_kernels_of_a_program_redefine_no_macro_of_another(clang: tuple[str, ...]) -> None:
    """Every kernel of float32 in one program: a text that leaves a macro behind redefines it in the next kernel."""
    text = program.source(kernels(["float32"], True, every=True), builtins=True)
    compile_text(text, LANGUAGES[0], clang, ("-E", "-o", os.devnull))


# Function and element -> the multiply-adds that may be fused, each of one expression; those of polynomials first.
FUSED = {
    ("wg_fmod_take", "float"): 0, ("wg_fmod_take", "double"): 0,
    ("wg_logistic", "float"): 3, ("wg_logistic", "double"): 0,
    ("wg_erfc_positive", "float"): 0, ("wg_erfc_positive", "double"): 0,
    ("wg_erfc_ratio", "float"): 10 + 1, ("wg_erfc_ratio", "double"): 26 + 1,
    ("wg_rem_pio2", "double"): 0, ("wg_pow_full", "double"): 0,
}  # fmt: skip


@pytest.mark.parametrize("element", ["float", "double"])
def test_no_compiler_may_fuse_what_must_be_rounded(element: str, clang: tuple[str, ...]) -> None:
    """Only clang knows `#pragma clang fp`. Without it, the pragma of the standard has the same effect."""
    calls = {"fmod": "x, y", "logistic": "x", "erfc": "x", "pow": "x, y", "sin": "x"}
    texts = program._math_sources()
    text = math_library.program_text(list(calls), element, [1], texts)
    text += f"kernel void f(global {element} *a) {{ {element} x = a[0], y = a[1];\n"
    text += "".join(f"a[{i}] = wg_{name}({call});\n" for i, (name, call) in enumerate(calls.items())) + "}\n"
    assert "#pragma clang fp" in text
    fused = _fused_operations(text, clang)
    functions = {name: count for name, count in fused.items() if (name, element) in FUSED}
    assert functions == {name: count for (name, kind), count in FUSED.items() if kind == element}


def test_no_compiler_may_fuse_functions_of_a_position(clang: tuple[str, ...]) -> None:
    """`arange` and `linspace` compute each element from its position, rounded as NumPy does."""
    instances = [kernel for kernel in planned(True) if "#pragma clang fp" in kernel.text]
    assert instances
    fused = _fused_operations(program.source(instances, builtins=True), clang)
    counts = [count for name, count in fused.items() if re.search(r"_(scalar|vector)_[0-9a-f]{12}", name)]
    assert len(counts) >= len(instances)
    assert not any(counts)


def _fused_operations(text: str, clang: tuple[str, ...]) -> dict[str, int]:
    """Return for each function of a program how many multiply-adds may be fused, by the standard's pragmas alone."""
    standard = re.sub(r"^#pragma clang fp.*\n", "", text, flags=re.MULTILINE)
    options = ("-S", "-emit-llvm", "-Xclang", "-disable-llvm-passes", "-o", "-", "-Wno-unused-variable")
    code = compile_text(standard, LANGUAGES[0], clang, options)
    functions = re.split(r"^define ", code, flags=re.MULTILINE)[1:]
    names = [re.search(r"@(?:_ZL?\d+)?(\w+?)(?:[fd]+)?\(", function) for function in functions]
    return {name[1]: body.count("@llvm.fmuladd") for name, body in zip(names, functions, strict=True) if name}


def test_refused_kernels_are_named(clang: tuple[str, ...]) -> None:
    """A batch with two kernels that do not compile: one for a syntax error, one for double."""
    kernels_of_float = [i for i in planned(False) if i.element == "float" and "long i" in i.text][:5]
    wrong_syntax = replace(kernels_of_float[1], name="broken", text=f"{kernels_of_float[1].text}\n)")
    uses_double = replace(kernels_of_float[3], name="wide", text=f"{kernels_of_float[3].text}\ndouble half(double x);")
    lines = refused([kernels_of_float[0], wrong_syntax, kernels_of_float[2], uses_double], LANGUAGES[2], clang)
    assert [line.partition(":")[0] for line in lines] == ["broken", "wide"]
    assert f"{wrong_syntax.entry} of float (float32" in lines[0]
    assert "error: " in lines[0]


def test_translators_end_at_reductions_and_prefetches(clang: tuple[str, ...]) -> None:
    """The math library and header.cl use clang's functions for them on known processors only."""
    text = program.source([i for i in planned(True) if i.entry.startswith("gcd")], builtins=True)
    assert "__builtin_reduce_or" in text
    options = ("-E", "-P")
    preprocessed = compile_text(text, LANGUAGES[0], clang, options)
    assert "__builtin_reduce_or" not in preprocessed
    assert "__builtin_prefetch" not in preprocessed


@pytest.mark.skipif(not EVERY, reason="WEFTGRAD_TEST_EVERY_KERNEL is not set")
@pytest.mark.parametrize("gpu", GPUS)
def test_kernels_compile_for_gpus(gpu: str, clang: tuple[str, ...]) -> None:
    compile_ = functools.partial(compile_for_gpu, target=GPUS[gpu])
    lines = refused(kernels(["float32", "int32"], True), LANGUAGES[0], clang, compile_)
    assert not lines, "\n".join(lines)


# Kernel and the most private memory in bytes that a work-item has on Intel's GPUs: ocloc does not unroll its loops.
PRIVATE_ON_INTEL = {
    "attention_grid_key_value": 256, "polygamma_grid": 607, "polygamma_grad_input_grid": 607, "sort_count": 128,
}  # fmt: skip
LOCAL_ON_INTEL = 65536  # bytes of a work-group


@pytest.mark.skipif(not EVERY, reason="WEFTGRAD_TEST_EVERY_KERNEL is not set")
@pytest.mark.skipif(shutil.which("ocloc") is None, reason="ocloc, Intel's offline compiler, is not on PATH")
@pytest.mark.parametrize(("gpu", "fp64"), [("dg2", False), ("pvc", True)])  # Arc, Data Center GPU Max
def test_kernels_compile_for_intel(gpu: str, fp64: bool) -> None:
    memory: dict[str, dict[str, int]] = {}

    def compile_(text: str, language: Language, clang: Sequence[str]) -> str:
        code = compile_for_intel(text, language, clang, gpu)
        memory.update(intel_memory(code))
        return code

    instances = kernels(["float32", "int32"], fp64)
    lines = refused(instances, Language("CL1.2", fp64), (), compile_)
    assert not lines, "\n".join(lines)
    entries = {program.entry_name(instance): instance.entry for instance in instances}
    assert set(entries) <= set(memory)
    for name, entry in entries.items():
        sizes = memory[name]
        assert sizes["local"] <= LOCAL_ON_INTEL, f"{entry}: {sizes}"
        if not fp64:
            assert sizes["spilled"] == 0, f"{entry}: {sizes}"
            assert sizes["private"] <= PRIVATE_ON_INTEL.get(entry, 0), f"{entry}: {sizes}"


def test_memory_of_kernels_is_read_from_the_binary() -> None:
    """A size is one hardware thread's, which runs `simd_size` work-items, or with `is_simt_thread` one work-item's."""
    info = """log
kernels:
  - name:            first_0a
    execution_env:
      simd_size:       16
      slm_size:        2048
    per_thread_memory_buffers:
      - type:            global
        usage:           private_space
        size:            256
        is_simt_thread:  true
      - type:            scratch
        usage:           spill_fill_space
        size:            512
  - name:            second_0b
    execution_env:
      simd_size:       8
    per_thread_memory_buffers:
      - type:            scratch
        usage:           single_space
        size:            64
kernels_misc_info:
  - name:            first_0a
"""
    assert intel_memory(info) == {
        "first_0a": {"private": 256, "spilled": 32, "local": 2048},
        "second_0b": {"private": 8, "spilled": 0, "local": 0},
    }
    with pytest.raises(ValueError, match="substring not found"):
        intel_memory("log without kernels")


def test_a_compiler_that_dies_refuses_one_kernel_and_not_its_batch() -> None:
    instances = planned(False)[:5]
    digest = program.entry_name(instances[3]).rpartition("_")[2]

    def compile_(text: str, language: Language, clang: Sequence[str]) -> str:
        if digest in text:
            raise RuntimeError("error: ocloc ends with status 134: ")
        return ""

    lines = refused(instances, LANGUAGES[2], (), compile_)
    assert len(lines) == 1
    assert lines[0].startswith(f"{instances[3].name}: {instances[3].entry} of ")
    assert "status 134" in lines[0]
