"""Check the math functions written in OpenCL C against NumPy, SciPy and values recorded from mpmath.

Errors are counted in units in the last place (ULP). Every function runs on scalars and on vectors, and both must agree
bit for bit. The tests use the first device of the first platform; PoCL is enough.
"""

import copy
import math
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.special
from math_points import EDGES, INCOMPLETE_GAMMA, POLYGAMMA, RECORDED, ZETA, inputs, random_bit_patterns, ulps

from weftgrad.codegen import math_library

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


@pytest.fixture(scope="module")
def device() -> Device:
    try:
        return Device()
    except (cl.LogicError, cl.RuntimeError) as error:
        if "PLATFORM_NOT_FOUND" in str(error):
            pytest.skip("no OpenCL device")
        raise


def check(name: str, allowed: float, actual: np.ndarray, expected: np.ndarray, *arguments: np.ndarray) -> None:
    errors = ulps(actual, expected)
    worst = int(errors.argmax())
    point = [a[worst] for a in arguments]
    assert errors[worst] <= allowed, (
        f"{name}{point} = {actual[worst]!r}, not {expected[worst]!r}: {errors[worst]:.2f} ULP"
    )


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("element", FLOATS)
def test_unary_functions_within_their_ulps(device, element):
    if element == "double" and not PRECISE:
        pytest.skip("long double is no wider than double here")
    x = inputs(DTYPES[element], np.random.default_rng(1))
    for name, (single, double, reference) in UNARY.items():
        actual, expected = device.evaluate(name, element, x), reference(x.astype(LONG_DOUBLE))
        check(name, single if element == "float" else double, actual, expected, x)
        zero = (expected == 0) & (actual == 0)
        assert np.array_equal(np.signbit(actual[zero]), np.signbit(expected[zero])), f"{name}: the sign of 0"


def test_special_functions_in_float(device):
    x = inputs(np.float32, np.random.default_rng(2))
    x = x[(np.abs(x) > 1e-36) & (np.abs(x) < 1e6) & ((x > 0) | (x != np.rint(x)))]
    x = x[(x > 0) | (x > -30)]
    for name, (allowed, reference) in SPECIAL.items():
        inside = x[np.abs(x) <= 1] if name == "erfinv" else x
        expected = reference(inside.astype(np.float64))
        keep = np.abs(expected) > (0.05 if name in ("lgamma", "digamma") else 0)
        check(name, allowed, device.evaluate(name, "float", inside)[keep], expected[keep], inside[keep])


def test_float_functions_without_avx512_and_fma(device):
    """Table lookups by permutation, scaling and reciprocal estimates need AVX-512; the float argument reduction needs
    FMA. Without them the functions take other branches."""
    names = ["exp", "exp2", "tanh", "logistic", "erf", "sin", "cos", "tan", "sqrt", "rsqrt"]
    plain = copy.copy(device)
    plain.kernels = {}
    text = "#undef __AVX512F__\n#undef __FMA__\n#undef FP_FAST_FMAF\n"
    text += math_library.program_text(names, "float", [LANES], TEXTS)
    plain.build(text + "".join(kernel_text(name, "float") for name in names))
    x = inputs(np.float32, np.random.default_rng(1))
    for name in names:
        if name in UNARY:
            allowed, _, reference = UNARY[name]
            check(name, allowed, plain.evaluate(name, "float", x), reference(x.astype(LONG_DOUBLE)), x)
        else:
            allowed, reference = SPECIAL[name]
            keep = ~(np.abs(x) <= 1e-36)
            check(name, allowed, plain.evaluate(name, "float", x)[keep], reference(x.astype(np.float64))[keep], x[keep])


@pytest.mark.parametrize("element", FLOATS)
def test_special_functions_at_recorded_points(device, element):
    for name, points in RECORDED.items():
        x, expected = np.array(points).T
        keep = (x.astype(DTYPES[element]) == x) & (np.abs(expected) > np.finfo(DTYPES[element]).tiny)
        actual = device.evaluate(name, element, x[keep])
        limit = 1e-6 if element == "float" else 5e-14 if name.startswith("airy") else 1e-14
        assert np.allclose(actual, expected[keep], rtol=limit, atol=0), name
        if element == "double" and name in ("erf", "erfc", "erfinv"):
            assert ulps(actual, expected).max() <= 4, name


@pytest.mark.parametrize("element", FLOATS)
def test_zeta_at_recorded_points(device, element):
    s, x, expected = np.array(ZETA).T
    keep = (expected > np.finfo(DTYPES[element]).tiny) & (expected < np.finfo(DTYPES[element]).max)
    actual = device.evaluate("zeta", element, s[keep], x[keep])
    assert np.allclose(actual, expected[keep], rtol=4e-15 if element == "double" else 1.2e-7, atol=0)


