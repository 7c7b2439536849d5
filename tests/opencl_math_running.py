"""Run the math functions in OpenCL C on arrays, and compare them by units in the last place."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.special
from math_points import ulps

from weftgrad.codegen import math_library

__all__ = [
    "COMPUTED_IN_DOUBLE",
    "DTYPES",
    "FLOATS",
    "INTEGERS",
    "LANES",
    "LONG_DOUBLE",
    "MASKS",
    "PRECISE",
    "SPECIAL",
    "TEXTS",
    "UNARY",
    "Device",
    "check",
    "kernel_text",
    "open_device",
]

cl = pytest.importorskip("pyopencl")
FOLDER = Path(math_library.__file__).parents[1] / "templates" / "opencl" / "math"
TEXTS = math_library.sources(FOLDER)
LANES = 16

DTYPES = {
    "char": np.int8, "uchar": np.uint8, "short": np.int16, "ushort": np.uint16, "int": np.int32, "uint": np.uint32,
    "long": np.int64, "ulong": np.uint64, "float": np.float32, "double": np.float64,
}  # fmt: skip

INTEGERS = [name for name in DTYPES if name not in math_library.CLASSES]
FLOATS = ["float", "double"]
LONG_DOUBLE = np.longdouble

PRECISE = np.finfo(LONG_DOUBLE).nmant >= 63
"""Whether NumPy's long double is precise enough to check double."""

# name: (ULP allowed for float, for double, reference in long double)
UNARY: dict[str, tuple[float, float, Callable[[np.ndarray], np.ndarray]]] = {
    "exp": (1, 1, np.exp),
    "exp2": (1, 1, np.exp2),
    "expm1": (2, 2, np.expm1),
    "log": (1, 1, np.log),
    "log2": (1, 1, np.log2),
    "log10": (1, 1, np.log10),
    "log1p": (1.5, 1.5, np.log1p),
    "sqrt": (0.5, 0.5, np.sqrt),
    "rsqrt": (1.5, 1.5, lambda x: 1 / np.sqrt(x)),
    "reciprocal": (0.5, 0.5, lambda x: 1 / x),
    "sin": (1.6, 1, np.sin),
    "cos": (1.6, 1, np.cos),
    "tan": (2.8, 1.7, np.tan),
    "asin": (2.5, 2.5, np.arcsin),
    "acos": (1.5, 1.5, np.arccos),
    "atan": (2, 2, np.arctan),
    "sinh": (2, 2, np.sinh),
    "cosh": (1.5, 1.5, np.cosh),
    "tanh": (1.6, 2.6, np.tanh),
    "asinh": (2, 2, np.arcsinh),
    "acosh": (2.2, 2.2, np.arccosh),
    "atanh": (2.2, 2.2, np.arctanh),
    "logistic": (2.3, 2.3, lambda x: np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))),
    "softplus": (2, 2, lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))),
    "floor": (0, 0, np.floor),
    "ceil": (0, 0, np.ceil),
    "trunc": (0, 0, np.trunc),
    "round": (0, 0, np.rint),
    "abs": (0, 0, np.abs),
    "square": (0.5, 0.5, np.square),
}

# Checked against SciPy in double for float, and against the recorded points for double.
SPECIAL: dict[str, tuple[float, Callable[[np.ndarray], np.ndarray]]] = {
    "erf": (1.3, scipy.special.erf),
    "erfc": (4, scipy.special.erfc),
    "erfinv": (4, scipy.special.erfinv),
    "lgamma": (1, scipy.special.gammaln),
    "digamma": (1, scipy.special.digamma),
    "trigamma": (1, lambda x: scipy.special.polygamma(1, x)),
}

# Functions that float computes in double where there is one: the same text runs in float elsewhere.
COMPUTED_IN_DOUBLE = [
    *(f"bessel_{name}" for name in ("j0", "j1", "y0", "y1", "i0", "i1", "i0e", "i1e", "k0", "k1", "k0e", "k1e")),
    "airy_ai", "airy_ai_prime", "erfcx", "ndtr", "ndtri",
]  # fmt: skip

