"""Check the sources of math functions in OpenCL C, and functions on devices without double."""

import copy

import numpy as np
import pytest
import scipy.special
from math_points import INCOMPLETE_GAMMA, RECORDED, ZETA, inputs
from opencl_math_running import (
    COMPUTED_IN_DOUBLE,
    DTYPES,
    INTEGERS,
    LANES,
    SPECIAL,
    TEXTS,
    Device,
    check,
    kernel_text,
    open_device,
)

from weftgrad.codegen import math_library

cl = pytest.importorskip("pyopencl")


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device()


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


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