@pytest.mark.parametrize("element", FLOATS)
def test_incomplete_gamma_functions_at_recorded_points(device, element):
    a, x, lower, upper = np.array(INCOMPLETE_GAMMA).T
    for name, expected in (("gammainc", lower), ("gammaincc", upper)):
        actual = device.evaluate(name, element, a, x)
        assert np.allclose(actual, expected, rtol=2e-14 if element == "double" else 6e-8, atol=0), name


@pytest.mark.parametrize("element", FLOATS)
def test_incomplete_gamma_functions_beside_scipy(device, element):
    """Check every region, with different ones in adjacent lanes; SciPy's own error is up to 7e-13 here."""
    rng, dtype = np.random.default_rng(7), DTYPES[element]
    a = np.concatenate([10 ** rng.uniform(-12, 5, 3000), rng.uniform(0, 30, 3000), rng.uniform(12, 400, 2000)])
    factor = np.exp(rng.normal(size=a.size) * 3 / np.sqrt(a + 0.5))
    a, x = rng.permutation(np.stack([a, a * factor]).astype(dtype), axis=1)
    for name, reference in (("gammainc", scipy.special.gammainc), ("gammaincc", scipy.special.gammaincc)):
        expected = reference(a.astype(np.float64), x.astype(np.float64))
        actual = device.evaluate(name, element, a, x)
        keep = expected > np.finfo(dtype).tiny * 100
        assert keep.sum() > 4000
        assert np.allclose(actual[keep], expected[keep], rtol=2e-12 if element == "double" else 6e-8, atol=0), name
        assert (actual >= 0).all(), name
        assert (actual <= 1).all(), name
    slope = scipy.special.xlogy(a.astype(np.float64) - 1, x) - x - scipy.special.gammaln(a.astype(np.float64))
    keep = (np.abs(slope) < (600 if element == "double" else 80)) & (a < 1000)
    actual = device.evaluate("gamma_density", element, a, x)[keep]
    assert np.allclose(actual, np.exp(slope[keep]), rtol=5e-12 if element == "double" else 1e-7, atol=0)


@pytest.mark.parametrize("element", FLOATS)
def test_incomplete_gamma_functions_at_their_ends(device, element):
    inf, nan = math.inf, math.nan
    a, x, lower, upper, density = np.array([
        (0, 0, nan, nan, nan), (-0.0, 0, nan, nan, nan), (0, 1, 1, 0, 0), (0, inf, 1, 0, 0), (1, 0, 0, 1, 1),
        (0.5, 0, 0, 1, inf), (2, 0, 0, 1, 0), (2, -0.0, 0, 1, 0), (1, inf, 1, 0, 0), (30, inf, 1, 0, 0),
        (inf, 0, 0, 1, 0), (inf, 5, 0, 1, 0), (inf, inf, nan, nan, nan), (-1, 1, nan, nan, nan),
        (1, -1, nan, nan, nan), (-inf, 1, nan, nan, nan), (1, -inf, nan, nan, nan), (nan, 1, nan, nan, nan),
        (1, nan, nan, nan, nan), (nan, inf, nan, nan, nan), (nan, 0, nan, nan, nan), (1e30, 1, 0, 1, 0),
        (1, 1e30, 1, 0, 0), (1e30, 1e30, 0.5, 0.5, 3.989422804014327e-16), (9, 1e35, 1, 0, 0),
        (30, 1e-30, 0, 1, 0), (30, 1e35, 1, 0, 0), (1e35, 30, 0, 1, 0),
    ]).T  # fmt: skip
    for name, expected in (("gammainc", lower), ("gammaincc", upper), ("gamma_density", density)):
        actual = device.evaluate(name, element, a, x)
        assert np.allclose(actual, expected, rtol=1e-6, atol=0, equal_nan=True), (name, a, x, actual)


