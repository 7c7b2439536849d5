"""Register a kind of op from outside the package: one file has its fields, checks, text, derivative and planner."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from weftgrad.codegen.kind_modules import kind_module, kind_names, register_kind
from weftgrad.codegen.loader import KIND_FIELDS, REQUIRED, load_text
from weftgrad.codegen.model import KINDS, SpecErrors
from weftgrad.runtime.planners import register_planner

KIND = '''
"""A kind of op: a polynomial of each element, by its coefficients. Its gradient is a polynomial, too."""

import sys

from weftgrad.codegen.kind_modules import register_kind
from weftgrad.codegen.kinds import Derived, pointwise
from weftgrad.codegen.model import SpecError
from weftgrad.codegen.loader import op_from_mapping
from weftgrad.runtime.kinds import pointwise as pointwise_plans
from weftgrad.runtime.planners import register_planner

FIELDS = {"coefficients": ((list,), "the coefficients, the constant one first")}
REQUIRED = ("coefficients",)
DEFAULT_DTYPES = "float"


def check(op):
    if not all(type(c) in (int, float) for c in op.fields["coefficients"]):
        raise SpecError("a list of numbers", field="coefficients")
    if [p.is_tensor for p in op.params] != [True]:
        raise SpecError("a polynomial has one operand", field="op")


def expression(op):
    """Return the polynomial by Horner's rule."""
    text = "0"
    for coefficient in reversed(op.fields["coefficients"]):
        text = f"({text}) * {op.params[0].name} + ({coefficient!r})"
    return text


def render(op, environment):
    name = op.params[0].name
    entry = {"op": f"{op.name}({name})", "kind": "pointwise", "dtypes": op.dtypes, "out": expression(op),
             "unused": True}
    return pointwise.render(op_from_mapping(entry), environment)


def derive(op):
    name = op.params[0].name
    slopes = [k * c for k, c in enumerate(op.fields["coefficients"])][1:] or [0]
    text = "0"
    for slope in reversed(slopes):
        text = f"({text}) * {name} + ({slope!r})"
    spec = {"op": f"{op.name}_grad(grad, {name})", "kind": "pointwise", "dtypes": op.dtypes, "unused": True,
            "out": f"grad * ({text})"}
    return {name: Derived(("grad", name), spec)}


register_kind(sys.modules[__name__])
register_planner(__name__, pointwise_plans.plan)
'''
SPEC = """
- op: cubic(input)
  kind: polynomial
  doc: 1 + 2 x + x**3
  coefficients: [1, 2, 0, 1]
"""
PROGRAM = """
import polynomial
import weftgrad as wg

cubic = wg.ops.load(sys.argv[1]).cubic
x = wg.tensor([0.0, 1.0, 2.0], device="cpu", requires_grad=True)
y = cubic(x)
assert y.tolist() == [1, 4, 13], y.tolist()
(gradient,) = wg.autograd.grad(y.sum(), x, create_graph=True)
assert gradient.tolist() == [2, 5, 14], gradient.tolist()
(second,) = wg.autograd.grad(gradient.sum(), x)
assert second.tolist() == [0, 6, 12], second.tolist()
from weftgrad import cli
assert cli.main(["show", sys.argv[1]]) == 0
try:
    wg.ops.load(sys.argv[2])
except ValueError as error:
    assert "coefficients: a list of numbers" in str(error), error
else:
    raise AssertionError("the kind's check was not called")
print("done")
"""


def test_one_file_adds_a_kind(tmp_path: Path) -> None:
    (tmp_path / "polynomial.py").write_text(KIND, encoding="utf-8")
    spec, wrong = tmp_path / "spec.yaml", tmp_path / "wrong.yaml"
    spec.write_text(SPEC, encoding="utf-8")
    wrong.write_text(SPEC.replace("[1, 2, 0, 1]", "[polynomial]"), encoding="utf-8")
    process = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROGRAM}", str(spec), str(wrong)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    *page, last = process.stdout.strip().splitlines() or [""]
    assert last == "done", process.stderr[-3000:]
    assert "kind        polynomial: registered from outside the package" in "\n".join(page)


def test_a_kind_lacks_no_part_and_has_its_own_name() -> None:
    with pytest.raises(ValueError, match="has no FIELDS, REQUIRED, check, render, derive"):
        register_kind(ModuleType("empty"))
    with pytest.raises(ValueError, match="'scan' exists already"):
        register_kind(kind_module("scan"))
    with pytest.raises(ValueError, match="'scan' has a planner already"):
        register_planner("scan", lambda request: request)
    assert kind_names()[: len(KINDS)] == KINDS  # other modules of tests may have registered more


def test_every_kind_of_the_package_declares_its_fields() -> None:
    assert tuple(KIND_FIELDS) == tuple(REQUIRED) == KINDS
    for kind in KINDS:
        assert set(REQUIRED[kind]) <= set(KIND_FIELDS[kind])


def test_an_unregistered_kind_is_an_error() -> None:
    with pytest.raises(SpecErrors, match="unknown kind 'polynomial'"):
        load_text(SPEC, "my.yaml")