BINARY = [
    "polygamma", "zeta", "gammainc", "gammaincc", "gamma_density",
    "pow", "fmod", "mod", "floor_div", "maximum", "minimum", "hypot", "atan2", "copysign",
]  # fmt: skip

MASKS = ["isnan", "isinf", "isfinite", "signbit"]

INTEGER_BINARY = [
    "floor_div", "mod", "fmod", "pow", "maximum", "minimum", "lshift", "rshift", "gcd",
    "bitwise_and", "bitwise_or", "bitwise_xor",
]  # fmt: skip

INTEGER_UNARY = ["abs", "sign", "square", "floor", "round", "bitwise_not"]
INTEGER_MASKS = ["isnan", "isfinite", "signbit"]

STORAGE_KERNELS = """
kernel void from_half(global const ushort16 *a, global float16 *b, global const ushort *c, global float *d) {
    size_t i = get_global_id(0);
    b[i] = wg_from_half(a[i]);
    for (size_t k = 16 * i; k < 16 * i + 16; k++) d[k] = wg_from_half(c[k]);
}
kernel void to_half(global const float16 *a, global ushort16 *b, global const float *c, global ushort *d) {
    size_t i = get_global_id(0);
    b[i] = wg_to_half(a[i]);
    for (size_t k = 16 * i; k < 16 * i + 16; k++) d[k] = wg_to_half(c[k]);
}
kernel void to_bfloat16(global const float16 *a, global ushort16 *b, global const float *c, global ushort *d) {
    size_t i = get_global_id(0);
    b[i] = wg_to_bfloat16(a[i]);
    for (size_t k = 16 * i; k < 16 * i + 16; k++) d[k] = wg_to_bfloat16(c[k]);
}
kernel void from_bfloat16(global const ushort16 *a, global float16 *b, global const ushort *c, global float *d) {
    size_t i = get_global_id(0);
    b[i] = wg_from_bfloat16(a[i]);
    for (size_t k = 16 * i; k < 16 * i + 16; k++) d[k] = wg_from_bfloat16(c[k]);
}
kernel void philox(global const ulong *in, global uint *out) {
    uint b, c, d;
    for (int i = 0; i < 3; i++) {
        out[4 * i] = wg_philox(in[3 * i], in[3 * i + 1], in[3 * i + 2], &b, &c, &d);
        out[4 * i + 1] = b; out[4 * i + 2] = c; out[4 * i + 3] = d;
    }
}
kernel void random(global float16 *u, global float16 *n, global double16 *p, global double16 *q,
                   global float *us, global float *ns, global double *ps, global double *qs) {
    size_t i = get_global_id(0);
    ulong16 at = (ulong16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) + (ulong)(16 * i);
    u[i] = wg_uniform_float(at, 7, 42);
    n[i] = wg_normal_float(at, 7, 42);
    p[i] = wg_uniform_double(at, 7, 42);
    q[i] = wg_normal_double(at, 7, 42);
    for (ulong k = 16 * i; k < 16 * i + 16; k++) {
        us[k] = wg_uniform_float(k, 7, 42); ns[k] = wg_normal_float(k, 7, 42);
        ps[k] = wg_uniform_double(k, 7, 42); qs[k] = wg_normal_double(k, 7, 42);
    }
}
"""


def kernel_text(name: str, element: str, lanes: int = LANES) -> str:
    """Return the source of a scalar and a vector kernel that call one function."""
    binary = name in BINARY or name in INTEGER_BINARY
    signed = math_library.ELEMENTS[element][0]
    text = ""
    for kind, n in (("s", ""), ("v", str(lanes))):
        out = (signed + n if n else "int") if name in MASKS else element + n
        second = f", global const {element}{n} *b" if binary else ""
        call = f"wg_{name}(a[i]{', b[i]' if binary else ''})"
        text += f"kernel void {name}_{element}_{kind}(global const {element}{n} *a{second}, global {out} *r) "
        text += f"{{ size_t i = get_global_id(0); r[i] = {call}; }}\n"
    return text


