"""Check spec files: every error is reported with its line; loading in a running process; reference and schema."""

import json
import subprocess
import sys

import numpy as np
import pytest
from spec_errors import errors_of, op

import weftgrad as wg
from weftgrad.codegen import reference
from weftgrad.codegen.docstrings import docstring
from weftgrad.codegen.generate import generate, load_files, own_specs
from weftgrad.codegen.loader import COMMON, KIND_FIELDS, load_file, load_text
from weftgrad.codegen.model import KINDS, SpecErrors
from weftgrad.runtime.errors import SpecError

# Errors


def test_all_errors_of_a_file_at_once():
    messages = errors_of("""\
        - op: first(input)
          kind: pointwise
          dtypes: flaot
          out: exp(input)
        - op: second(input)
          kind: pointwise
          out: expp(input)
        - op: third(input)
          kind: pointwice
          out: input
        - op: fourth(input)
          kind: pointwise
          colour: red
          doc: 3
          out: input
        """)
    assert messages == [
        "my.yaml:3: dtypes: unknown dtypes 'flaot' (did you mean 'float'?)",
        "my.yaml:7: out: unknown function 'expp' at column 1 (did you mean 'exp'?)",
        "my.yaml:9: kind: unknown kind 'pointwice' (did you mean 'pointwise'?)",
        "my.yaml:13: colour: unknown field 'colour' of a pointwise op (known: "
        + ", ".join(COMMON | KIND_FIELDS["pointwise"]) + ")",
        "my.yaml:14: doc: must be str, not int '3'",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"out": "sigmoid(input)"}, "unknown function 'sigmoid' at column 1 (did you mean 'logistic'?)"),
        ({"out": "np.exp(input)"}, "only a function's plain name can be called at column 1 (did you mean 'exp(...)'?)"),
        ({"out": "input ^ 2", "dtypes": "float"}, "^ computes on bits and takes integers; a power is written **"),
        ({"out": "~input"}, "~ computes on bits and takes integers (say `dtypes: integral`"),
        ({"kind": None}, "kind: is missing"),
        ({"op": None}, "op: is missing"),
        ({"out": None}, "out: is missing"),
        ({"op": "probe(input"}, "is not a signature"),
        ({"op": "probe(input, input)"}, "stands twice"),
        ({"op": "probe(input, *others)"}, "no *args"),
        ({"op": "probe(input, k: complex)"}, "unknown annotation 'complex'"),
        ({"op": "probe(input, k: Scaler = 1)"}, "did you mean 'Scalar'?"),
        ({"op": "probe(input, k: Scalar = print())"}, "must be a literal"),
        ({"op": "probe(input, k: Scalar = 1e999)"}, "finite"),
        ({"op": "probe(out)", "out": "exp(out)"}, "is a parameter, and also a result"),
        ({"op": "probe(input, unused)"}, "is used by no expression"),
        ({"op": "probe()", "out": "1"}, "needs a tensor operand"),
        ({"op": "class(input)"}, "not a signature"),
        ({"op": "Probe(input)"}, "must be lower-case"),
        ({"op": "__probe(input)"}, "must be lower-case"),
        ({"op": "probe__x(input)"}, "has a meaning in Python"),
        ({"op": "p" * 61 + "(input)"}, "at most 60"),
        ({"out": {}}, "at least one result"),
        ({"out": {"a": ["input"]}}, "an expression, not list"),
        ({"out": "exp(inptu)"}, "unknown name 'inptu' at column 5 (did you mean 'input'?)"),
        ({"out": "relu(input)"}, "did you mean 'maximum(x, 0)'?"),
        ({"out": "input.exp()"}, "a function's plain name can be called at column 1 (did you mean 'exp(...)'?)"),
        ({"out": "exp(input"}, "not an expression"),
        ({"out": "input +"}, "not an expression"),
        ({"out": "sum(input)"}, "there is no row here"),
        ({"out": "'text'"}, "a constant is a number"),
        ({"out": str(2**70)}, "does not fit 64 bits"),
        ({"result": "flaot32"}, "unknown result rule"),
        ({"result": "like:other"}, "names no operand"),
        ({"operator": "+="}, "unknown operator"),
        ({"namespace": "os"}, "unknown namespace"),
        ({"grad": "nothing"}, "must be 'none' or a mapping"),
        ({"grad": {"other": "grad"}}, "is no parameter"),
        ({"grad": {"input": "grad * outt"}}, "unknown name 'outt'"),
        ({"alias": [3]}, "a list of names"),
        ({"alias": "no good"}, "the alias"),
        ({"namespace": "hidden", "public_name": "no good"}, "the public name"),
        ({"alias": "probe"}, "defined already in line 1"),
        ({"inplace": "yes"}, "must be bool"),
        ({"sample": {"other": [0, 1]}}, "is no operand"),
        ({"sample": {"input": [1, 0]}}, "expected [low, high]"),
        ({"reference": "numpy"}, "is not a function of"),
        ({"reference": "numpy.exq"}, "reference: numpy has no function 'exq' (did you mean 'exp"),
        ({"layout": "strange"}, "unknown layout"),
        ({"doc": None, "save": ["a"]}, "unknown field 'save'"),
        ({"let": {"a": "1 + b"}, "out": "input + a"}, "let.a: unknown name 'b'"),
        ({"let": {"input": "1"}}, "let.input: 'input' is a parameter or a result already"),
        ({"example": 3}, "example: must be str, not int '3'"),
        ({"example": " "}, "example: probe: no text"),
        ({"example": "probe(tensor([0.0]))"}, "example: probe: no ' -> ' after a call of one line (write"),
        ({"example": "probe(tensor([0.0])) -> "}, "example: probe: no ' -> '"),
        ({"example": "probe(\n0) -> 1"}, "example: probe: no ' -> ' after a call of one line"),
        ({"example": f"probe({'9' * 100}) -> 1"}, "example: probe: a call has at most 100 characters"),
        ({"example": "probe(0) -> 1\n\n2"}, "example: probe: a line of the result is empty"),
        ({"example": "probe(0) -> 1\n>>> 2"}, "example: probe: a line of the result is empty or begins with a prompt"),
        ({"example": "probe(0 -> 1"}, "example: probe: 'probe(0' is not a Python expression"),
        ({"example": "exp(tensor([0.0])) -> 1"}, "example: probe: the example does not call the op (call probe)"),
        ({"example": "probe.name -> 1", "alias": "other"}, "does not call the op (call probe or other)"),
        ({"example": "probe(lambda: 0) -> 1"}, "example: probe: 'lambda: 0' is not part of an example"),
        ({"example": "probe(0).__class__ -> 1"}, "'probe(0).__class__' is not part of an example"),
        ({"example": "probe(0) -> 1", "namespace": "hidden"}, "the namespace hidden has no public docstring"),
        ({"example": "probe(0) -> 1", "doc": "Example:"}, "has the section 'Example:' already"),
    ],
)  # fmt: skip
def test_an_error_says_what_is_wrong(fields, message):
    messages = errors_of(op(**fields))
    assert any(message in e for e in messages), messages
    assert all(e.startswith("my.yaml:1: ") for e in messages)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("op: f(input)\n", "one list of ops"),
        ("", "one list of ops"),
        ("- 3\n", "an op is a mapping"),
        ("- op: f(input)\n  op: g(input)\n", "'op' is given twice"),
        ("- {op: f(a, b), kind: pointwise}\n", "quote it"),
        ("- op: f(x: Row)\n", "quote a value"),
        ("- [1\n", "not YAML"),
        ("- op: f(input)\n\tkind: pointwise\n", "indent by spaces"),
        ("- ? [a]\n  : 1\n", "a key must be a plain word"),
        ("- op: f(input)\n  kind: custom\n", "trust=True"),
        ("- op: f(input)\n  kind: view\n  view: nowhere\n", "unknown geometry"),
        ("- op: f(input)\n  kind: rowwise\n  out: input\n", "lacks 'dim'"),
        ("- op: f(a, b)\n  kind: contraction\n  out: mk,kn\n", "no equation"),
        ("- op: f(input)\n  kind: reduction\n  reduce: {identity: 0}\n", "needs `reduce:`"),
        ("- op: f(first)\n  kind: reduction\n  reduce: {identity: 0, map: first, combine: a}\n", "meaning in kernels"),
    ],
)  # fmt: skip
def test_files_that_are_not_specs(text, message):
    messages = errors_of(text)
    assert any(message in e for e in messages), messages


