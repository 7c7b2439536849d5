"""Check spec files: every error is reported with its line, and no code in a hostile spec is run or generated."""

import ast
import json
import re
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.codegen import reference
from weftgrad.codegen.docstrings import docstring
from weftgrad.codegen.generate import ExistingOps, functions_module, generate, load_files, own_specs, resolve_calls
from weftgrad.codegen.loader import COMMON, KIND_FIELDS, load_file, load_text
from weftgrad.codegen.model import KINDS, SpecErrors
from weftgrad.codegen.render import render_all
from weftgrad.runtime.errors import ArgumentError, SpecError
from weftgrad.testing import resolve_reference


def errors_of(text: str, **options) -> list[str]:
    with pytest.raises(SpecErrors) as error_info:
        load_text(textwrap.dedent(text), "my.yaml", **options)
    return [str(e) for e in error_info.value.errors]


def op(**fields) -> str:
    """Return a pointwise op as YAML with `fields` replaced, or removed if None; JSON quoting allows any string."""
    entry = {"op": "probe(input)", "kind": "pointwise", "dtypes": "float", "out": "exp(input)", **fields}
    return "- " + json.dumps({k: v for k, v in entry.items() if v is not None}) + "\n"


# --- Errors -----------------------------------------------------------------------------------------------------------


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


# --- Hostile specs ----------------------------------------------------------------------------------------------------

MARK = "CANARY"
HOSTILE_CODE = [
    "__import__('os').system('touch CANARY')",
    "().__class__.__base__.__subclasses__()",
    "input.__class__",
    "eval('1')",
    "open('CANARY', 'w')",
    "exec('x')",
    "[input for input in (1,)]",
    "(lambda: input)()",
    "f'{input}'",
    "input if (x := 3) else 0",
    "input; import os",
    "input\nimport os",
    "input */ system(1); /*",
    "input // CANARY \\",
    "input # CANARY",
    "print(input)",
    "exp(*input)",
    "exp(input=input)",
    "getattr(input, 'x')",
    "${CANARY}",
    "{{ CANARY }}",
    "{% include 'x' %}",
    "ｅxec(input)",
    "input\u2028CANARY",
    "await input",
    "yield input",
]


@pytest.mark.parametrize("code", HOSTILE_CODE)
@pytest.mark.parametrize("field", ["out", "grad", "map", "let", "pointwise let", "equation", "identity"])
def test_code_is_rejected_as_an_expression(code, field):
    entry = {
        "out": op(out=code),
        "grad": op(grad={"input": code}),
        "map": _entry("reduction", reduce={"identity": 0, "map": code, "combine": "a + b", "finish": "acc"}),
        "identity": _entry("reduction", reduce={"identity": code, "map": "input", "combine": "a + b", "finish": "acc"}),
        "let": _entry("rowwise", signature="probe(input, dim: int = -1)", let={"a": code}, out="input + a"),
        "pointwise let": op(let={"a": code}, out="input + a"),
        "equation": _entry("contraction", signature="probe(input, other)", out=code),
    }[field]
    errors_of(entry)


def _entry(kind: str, signature: str = "probe(input)", **fields) -> str:
    return "- " + json.dumps({"op": signature, "kind": kind, **fields}) + "\n"


# Code that composites must reject too. Of HOSTILE_CODE two entries are harmless in a composite: it may name arguments,
# and a comment is dropped.
COMPOSITE_CODE = """eval(input)
vars(input) | input.data | input[0] | {'a': input} | 9 ** 9 ** 9 ** 9 * input | 'a' * 9999999999
(1,) * 999999999 | input * 'a' | exp(**input) | exp(input, __class__=1) | _own_exp(input) | input(3) | 1e999 * input"""


@pytest.mark.parametrize(
    "code",
    [c for c in HOSTILE_CODE if c not in {"exp(input=input)", "input # CANARY"}] + re.split(r" \| |\n", COMPOSITE_CODE),
)
def test_composites_call_nothing_but_ops(code):
    text = _entry("composite", out=code)
    with pytest.raises(SpecErrors):
        resolve_calls(load_text(text), ExistingOps({"exp"}))