@pytest.mark.parametrize("element", FLOATS)
def test_special_functions_at_their_ends(device, element):
    inf, nan = math.inf, math.nan
    ends = {
        "erf": ([0.0, -0.0, inf, -inf, nan], [0.0, -0.0, 1, -1, nan]),
        "erfc": ([0.0, -0.0, inf, -inf, nan], [1, 1, 0, 2, nan]),
        "erfinv": ([0.0, -0.0, 1, -1, 1.5, -2, inf, nan], [0.0, -0.0, inf, -inf, nan, nan, nan, nan]),
        "lgamma": ([1, 2, 0.0, -0.0, -1, -7, inf, -inf, nan], [0, 0, inf, inf, inf, inf, inf, inf, nan]),
        "digamma": ([0.0, -0.0, -1, -8, inf, nan], [-inf, inf, nan, nan, inf, nan]),
        "trigamma": ([0.0, -0.0, -1, -8, -1e17, inf, -inf, nan], [inf, inf, inf, inf, inf, 0, nan, nan]),
        "sign": ([0.0, -0.0, 3, -inf, nan], [0, 0, 1, -1, 0]),
        "bessel_j0": ([0.0, inf, -inf, nan], [1, 0, 0, nan]),
        "bessel_j1": ([0.0, inf, -inf, nan], [0, 0, 0, nan]),
        "bessel_y0": ([0.0, -1, inf, nan], [-inf, nan, 0, nan]),
        "bessel_y1": ([0.0, -1, inf, nan], [-inf, nan, 0, nan]),
        "bessel_i0": ([0.0, inf, -inf, nan], [1, inf, inf, nan]),
        "bessel_i1": ([0.0, inf, -inf, nan], [0, inf, -inf, nan]),
        "bessel_i0e": ([0.0, inf, -inf, nan], [1, 0, 0, nan]),
        "bessel_i1e": ([0.0, inf, -inf, nan], [0, 0, 0, nan]),
        "bessel_k0": ([0.0, -1, inf, nan], [inf, nan, 0, nan]),
        "bessel_k1": ([0.0, -1, inf, nan], [inf, nan, 0, nan]),
        "bessel_k0e": ([0.0, -1, inf, nan], [inf, nan, 0, nan]),
        "bessel_k1e": ([0.0, -1, inf, nan], [inf, nan, 0, nan]),
        "erfcx": ([0.0, inf, -inf, -30, nan], [1, 0, inf, inf, nan]),
        "ndtr": ([inf, -inf, -50, nan], [1, 0, 0, nan]),
        "ndtri": ([0.0, 0.5, 1, -1e-30, 1.5, inf, nan], [-inf, 0, inf, nan, nan, nan, nan]),
    }
    for name, (x, expected) in ends.items():
        actual = device.evaluate(name, element, np.array(x))
        assert np.array_equal(actual, np.array(expected), equal_nan=True), f"{name}{x} = {actual}"
        if name.startswith("erf"):
            assert np.array_equal(np.signbit(actual[:2]), np.signbit(expected[:2])), name


@pytest.mark.parametrize("element", FLOATS)
def test_polygamma(device, element):
    """Check recorded points, SciPy over many orders, and special values, with different cases in adjacent lanes."""
    dtype = DTYPES[element]
    n, x, expected = np.array([p for p in POLYGAMMA if element == "double" or float(dtype(p[1])) == p[1]]).T
    keep = np.abs(np.log(np.abs(expected))) < abs(math.log(np.finfo(dtype).tiny))
    actual = device.evaluate("polygamma", element, n[keep], x[keep])
    assert np.allclose(actual, expected[keep], rtol=2e-15 if element == "double" else 1.2e-7, atol=0)
    rng = np.random.default_rng(6)
    n = rng.integers(0, 25, 4000).astype(dtype)
    x = np.where(rng.random(4000) < 0.5, 10 ** rng.uniform(-1, 2, 4000), rng.uniform(-30, 30, 4000)).astype(dtype)
    expected = scipy.special.polygamma(n.astype(np.float64), x.astype(np.float64))
    pole = scipy.special.polygamma(n + (n == 0), np.abs(x - np.rint(x)))
    size = np.maximum(np.abs(expected), np.where(x < 0, pole, 0))  # for negative x the subtracted term may be larger
    with np.errstate(over="ignore"):
        expected = expected.astype(dtype)
    actual = device.evaluate("polygamma", element, n, x)
    finite = np.isfinite(expected) & (np.abs(size) < np.finfo(dtype).max / 10)
    assert finite.mean() > 0.7
    assert np.array_equal(actual[np.isinf(expected)], expected[np.isinf(expected)])
    error = np.abs(actual.astype(np.float64) - expected)[finite] / np.abs(size[finite])
    assert error.max() < (1e-13 if element == "double" else 1.2e-7)
    inf, nan = math.inf, math.nan
    n, x, expected = np.array([
        (1, 0.0, inf), (1, -0.0, inf), (2, 0.0, -inf), (2, -0.0, -inf), (2, -7, -inf), (3, -1e17, inf), (4, inf, 0),
        (2, -inf, nan), (2, nan, nan), (0, 0.0, -inf), (0, -1, nan), (0, inf, inf), (-1, 2, nan), (1.5, 2, nan),
        (nan, 2, nan), (inf, 2, nan), (1e9, 2, nan), (1, 1e30, 1e-30), (400, 2, -inf), (1, 1e-30, inf),
    ]).T  # fmt: skip
    if element == "double":
        expected[-1] = 1e60
    actual = device.evaluate("polygamma", element, n, x)
    assert np.allclose(actual, expected, rtol=1e-6, atol=0, equal_nan=True), (n, x, actual)


