"""Docstrings that are completed at import: each parameter has a row, and the sections stand in the usual order."""

from __future__ import annotations

import doctest
import inspect
from contextlib import contextmanager

import pytest

import weftgrad as wg
from weftgrad.arguments.descriptions import OPTIONS, Docstring, describe
from weftgrad.creation import legacy_constructors

MODULES = (
    wg, wg.random, wg.serialization, wg.cuda, wg.cpu, wg.accelerator, wg.compiler, wg.func, wg.linalg, wg.special,
)  # fmt: skip
FUNCTIONS = {
    f"{module.__name__}.{name}": value
    for module in MODULES
    for name in module.__all__
    if inspect.isfunction(value := getattr(module, name))
    and not value.__module__.startswith(("weftgrad._generated", "weftgrad.layer_functions"))
}
METHODS = {
    f"Tensor.{name}": value
    for name, value in vars(wg.Tensor).items()
    if inspect.isfunction(value) and value.__module__.startswith("weftgrad.tensor_methods") and name[0] != "_"
}
IN_PLACE = {name: value for name, value in METHODS.items() if value.__module__ == "weftgrad.tensor_methods.in_place"}


def parameters_of(function) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def described_names(function) -> list[str]:
    _, *rows = Docstring(inspect.getdoc(function)).sections.get("Args", "").splitlines() or [""]
    return [row.strip().partition(":")[0].lstrip("*") for row in rows if row[4] != " "]


@pytest.mark.parametrize("name", sorted(FUNCTIONS | METHODS))
def test_every_parameter_has_a_row_and_results_and_examples_are_there(name):
    function = (FUNCTIONS | METHODS)[name]
    assert sorted(described_names(function)) == sorted(parameters_of(function))
    sections = Docstring(inspect.getdoc(function)).sections
    returns_nothing = inspect.signature(function).return_annotation in (None, "None")
    assert returns_nothing or "Returns" in sections
    assert "Example" in sections


@pytest.mark.parametrize("name", sorted(IN_PLACE))
def test_examples_of_in_place_forms_print_what_they_say(name):
    """Modules' doctests do not find these methods, which are made when the package is imported."""
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    text = inspect.getdoc(IN_PLACE[name])
    runner.run(doctest.DocTestParser().get_doctest(text, {"wg": wg}, name, None, None))
    assert f".{IN_PLACE[name].__name__}(" in text.partition("Example:")[2]
    assert runner.tries == 1
    assert not runner.failures


@pytest.mark.parametrize("name", [name for name in wg.nn.__all__ if name.startswith("Lazy")])
def test_lazy_layers_describe_their_parameters(name):
    """Their rows are copied from the layer that they become, which is described in full."""
    layer = getattr(wg.nn, name)
    assert sorted(described_names(layer)) == sorted(parameters_of(layer))
    assert list(Docstring(inspect.getdoc(layer)).sections) == ["Args", "Example"]


def test_rows_and_sections_are_added():
    @describe(OPTIONS, returns="Nothing.", raises="ShapeError: First.")
    def create(*size, out=None, strict, dtype=None, **named):
        """Create it.

        It is created.

        Args:
            strict: Whether to be strict,
                as a second line says.
            dtype: Its dtype.

        Raises:
            DTypeError: Second.

        Example:
            >>> create()

            >>> create(2)
        """

    expected = """Create it.

It is created.

Args:
    strict: Whether to be strict,
        as a second line says.
    dtype: Its dtype.
    *size: The shape, as ints or as one sequence.
    out: Tensor of the result's shape to write it to; one without elements is resized.
    **named: `size=`: the shape, as a sequence.

Returns:
    Nothing.

Raises:
    ShapeError: First.
    DTypeError: Second.

Example:
    >>> create()

    >>> create(2)
"""
    assert inspect.getdoc(create) == expected.rstrip()
    without_indent = Docstring(expected)  # as Python 3.13 has docstrings
    without_indent.add_row("Args", "last: Two\nlines.")
    without_indent.remove_row("Args", "strict")
    assert "Args:\n    dtype: Its dtype." in str(without_indent)
    assert "a sequence.\n    last: Two\n        lines.\n\nReturns:" in str(without_indent)


@pytest.mark.parametrize("name", [name for name in legacy_constructors.__all__ if name[0].isupper()])
def test_legacy_classes_share_sections(name):
    docstring = Docstring(inspect.getdoc(getattr(wg, name)))
    assert docstring.summary.endswith(" tensor on the host.")
    assert set(docstring.sections) == {"Args", "Raises", "Example"}
    assert f">>> wg.{name}([" in docstring.sections["Example"]


def test_functions_without_docstrings_stay_so():
    def undocumented(out): ...

    assert describe(OPTIONS)(undocumented).__doc__ is None


def test_context_managers_are_described_by_their_own_parameters():
    @describe({"device": "A device."})
    @contextmanager
    def use(device):
        """Use it.

        Returns:
            Context manager.
        """
        yield

    assert described_names(use) == ["device"]
