"""Check specs of contractions: errors of equations and operands, and gradients, which are contractions."""

from __future__ import annotations

import numpy as np
import pytest
from contraction_records import LINEAR, MATMUL, fetch, make_op, record_for, tensor

from weftgrad.codegen.kinds import contraction as kind
from weftgrad.codegen.model import SpecError
from weftgrad.runtime import dispatch


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("mk,kn", "no equation"),
        ("mk->m", "1 operands"),
        ("a,b,c->abc", "3 operands"),
        ("mm,mn->n", "stands twice"),
        ("mk,kn->mnx", "'x' of the result"),
        ("mkj,kn->mn", "'j' in .* is in one operand only"),
        ("...mk,kn->mn", r"'\.\.\.' in .* is in one operand only"),
        ("m...k,kn->mn", "in front of the letters"),
        ("mk,kn->...mn", r"'\.\.\.' of the result"),
        ("m1,1n->mn", "is no letter"),
    ],
)
def test_wrong_equations_are_named(equation: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        kind.check(make_op(equation))
    assert caught.value.field == "out"
    assert str(caught.value).startswith("mix.yaml:3: out: ")


def test_wrong_operands_are_named() -> None:
    with pytest.raises(SpecError, match=r"takes two tensors, not \(a\)"):
        kind.check(make_op(MATMUL, "a"))
    with pytest.raises(SpecError, match="follows from its equation"):
        kind.check(make_op(MATMUL, grad={"input": "grad"}))
    with pytest.raises(SpecError, match="one result, not 2"):
        kind.check(make_op({"a": MATMUL, "b": MATMUL}))


def test_gradients_are_contractions_to_any_order() -> None:
    derived = kind.derive(make_op(MATMUL))
    assert derived["input"].operands == ("grad", "other")
    assert derived["input"].spec is not None
    assert derived["input"].spec["op"] == "mix_grad_input(grad, other)"
    assert derived["input"].spec["out"] == "...mn,...kn->...mk"
    assert derived["other"].spec is not None
    assert derived["other"].spec["out"] == "...mn,...mk->...kn"
    second = make_op(derived["input"].spec["out"], "grad", "other")
    kind.check(second)
    second_derived = kind.derive(second)
    assert second_derived["grad"].operands == ("grad2", "other")
    assert second_derived["other"].spec is not None
    assert second_derived["other"].spec["out"] == "...mk,...mn->...kn"
    assert kind.derive(make_op(MATMUL, grad="none")) == {}


@pytest.mark.parametrize("equation", [MATMUL, LINEAR, "i,i->", "mk,k->m", "i,j->ij", "bi,bi->b"])
def test_derived_equations_give_the_gradient(equation: str) -> None:
    rng = np.random.default_rng(0)
    sizes = {"m": 3, "k": 4, "n": 5, "b": 2, "i": 6, "j": 7}
    first, second, _ = kind.terms(make_op(equation))
    shapes = [(2,) * t.startswith("...") + tuple(sizes[x] for x in t.removeprefix("...")) for t in (first, second)]
    a, b = (rng.standard_normal(s).astype(np.float32) for s in shapes)
    grad = np.asarray(rng.standard_normal(np.einsum(equation, a, b).shape), np.float32)
    values = {"input": a, "other": b, "grad": grad}
    for name, derived in kind.derive(make_op(equation)).items():
        assert derived.spec is not None
        actual = fetch(dispatch.call(record_for(derived.spec["out"]), [tensor(values[x]) for x in derived.operands]))
        direction = rng.standard_normal(values[name].shape)
        tangents = {**values, name: direction}
        slope = float((np.einsum(equation, tangents["input"], tangents["other"]) * grad).sum())
        np.testing.assert_allclose((actual * direction).sum(), slope, rtol=1e-4, atol=1e-4)