@pytest.mark.parametrize("key", ["x = 1\ny", "__class__", "input", "a.b", "print()", "class", "A", "x: int"])
def test_let_names_are_identifiers(key):
    for kind, signature in (
        ("composite", "probe(input)"), ("rowwise", "probe(input, dim: int = -1)"), ("pointwise", "probe(input)"),
    ):  # fmt: skip
        errors_of(_entry(kind, signature, let={key: "exp(input)"}, out="exp(input)"))


def test_composites_do_not_call_themselves():
    spec_text = _entry("composite", "one(input)", out="two(input)") + _entry(
        "composite", "two(input)", out="one(input)"
    )
    with pytest.raises(SpecErrors, match="one calls itself"):
        resolve_calls(load_text(spec_text), ExistingOps())


@pytest.mark.parametrize(
    "signature",
    [
        "probe(input): import os #",
        "probe(input): import os; pass",
        "probe(input):\n  import os\n\ndef g(x)",
        "probe(input, k=__import__('os'))",
        "probe(input, k: __import__('os').system('x') = 1)",
        "probe(input, k: Literal[print(1)] = 'a')",
        "probe(input, k: Literal['a; import os'] = 'a')",
        "probe(input, k: 'Scalar' = 1)",
        "probe(input) -> exit()",
        "probe[T](input)",
        "probe(ｉnput)",
        "probe(input, k: Scalar = {1})",
        "probe(input, k: Scalar = (((((1,),),),),))",
        "probe(input, k: Scalar = 9" + "9" * 400 + ")",
        "probe(input, /)",
        "lambda: 0",
        "probe(" + "(" * 1900 + ")",
    ],
)
def test_signatures_hold_no_code(signature):
    errors_of(op(op=signature))


@pytest.mark.parametrize(
    "name",
    """numpy.__class__ os.system numpy.os.system numpy.core.os builtins.eval scipy.io.loadmat NUMPY.add math. numpy.ａdd
    numpy.add.__reduce__ numpy.lib.npyio.load numpy.add;import numpy.testing.assert_""".split(),  # noqa: SIM905
)
def test_references_name_only_allowed_functions(name):
    errors_of(op(reference=name))


@pytest.mark.parametrize(
    "name",
    """numpy.load numpy.fromfile numpy.save numpy.savetxt numpy.memmap numpy.test numpy.loadtxt numpy.genfromtxt
    numpy.linalg.test numpy.ndarray numpy.ctypeslib""".split(),  # noqa: SIM905
)
def test_references_read_no_files(name):
    with pytest.raises(ArgumentError):
        resolve_reference(name)


