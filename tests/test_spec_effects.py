"""Check that a spec field without effect is an error that names file, line, field, op and remedy."""

import json

import pytest

from weftgrad.codegen.effects import effect_errors
from weftgrad.codegen.generate import load_files, own_specs
from weftgrad.codegen.loader import load_text
from weftgrad.codegen.model import SpecErrors


def spec(**fields) -> str:
    """Return a pointwise op as YAML with `fields` replaced, or removed if None."""
    entry = {"op": "probe(input)", "kind": "pointwise", "dtypes": "float", "out": "exp(input)", **fields}
    return "- " + json.dumps({k: v for k, v in entry.items() if v is not None}) + "\n"


def errors_of(text: str) -> list[str]:
    with pytest.raises(SpecErrors) as error_info:
        load_text(text, "my.yaml", trust=True)
    return [str(e) for e in error_info.value.errors]


ROWWISE = {"op": "probe(input, dim: int)", "kind": "rowwise", "out": "input - max(input)"}
CUSTOM = {"kind": "custom", "plan": "pad", "dtypes": "all"}
VIEW = {"op": "probe(input)", "kind": "view", "view": "alias", "out": None, "dtypes": None}
SORT = {"op": "probe(input, dim: int, descending: bool)", "kind": "sort", "sort": "order", "out": None}
INDEX = {"op": "probe(input, index: Index, dim: int)", "kind": "index", "index": "gather", "out": None}
RANDOM = {"op": "probe(input, key: Seed, offset: Seed)", "kind": "random", "out": "input * uniform(0)"}
FORMULA = {"grad": {"input": "grad"}}
COMPOSITE = {"kind": "composite", "out": "exp(input)", "dtypes": None}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"namespace": "fft"}, "namespace: unknown namespace 'fft' (known: torch, nn.functional, special, hidden)"),
        ({"namespace": "nn.functional", "method": True},
         "method: probe: a function of the namespace nn.functional has no method"),
        ({"namespace": "hidden", "method": True}, "method: probe: a function of the namespace hidden has no method"),
        ({"op": "probe(k: Scalar, input)", "out": "k * input", "method": True},
         "method: probe: a method's first parameter is the tensor itself"),
        ({"namespace": "hidden", "alias": "other"}, "nobody can call 'other'"),
        ({"public_name": "other"}, "public_name: probe: users call it by its own name"),
        ({"alias": []}, "alias: probe: an empty list (leave `alias` out"),
        ({"operator": "+"}, "operator: probe: '+' is called with 2 operands, the first one a tensor"),
        ({"op": "probe(k: Scalar, input)", "out": "k * input", "operator": "*"}, "the first one a tensor"),
        ({"op": "probe(a, b)", "out": "a + b", "operator": "neg"}, "operator: probe: 'neg' is called with one operand"),
        ({"product": {"opp": ["input"]}}, "product.opp: probe: unknown part 'opp' (known: op, grad)"),
        (ROWWISE | {"save": ["total"]}, "save: probe: 'total' is no value of this op (known: out)"),
        (ROWWISE | {"let": {"total": "sum(input)"}}, "let.total: probe: 'total' is used nowhere"),
        (ROWWISE | {"order": 1}, "order: probe: only derived ops have an order"),
        (COMPOSITE | {"let": {"total": "exp(input)"}}, "let.total: probe: 'total' is used nowhere"),
        ({"let": {"total": "exp(input)"}}, "let.total: probe: 'total' is used nowhere"),
        ({"grad": {}}, "grad: probe: an empty mapping (leave `grad` out"),
        ({"sample": {}}, "sample: probe: an empty mapping"),
        ({"autocast": {}}, "autocast: probe: an empty mapping"),
        (ROWWISE | {"save": []}, "save: probe: an empty list"),
        ({"doc": " "}, "doc: probe: no text"),
        ({"doc": "Raise e.\n\nArgs:\n    x: A number."}, "would have the section 'Args:' twice"),
        (COMPOSITE | {"dtypes": "float"}, "dtypes: probe: nothing reads 'float' of an op of kind composite"),
        (COMPOSITE | {"result": "float"}, "result: probe: nothing reads 'float' of an op of kind composite"),
        (COMPOSITE | {"grad": "none"}, "grad: probe: nothing reads 'none' of an op of kind composite"),
        (VIEW | {"dtypes": "float"}, "dtypes: probe: nothing reads 'float' of an op of kind view"),
        (VIEW | {"result": "bool"}, "result: probe: nothing reads 'bool' of an op of kind view"),
        (VIEW | {"grad": "none"}, "grad: probe: nothing reads 'none' of an op of kind view"),
        (SORT | {"result": "bool"}, "result: probe: nothing reads 'bool' of an op of kind sort (leave `result` out"),
        (SORT | FORMULA, "kind sort (the gradient cannot be a formula: leave `grad` out, or write grad: none)"),
        (INDEX | {"result": "bool"}, "result: probe: nothing reads 'bool' of an op of kind index"),
        (INDEX | FORMULA, "of an op of kind index (the gradient cannot be a formula"),
        (RANDOM | FORMULA, "of an op of kind random (leave `grad` out, and it is derived, or write grad: none)"),
        (CUSTOM | FORMULA | {"out": None, "template": "pad"}, "(name a module with the gradients in `rules`"),
        (CUSTOM | {"out": None, "sources": {"opncl": "kernel"}},
         "sources: probe: no device runs kernels in 'opncl' (known: opencl, triton)"),
        (CUSTOM | {"out": {"out": "vlaue"}, "template": "pad"},
         "out: probe: unknown role 'vlaue' of out (known: value, kept)"),
    ],
)  # fmt: skip
def test_a_field_without_effect_is_an_error(fields: dict[str, object], message: str) -> None:
    errors = errors_of(spec(**fields))
    assert len(errors) == 1
    assert errors[0].startswith("my.yaml:1: ")
    assert message in errors[0]
    assert errors[0].endswith(")"), "no remedy"


