"""Launch kernels in the interpreter of Triton, with bfloat16 numbers rounded by exact arithmetic."""

import inspect
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

from weftgrad.runtime.triton.builder import narrow, widen
from weftgrad.runtime.triton.interpret import Region, launch

BLOCK = 64
_TRITON_TYPES = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bool": "i1"}


def region_of(array):
    """Return the memory of an array as a launch describes it: its pointer, and the addresses that it may reach."""
    return Region("", array.ctypes.data, array.ctypes.data, array.ctypes.data + array.nbytes)


def pointer_type(array):
    """Return Triton's name of a pointer to the elements of an array; NumPy stores bfloat16 as uint16."""
    name = array.dtype.name
    if array.dtype == np.uint16:
        return "*bf16"
    return "*" + _TRITON_TYPES.get(name, name.replace("uint", "u").replace("int", "i"))


def run(kernel, *arrays, grid=(1,), types=(), values=(), **constants):
    """Launch with `arrays` for the first parameters (uint16 is bfloat16), then `values` of `types`, then constants."""
    names = list(inspect.signature(getattr(kernel, "fn", kernel)).parameters)
    parameter_types = [*map(pointer_type, arrays), *types]
    parameter_types += ["constexpr"] * (len(names) - len(parameter_types))
    signature = dict(zip(names, parameter_types, strict=True))
    launch(kernel, grid, signature, [*map(region_of, arrays), *values], constants=constants)


def aligned_zeros(shape):
    """Return float32 zeros at an address that is a multiple of 16."""
    memory = np.zeros(int(np.prod(shape)) + 4, np.float32)
    start = -memory.ctypes.data // 4 % 4
    return memory[start : start + int(np.prod(shape))].reshape(shape)


def nearest_bfloat16(exact):
    """Return the bfloat16 nearest to a rational number, ties to even, as a float; computed without bit operations."""
    if exact == 0:
        return 0.0
    magnitude = abs(exact)
    exponent = 0
    while Fraction(2) ** exponent > magnitude:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= magnitude:
        exponent += 1
    unit = Fraction(2) ** (max(exponent, -126) - 7)
    rounded = float(round(magnitude / unit) * unit)  # round() rounds ties to even
    rounded = float("inf") if rounded >= 2.0**128 else rounded
    return rounded if exact > 0 else -rounded


def bfloat16_bits(values):
    """Return values rounded to bfloat16, as the uint16 array of their bits."""
    rounded = np.array([nearest_bfloat16(Fraction(float(v))) for v in np.ravel(values)], np.float32)
    return (rounded.view(np.uint32) >> 16).astype(np.uint16)


def random_bfloat16(rng, n=BLOCK):
    """Return the bits of random bfloat16 values of many magnitudes."""
    return bfloat16_bits(rng.standard_normal(n) * 2.0 ** rng.integers(-6, 7, n))


def encode(values, dtype):
    """Return float32 values in a dtype; uint16 stands for bfloat16."""
    return narrow(values) if dtype == np.uint16 else values.astype(dtype)


def decode(values):
    """Return the values of an array as float64; uint16 stands for bfloat16."""
    return (widen(values) if values.dtype == np.uint16 else values).astype(np.float64)


@triton.jit
def arithmetic(x, y, out, OP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    b = tl.load(y + i)
    if OP == "add":
        c = a + b
    elif OP == "sub":
        c = a - b
    elif OP == "mul":
        c = a * b
    elif OP == "neg":
        c = -a
    elif OP == "abs":
        c = tl.abs(a)
    elif OP == "div":
        c = (a / b).to(out.dtype.element_ty)
    elif OP == "maximum":
        c = tl.maximum(a, b)
    elif OP == "minimum":
        c = tl.minimum(a, b)
    elif OP == "where":
        c = tl.where(a < b, a, b + 1)
    elif OP == "fma":
        c = tl.fma(a, b, a)
    tl.store(out + i, c)


@triton.jit
def convert(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))