def test_the_size_of_a_text_is_limited_in_bytes():
    comment = "# " + "\N{GREEK SMALL LETTER ALPHA}" * (1 << 19)
    assert "at most 1 MiB" in errors_of(comment)[0]
    assert "at most 1 MiB" not in errors_of(comment[:-10])[0]
    assert "not YAML" in errors_of("# \ud800")[0]


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(SpecErrors, match=r"nothing\.yaml: cannot be read"):
        load_file(tmp_path / "nothing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecErrors, match="not UTF-8"):
        load_file(tmp_path / "binary.yaml")
    with pytest.raises(SpecError, match="cannot be read"):
        wg.ops.load(tmp_path)


def test_names_collide_across_files(tmp_path):
    (tmp_path / "a.yaml").write_text(op(inplace=True))
    (tmp_path / "b.yaml").write_text(op(op="probe_(input)"))
    with pytest.raises(SpecErrors, match=r"'probe_' is defined already in .*a\.yaml:1"):
        load_files([tmp_path / "a.yaml", tmp_path / "b.yaml"])


def test_yaml_words_are_not_converted_to_booleans():
    """YAML 1.1 reads `no` as false; here it is a parameter name."""
    (definition,) = load_text(op(op="probe(no)", out="exp(no)").replace('"exp(no)"', "no"))
    assert definition.outputs == {"out": "no"}


# Loading in a running process

SWISH = """\
- op: "swish(input, beta: Scalar = 1.0)"
  kind: pointwise
  doc: input * sigmoid(beta * input).
  dtypes: float
  inplace: true
  alias: swish_again
  out: input / (1 + exp(-beta * input))
- op: swish_twice(input)
  kind: composite
  out: swish(swish(input, beta=2)) * exp(mean(input))
"""


def test_a_loaded_op_is_a_function_differentiable_to_any_order():
    user_ops = wg.ops.load(SWISH)
    x = wg.tensor([1.0, -2.0, 0.5], dtype=wg.float64, requires_grad=True)
    out = user_ops.swish(x, 2.0)
    np.testing.assert_allclose(out.detach().numpy(), x.detach().numpy() / (1 + np.exp(-2 * x.detach().numpy())))
    assert wg.autograd.gradcheck(user_ops.swish, (x, 2.0))
    assert wg.autograd.gradgradcheck(user_ops.swish, (x, 2.0))
    assert wg.autograd.gradgradcheck(user_ops.swish_twice, (x,))
    assert wg.ops.swish is user_ops.swish
    assert wg.ops.swish_again is user_ops.swish
    y = wg.ones(3)
    assert user_ops.swish_(y) is y
    assert "sigmoid(beta * input)" in user_ops.swish.__doc__


def test_loading_again_replaces(tmp_path):
    path = tmp_path / "again.yaml"
    path.write_text(op(op="again(input)", out="2 * input"))
    x = wg.tensor([1.0], requires_grad=True)
    old_sum = wg.ops.load(path).again(x).sum()
    path.write_text(op(op="again(input)", out="3 * input") + op(op="once(input)"))
    wg.ops.load(path)
    assert wg.ops.again(x).tolist() == [3.0]
    old_sum.backward()
    assert x.grad.tolist() == [2.0]
    path.write_text(op(op="again(input)", out="3 * input"))
    wg.ops.load(path)
    with pytest.raises(AttributeError, match="once"):
        wg.ops.once


@pytest.mark.parametrize("name", ["exp", "mul", "multiply", "exp_", "add", "sigmoid_grad_input", "load", "sum", "view"])
def test_shadowing_raises(name, tmp_path):
    for text in (op(op=f"{name}(input)"), op(op="fine(input)", alias=name)):
        with pytest.raises(SpecError, match="exists already"):
            wg.ops.load(text)
    other = tmp_path / "other.yaml"
    other.write_text(op(op="swish(input)"))
    wg.ops.load(SWISH)
    with pytest.raises(SpecError, match="'swish' exists already"):
        wg.ops.load(other)


def test_an_invalid_spec_keeps_the_loaded_ops():
    user_ops = wg.ops.load(SWISH)
    with pytest.raises(SpecError, match="unknown name"):
        wg.ops.load(op(op="swish(input)", out="inptu"))
    assert wg.ops.swish is user_ops.swish


PROGRAM_WITHOUT_GENERATOR = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("yaml", "jinja2"):
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Block())
import numpy as np, weftgrad as wg, my_ops
x = wg.tensor([1.0, -2.0], dtype=wg.float64, requires_grad=True)
assert wg.autograd.gradcheck(my_ops.swish, (x, 2.0)) and wg.autograd.gradgradcheck(my_ops.swish, (x, 2.0))
assert my_ops.swish_again is my_ops.swish and "swish_twice" in my_ops.__all__ if hasattr(my_ops, "__all__") else True
my_ops.swish_twice(x).sum().backward()
print("fine")
"""


def test_a_generated_package_needs_neither_yaml_nor_jinja2(tmp_path):
    (tmp_path / "swish.yaml").write_text(SWISH)
    generate(tmp_path / "my_ops", [tmp_path / "swish.yaml"], existing_ops=wg.ops.existing_ops())
    assert generate(tmp_path / "my_ops", [tmp_path / "swish.yaml"], existing_ops=wg.ops.existing_ops()) == []
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM_WITHOUT_GENERATOR], cwd=tmp_path, capture_output=True, text=True
    )
    assert process.stdout.strip() == "fine", process.stderr


# Reference and schema


def test_the_reference_names_every_field_kind_and_function():
    text = reference.language_reference()
    for word in (
        *COMMON,
        *(f for fields in KIND_FIELDS.values() for f in fields),
        "Row | None".replace("|", "\\|"),
        "expm1",
    ):
        assert word in text, word


def test_the_schema_lists_the_fields_of_the_loader():
    schema = reference.json_schema()
    for kind, entry in zip(KINDS, schema["items"]["oneOf"], strict=True):
        assert set(entry["properties"]) == set(COMMON | KIND_FIELDS[kind])
    json.loads(reference.schema_text())


def test_the_example_of_a_loaded_op_is_in_its_docstring():
    text = op(example="other(tensor([0.0]), 1)[0] -> 1.0", op="probe(input, k: Scalar)", out="k + input", alias="other")
    (definition,) = load_text(text)
    assert "Example:\n    >>> other(wg.tensor([0.0]), 1)[0]\n    1.0\n" in docstring(definition)


def test_specs_survive_a_round_trip_through_yaml():
    for path in own_specs():
        for definition in load_file(path, trust=True):
            (reloaded,) = load_text(reference.spec_text(definition.spec), trust=True)
            assert reloaded.spec == definition.spec
