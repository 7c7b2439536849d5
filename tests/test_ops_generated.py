"""Every op of the specs: values against an independent reference, derivatives against differences.

The suite walks the specs, so that a new op is tested by being there; what an expected value comes from is never the
op's own expression (see `op_references.py`). Every test builds the kernels it needs together (`op_cases.py`).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import op_cases as cases
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_cases import KINDS, device_of, ops_of, specs
from op_references import EXEMPT, LETTERS

import weftgrad as wg
from weftgrad._generated import ops as generated
from weftgrad.runtime import dispatch
from weftgrad.runtime.records import registry

POINTWISE = [name for name in ops_of("pointwise") if name not in EXEMPT]
REDUCTIONS = ops_of("reduction")


def test_every_op_has_an_independent_reference() -> None:
    computed = [op for op in specs().values() if op.kind in ("pointwise", "reduction", "rowwise", "contraction")]
    assert [op.name for op in computed if cases.reference_of(op) is None and op.name not in EXEMPT] == []
    assert [name for name in EXEMPT if name not in specs()] == []


def test_every_op_of_a_table_is_in_it() -> None:
    listed = {name for name, _, _ in (*cases.ROWS, *cases.CONTRACTIONS)}
    variants = {name for record in registry for name in record.variants.values()}
    assert [n for n in ops_of("rowwise", "contraction") if n not in listed | variants] == []


# Values


# Formulas differ by op, schedules by kind: every op runs on cpu, and ops take turns on the other kinds, whose kernels
# are the same texts in other sizes.
EVERY = {"cpu": 1, "opencl-cpu-schedules": 6, "opencl-gpu-schedules": 2, "poor-vendor": 6}
ON = [(name, kind) for turn, name in enumerate(POINTWISE) for kind in KINDS if turn % EVERY[kind] == 0]


@pytest.mark.parametrize(("name", "kind"), ON)
def test_values(name: str, kind: str) -> None:
    """Layouts, sizes and dtypes; on cpu also special values, the in-place form and `out=`."""
    op, place = specs()[name], device_of(kind)
    found = cases.pointwise_cases(op, place, kind)
    if kind == "cpu" and op.dtypes not in ("integral", "integer") and name not in UNUSUAL:
        found += cases.special_cases(op, place)
    cases.check_cases(op, found, place, kind)
    if kind == "cpu" and op.inplace:
        in_place_and_out(name, next(case for case in found if case.label == "65 elements"))


# Where an op's result for a special value is not the reference's, and why.
UNUSUAL: dict[str, str] = {
    **dict.fromkeys(
        ("logits_error", "weighted_logits_error", "probability_error", "divergence", "log_divergence"),
        "a loss of infinities, or of targets that are no probabilities, is undefined; so are formulas for it",
    ),
    "lerp": "differences of the largest numbers overflow, as in PyTorch",
    "trunc_divide": "for integers; div(rounding_mode='trunc') of floating numbers is trunc(input / other)",
}


def test_mixed_dtypes_promote() -> None:
    """Every pair of dtypes, and every kind of scalar, by the recorded tables of PyTorch."""
    op, place = specs()["mul"], device_of("cpu")
    rng = np.random.default_rng(0)
    names = list(LETTERS.values())
    pairs = [p for p in itertools.product(names, names) if p[0] != p[1]]
    some = [p for i, p in enumerate(pairs) if i % 6 == 0]  # values of some; the dtypes of all
    found = []
    for a, b in some:
        found.append(cases.make_case(op, [(a, (9,), "contiguous"), (b, (9,), "contiguous")], rng, place, "mixed"))
    for a, b in (("float32", "float64"), ("float16", "float32"), ("int8", "int64"), ("int32", "float64")):
        found.append(cases.make_case(op, [(a, (9,), "contiguous"), (b, (), "contiguous")], rng, place, "mixed, 0-d"))
    for a, b in (
        ("int32", "float32"),
        ("float16", "float32"),
        ("uint8", "int64"),
        ("bool", "int64"),
        ("bfloat16", "int64"),
    ):
        found.append(cases.make_case(op, [(a, (9,), "contiguous"), (b, (), "number")], rng, place, "with a number"))
    cases.check_cases(op, found, place, "cpu")
    for a, b in pairs:
        for rank in (0, 1):
            operands = (cases.tensor(np.zeros(2), a, place), cases.tensor(np.zeros((2,) * rank), b, place))
            planned = dispatch.plan_for(registry["mul"], operands)
            assert planned.outputs[0].dtype.name == cases.common_dtype([(a, 1), (b, rank)]), (a, b, rank)


def in_place_and_out(name: str, case: cases.Case) -> None:
    """The op written to `out=`, and over its first operand if that has the result's dtype."""
    function, written = vars(generated)[name], vars(generated)[f"{name}_"]
    result = wg.empty(65, dtype=getattr(wg, case.dtype), device=case.operands[0].device)
    assert function(*case.operands, out=result) is result
    cases.compare(cases.host(result), case.expected, case.dtype, f"{name}(out=)")
    if case.dtype == case.operands[0].dtype.name:
        target = wg.tensor(case.operands[0])
        version = target._version
        assert written(target, *case.operands[1:]) is target
        assert target._version == version + 1
        cases.compare(cases.host(target), case.expected, case.dtype, f"{name}_")


