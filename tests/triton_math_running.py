"""Kernels of single math functions for Triton's interpreter and compiler."""

from functools import cache

import numpy as np
import pytest
import scipy.special

pytest.importorskip("triton")  # skips the test module that imports this one

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from weftgrad.runtime.backends.protocol import Instance
from weftgrad.runtime.triton import compile as compiling
from weftgrad.runtime.triton import source
from weftgrad.runtime.triton.interpret import Region, launch

__all__ = [
    "FLOATS",
    "INTEGERS",
    "INTEGER_BINARY",
    "INTEGER_UNARY",
    "MASKS",
    "SPECIAL",
    "TARGETS",
    "UNARY",
    "assert_same_bits",
    "compile_kernel",
    "interpret",
    "kernel_text",
    "pairs",
    "wrap",
]

POINTERS = {
    "bool": "*i1", "int8": "*i8", "uint8": "*u8", "int16": "*i16", "int32": "*i32", "int64": "*i64",
    "float16": "*fp16", "float32": "*fp32", "float64": "*fp64", "uint32": "*u32",
}  # fmt: skip

FLOATS = [np.float32, np.float64]
INTEGERS = [np.int8, np.uint8, np.int16, np.int32, np.int64]

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32), "sm_90": GPUTarget("cuda", 90, 32), "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}  # fmt: skip

# name: (ULP allowed in the interpreter, where nothing is fused; reference in long double)
UNARY = {
    "neg": (0, np.negative), "abs": (0, np.abs), "square": (0.5, np.square), "reciprocal": (0.5, lambda x: 1 / x),
    "floor": (0, np.floor), "ceil": (0, np.ceil), "trunc": (0, np.trunc), "round": (0, np.rint),
    "exp": (1.2, np.exp), "exp2": (1.2, np.exp2), "expm1": (2, np.expm1), "log": (1, np.log), "log2": (1.8, np.log2),
    "log10": (2, np.log10), "log1p": (1.5, np.log1p), "sqrt": (0.5, np.sqrt), "rsqrt": (1.5, lambda x: 1 / np.sqrt(x)),
    "asin": (2.5, np.arcsin), "acos": (1.5, np.arccos), "atan": (2, np.arctan), "sinh": (2, np.sinh),
    "cosh": (1.6, np.cosh), "tanh": (2.7, np.tanh), "asinh": (2.2, np.arcsinh), "acosh": (2.3, np.arccosh),
    "atanh": (2.3, np.arctanh), "sin": (1, np.sin), "cos": (1, np.cos), "tan": (1, np.tan),
    "logistic": (2.4, lambda x: np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))),
    "softplus": (2, lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))),
}  # fmt: skip

SPECIAL = {
    "erf": (1.3, scipy.special.erf), "erfc": (4, scipy.special.erfc), "erfinv": (4, scipy.special.erfinv),
    "lgamma": (1, scipy.special.gammaln), "digamma": (1, scipy.special.digamma),
    "trigamma": (1, lambda x: scipy.special.polygamma(1, x)),
}  # fmt: skip

MASKS = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "signbit": np.signbit}
INTEGER_UNARY = ["neg", "abs", "sign", "square", "floor", "ceil", "trunc", "round"]
INTEGER_BINARY = ["div", "floor_div", "mod", "fmod", "pow", "maximum", "minimum", "lshift", "rshift", "gcd"]


def dtype_of(dtype):
    return getattr(tl, {"bool": "int1"}.get(np.dtype(dtype).name, np.dtype(dtype).name))


def kernel_text(lines, inputs, results):
    """Return a kernel that loads `inputs` as type C, runs `lines`, and stores the expressions `results`."""
    pointers = [f"p{k}" for k in range(len(inputs) + len(results))]
    body = ["i = tl.arange(0, BLOCK)", "m = i < n"]
    body += [f"{name} = wg_load(p{k} + i, m, C)" for k, name in enumerate(inputs)]
    body += [*lines, *(f"wg_store(p{len(inputs) + k} + i, {text}, m)" for k, text in enumerate(results))]
    head = f"@triton.jit\ndef run({', '.join(pointers)}, n, BLOCK: tl.constexpr, C: tl.constexpr):\n"
    return head + "".join(f"    {line}\n" for line in body)


@cache
def kernel_of(text):
    return source.functions(source.module_text(Instance("test", text, "run", "float", 1, ())))["run"]


def interpret(text, C, arrays, outputs):
    """Run a kernel of `kernel_text` in the interpreter on one block; `outputs` are the dtypes of its results."""
    n = len(arrays[0])
    results = [np.zeros(n, dtype) for dtype in outputs]
    buffers = [*(np.ascontiguousarray(a) for a in arrays), *results]
    types = {f"p{k}": POINTERS[a.dtype.name] for k, a in enumerate(buffers)}
    types |= {"n": "i32", "BLOCK": "constexpr", "C": "constexpr"}
    regions = [Region("", a.ctypes.data, a.ctypes.data, a.ctypes.data + a.nbytes) for a in buffers]
    constants = {"BLOCK": 1 << (n - 1).bit_length(), "C": dtype_of(C)}
    launch(kernel_of(text), (1,), types, [*regions, n], constants=constants)
    return results


def assert_same_bits(name, actual, expected, *arguments):
    """Check that arrays have equal bits, except for the bits of NaN."""
    mismatches = (actual != expected) & ~((actual != actual) & (expected != expected))
    if actual.dtype.kind == "f":
        mismatches |= (actual == 0) & (expected == 0) & (np.signbit(actual) != np.signbit(expected))
    indices = np.flatnonzero(mismatches)[:3]
    assert not indices.size, (
        f"{name} of {[a[indices] for a in arguments]} is {actual[indices]}, not {expected[indices]}"
    )


def pairs(values):
    a, b = np.meshgrid(values, values)
    return np.ascontiguousarray(a.ravel()), np.ascontiguousarray(b.ravel())


def wrap(value, dtype):
    info = np.iinfo(dtype)
    return (value - info.min) % (info.max - info.min + 1) + info.min


def compile_kernel(text, C, dtypes, target):
    """Return the machine code of a kernel as text: PTX, or assembly for AMD."""
    types = {f"p{k}": POINTERS[np.dtype(d).name] for k, d in enumerate(dtypes)}
    types |= {"n": "i32", "BLOCK": "constexpr", "C": "constexpr"}
    ast_source = ASTSource(kernel_of(text), types, {"BLOCK": 256, "C": dtype_of(C)})
    kernel = triton.compile(ast_source, target=target, options={**compiling._OPTIONS, "num_warps": 4})
    return kernel.asm["ptx" if target.backend == "cuda" else "amdgcn"]