@pytest.mark.parametrize(
    "text",
    [
        "- &a {op: f(input), kind: pointwise, out: input}\n- *a\n",
        "- !!python/object/apply:os.system ['touch CANARY']\n",
        "- op: !!python/name:os.system\n",
        "a: &a [x]\nb: &b [*a, *a]\n",
        "%TAG ! tag:yaml.org,2002:\n---\n- !str x\n",
        "- " + "[" * 200_000,
        "- " + "{a: " * 200_000,
        "\n".join("  " * i + "- " for i in range(500)),
        "- op: f(input)\n--- \n- op: g(input)\n",
        "- {" + ", ".join(f"k{i}: 1" for i in range(3000)) + "}",
        "x" * ((1 << 20) + 1),
        "- op: f(input)\n  <<: {kind: pointwise}\n",
        "- op: f(input)\n  kind: pointwise\n  out: 0x" + "f" * 100_000 + "\n",
        "- op: f(input)\n  kind: pointwise\n  out: " + "(" * 3000 + "input" + ")" * 3000 + "\n",
        "- op: f(input)\n  kind: pointwise\n  out: " + "-" * 3000 + "input\n",
        "- op: f(input)\n  kind: pointwise\n  out: " + "+".join(["input"] * 6000) + "\n",
        "- op: f(input)\n  kind: pointwise\n  out: input ** 999999999999999999999999\n",
        "- op: f(input)\n  kind: pointwise\n  out: 1 << 99999999999999999999\n",
    ],
    ids=lambda text: text[:20].replace("\n", " "),
)
def test_hostile_yaml_is_rejected_quickly(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    start = time.perf_counter()
    errors_of(text)
    assert time.perf_counter() - start < 10
    assert not list(tmp_path.iterdir())


HOSTILE_PROSE = [
    "quotes \"\"\" and '''",
    'ends in a quote"',
    'ends in quotes"""',
    '""""""""""',
    "ends in a backslash\\",
    'a backslash and a quote \\"',
    'x\\""" + __import__("os").system("touch CANARY") + """',
    "a comment */ system(1); /* \\\n continued",
    "// a comment \\\nint CANARY;",
    "carriage\rreturn and \x0b and \x0c and \x1c",
    "line\u2028separator\u0085next",
    "nul \0 byte",
    "bidi \u202e override",
    "a lone surrogate \ud800",
    "{{ template }} {% raw %} {# comment #}",
    "{format} %s %(name)s",
    '\n"""\nimport os\n"""',
]


@pytest.mark.parametrize("prose", HOSTILE_PROSE)
def test_docs_cannot_change_code(prose):
    """A doc text changes only the docstring of the generated module; kernels do not contain it."""
    plain, documented = (_module_of(op(doc=d, inplace=True, alias="other")) for d in ("plain", prose))
    assert _without_docs(plain[0]) == _without_docs(documented[0])
    assert plain[1] == documented[1]
    text = documented[0].encode()  # raises for a lone surrogate
    assert all(c.isprintable() or c == "\n" for c in text.decode())
    visible = "".join(c for c in prose if c.isascii() and c.isalnum())
    docstring = ast.get_docstring(next(n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)))
    assert visible[:6] in "".join(c for c in docstring if c.isalnum())


def _module_of(text: str) -> tuple[str, dict[str, str]]:
    ops = load_text(text)
    rendered = render_all(ops)
    module = functions_module(
        ops,
        rendered,
        resolve_calls(ops, ExistingOps()),
        package=False,
        owner=None,
        sources="x",
        digest="0",
        runtime="r",
    )
    return module, {n: d.rendered.sources["opencl"].text for n, d in rendered.records.items()}


def _without_docs(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.dump(tree)


@pytest.mark.parametrize(
    "name",
    """call call_into registry tuple list isinstance int records annotations functions op_probe c kernel double s0 x0
    geo     np sp number select fma convert_float float4 get_global_id wg_exp t0 dyn""".split(),  # noqa: SIM905
)
def test_names_used_by_modules_or_kernels_are_allowed(name):
    """Use names that generated modules or kernels need for something else, as op and as parameter."""
    user_ops = wg.ops.load(op(op=f"{name}_op({name}, other)", out=f"exp({name}) * {name} + exp({name}) * other"))
    x = wg.tensor([0.5, -1.0], requires_grad=True)
    out = getattr(user_ops, f"{name}_op")(x, 2.0)
    np.testing.assert_allclose(out.detach().numpy(), np.exp([0.5, -1.0]) * (np.array([0.5, -1.0]) + 2), rtol=1e-6)
    if name not in ("int", "records"):
        text, _ = _module_of(op(op=f"{name}({name})", out=f"exp({name})"))
        ast.parse(text)


def test_parameters_whose_kernel_names_would_clash():
    user_ops = wg.ops.load(op(op="name_clash(x0, x0_)", out="x0 - x0_"))
    assert user_ops.name_clash(wg.tensor([3.0]), wg.tensor([1.0])).tolist() == [2.0]


def test_derivatives_do_not_take_the_name_of_an_op():
    """A user's op may have the name that another op's derivative would get, in either order of the file."""
    text = op(op="cubed(input)", out="input * input * input") + op(
        op="cubed_grad_input(grad, input)", out="grad * input * 0 - 7"
    )
    for spec_text in (text, "\n".join(reversed(text.splitlines())) + "\n"):
        user_ops = wg.ops.load(spec_text)
        x = wg.tensor([2.0], requires_grad=True)
        (g,) = wg.autograd.grad(user_ops.cubed(x).sum(), x)
        assert g.tolist() == [12.0]
        assert user_ops.cubed_grad_input(x, x).tolist() == [-7.0]


def test_file_names_are_not_code(tmp_path):
    path = tmp_path / 'x"""; import os; os.system("touch CANARY") #.yaml'
    path.write_text(op())
    generate(tmp_path / "my_ops", [path])
    for file in (tmp_path / "my_ops").rglob("*.py"):
        tree = ast.parse(file.read_text())
        if "kernels" in file.parts:
            assert all(isinstance(node, ast.FunctionDef) for node in tree.body)
        else:
            assert isinstance(tree.body[0], ast.Expr)
            assert isinstance(tree.body[0].value, ast.Constant)
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.Import) and any(a.name == "os" for a in n.names)]