# Reductions

_ACCUMULATE, _FLOAT, _INDEX = (
    ("sum", "prod", "sum_squares"),
    ("mean", "euclidean_norm"),
    ("argmax", "argmin", "count_nonzero"),
)


def _reduced(name: str, dtype: str) -> list[str]:
    """The dtypes of an op's results, as PyTorch's (and NumPy's, apart from the width of float) are."""
    integral = cases.numpy_of(dtype).kind in "biu"
    if name in _ACCUMULATE:
        return ["int64" if integral else dtype]
    if name in _FLOAT:
        return ["float32" if integral else dtype]
    if name in _INDEX:
        return ["int64"]
    if name in ("any", "all"):
        return ["bool"]
    if name == "index_bounds":
        return [dtype, dtype]
    return [dtype, "int64"] if name in ("max_dim", "min_dim") else [dtype]


REDUCED_SHAPES = [
    ((), "contiguous"), ((65,), "contiguous"), ((40000,), "contiguous"), ((5, 17), "contiguous"),
    ((17, 5), "transposed"), ((3, 5, 18), "turned"),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, kind: str) -> None:
    op, place = specs()[name], device_of(kind)
    reference, call = cases.reference_of(op), cases.caller(op)
    assert reference is not None
    rng = np.random.default_rng(2)
    statics = [p.name for p in op.statics]
    many = any("Sequence" in p.annotation for p in op.statics)
    given: list[Any] = []
    dtypes = ("float32", "int32", "bool") if kind == "cpu" else ("float32", "int32")
    for dtype in dtypes:
        if op.dtypes == "integer" and cases.numpy_of(dtype).kind not in "iu":
            continue
        if op.dtypes == "float" and op.result != "float" and cases.numpy_of(dtype).kind != "f":
            continue
        several = REDUCED_SHAPES if kind == "cpu" else REDUCED_SHAPES[2:4]
        for shape, layout in several if dtype == "float32" else REDUCED_SHAPES[3:4]:

            def make(size: tuple[int, ...], dtype: str = dtype) -> Any:
                if cases.numpy_of(dtype).kind == "f":  # near 1, so that products stay in range; some are equal
                    return cases.rounded(
                        1 + np.round(rng.uniform(-1, 1, size), 2) * (0.1 if name == "prod" else 1), dtype
                    )
                return rng.random(size) > 0.5 if dtype == "bool" else rng.integers(-3, 4, size).astype(dtype)

            array, made = cases.laid_out(make, shape, layout, lambda a, d=dtype: cases.tensor(a, d, place))
            if "dim" in statics:
                dims: list[Any] = [None] if "dim: int," not in str(op.spec["op"]) else []
                dims += list(range(-1, len(shape) - 1)) + ([(0, -1)] if many and len(shape) > 1 else [])
            else:
                dims = [None]
            for dim in dims if shape else [None] if None in dims else []:
                options = {"dim": dim, "keepdim": len(given) % 2 == 0, "dtype": None}
                given.append((array, made, dtype, [options[s] for s in statics], dim, options["keepdim"]))
    results = cases.prebuilt(place, lambda: [call(made, statics=tuple(s)) for _, made, _, s, _, _ in given])
    for result, (array, _, dtype, _, dim, keepdim) in zip(results, given, strict=True):
        wide = array.astype(np.float64) if cases.numpy_of(dtype).kind == "f" else array
        expected = reference(wide, axis=dim, keepdims=keepdim)
        names = _reduced(name, dtype)
        where = (
            f"{name} on {kind}: {dtype}{list(array.shape)} with strides {array.strides}, dim {dim}, keepdim {keepdim}"
        )
        every = expected if isinstance(expected, tuple) else (expected,)
        pairs = zip(result if isinstance(result, tuple) else (result,), every, names, strict=False)
        for got, value, wanted in pairs:
            assert got.dtype.name == wanted, f"{where}: gives {got.dtype.name}, expected {wanted}"
            tolerance = (2e-5, 2e-5) if dtype == "float32" else (2e-3, 2e-3)
            cases.compare(cases.host(got), np.asarray(value), wanted, where, tolerance)


