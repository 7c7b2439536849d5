"""Check that no code in a hostile spec is run or generated, and that none takes long to reject."""

import ast
import json
import re
import time

import numpy as np
import pytest
from spec_errors import errors_of, op

import weftgrad as wg
from weftgrad.codegen.generate import ExistingOps, functions_module, generate, resolve_calls
from weftgrad.codegen.loader import load_text
from weftgrad.codegen.model import SpecErrors
from weftgrad.codegen.render import render_all
from weftgrad.runtime.errors import ArgumentError, SpecError
from weftgrad.testing import resolve_reference

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
    start = time.thread_time()  # on a busy machine, a thread waits for a core
    errors_of(text)
    assert time.thread_time() - start < 10
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
    start = time.thread_time()  # on a busy machine, a thread waits for a core
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
    assert time.thread_time() - start < 30


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
