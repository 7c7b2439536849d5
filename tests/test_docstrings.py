"""Docstrings of generated functions: sections agree with signatures, and statements with what calls return."""

from __future__ import annotations

import inspect

import pytest

import weftgrad as wg
from weftgrad._generated import ops as generated
from weftgrad.runtime.errors import GradientError, UnsupportedDType

PUBLIC = sorted(n for n, (_, namespace, _) in generated.FUNCTIONS.items() if namespace != "hidden")


def _argument_names(function) -> list[str]:
    section = inspect.getdoc(function).partition("\nArgs:\n")[2].partition("\n\n")[0]
    rows = [line for line in section.splitlines() if line.startswith("    ") and line[4] != " "]
    return [row.strip().partition(":")[0] for row in rows]


@pytest.mark.parametrize("name", PUBLIC)
def test_args_name_each_parameter(name):
    function = generated.FUNCTIONS[name][0]
    assert sorted(_argument_names(function)) == sorted(inspect.signature(function).parameters)
    assert "\nReturns:\n" in inspect.getdoc(function)
    assert max(map(len, inspect.getdoc(function).splitlines())) <= 180


@pytest.mark.parametrize(
    ("name", "shape", "operands"),
    [("mm", "(..., m, n)", [(5, 2, 3), (3, 4)]), ("mv", "(m,)", [(2, 3), (3,)]), ("outer", "(m, n)", [(2,), (3,)])],
)
def test_shapes_of_contractions(name, shape, operands):
    function = generated.FUNCTIONS[name][0]
    assert f"Tensor of shape {shape};" in inspect.getdoc(function)
    result = function(*(wg.ones(s) for s in operands))
    batch = 1 if "..." in shape else 0
    assert result.ndim == shape.count("m") + shape.count("n") + batch


def test_dtypes_of_results():
    assert "any dtype" in inspect.getdoc(generated.sqrt)
    assert wg.sqrt(wg.tensor([4])).dtype == wg.float32
    assert "int64 if that is an integer or bool" in inspect.getdoc(generated.sum)
    assert wg.tensor([True, True]).sum().dtype == wg.int64
    assert "UnsupportedDType" in inspect.getdoc(generated.softmax)
    with pytest.raises(UnsupportedDType):
        generated.softmax(wg.tensor([1, 2]), 0)


def test_leaf_in_place():
    assert "GradientError" in inspect.getdoc(generated.relu_)
    with pytest.raises(GradientError):
        wg.ones(2, requires_grad=True).relu_()
