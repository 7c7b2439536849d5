"""Epilogues of contractions: what a spec may say, values and gradients against NumPy over layouts and schedules, and
the functions that use them."""

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


def drawn(*shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(sum(shape) + len(shape)).standard_normal(shape).astype(dtype)


def laid(x: Array, turned: bool, **options: Any) -> Any:
    """A tensor of `x`, laid out along its last dimension or along the one before."""
    return wg.tensor(np.ascontiguousarray(x.swapaxes(-1, -2)), **options).transpose(-1, -2) if turned else wg.tensor(
        x, **options
    )


def near(found: Any, expected: Array, depth: int) -> None:
    """Within what a sum of `depth` products in float32 may be off."""
    assert found.shape == expected.shape
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(found.detach().cpu().numpy(), expected, rtol=0, atol=3e-7 * (depth + 8) * scale)


# What a spec may say --------------------------------------------------------------------------------------------------


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
def test_what_is_wrong_is_told(signature: str, epilogue: str, message: str) -> None:
    with pytest.raises(SpecErrors, match=message):
        load_text(ENTRY.format(signature, '"mk,kn->mn"', epilogue), "mine.yaml")


def test_gradients_are_entries_again() -> None:
    (op,) = load_text(ENTRY.format("f(c, a, b, beta: float)", '"mk,kn->mn"', "beta * (c - 3 * acc)"), "mine.yaml")
    assert [p.name for p in kind.factors(op)] == ["a", "b"]
    assert kind.letters(op) == {"c": "mn", "a": "mk", "b": "kn"}
    found = kind.derive(op)
    assert found["a"].operands == ("grad", "b", "beta")
    assert found["a"].spec is not None
    assert found["a"].spec["out"] == "mn,kn->mk"
    assert found["c"].spec is not None
    assert found["c"].spec["kind"] == "pointwise"
    (plain,) = load_text(ENTRY.format("f(a, b, bias)", '"mk,kn->mn"', "acc + bias"), "mine.yaml")
    found = kind.derive(plain)
    assert found["bias"].spec is None  # the incoming gradient itself
    assert "epilogue" not in (found["a"].spec or {})


# Values ---------------------------------------------------------------------------------------------------------------

# Around the borders of register tiles, of panels, of blocks of k, of what is packed and of what is summed in parts.
SIZES = [
    (7, 129, 65, False, False), (66, 20, 10, True, True), (8, 70, 50, False, True), (40, 2100, 33, True, False),
    (200, 340, 290, True, True), (300, 90, 1, False, False), (1, 40, 33, False, False), (4, 0, 3, False, False),
]  # fmt: skip


@pytest.mark.parametrize(("m", "k", "n", "first", "second"), SIZES)
def test_sizes_and_layouts(m: int, k: int, n: int, first: bool, second: bool) -> None:
    a, b, whole = drawn(m, k), drawn(k, n), drawn(m, n)
    product = a.astype("f8") @ b
    x, y = laid(a, first), laid(b, second)
    for c in (whole, whole[0], whole[:, :1] if m > 7 else whole[0, 0]):
        near(ops.addmm_product(wg.tensor(c), x, y, 0.5, -2.0), 0.5 * c - 2 * product, k)
    if k == 129:
        near(ops.addmm_product(laid(whole, True), x, y, 0.5, -2.0), 0.5 * whole - 2 * product, k)


def test_results_in_other_layouts_and_dtypes() -> None:
    a, b, c = drawn(40, 300), drawn(300, 70), drawn(70)
    expected = a.astype("f8") @ b + c
    x, y, z = wg.tensor(a), wg.tensor(b), wg.tensor(c)
    out = wg.empty(70, 40).t()
    ops.addmm_product(z, x, y, 1.0, 1.0, out=out)
    near(out, expected, 300)
    for dtype, digits in ((wg.float16, 2e-3), (wg.bfloat16, 2e-2)):
        x, y, z = (t.to(dtype) for t in (x, y, z))
        wide = [t.double().numpy() for t in (x, y, z)]
        found = ops.addmm_product(z, x, y, 1.0, 1.0)
        assert found.dtype is dtype
        exact = wide[0] @ wide[1] + wide[2]
        np.testing.assert_allclose(found.double().numpy(), exact, rtol=digits, atol=digits)
    with pytest.raises(ShapeError, match="must broadcast to the result"):
        ops.addmm_product(wg.zeros(3, 1, 1), wg.zeros(2, 2), wg.zeros(2, 2), 1.0, 1.0)


def test_batches_and_vectors() -> None:
    a, b = drawn(3, 17, 20), drawn(3, 20, 33)
    for c in (drawn(3, 17, 33), drawn(33), drawn(3, 1, 1), drawn(17, 1)):
        near(wg.baddbmm(wg.tensor(c), wg.tensor(a), wg.tensor(b), beta=2, alpha=0.5), 2 * c + 0.5 * (a @ b), 20)
        turned = laid(a, True)
        near(wg.baddbmm(wg.tensor(c), turned, wg.tensor(b)[:, :, ::3], alpha=3)
             if c.shape[-1] == 1 else wg.baddbmm(wg.tensor(c), turned, wg.tensor(b), alpha=3),
             c + 3 * (a @ (b[:, :, ::3] if c.shape[-1] == 1 else b)), 20)  # fmt: skip
    v = drawn(20)
    near(wg.addmv(wg.tensor(drawn(17)), wg.tensor(a[0]), wg.tensor(v), beta=-1), a[0] @ v - drawn(17), 20)
    near(wg.addmv(wg.tensor(2.0), wg.tensor(a[0]), wg.tensor(v)), a[0] @ v + 2, 20)


def test_schedules_of_gpus() -> None:
    code = f"""
    import sys
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    import test_epilogues as t
    for m, k, n in ((20, 33, 40), (5, 3000, 6)):
        a, b, c = t.drawn(m, k), t.drawn(k, n), t.drawn(n)
        found = t.ops.addmm_relu(*map(t.wg.tensor, (c, a, b)), 1.0, 0.5)
        t.near(found, t.np.maximum(c + 0.5 * (a.astype("f8") @ b), 0), k)
    """
    environment = {**os.environ, "WEFTGRAD_CAPABILITIES": "style=gpu,lanes=4,max_group=64,optimize=0"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_parts_of_a_sum_go_through_it_once() -> None:
    x, y, c = wg.tensor(drawn(9, 40000)), wg.tensor(drawn(40000, 20)), wg.tensor(drawn(20))
    steps = plan_for(registry["addmm_relu"], (c, x, y, 1.0, 1.0)).steps
    assert [s.instance.entry for s in steps] == ["contraction_gemm", "contraction_move"]
    assert [len(s.buffers) for s in steps] == [3, 3]  # the last reads c, the product does not
    expected = np.maximum(c.numpy() + x.numpy().astype("f8") @ y.numpy(), 0)
    near(wg._addmm_activation(c, x, y), expected, 4000)


# Functions ------------------------------------------------------------------------------------------------------------


def test_activations() -> None:
    a, b, c = drawn(33, 40), drawn(40, 50), drawn(50)
    sums = 2 * c + 0.3 * (a.astype("f8") @ b)
    given = [wg.tensor(x) for x in (c, a, b)]
    near(wg._addmm_activation(*given, beta=2, alpha=0.3), np.maximum(sums, 0), 40)
    gelu = sums * 0.5 * (1 + np.vectorize(math.erf)(sums / math.sqrt(2)))
    near(wg._addmm_activation(*given, beta=2, alpha=0.3, use_gelu=True), gelu, 40)
    for use_gelu in (False, True):
        wanted = [x.detach().requires_grad_() for x in given]
        other = [x.detach().requires_grad_() for x in given]
        wg._addmm_activation(*wanted, use_gelu=use_gelu).sum().backward()
        (F.gelu if use_gelu else F.relu)(other[1] @ other[2] + other[0]).sum().backward()
        for one, two in zip(wanted, other, strict=True):
            near(one.grad, two.grad.numpy(), 50)
    with pytest.raises(GradientError):
        ops.addmm_relu(wanted[0], wanted[1], wanted[2], 1.0, 1.0).sum().backward()


def test_one_kernel_where_it_changes_nothing_else() -> None:
    x, w, bias = wg.tensor(drawn(5, 7)), wg.tensor(drawn(6, 7)), wg.tensor(drawn(6))
    names: list[str] = []
    with wg.profiler.profile() as seen:
        F.linear(x, w, bias)
        wg.addmm(bias, x, w.t())
        wg.baddbmm(bias, x[None], w.t()[None])
        wg.addmm(bias, x, w.t(), beta=0)  # NaN in the bias would not count
        F.linear(x, w, bias.double())
    names = [e.key for e in seen.key_averages()]
    assert {"linear_bias", "addmm_product", "baddbmm_product", "linear_product", "mm"} <= set(names)
    assert wg.addmm(wg.full((6,), math.nan), x, w.t(), beta=0).isfinite().all()
    assert F.linear(x, w, bias.double()).dtype is wg.float64
    whole = wg.addmm(wg.ones(5, 6, dtype=wg.int64), wg.ones(5, 2, dtype=wg.int64), wg.ones(2, 6, dtype=wg.int64))
    assert whole.dtype is wg.int64
    assert whole.eq(3).all()
    with pytest.raises(ShapeError):
        wg.addmm(bias, x, w)


def test_gradients() -> None:
    def leaf(*shape: int) -> Any:
        return wg.tensor(drawn(*shape, dtype="float64"), requires_grad=True)

    x, w, bias = leaf(5, 7), leaf(6, 7), leaf(6)
    weights = wg.tensor(drawn(5, 6, dtype="float64"))
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
