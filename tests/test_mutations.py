"""Does the suite notice a wrong formula? Signs, constants and operands of formulas are changed, one at a time.

A mutant goes through the generator as any spec does, and through the same checks as every op: values against the
reference, derivatives against differences. Each has to be found by one of the two.
"""

from __future__ import annotations

import ast
import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import op_cases as cases
import pytest
from op_cases import specs

from weftgrad.codegen.loader import op_from_mapping
from weftgrad.codegen.model import SpecError
from weftgrad.codegen.render import Generated
from weftgrad.runtime import dispatch
from weftgrad.runtime.derive import register_generated
from weftgrad.runtime.device import device
from weftgrad.runtime.records import registry

_SWAPPED: dict[type, type] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
# Changes that change nothing: the two formulas of lerp are one formula, rounded differently. Beginnings of formulas.
EQUIVALENT = {"lerp": ("where(abs(weight) < 0.55,", "where(abs(input) < 0.5,", "where(abs(end) < 0.5,")}


def mutants(text: str, names: list[str]) -> Iterator[tuple[str, str]]:
    """(what was changed, the formula) for each operator, constant and operand in `text`."""
    count = sum(1 for _ in ast.walk(ast.parse(text, mode="eval")))
    for position in range(count):
        tree = ast.parse(text, mode="eval")
        node = list(ast.walk(tree))[position]
        if isinstance(node, ast.BinOp) and type(node.op) in _SWAPPED:
            before = type(node.op).__name__
            node.op = _SWAPPED[type(node.op)]()
            yield f"{before} becomes {type(node.op).__name__}", ast.unparse(tree)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            node.op = ast.UAdd()
            yield "a minus is dropped", ast.unparse(tree).replace("+", " + 0 + ", 1)
        elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            before, node.value = node.value, round(node.value * 1.1, 12) if node.value else 1
            yield f"{before} becomes {node.value}", ast.unparse(tree)
        elif isinstance(node, ast.Name) and node.id in names:
            others = [n for n in names if n != node.id]
            if others:
                before, node.id = node.id, others[0]
                yield f"{before} becomes {node.id}", ast.unparse(tree)


def formulas(entry: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """(path, text) of every formula of a spec."""
    for path in (("out",), ("grad", "input"), ("reduce", "map"), ("reduce", "combine"), ("reduce", "finish")):
        here: Any = entry
        for key in path:
            here = here.get(key) if isinstance(here, dict) else None
        if isinstance(here, str):
            yield path, here


def changed(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every mutant of an op: what was changed, and the spec."""
    op = specs()[name]
    for path, text in formulas(dict(op.spec)):
        names = {"combine": ["a", "b"], "finish": ["acc", "n"], "map": []}.get(path[-1], [p.name for p in op.operands])
        for what, mutated in mutants(text, names):
            entry = copy.deepcopy(dict(op.spec))
            here = entry
            for key in path[:-1]:
                here = here[key]
            here[path[-1]] = mutated
            if not mutated.startswith(EQUIVALENT.get(name, ())):
                yield f"{'.'.join(path)}: {what}: {mutated}", entry


def registered(entry: dict[str, Any], number: int) -> Any:
    """The record of a spec, under a name of its own: its derivatives must not find those of the right op."""
    entry = {**entry, "op": f"mutant_{number}_{entry['op']}"}
    entry.pop("alias", None)
    made = Generated()
    name = made.add(op_from_mapping(entry), 2)
    register_generated(made)
    return registry[name]


def check(name: str, record: Any, values: bool, slopes: bool) -> None:
    """The checks of the suite, for an op whose kernels and rules are those of `record`."""
    op, place = specs()[name], device("cpu")

    def call(*operands: Any, statics: tuple[Any, ...] = (None,) * len(record.statics)) -> Any:
        return dispatch.call(record, operands, statics)

    if op.kind == "pointwise":
        if values:
            rng = np.random.default_rng(0)
            given = [("float32", (65,), "contiguous")] * sum(p.is_tensor for p in op.operands)
            cases.check_cases(op, [cases.make_case(op, given, rng, place, "65 elements")], place, "cpu", call)
        if slopes:
            cases.check_gradients(name, call, cases.gradient_inputs(op, "alike", place), place, second=False)
        return
    statics = (1, False, None)
    array = np.random.default_rng(0).uniform(1, 2, (7, 65))
    if values:
        found = cases.host(call(cases.tensor(array, "float64", place), statics=statics))
        reference = cases.reference_of(op)
        assert reference is not None
        cases.compare(found, reference(array, axis=1), "float64", name)
    if slopes:
        operand = cases.tensor(array[:, :9], "float64", place, True)
        cases.check_gradients(name, lambda x: call(x, statics=statics), [operand], place, second=False)


@pytest.mark.parametrize("name", ["sigmoid", "gelu_tanh", "pow", "atan2", "lerp", "softplus", "sum", "mean"])
def test_a_wrong_formula_is_found(name: str) -> None:
    place = cases.device_of("cpu")
    records, refused = [], 0
    for number, (what, entry) in enumerate(changed(name)):
        try:
            records.append((what, registered(entry, number)))
        except SpecError:  # the generator found it
            refused += 1
    right = registered(dict(specs()[name].spec), 10_000)
    assert len(records) + refused >= 2

    def survivors(values: bool, slopes: bool, left: list[Any]) -> list[Any]:
        with cases.collecting(place) as steps:  # the kernels of all mutants, a few programs
            for _, record in left:
                with contextlib.suppress(Exception):  # of results that nothing computed
                    check(name, record, values, slopes)
        cases.build(place, steps)
        found = []
        for what, record in left:
            try:
                check(name, record, values, slopes)
            except AssertionError:
                continue
            found.append((what, record))
        return found

    check(name, right, True, True)
    left = survivors(False, True, survivors(True, False, records))
    assert [what for what, _ in left] == [], f"{name}: {len(left)} of {len(records)} wrong formulas pass the suite"