@pytest.mark.parametrize("element", FLOATS)
def test_functions_of_two_numbers(device, element):
    rng, dtype, n = np.random.default_rng(3), DTYPES[element], 8000
    pool = np.array([*EDGES, 0.1, 0.3, 7, 1.5, 2.5, -2.5, 33, -33, 1e15 + 1, 2**53 - 1, 2**24 - 1, 1e18]).astype(dtype)
    grid = np.stack(np.meshgrid(pool, pool)).reshape(2, -1)
    x = [grid[0], random_bit_patterns(DTYPES[element], n, rng), np.exp(rng.normal(size=n) * 20),
         rng.normal(size=n) * 100, rng.integers(-50, 50, n), 1 + rng.normal(size=n) * 1e-3]  # fmt: skip
    y = [grid[1], random_bit_patterns(DTYPES[element], n, rng), rng.normal(size=n) * 3, rng.normal(size=n) * 10,
         rng.integers(-20, 20, n), rng.normal(size=n) * 1e4]  # fmt: skip
    a, b = np.concatenate([v.astype(dtype) for v in x]), np.concatenate([v.astype(dtype) for v in y])
    reference_dtype = LONG_DOUBLE if element == "double" else np.float64
    exact: dict[str, tuple[float, Callable]] = {
        "fmod": (0, np.fmod), "mod": (0, np.remainder), "floor_div": (0, np.floor_divide),
        "maximum": (0, np.maximum), "minimum": (0, np.minimum), "copysign": (0, np.copysign),
    }  # fmt: skip
    rounded: dict[str, tuple[float, Callable]] = {
        "pow": (0.51 if element == "float" else 1.5, np.power),
        "hypot": (0.51 if element == "float" else 1.2, np.hypot),
        "atan2": (2, np.arctan2),
    }
    for name, (allowed, reference) in exact.items():
        actual, expected = device.evaluate(name, element, a, b), reference(a, b)
        check(name, allowed, actual, expected, a, b)
        signed = ~np.isnan(actual) & ((actual != 0) | (name not in ("maximum", "minimum")))
        assert np.array_equal(np.signbit(actual[signed]), np.signbit(expected[signed])), name
    if reference_dtype is LONG_DOUBLE and not PRECISE:
        return
    for name, (allowed, reference) in rounded.items():
        actual, expected = device.evaluate(name, element, a, b), reference(a.astype(LONG_DOUBLE), b.astype(LONG_DOUBLE))
        check(name, allowed, actual, expected, a, b)
        signed = ~np.isnan(actual)
        assert np.array_equal(np.signbit(actual[signed]), np.signbit(expected[signed])), name
    for name in MASKS:
        assert np.array_equal(device.evaluate(name, element, a), getattr(np, name)(a)), name


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("exponent", [2, 1, 3, -1, -2, 0.5, -0.5, 4, 0])
def test_powers_with_a_uniform_exponent(device, element, exponent):
    """Exponents with a short code path also run beside others in a vector; `evaluate` compares vectors with scalars."""
    if element == "double" and not PRECISE:
        pytest.skip("long double is no wider than double here")
    x = inputs(DTYPES[element], np.random.default_rng(4))
    y = np.full(len(x), exponent, DTYPES[element])
    actual, expected = device.evaluate("pow", element, x, y), np.power(x.astype(LONG_DOUBLE), LONG_DOUBLE(exponent))
    allowed = 0.51 if element == "float" else 1.5
    check("pow", allowed, actual, expected, x, y)
    signed = ~np.isnan(actual)
    assert np.array_equal(np.signbit(actual[signed]), np.signbit(expected[signed])), exponent
    y[::3] = 1.75
    mixed = device.evaluate("pow", element, x, y)
    assert np.array_equal(np.delete(mixed, np.s_[::3]), np.delete(actual, np.s_[::3]), equal_nan=True)


def integer_power(x: int, y: int, width: int, signed: bool) -> int:
    if y < 0:
        return {1: 1, -1: -1 if y % 2 else 1}.get(x, 0)
    value = pow(x, y, 1 << width)
    return value - (1 << width) if signed and value >> (width - 1) else value


