"""Check epilogues of contractions.

Covered are the specs that the loader accepts, values and gradients against NumPy over layouts and schedules, and the
functions that use epilogues.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad._generated import ops
from weftgrad.codegen.kinds import contraction as kind
from weftgrad.codegen.loader import load_text
from weftgrad.codegen.model import SpecErrors
from weftgrad.runtime.dispatch import plan_for
from weftgrad.runtime.errors import GradientError, ShapeError
from weftgrad.runtime.records import registry

Array = Any
F = wg.nn.functional
ENTRY = '- op: "{}"\n  kind: contraction\n  out: {}\n  epilogue: {}\n'


def random_array(*shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(sum(shape) + len(shape)).standard_normal(shape).astype(dtype)


def tensor_of_layout(x: Array, column_major: bool, **options: Any) -> Any:
    """Return `x` as a tensor: row-major, or with its last two dimensions stored transposed."""
    return (
        wg.tensor(np.ascontiguousarray(x.swapaxes(-1, -2)), **options).transpose(-1, -2)
        if column_major
        else wg.tensor(x, **options)
    )


def assert_close(actual: Any, expected: Array, depth: int) -> None:
    """Compare within the rounding error of a sum of `depth` products in float32."""
    assert actual.shape == expected.shape
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(actual.detach().cpu().numpy(), expected, rtol=0, atol=3e-7 * (depth + 8) * scale)


# Specs that the loader accepts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signature", "epilogue", "message"),
    [
        ("f(a, b, bias)", "acc + other", "other"),
        ("f(a, b, bias)", "a + b * acc", "takes two tensors beside those of its epilogue"),
        ("f(a, b)", "a + acc", "takes two tensors beside"),
        ("f(a, b, bias)", "bias * 2", "computed of acc"),
        ("f(a, b, alpha: float)", "acc", "used by no expression"),
        ("f(acc, b)", "acc", "no parameter"),
        ("f(a, b, bias)", "exp(acc + bias)", "write grad: none"),
        ("f(a, b, bias)", "acc * bias", "write grad: none"),
        ("f(a, b, bias)", "acc > bias", "is a value"),
        ("f(a, b, bias)", "acc + sum(bias)", "sum"),
    ],
)
def test_wrong_specs_are_reported(signature: str, epilogue: str, message: str) -> None:
    with pytest.raises(SpecErrors, match=message):
        load_text(ENTRY.format(signature, '"mk,kn->mn"', epilogue), "mine.yaml")


def test_gradients_are_spec_entries() -> None:
    (op,) = load_text(ENTRY.format("f(c, a, b, beta: float)", '"mk,kn->mn"', "beta * (c - 3 * acc)"), "mine.yaml")
    assert [p.name for p in kind.factors(op)] == ["a", "b"]
    assert kind.letters(op) == {"c": "mn", "a": "mk", "b": "kn"}
    derived = kind.derive(op)
    assert derived["a"].operands == ("grad", "b", "beta")
    assert derived["a"].spec is not None
    assert derived["a"].spec["out"] == "mn,kn->mk"
    assert derived["c"].spec is not None
    assert derived["c"].spec["kind"] == "pointwise"
    (bias_op,) = load_text(ENTRY.format("f(a, b, bias)", '"mk,kn->mn"', "acc + bias"), "mine.yaml")
    derived = kind.derive(bias_op)
    assert derived["bias"].spec is None  # its gradient is the incoming gradient itself
    assert "epilogue" not in (derived["a"].spec or {})


# Values ---------------------------------------------------------------------------------------------------------------

# Sizes around those of register tiles, panels and blocks of k, and around the limits of packing and of split sums.
SIZES = [
    (7, 129, 65, False, False), (66, 20, 10, True, True), (8, 70, 50, False, True), (40, 2100, 33, True, False),
    (200, 340, 290, True, True), (300, 90, 1, False, False), (1, 40, 33, False, False), (4, 0, 3, False, False),
]  # fmt: skip


@pytest.mark.parametrize(("m", "k", "n", "a_column_major", "b_column_major"), SIZES)
def test_sizes_and_layouts(m: int, k: int, n: int, a_column_major: bool, b_column_major: bool) -> None:
    a, b, matrix = random_array(m, k), random_array(k, n), random_array(m, n)
    product = a.astype("f8") @ b
    x, y = tensor_of_layout(a, a_column_major), tensor_of_layout(b, b_column_major)
    for c in (matrix, matrix[0], matrix[:, :1] if m > 7 else matrix[0, 0]):
        assert_close(ops.addmm_product(wg.tensor(c), x, y, 0.5, -2.0), 0.5 * c - 2 * product, k)
    if k == 129:
        assert_close(ops.addmm_product(tensor_of_layout(matrix, True), x, y, 0.5, -2.0), 0.5 * matrix - 2 * product, k)


def test_results_in_other_layouts_and_dtypes() -> None:
    a, b, c = random_array(40, 300), random_array(300, 70), random_array(70)
    expected = a.astype("f8") @ b + c
    x, y, z = wg.tensor(a), wg.tensor(b), wg.tensor(c)
    out = wg.empty(70, 40).t()
    ops.addmm_product(z, x, y, 1.0, 1.0, out=out)
    assert_close(out, expected, 300)
    for dtype, tolerance in ((wg.float16, 2e-3), (wg.bfloat16, 2e-2)):
        x, y, z = (t.to(dtype) for t in (x, y, z))
        doubles = [t.double().numpy() for t in (x, y, z)]
        actual = ops.addmm_product(z, x, y, 1.0, 1.0)
        assert actual.dtype is dtype
        exact = doubles[0] @ doubles[1] + doubles[2]
        np.testing.assert_allclose(actual.double().numpy(), exact, rtol=tolerance, atol=tolerance)
    with pytest.raises(ShapeError, match="must broadcast to the result"):
        ops.addmm_product(wg.zeros(3, 1, 1), wg.zeros(2, 2), wg.zeros(2, 2), 1.0, 1.0)


def test_batches_and_vectors() -> None:
    a, b = random_array(3, 17, 20), random_array(3, 20, 33)
    for c in (random_array(3, 17, 33), random_array(33), random_array(3, 1, 1), random_array(17, 1)):
        assert_close(wg.baddbmm(wg.tensor(c), wg.tensor(a), wg.tensor(b), beta=2, alpha=0.5), 2 * c + 0.5 * (a @ b), 20)
        transposed = tensor_of_layout(a, True)
        assert_close(wg.baddbmm(wg.tensor(c), transposed, wg.tensor(b)[:, :, ::3], alpha=3)
             if c.shape[-1] == 1 else wg.baddbmm(wg.tensor(c), transposed, wg.tensor(b), alpha=3),
             c + 3 * (a @ (b[:, :, ::3] if c.shape[-1] == 1 else b)), 20)  # fmt: skip
    v = random_array(20)
    assert_close(
        wg.addmv(wg.tensor(random_array(17)), wg.tensor(a[0]), wg.tensor(v), beta=-1),
        a[0] @ v - random_array(17),
        20,
    )
    assert_close(wg.addmv(wg.tensor(2.0), wg.tensor(a[0]), wg.tensor(v)), a[0] @ v + 2, 20)


def test_schedules_of_gpus() -> None:
    code = f"""
    import sys
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    import test_epilogues as t
    for m, k, n in ((20, 33, 40), (5, 3000, 6)):
        a, b, c = t.random_array(m, k), t.random_array(k, n), t.random_array(n)
        actual = t.ops.addmm_relu(*map(t.wg.tensor, (c, a, b)), 1.0, 0.5)
        t.assert_close(actual, t.np.maximum(c + 0.5 * (a.astype("f8") @ b), 0), k)
    """
    environment = {**os.environ, "WEFTGRAD_CAPABILITIES": "style=gpu,lanes=4,max_group=64,optimize=0"}
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr[-3000:]


def test_split_sums_apply_the_epilogue_once() -> None:
    x, y, c = wg.tensor(random_array(9, 40000)), wg.tensor(random_array(40000, 20)), wg.tensor(random_array(20))
    steps = plan_for(registry["addmm_relu"], (c, x, y, 1.0, 1.0)).steps
    assert [s.instance.entry for s in steps] == ["contraction_gemm", "contraction_move"]
    assert [len(s.buffers) for s in steps] == [3, 3]  # only the last step reads c
    expected = np.maximum(c.numpy() + x.numpy().astype("f8") @ y.numpy(), 0)
    assert_close(wg._addmm_activation(c, x, y), expected, 4000)


# Functions ------------------------------------------------------------------------------------------------------------


def test_activations() -> None:
    a, b, c = random_array(33, 40), random_array(40, 50), random_array(50)
    sums = 2 * c + 0.3 * (a.astype("f8") @ b)
    operands = [wg.tensor(x) for x in (c, a, b)]
    assert_close(wg._addmm_activation(*operands, beta=2, alpha=0.3), np.maximum(sums, 0), 40)
    gelu = sums * 0.5 * (1 + np.vectorize(math.erf)(sums / math.sqrt(2)))
    assert_close(wg._addmm_activation(*operands, beta=2, alpha=0.3, use_gelu=True), gelu, 40)
    for use_gelu in (False, True):
        fused_leaves = [x.detach().requires_grad_() for x in operands]
        separate_leaves = [x.detach().requires_grad_() for x in operands]
        wg._addmm_activation(*fused_leaves, use_gelu=use_gelu).sum().backward()
        (F.gelu if use_gelu else F.relu)(separate_leaves[1] @ separate_leaves[2] + separate_leaves[0]).sum().backward()
        for fused, separate in zip(fused_leaves, separate_leaves, strict=True):
            assert_close(fused.grad, separate.grad.numpy(), 50)
    with pytest.raises(GradientError):
        ops.addmm_relu(fused_leaves[0], fused_leaves[1], fused_leaves[2], 1.0, 1.0).sum().backward()


def test_functions_are_fused_where_results_stay_the_same() -> None:
    x, w, bias = wg.tensor(random_array(5, 7)), wg.tensor(random_array(6, 7)), wg.tensor(random_array(6))
    names: list[str] = []
    with wg.profiler.profile() as profiler:
        F.linear(x, w, bias)
        wg.addmm(bias, x, w.t())
        wg.baddbmm(bias, x[None], w.t()[None])
        wg.addmm(bias, x, w.t(), beta=0)  # not fused: with beta=0, NaN in the bias must not reach the result
        F.linear(x, w, bias.double())
    names = [e.key for e in profiler.key_averages()]
    assert {"linear_bias", "addmm_product", "baddbmm_product", "linear_product", "mm"} <= set(names)
    assert wg.addmm(wg.full((6,), math.nan), x, w.t(), beta=0).isfinite().all()
    assert F.linear(x, w, bias.double()).dtype is wg.float64
    integers = wg.addmm(wg.ones(5, 6, dtype=wg.int64), wg.ones(5, 2, dtype=wg.int64), wg.ones(2, 6, dtype=wg.int64))
    assert integers.dtype is wg.int64
    assert integers.eq(3).all()
    with pytest.raises(ShapeError):
        wg.addmm(bias, x, w)


def test_gradients() -> None:
    def leaf(*shape: int) -> Any:
        return wg.tensor(random_array(*shape, dtype="float64"), requires_grad=True)

    x, w, bias = leaf(5, 7), leaf(6, 7), leaf(6)
    weights = wg.tensor(random_array(5, 6, dtype="float64"))
    (F.linear(x, w, bias) * weights).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), weights.numpy() @ w.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(w.grad.numpy(), weights.numpy().T @ x.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(bias.grad.numpy(), weights.numpy().sum(0), rtol=1e-12)
    assert bias.grad.shape == (6,)
    c, a, b = leaf(5, 1), leaf(5, 7), leaf(7, 6)
    (wg.addmm(c, a, b, beta=3, alpha=-0.5) * weights).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), -0.5 * weights.numpy() @ b.detach().numpy().T, rtol=1e-12)
    np.testing.assert_allclose(b.grad.numpy(), -0.5 * a.detach().numpy().T @ weights.numpy(), rtol=1e-12)
    np.testing.assert_allclose(c.grad.numpy(), 3 * weights.numpy().sum(1, keepdims=True), rtol=1e-12)
    inputs = (leaf(2, 1, 3), leaf(2, 4, 5), leaf(2, 5, 3))
    assert wg.autograd.gradgradcheck(lambda c, a, b: wg.baddbmm(c, a, b, beta=2, alpha=0.5), inputs)
    assert wg.autograd.gradcheck(lambda c, a, v: wg.addmv(c, a, v, beta=2, alpha=0.5), (leaf(1), leaf(4, 5), leaf(5)))
