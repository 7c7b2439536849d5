"""The array API standard: creation, dtypes, the page of functions, and errors."""

from __future__ import annotations

import importlib.util
import itertools
import math
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from array_api_samples import FLOATS, INF, INTEGERS, NUMERIC, NUMPY_FOLLOWS, check, sample, xp

import weftgrad as wg
from weftgrad.runtime.errors import WeftgradError

ROOT = Path(os.environ.get("WEFTGRAD_CHECKOUT") or Path(__file__).resolve().parent.parent)
pytestmark = pytest.mark.skipif(not NUMPY_FOLLOWS, reason="NumPy follows the standard from 2.1 on")


# Creation and dtypes


def test_arange_and_linspace():
    for arguments in ((5,), (2, 7), (7, 2, -2), (0, 10, 3), (3, 3), (5, 2), (0.0, 1.0, 0.3), (1, 0, 0.5), (0, 1, 0.25)):
        expected = np.arange(*arguments)
        result = xp.arange(*arguments)
        kind = "int64" if expected.dtype.kind == "i" else "float32"
        check(result, expected.astype(kind), 1e-6 if kind == "float32" else 0)
    check(xp.arange(3, dtype=xp.float64), np.arange(3.0))
    for num, endpoint in itertools.product((0, 1, 2, 5), (True, False)):
        expected = np.linspace(-1.0, 3.0, num, endpoint=endpoint)
        check(xp.linspace(-1.0, 3.0, num, endpoint=endpoint, dtype=xp.float64), expected, 1e-15)
    assert xp.linspace(0, 1, 3).dtype == wg.float32


def test_asarray():
    check(xp.asarray([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]]))
    check(xp.asarray(True), np.array(True))
    check(xp.asarray(1.5, dtype=xp.float64), np.array(1.5))
    check(xp.asarray([1.5, 2]), np.array([1.5, 2], "float32"))
    x = wg.ones(3)
    assert xp.asarray(x) is x
    assert xp.asarray(x, copy=False) is x
    assert xp.asarray(x, copy=True).data_ptr() != x.data_ptr()
    with pytest.raises(ValueError, match="copy=False"):
        xp.asarray(x, dtype=xp.float64, copy=False)
    array = np.arange(3.0)
    assert xp.asarray(array, device="cpu").data_ptr() == array.ctypes.data
    assert xp.asarray(memoryview(array), device="cpu").data_ptr() == array.ctypes.data
    with pytest.raises(ValueError, match="copy=False"):
        xp.asarray([1, 2], copy=False)

    class Producer:
        def __dlpack__(self, **options):
            return array.__dlpack__()

        def __dlpack_device__(self):
            return (1, 0)

    assert xp.asarray(Producer(), device="cpu").data_ptr() == array.ctypes.data
    assert xp.from_dlpack(Producer(), copy=True).tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["empty", "ones", "zeros"])
def test_tensors_of_one_value(name):
    for shape in (3, (2, 3), (), (0, 2)):
        for dtype in (None, "int16", "bool", "float64"):
            expected = getattr(np, name)(shape, dtype or "float32")
            result = getattr(xp, name)(shape, dtype=None if dtype is None else getattr(xp, dtype))
            if name == "empty":
                assert (str(result.dtype), result.shape) == (f"weftgrad.{expected.dtype}", expected.shape)
            else:
                check(result, expected)
    x = wg.ones(2, 3, dtype=wg.int8)
    like = getattr(xp, f"{name}_like")
    assert (like(x).shape, like(x).dtype, like(x, dtype=xp.float32).dtype) == ((2, 3), wg.int8, wg.float32)
    if name != "empty":
        check(like(x), getattr(np, f"{name}_like")(x.numpy()))


def test_full_eye_and_triangles():
    check(xp.full((2, 3), 7), np.full((2, 3), 7))
    check(xp.full(2, True), np.full(2, True))
    check(xp.full((), 1.5, dtype=xp.float64), np.full((), 1.5))
    check(xp.full_like(wg.zeros(2, dtype=wg.int8), 3), np.full(2, 3, "int8"))
    for rows, columns, k in itertools.product((0, 1, 3, 4), (None, 3, 5), (0, 1, -2, 6, -6)):
        check(xp.eye(rows, columns, k=k), np.eye(rows, columns, k, dtype="float32"))
        check(xp.eye(rows, columns, k=k, dtype=xp.int16), np.eye(rows, columns, k, dtype="int16"))
    x = sample((2, 3, 4))
    for k in (-5, -1, 0, 2, 7):
        check(xp.tril(wg.tensor(x), k=k), np.tril(x, k))
        check(xp.triu(wg.tensor(x), k=k), np.triu(x, k))


def test_meshgrid():
    vectors = [np.arange(n) for n in (2, 3, 4)]
    for count, indexing in itertools.product((1, 2, 3), ("xy", "ij")):
        results = xp.meshgrid(*map(wg.tensor, vectors[:count]), indexing=indexing)
        assert isinstance(results, list)
        for result, expected in zip(results, np.meshgrid(*vectors[:count], indexing=indexing), strict=True):
            check(result, expected)
    assert xp.meshgrid() == []