@pytest.mark.parametrize("element", INTEGERS)
def test_integers(device, element):
    """Results are Python's, with wrap-around. Division by 0 gives 0; neither it nor the minimum divided by -1 traps."""
    rng, dtype, n = np.random.default_rng(4), DTYPES[element], 2000
    info = np.iinfo(dtype)
    signed = info.min < 0
    pool = np.array([0, 1, 2, 3, 7, 10, 100, info.max, info.max - 1, info.min, info.min + 1], dtype=dtype)
    if signed:
        pool = np.concatenate([pool, np.array([-1, -2, -3, -7, -100], dtype=dtype)])
    grid = np.stack(np.meshgrid(pool, pool)).reshape(2, -1)
    a = [grid[0], rng.integers(info.min, info.max, n, dtype=dtype, endpoint=True), rng.integers(0, 10, n, dtype=dtype)]
    b = [grid[1], rng.integers(info.min, info.max, n, dtype=dtype, endpoint=True), rng.integers(0, 40, n, dtype=dtype)]
    x, y = np.concatenate(a), np.concatenate(b)
    powers = [integer_power(int(p), int(q), info.bits, signed) for p, q in zip(x, y, strict=True)]
    expected = {
        "floor_div": np.floor_divide(x, y), "mod": np.remainder(x, y), "fmod": np.fmod(x, y),
        "pow": np.array(powers, dtype=dtype), "maximum": np.maximum(x, y), "minimum": np.minimum(x, y),
        "lshift": np.left_shift(x, y), "rshift": np.right_shift(x, y), "bitwise_and": x & y, "bitwise_or": x | y,
        "bitwise_xor": x ^ y, "gcd": np.gcd(x, y),
    }  # fmt: skip
    for name, values in expected.items():
        actual = device.evaluate(name, element, x, y)
        index = np.flatnonzero(actual != values)[:3]
        assert index.size == 0, f"{name} of {x[index]} and {y[index]} gives {actual[index]}, not {values[index]}"
    unary = {"abs": np.abs(x), "sign": np.sign(x), "square": x * x, "floor": x, "round": x, "bitwise_not": ~x}
    for name, values in unary.items():
        assert np.array_equal(device.evaluate(name, element, x), values), name
    masks = {"isnan": np.zeros(len(x), bool), "isfinite": np.ones(len(x), bool), "signbit": x < 0}
    for name, values in masks.items():
        assert np.array_equal(device.evaluate(name, element, x), values), name