class Device:
    """A queue, and the programs of this file, built once."""

    lanes = LANES
    forms_agree = True  # scalar and vector forms have equal bits; a compiler's own functions need not

    def __init__(self) -> None:
        self.context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
        self.queue = cl.CommandQueue(self.context)
        jobs: list[list[tuple[str, list[str]]]] = [
            [(element, [*UNARY, *SPECIAL, *COMPUTED_IN_DOUBLE, "sign", *BINARY, *MASKS])] for element in FLOATS
        ]
        jobs.append([(e, [*INTEGER_BINARY, *INTEGER_UNARY, *INTEGER_MASKS]) for e in INTEGERS])
        self.kernels = {}
        for job in jobs:
            text = "".join(math_library.program_text(names, e, [LANES], TEXTS) for e, names in job)
            self.build(text + "".join(kernel_text(name, e) for e, names in job for name in names))
        self.build_storage()

    def build_storage(self, prefix: str = "") -> None:
        """Build STORAGE_KERNELS, with these lines before them."""
        names = {"float": ["half", "bfloat16", "philox", "uniform", "normal"], "double": ["half", "uniform", "normal"]}
        texts = [math_library.program_text(functions, e, [LANES], TEXTS) for e, functions in names.items()]
        self.build(prefix + "".join(texts) + STORAGE_KERNELS)

    def build(self, text: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a compiler's warning is a failure
            # With AVX2 a vector takes two registers. clang warns about passing it, but every function is inlined.
            program = cl.Program(self.context, f'#pragma clang diagnostic ignored "-Wpsabi"\n{text}').build()
        self.kernels |= {kernel.function_name: kernel for kernel in program.all_kernels()}

    def call(self, name: str, items: int, *arrays: np.ndarray) -> None:
        """Run a kernel and copy every array back."""
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        buffers = [cl.Buffer(self.context, flags, hostbuf=array) for array in arrays]
        self.kernels[name](self.queue, (items,), (16,) if items % 16 == 0 else (1,), *buffers)
        for array, buffer in zip(arrays, buffers, strict=True):
            cl.enqueue_copy(self.queue, array, buffer)

    def evaluate(self, name: str, element: str, *arguments: np.ndarray) -> np.ndarray:
        """Return the values of a function, after checking that its scalar and vector forms agree."""
        dtype, n = DTYPES[element], len(arguments[0])
        size = -(-n // 256) * 256
        padded = [np.concatenate([a.astype(dtype, copy=False), np.ones(size - n, dtype)]) for a in arguments]
        results = []
        for kind, lanes in (("s", 1), ("v", self.lanes)):
            out: np.ndarray = np.zeros(size, dtype)
            if name in MASKS:
                out = np.zeros(size, np.int32 if kind == "s" else DTYPES[math_library.ELEMENTS[element][0]])
            self.call(f"{name}_{element}_{kind}", size // lanes, *padded, out)
            results.append(out[:n] != 0 if name in MASKS else out[:n])
        scalar, vector = results
        if element in FLOATS and name not in MASKS:
            different = ~((scalar.view(f"u{scalar.itemsize}") == vector.view(f"u{scalar.itemsize}")) | np.isnan(scalar))
        else:
            different = scalar != vector
        index = np.flatnonzero(different)[:3]
        assert index.size == 0 or not self.forms_agree, (
            f"{name}: scalar {scalar[index]}, vector {vector[index]} at {[a[index] for a in arguments]}"
        )
        return vector


def check(name: str, allowed: float, actual: np.ndarray, expected: np.ndarray, *arguments: np.ndarray) -> None:
    errors = ulps(actual, expected)
    worst = int(errors.argmax())
    point = [a[worst] for a in arguments]
    assert errors[worst] <= allowed, (
        f"{name}{point} = {actual[worst]!r}, not {expected[worst]!r}: {errors[worst]:.2f} ULP"
    )


def open_device() -> Device:
    """Return the OpenCL device, or skip the test where there is none."""
    try:
        return Device()
    except (cl.LogicError, cl.RuntimeError) as error:
        if "PLATFORM_NOT_FOUND" in str(error):
            pytest.skip("no OpenCL device")
        raise