def test_infinite_numbers_in_a_spec_are_literals(tmp_path):
    path = tmp_path / "inf.yaml"
    path.write_text("- op: least(input)\n  kind: pointwise\n  dtypes: float\n  out: {out: input + 1, top: .inf}\n"
                    "- op: floor_of(input)\n  kind: pointwise\n  out: {out: input + 0, top: -.inf}\n")  # fmt: skip
    generate(tmp_path / "my_ops", [path])
    for node in ast.walk(ast.parse((tmp_path / "my_ops" / "records.py").read_text())):
        assert not (isinstance(node, ast.Name) and node.id in ("inf", "nan"))


def test_expressions_that_grow_exponentially_are_rejected_quickly():
    start = time.perf_counter()
    chain = "(" * 40 + "input" + "**4)" * 40
    with pytest.raises(SpecError, match="too long to write out"):
        wg.ops.load(op(op="chain(input)", out=chain))
    lets = {"b0": "a*b"} | {f"b{i}": f"b{i - 1}*b{i - 1}+1" for i in range(1, 40)}
    reduce = {"identity": 0, "map": "input", "let": lets, "combine": "b39", "finish": "acc"}
    with pytest.raises(SpecError, match="too long to write out"):
        wg.ops.load(_entry("reduction", "folded(input, dim: int = 0)", reduce=reduce, grad="none"))
    deep = wg.ops.load(op(op="deep(input)", out="tanh(" * 60 + "input" + ")" * 60)).deep
    with pytest.raises(wg.runtime.errors.GradientError, match="give a shorter formula"):
        deep(wg.ones(3, requires_grad=True))
    assert time.perf_counter() - start < 30


def test_named_values_of_a_pointwise_op_are_substituted():
    """Each may use the earlier ones, and results and gradients may use all."""
    signature = "probe(input, other)"
    named = op(
        op=signature, let={"s": "input + other", "t": "s * exp(s)"}, out={"first": "t - input", "second": "s"},
        grad={"input": "grad_first * (t - other) + grad_second"},
    )  # fmt: skip
    written_out = op(
        op=signature, out={"first": "(input + other) * exp(input + other) - input", "second": "input + other"},
        grad={"input": "grad_first * ((input + other) * exp(input + other) - other) + grad_second"},
    )  # fmt: skip
    generated, expected = (render_all(load_text(text)) for text in (named, written_out))
    assert generated.records.keys() == expected.records.keys()
    assert "probe_grad_input" in expected.records
    for name, record in expected.records.items():
        assert generated.records[name].rendered == record.rendered, name


# --- Loading in a running process -------------------------------------------------------------------------------------

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


# --- Reference and schema ---------------------------------------------------------------------------------------------


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