def test_storage_of_half(device):
    all_halves = np.arange(1 << 16, dtype=np.uint16)
    expected = all_halves.view(np.float16).astype(np.float32)
    expected.view(np.uint32)[np.isnan(expected)] |= 1 << 22  # processors make NaN quiet
    vector, scalar = np.zeros(1 << 16, np.float32), np.zeros(1 << 16, np.float32)
    device.call("from_half", 1 << 12, all_halves, vector, all_halves.copy(), scalar)
    assert np.array_equal(vector.view(np.uint32), expected.view(np.uint32))
    assert np.array_equal(scalar.view(np.uint32), expected.view(np.uint32))
    rng = np.random.default_rng(5)
    ties = (expected[:31743].astype(np.float64) + expected[1:31744]) / 2
    x = np.concatenate([expected, ties, -ties, random_bit_patterns(np.float32, 100000, rng), rng.normal(size=100000)])
    x = x[: len(x) // 256 * 256].astype(np.float32)
    vector, scalar = np.zeros(len(x), np.uint16), np.zeros(len(x), np.uint16)
    device.call("to_half", len(x) // 16, x, vector, x.copy(), scalar)
    nan = np.isnan(x)
    assert np.array_equal(vector, scalar)
    assert np.array_equal(vector[~nan], x.astype(np.float16).view(np.uint16)[~nan])
    assert np.isnan(vector.view(np.float16)[nan]).all()


def test_storage_of_bfloat16(device):
    all_bfloat16s = np.arange(1 << 16, dtype=np.uint16)
    vector, scalar = np.zeros(1 << 16, np.float32), np.zeros(1 << 16, np.float32)
    device.call("from_bfloat16", 1 << 12, all_bfloat16s, vector, all_bfloat16s.copy(), scalar)
    assert np.array_equal(vector.view(np.uint32), all_bfloat16s.astype(np.uint32) << 16)
    assert np.array_equal(scalar.view(np.uint32), all_bfloat16s.astype(np.uint32) << 16)
    x = np.concatenate([random_bit_patterns(np.float32, 1 << 17, np.random.default_rng(6)), vector])
    x[:1000].view(np.uint32)[:] = (x[:1000].view(np.uint32) & 0xFFFF0000) | 0x8000  # ties
    vector_bits, scalar_bits = np.zeros(len(x), np.uint16), np.zeros(len(x), np.uint16)
    device.call("to_bfloat16", len(x) // 16, x, vector_bits, x.copy(), scalar_bits)
    word = x.view(np.uint32).astype(np.uint64)
    expected = ((word + 0x7FFF + ((word >> 16) & 1)) >> 16).astype(np.uint16)
    nan = np.isnan(x)
    assert np.array_equal(vector_bits, scalar_bits)
    assert np.array_equal(vector_bits[~nan], expected[~nan])
    assert np.isnan((vector_bits.astype(np.uint32) << 16).view(np.float32)[nan]).all()


def test_philox_gives_the_published_words(device):
    """Check Random123's test vectors: all zeros, all ones, and the digits of pi."""
    ones = 2**64 - 1
    counters = np.array(
        [0, 0, 0, ones, ones, ones, 0x85A308D3243F6A88, 0x0370734413198A2E, 0x299F31D0A4093822], np.uint64
    )
    out = np.zeros(12, np.uint32)
    device.call("philox", 1, counters, out)
    assert " ".join(f"{word:08x}" for word in out) == (
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8 408f276d 41c83b0e a20bc7c6 6d5451fd d16cfe09 94fdcceb 5001e420 24126ea1"
    )


def test_random_numbers(device):
    """Scalar and vector lanes agree, and the first moments are those of the distributions."""
    n = 1 << 18
    arrays = [np.zeros(n, dtype) for dtype in (np.float32, np.float32, np.float64, np.float64) * 2]
    device.call("random", n // 16, *arrays)
    for vector, scalar in zip(arrays[:4], arrays[4:], strict=True):
        assert np.array_equal(vector, scalar)
    for uniform in (arrays[0], arrays[2]):
        assert uniform.min() >= 0
        assert uniform.max() < 1
        assert abs(uniform.mean() - 0.5) < 0.003
        assert abs(uniform.var() - 1 / 12) < 0.001
    for normal in (arrays[1], arrays[3]):
        assert abs(normal.mean()) < 0.01
        assert abs(normal.std() - 1) < 0.01
        assert abs((normal**4).mean() - 3) < 0.1
        assert abs((normal[::2] * normal[1::2]).mean()) < 0.01


@pytest.mark.parametrize("error", [-3.0e-7, 0.0, 3.0e-7])
def test_quotients_of_narrow_integers_are_exact_whatever_the_division_rounds(device, error):
    """OpenCL allows a division of floats a relative error of 3e-7 (2.5 ULP), and AMD's and Intel's compilers use it."""
    exact = TEXTS["quotient.int"]
    inexact = exact.replace("/ TO_S(d))", f"/ TO_S(d) * {1 + error:.8f}f)")
    assert inexact != exact
    names = ["floor_div", "mod", "fmod"]
    narrow = copy.copy(device)
    narrow.kernels = {}
    elements = ("char", "uchar", "short", "ushort")
    texts = [math_library.program_text(names, e, [LANES], {**TEXTS, "quotient.int": inexact}) for e in elements]
    narrow.build("".join(texts) + "".join(kernel_text(name, e) for e in elements for name in names))
    for element in elements:
        info = np.iinfo(DTYPES[element])
        if info.bits == 8:
            y, x = (a.ravel() for a in np.meshgrid(*[np.arange(info.min, info.max + 1)] * 2))
        else:  # every divisor, with the largest multiples of it, and their neighbours
            y = np.arange(info.min, info.max + 1)[:, None, None]
            quotient = info.max // np.where(y == 0, 1, y)
            numerators = (quotient - np.array([0, 1, 7])[:, None]) * y + np.array([-1, 0, 1])
            x, y = (a.ravel() for a in np.broadcast_arrays(np.clip(numerators, info.min, info.max), y))
        x, y = x.astype(np.int64), y.astype(np.int64)
        safe = np.where(y == 0, 1, y)
        expected = {"floor_div": x // safe, "mod": x % safe, "fmod": np.fmod(x, safe)}
        for name in names:
            values = np.where(y == 0, 0, expected[name]).astype(DTYPES[element])
            actual = narrow.evaluate(name, element, x.astype(DTYPES[element]), y.astype(DTYPES[element]))
            wrong = np.flatnonzero(actual != values)
            assert wrong.size == 0, f"{name} of {element}: {wrong.size} wrong, such as {x[wrong[0]]}, {y[wrong[0]]}"


@pytest.fixture(scope="module")
def device_without_double(device) -> Device:
    """The functions that are replaced where there is no double, and integer division, in a program without it."""
    single = copy.copy(device)
    single.kernels = {}
    single.forms_agree = False
    single.lanes = lanes = 4  # PoCL 3.0 aborts at its own functions of 16 floats
    prelude = "#define WG_NO_FLOAT64\n#define double no_double\n"
    jobs = {
        "float": ["digamma", "trigamma", "polygamma", "zeta", "gammainc", "gammaincc", *COMPUTED_IN_DOUBLE],
        "int": ["floor_div", "mod", "fmod", "gcd"],
    }
    texts = [math_library.program_text(names, e, [lanes], TEXTS, True, False) for e, names in jobs.items()]
    single.build(
        prelude + "".join(texts) + "".join(kernel_text(n, e, lanes) for e, names in jobs.items() for n in names)
    )
    return single


def test_special_functions_without_double(device_without_double):
    x = inputs(np.float32, np.random.default_rng(2))
    x = x[(np.abs(x) > 1e-18) & (np.abs(x) < 1e6) & ((x > 0) | (x != np.rint(x))) & (x > -30)]
    for name, allowed, least in (("digamma", 6, 0.5), ("trigamma", 6, 0)):
        expected = SPECIAL[name][1](x.astype(np.float64))
        keep = np.abs(expected) > least
        actual = device_without_double.evaluate(name, "float", x)
        check(name, allowed, actual[(x > 0) & keep], expected[(x > 0) & keep], x[(x > 0) & keep])
        # Below 0, relative to the larger of the two terms that are subtracted.
        below = x < 0
        size = np.abs(expected) + np.abs(SPECIAL[name][1](1 - x.astype(np.float64)))
        assert (np.abs(actual - expected)[below] <= 4e-7 + allowed * 2**-23 * size[below]).all(), name
    special = np.array([0.0, -0.0, -1, -2, np.inf, np.nan], np.float32)
    actual = device_without_double.evaluate("digamma", "float", special)
    assert np.array_equal(actual, np.array([-np.inf, np.inf, np.nan, np.nan, np.inf, np.nan]), equal_nan=True)


def test_functions_computed_in_double_without_it(device_without_double):
    """Float rounds the argument of the Airy functions' sines and exponentials: 7.5e-6 was measured at -9.5."""
    for name in COMPUTED_IN_DOUBLE:
        x, expected = np.array(RECORDED[name]).T
        keep = (np.abs(expected) > 1e-36) & (np.abs(x) <= 100)
        actual = device_without_double.evaluate(name, "float", x[keep].astype(np.float32))
        errors = np.abs(actual / expected[keep] - 1)
        assert errors.max() < (2e-5 if name.startswith("airy") else 5e-6), (
            f"{name}({x[keep][errors.argmax()]}): {errors.max():.1e}"
        )
    s, x, expected = np.array(ZETA).T
    keep = (expected > 1e-36) & (expected < 1e36)
    actual = device_without_double.evaluate("zeta", "float", s[keep].astype(np.float32), x[keep].astype(np.float32))
    assert np.abs(actual / expected[keep] - 1).max() < 5e-6
    a, x, lower, upper = np.array(INCOMPLETE_GAMMA, np.float32).T
    for name, expected in (("gammainc", lower), ("gammaincc", upper)):
        actual = device_without_double.evaluate(name, "float", a, x)
        assert np.abs(actual / expected - 1).max() < 2e-5, name


def test_polygamma_without_double(device_without_double):
    rng = np.random.default_rng(6)
    n = np.concatenate([rng.integers(0, 25, 3000), rng.integers(25, 165, 3000)]).astype(np.float32)
    x = np.where(rng.random(6000) < 0.5, 10 ** rng.uniform(-1, 2, 6000), rng.uniform(-30, 30, 6000)).astype(np.float32)
    exact = scipy.special.polygamma(n.astype(np.float64), np.abs(x).astype(np.float64))
    actual = device_without_double.evaluate("polygamma", "float", n, x)
    inside = (x > 0) & (n > 0) & (np.abs(exact) > 1e-33) & (np.abs(exact) < 1e38)
    assert inside.sum() > 1500
    relative = np.abs(actual[inside] / exact[inside] - 1) / (n[inside] + 4)
    assert relative.max() < 8 * 2**-24
    large = np.abs(exact) > 3.5e38
    assert np.isinf(actual[(x > 0) & large]).all()
    # Below 0, against float64 relative to the larger of the two sums that are subtracted.
    pole = scipy.special.polygamma(np.maximum(n, 1).astype(np.float64), np.abs(x - np.rint(x)).astype(np.float64))
    below = (x < 0) & (n > 0) & (np.abs(pole) < 1e37) & (x != np.rint(x))
    assert below.sum() > 500
    reference = below_zero(n[below].astype(np.float64), x[below].astype(np.float64))
    error = np.abs(actual[below] - reference) / np.maximum(np.abs(reference), np.abs(pole[below])) / (n[below] + 4)
    assert error.max() < 2**-24


def below_zero(n: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return polygamma below 0 by its recurrence from x up to the first positive argument."""
    total = np.zeros_like(x)
    factorial = scipy.special.gamma(n + 1)
    sign = np.where(n % 2 == 0, 1.0, -1.0)
    while (x < 0).any():
        total = np.where(x < 0, total - sign * factorial * np.sign(x) ** (n + 1) * np.abs(x) ** -(n + 1), total)
        x = np.where(x < 0, x + 1, x)
    return total + scipy.special.polygamma(n, x)


def test_integer_division_without_double(device_without_double):
    info = np.iinfo(np.int32)
    rng = np.random.default_rng(8)
    x = np.concatenate([[info.min, info.min, info.max, 0, -7, 7], rng.integers(info.min, info.max, 4000)])
    y = np.concatenate([[-1, 0, -1, 5, 2, -2], rng.integers(-9, 10, 2000), rng.integers(info.min, info.max, 2000)])
    safe = np.where(y == 0, 1, y)
    for name, values in (("floor_div", x // safe), ("mod", x % safe), ("fmod", np.fmod(x, safe))):
        actual = device_without_double.evaluate(name, "int", x, y)
        assert np.array_equal(actual, np.where(y == 0, 0, values).astype(np.int32)), name
    actual = device_without_double.evaluate("gcd", "int", x[6:], y[6:])
    assert np.array_equal(actual, np.gcd(x[6:], y[6:]).astype(np.int32))


def test_every_source_lists_its_needs_and_they_exist():
    for stem, text in TEXTS.items():
        name, _, suffix = stem.partition(".")
        for element in DTYPES:
            if suffix in ("", math_library.element_class(element)) and not (suffix == "" and element in INTEGERS):
                order = math_library.resolve([name], element, TEXTS)
                assert math_library.find(name, element, TEXTS) in order
        assert isinstance(math_library.needs(text), tuple)


def test_resolve_orders_by_need_and_names_what_is_missing():
    texts = {"a": "// needs: b, c\n", "b.f32": "// needs: c\n", "c": "// needs:\n", "b": "// needs:\n"}
    assert math_library.resolve(["a"], "float", texts) == ["c", "b.f32", "a"]
    assert math_library.resolve(["a"], "int", texts) == ["b", "c", "a"]
    with pytest.raises(KeyError, match="no math function 'd' for float, needed by a"):
        math_library.resolve(["a"], "float", {"a": "// needs: d\n"})
    with pytest.raises(ValueError, match="circular needs: a -> b -> a"):
        math_library.resolve(["a"], "float", {"a": "// needs: b\n", "b": "// needs: a\n"})
    with pytest.raises(ValueError, match="the first line"):
        math_library.needs("static inline\n")
    with pytest.raises(KeyError, match="unknown element type"):
        math_library.header("half", 1)


def test_sources_have_include_guards_and_undefine_their_macros():
    """Include guards let two types share a source, or one type occur twice, as the build in Device shows."""
    text = math_library.program_text(["exp", "pow"], "float", [LANES], TEXTS)
    defined = {line.split()[1].partition("(")[0] for line in text.splitlines() if line.startswith("#define ")}
    undefined = {line.split()[1] for line in text.splitlines() if line.startswith("#undef ")}
    assert {name for name in defined if not name.startswith("WG_")} <= undefined
    assert math_library.program_text([], "float", [LANES], TEXTS).count("wg_") == 0


def test_built_in_functions_replace_sources():
    text = math_library.program_text(["logistic", "pow"], "float", [1], TEXTS, builtin=True)
    assert "F wg_exp(F x) { return exp(x); }" in text
    assert "F wg_pow(F x, F y) { return pow(x, y); }" in text
    assert "wg_exp_scaled" not in text
    assert "__builtin" not in text.replace(math_library.ANY_LANE_MACROS, "")
    for element, uses_own_text in (("float", True), ("double", False)):
        text = math_library.program_text(["erf"], element, [1], TEXTS, builtin=True)
        assert uses_own_text == ("return erf(x);" not in text) == ("F p = " in text), element