@pytest.mark.parametrize(
    "fields",
    [
        {"method": True, "alias": ["other"]},
        {"method": False, "namespace": "nn.functional"},
        {"operator": "neg"},
        {"op": "probe(a, b)", "out": "a + b", "operator": "+"},
        ROWWISE | {"let": {"total": "sum(input)"}, "out": "input - total", "save": ["total"]},
        COMPOSITE | {"let": {"e": "exp(input)"}, "out": "neg(e)"},
        VIEW,
        SORT | {"grad": "none"},
        INDEX | {"grad": "none"},
        RANDOM | {"grad": "none"},
        {"doc": "Arguments: none but the input."},
    ],
)
def test_fields_with_an_effect_load(fields: dict[str, object]) -> None:
    assert [op.name for op in load_text(spec(**fields), "my.yaml")] == ["probe"]


OPERATOR_ERROR = "my.yaml:2: operator: '+' is defined already in line 1 (let one of first and second have it)"


def test_two_ops_of_one_operator_are_an_error() -> None:
    first = spec(op="first(a, b)", out="a + b", operator="+")
    second = spec(op="second(a, b)", out="a - b", operator="+")
    assert errors_of(first + second) == [OPERATOR_ERROR]


def test_an_alias_written_twice_is_an_error() -> None:
    assert errors_of(spec(alias=["a", "a"])) == ["my.yaml:1: alias: 'a' is defined already in line 1 (write it once)"]


def test_an_operator_may_have_the_name_of_an_op() -> None:
    assert load_text(spec(op="neg(input)", out="-input", operator="neg"), "my.yaml")[0].operator == "neg"


def test_every_field_of_the_projects_specs_has_an_effect() -> None:
    ops = load_files(own_specs(), trust=True)
    assert len(ops) > 250
    assert not [error for op in ops for error in effect_errors(op, op.spec)]
