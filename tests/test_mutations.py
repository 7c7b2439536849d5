"""Mutation tests: check that the op suite notices wrong formulas.

Each mutant changes one sign, constant or operand of a formula. It goes through the generator as any spec does, and then
through the checks of every op: values against the reference, gradients against finite differences. One of the two must
fail.
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

_SWAPPED_OPERATORS: dict[type, type] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
# Prefixes of mutants that are equivalent: the two branches of lerp differ in rounding only, so its condition is free.
EQUIVALENT = {"lerp": ("where(abs(weight) < 0.55,", "where(abs(input) < 0.5,", "where(abs(end) < 0.5,")}


def mutants(text: str, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (description, formula) for each change of an operator, a constant or an operand in `text`."""
    count = sum(1 for _ in ast.walk(ast.parse(text, mode="eval")))
    for position in range(count):
        tree = ast.parse(text, mode="eval")
        node = list(ast.walk(tree))[position]
        if isinstance(node, ast.BinOp) and type(node.op) in _SWAPPED_OPERATORS:
            original = type(node.op).__name__
            node.op = _SWAPPED_OPERATORS[type(node.op)]()
            yield f"{original} becomes {type(node.op).__name__}", ast.unparse(tree)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            node.op = ast.UAdd()
            yield "a minus is dropped", ast.unparse(tree).replace("+", " + 0 + ", 1)
        elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            original, node.value = node.value, round(node.value * 1.1, 12) if node.value else 1
            yield f"{original} becomes {node.value}", ast.unparse(tree)
        elif isinstance(node, ast.Name) and node.id in names:
            other_names = [n for n in names if n != node.id]
            if other_names:
                original, node.id = node.id, other_names[0]
                yield f"{original} becomes {node.id}", ast.unparse(tree)


def formulas(entry: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (path, text) of every formula of a spec."""
    for path in (("out",), ("grad", "input"), ("reduce", "map"), ("reduce", "combine"), ("reduce", "finish")):
        value: Any = entry
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, str):
            yield path, value


def mutant_specs(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (description, spec) for every mutant of an op."""
    op = specs()[name]
    for path, text in formulas(dict(op.spec)):
        names = {"combine": ["a", "b"], "finish": ["acc", "n"], "map": []}.get(path[-1], [p.name for p in op.operands])
        for description, mutated in mutants(text, names):
            entry = copy.deepcopy(dict(op.spec))
            parent = entry
            for key in path[:-1]:
                parent = parent[key]
            parent[path[-1]] = mutated
            if not mutated.startswith(EQUIVALENT.get(name, ())):
                yield f"{'.'.join(path)}: {description}: {mutated}", entry


def register_spec(entry: dict[str, Any], number: int) -> Any:
    """Register a spec under a unique name, and return its record.

    The unique name keeps its derivatives apart from those of the correct op.
    """
    entry = {**entry, "op": f"mutant_{number}_{entry['op']}"}
    entry.pop("alias", None)
    generated = Generated()
    name = generated.add(op_from_mapping(entry), 2)
    register_generated(generated)
    return registry[name]


def check(name: str, record: Any, values: bool, gradients: bool) -> None:
    """Run the suite's checks of op `name` on the kernels and gradient rules of `record`."""
    op, target = specs()[name], device("cpu")

    def call(*operands: Any, statics: tuple[Any, ...] = (None,) * len(record.statics)) -> Any:
        return dispatch.call(record, operands, statics)

    if op.kind == "pointwise":
        if values:
            rng = np.random.default_rng(0)
            operand_forms = [("float32", (65,), "contiguous")] * sum(p.is_tensor for p in op.operands)
            cases.check_cases(op, [cases.make_case(op, operand_forms, rng, target, "65 elements")], target, "cpu", call)
        if gradients:
            cases.check_gradients(name, call, cases.gradient_inputs(op, "same", target), target, second=False)
        return
    statics = (1, False, None)
    array = np.random.default_rng(0).uniform(1, 2, (7, 65))
    if values:
        actual = cases.host(call(cases.tensor(array, "float64", target), statics=statics))
        reference = cases.reference_of(op)
        assert reference is not None
        cases.compare(actual, reference(array, axis=1), "float64", name)
    if gradients:
        operand = cases.tensor(array[:, :9], "float64", target, True)
        cases.check_gradients(name, lambda x: call(x, statics=statics), [operand], target, second=False)


@pytest.mark.parametrize("name", ["sigmoid", "gelu_tanh", "pow", "atan2", "lerp", "softplus", "sum", "mean"])
def test_a_wrong_formula_is_found(name: str) -> None:
    target = cases.device_of("cpu")
    records, rejected = [], 0
    for number, (description, entry) in enumerate(mutant_specs(name)):
        try:
            records.append((description, register_spec(entry, number)))
        except SpecError:  # the generator rejected it
            rejected += 1
    correct_record = register_spec(dict(specs()[name].spec), 10_000)
    assert len(records) + rejected >= 2

    def survivors(values: bool, gradients: bool, candidates: list[Any]) -> list[Any]:
        with cases.collecting(target) as steps:  # build the kernels of all mutants in a few programs
            for _, record in candidates:
                with contextlib.suppress(Exception):  # results are not computed in this pass
                    check(name, record, values, gradients)
        cases.build(target, steps)
        passing = []
        for description, record in candidates:
            try:
                check(name, record, values, gradients)
            except AssertionError:
                continue
            passing.append((description, record))
        return passing

    check(name, correct_record, True, True)
    remaining = survivors(False, True, survivors(True, False, records))
    assert [description for description, _ in remaining] == [], (
        f"{name}: {len(remaining)} of {len(records)} wrong formulas pass the suite"
    )
