"""Docstrings of generated functions: sections agree with signatures, and statements with what calls return."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import weftgrad as wg
from weftgrad._generated import ops as generated
from weftgrad.codegen.generate import own_specs
from weftgrad.codegen.loader import load_file
from weftgrad.runtime.errors import DTypeError, GradientError, UnsupportedDType

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


EXAMPLES = [name for name in PUBLIC if "\n    >>> " in inspect.getdoc(generated.FUNCTIONS[name][0])]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_specs_print_what_they_say(name):
    """Run the example of a generated function, which its spec has in the field `example`."""
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    text = inspect.getdoc(generated.FUNCTIONS[name][0])
    runner.run(doctest.DocTestParser().get_doctest(text, {"wg": wg}, name, None, None))
    assert runner.tries == 1
    assert not runner.failures


def test_every_public_op_has_an_example():
    """Aliases have none of their own. In-place forms have one that is derived from the op's."""
    ops = [op for path in own_specs() for op in load_file(path, trust=True)]
    public = {op.name for op in ops if op.namespace in ("torch", "nn.functional")}
    public |= {f"{op.name}_" for op in ops if op.inplace and op.namespace == "torch"}
    assert public <= set(EXAMPLES), sorted(public - set(EXAMPLES))


def test_in_place_forms_say_that_integers_cannot_hold_floats():
    text = inspect.getdoc(generated.exp_)
    assert "integers become floating" not in text
    assert "DTypeError: `input` is an integer or bool tensor" in text
    with pytest.raises(DTypeError):
        wg.tensor([1]).exp_()
    assert ">>> wg.tensor([1, 2, 3]).lt_(2)\n    tensor([1, 0, 0])" in inspect.getdoc(generated.lt_)
    assert ">>> wg.tensor([1.0, 2.0]).true_divide_(4)" in inspect.getdoc(generated.true_divide_)


def _modules_with_examples() -> list[str]:
    """Read the sources of users' modules without importing them, because `cli.__main__` is one."""
    modules = []
    for finder, name, _ in pkgutil.walk_packages(wg.__path__, "weftgrad.", onerror=lambda name: None):
        if name.split(".")[1] in ("_generated", "templates", "bench", "runtime", "codegen"):
            continue
        spec = finder.find_spec(name)
        if spec and spec.origin and re.search(r"\n {8,}>>> ", Path(spec.origin).read_text(encoding="utf-8")):
            modules.append(name)
    return modules


@pytest.mark.parametrize("name", _modules_with_examples())
def test_examples_print_what_they_say(name, tmp_path, monkeypatch):
    """Run the `>>>` examples of a module's docstrings, in the namespace of a reader who imported weftgrad."""
    monkeypatch.chdir(tmp_path)  # examples write files
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, name, extraglobs={"wg": wg}):
        runner.run(example)
    assert not runner.failures
    assert runner.tries