def test_result_type_can_cast_and_isdtype():
    names = ("bool", "int16", "int32", "int64", *NUMERIC)
    for first, second in itertools.product(names, repeat=2):
        if "bool" in (first, second) and first != second:
            continue
        if (first in FLOATS) == (second in FLOATS):
            expected = np.result_type(np.dtype(first), np.dtype(second))
            for a in (getattr(xp, first), wg.zeros((), dtype=first), wg.zeros(2, dtype=first)):
                assert str(xp.result_type(a, getattr(xp, second))) == f"weftgrad.{expected}", (first, second)
            assert xp.can_cast(getattr(xp, first), getattr(xp, second)) == np.can_cast(first, second), (first, second)
        kinds = (
            "bool",
            "signed integer",
            "unsigned integer",
            "integral",
            "real floating",
            "complex floating",
            "numeric",
        )
        for kind in (*kinds, ("bool", "integral")):
            assert xp.isdtype(getattr(xp, first), kind) == np.isdtype(np.dtype(first), kind)
    assert xp.isdtype(xp.int8, xp.int8)
    assert not xp.isdtype(xp.int8, (xp.int16, "bool"))
    assert xp.result_type(wg.ones(1, dtype=wg.int8), 3) == wg.int8
    assert xp.result_type(wg.ones(1, dtype=wg.float64), 3.5, True) == wg.float64
    assert xp.can_cast(wg.ones(1, dtype=wg.int8), xp.int16)
    with pytest.raises(ValueError, match="no kind"):
        xp.isdtype(xp.int8, "integer")
    with pytest.raises(TypeError):
        xp.result_type(1, 2)
    with pytest.raises(TypeError):
        xp.can_cast("int8", xp.int16)


def test_limits_of_dtypes():
    for name in FLOATS:
        ours, theirs = xp.finfo(getattr(xp, name)), np.finfo(name)
        values = (ours.bits, ours.eps, ours.max, ours.min, ours.smallest_normal)
        assert values == (theirs.bits, theirs.eps, theirs.max, theirs.min, theirs.smallest_normal)
        assert ours.dtype == getattr(xp, name)
    for name in INTEGERS:
        ours, theirs = xp.iinfo(wg.zeros(1, dtype=name)), np.iinfo(name)
        assert (ours.bits, ours.max, ours.min) == (theirs.bits, theirs.max, theirs.min)


def test_astype():
    x = wg.tensor([0.0, 1.5, -2.5])
    for dtype in ("bool", "int8", "int64", *FLOATS):
        check(xp.astype(x, getattr(xp, dtype)), x.numpy().astype(dtype))
    assert xp.astype(x, xp.float32).data_ptr() != x.data_ptr()
    assert xp.astype(x, xp.float32, copy=False) is x
    assert xp.astype(x, xp.float64, device=x.device).device == x.device


def test_inspection():
    info, numpy_info = xp.__array_namespace_info__(), np.__array_namespace_info__()
    assert info.capabilities().keys() >= {"boolean indexing", "data-dependent shapes", "max dimensions"}
    assert info.default_device() == wg.get_default_device()
    assert info.default_device() in info.devices()
    assert info.default_dtypes() == {"real floating": wg.float32, "integral": wg.int64, "indexing": wg.int64}
    missing = {"uint16", "uint32", "uint64", "complex64", "complex128"}
    for kind in (None, "bool", "signed integer", "unsigned integer", "integral", "real floating", "numeric",
                 ("bool", "real floating")):  # fmt: skip
        expected = set(numpy_info.dtypes(kind=kind)) - missing
        assert set(info.dtypes(kind=kind)) == expected
    assert (xp.e, xp.pi, xp.inf, xp.newaxis, xp.__array_api_version__) == (math.e, math.pi, INF, None, "2024.12")
    assert math.isnan(xp.nan)
    x = wg.ones(2)
    assert x.__array_namespace__(api_version="2023.12") is xp is x.__array_namespace__()
    with pytest.raises(ValueError, match=r"2020\.01"):
        x.__array_namespace__(api_version="2020.01")
    assert x.to_device(x.device) is x
    assert x.to_device("meta").device.type == "meta"


# The page and the names


def docs_script():
    path = ROOT / "docs" / "refresh_array_api.py"
    if not path.is_file():
        pytest.skip("needs the checkout: set WEFTGRAD_CHECKOUT")
    spec = importlib.util.spec_from_file_location("refresh_array_api", path)
    script = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = script  # for its dataclass
    spec.loader.exec_module(script)
    return script


def test_the_page_is_up_to_date_and_signatures_are_the_standards():
    script = docs_script()
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), "run python docs/refresh_array_api.py"
    entries = list(script.entries())
    assert len({(entry.owner, entry.name) for entry in entries}) == len(entries) > 230
    wrong = [e.text for e in entries if script.status(e).startswith("with")]
    assert not wrong, wrong
    names = {entry.name for entry in entries if entry.owner == ""}
    assert set(xp.__all__) - names == {"__array_api_version__", "linalg"}


def test_numpy_has_the_names_of_the_standard():
    """The table of the standard's names agrees with NumPy's signatures, where NumPy's can be read."""
    script = docs_script()
    checked = 0
    for entry in script.entries():
        owner = {"": np, "linalg": np.linalg, "fft": np.fft}.get(entry.owner)
        if owner is None or entry.parameters is None:
            continue
        assert hasattr(owner, entry.name), entry.text
        try:
            theirs = script.parameters_of(getattr(owner, entry.name)).replace("/, ", "").replace(", /", "").split(", ")
        except (ValueError, TypeError):
            continue
        keywords = entry.parameters.partition("*, ")[2].split(", ")
        if keywords != [""] and not theirs[-1].startswith("*") and entry.name not in ("arange", "asarray", "eye"):
            known = set(theirs) | {"ord", "device"}
            checked += set(keywords) <= known
    assert checked > 30


def test_errors_are_ours():
    for function in (xp.sum, xp.abs, xp.sort, xp.unique_values, xp.flip):
        with pytest.raises(WeftgradError, match="tensor"):
            function([1.0])