# Rows and contractions


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", list(dict.fromkeys(n for n, _, _ in (*cases.ROWS, *cases.CONTRACTIONS))))
def test_tables(name: str, kind: str) -> None:
    rows = [(g, n) for op, g, n in (*cases.ROWS, *cases.CONTRACTIONS) if op == name]
    for dtype in ("float32", "float64", "bfloat16") if kind == "cpu" else ("float32",):
        cases.check_table(name, rows if dtype == "float32" else rows[:1], dtype, device_of(kind), kind)


# Derivatives

DIFFERENTIABLE = [n for n in POINTWISE if cases.differentiable(specs()[n])]
# No second derivative by differences, and why.
FIRST_ONLY = {"lgamma": "the derivative of digamma is not part of the language"}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_pointwise_derivatives(name: str) -> None:
    op, place = specs()[name], device_of("cpu")
    for form in ("broadcast",) if sum(p.is_tensor for p in op.operands) > 1 else ("alike",):
        inputs = cases.gradient_inputs(op, form, place)
        cases.check_gradients(name, cases.caller(op), inputs, place, second=name not in FIRST_ONLY)


@pytest.mark.parametrize("kind", ["opencl-gpu-schedules"])
@pytest.mark.parametrize("name", ["sigmoid", "gelu_tanh", "pow", "atan2", "where", "lerp"])
def test_pointwise_derivatives_elsewhere(name: str, kind: str) -> None:
    op, place = specs()[name], device_of(kind)
    cases.check_gradients(name, cases.caller(op), cases.gradient_inputs(op, "alike", place), place)


@pytest.mark.parametrize("name", [n for n in REDUCTIONS if cases.differentiable(specs()[n])])
def test_reduction_derivatives(name: str) -> None:
    op, place = specs()[name], device_of("cpu")
    call = cases.caller(op)
    rng = np.random.default_rng(5)
    values = rng.permutation(60).reshape(3, 20) / 40 + 0.3  # no two are equal, none is 0
    dims: list[Any] = [1, 0] if "dim: int," in str(op.spec["op"]) else [None, 1]
    for dim in dims:
        options = {"dim": dim, "keepdim": dim == 1, "dtype": None}
        statics = tuple(options[p.name] for p in op.statics)

        def func(x: Any, statics: Any = statics) -> Any:
            return call(x, statics=statics)

        cases.check_gradients(name, func, [cases.tensor(values, "float64", place, True)], place)


@pytest.mark.parametrize("name", list(dict.fromkeys(n for n, _, _ in (*cases.ROWS, *cases.CONTRACTIONS))))
def test_table_derivatives(name: str) -> None:
    op, place = specs()[name], device_of("cpu")
    call = cases.caller(op)
    rows = [(g, n) for listed, g, n in (*cases.ROWS, *cases.CONTRACTIONS) if listed == name]
    shapes, named = min(rows, key=lambda row: -sum(s is not None for s in row[0]))
    small = [s if s is None or s[0] == "index" else tuple(min(n, 1000) for n in s) for s in shapes]
    operands, statics, _ = cases.table_case(op, small, named, "float64", place, grad=True)
    cases.check_gradients(name, lambda *a: call(*a, statics=statics), operands, place, atol=1e-5)


# Any shapes

sizes = st.lists(st.sampled_from([1, 2, 3, 16, 17]), min_size=0, max_size=3)


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(
    shape=sizes,
    dropped=st.lists(st.booleans(), min_size=3, max_size=3),
    order=st.randoms(use_true_random=False),
    data=st.data(),
)
def test_any_shapes_broadcast(shape: list[int], dropped: list[bool], order: Any, data: Any) -> None:
    """a - b of any two shapes that broadcast, of tensors whose dimensions lie in any order."""
    other = [1 if drop else n for n, drop in zip(shape, dropped, strict=False)]
    other = other[data.draw(st.integers(0, len(other))) if other else 0 :] if all(n == 1 for n in other[:1]) else other
    rng = np.random.default_rng(0)
    arrays, tensors = [], []
    for each in (shape, other):
        dims = list(range(len(each)))
        order.shuffle(dims)
        base = rng.integers(-9, 9, [each[d] for d in dims]).astype(np.float32)
        back = tuple(int(i) for i in np.argsort(dims))
        arrays.append(base.transpose(back))
        tensors.append(wg.tensor(base, device="cpu").permute(back))
    found = tensors[0] - tensors[1]
    np.testing.assert_array_equal(found.numpy(), arrays[0] - arrays[1])
    np.testing.assert_array_equal(found.sum().numpy(), (arrays[0] - arrays[1]).sum())
