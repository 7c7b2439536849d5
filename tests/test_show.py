"""Check the pages of `weftgrad show`: an op, its kernel, a Python function, the list of all ops, and errors."""

import argparse

import pytest

import weftgrad as wg
from weftgrad import cli
from weftgrad._generated import ops as generated
from weftgrad._generated.records import NAMES
from weftgrad.cli.python_functions import called_ops, public_functions
from weftgrad.cli.show import sections
from weftgrad.cli.terminal import Style
from weftgrad.runtime.records import registry

MAX_LINES = 66
"""Two screens: the longest page is that of an op with ten operands."""


@pytest.fixture
def show(capsys, monkeypatch):
    """A function that runs `weftgrad show ARGUMENTS` and returns its output; the exit status is 2 if it has errors."""

    def run_show(*argv):
        status = cli.main(["show", *argv])
        captured = capsys.readouterr()
        assert status == (2 if captured.err else 0)
        return captured.out + captured.err

    monkeypatch.setenv("NO_COLOR", "1")
    return run_show


def test_the_page_of_an_op(show):
    page = show("sigmoid")
    for part in ("sigmoid(input: Tensor, *", "out = 1 / (1 + exp(-input))", "d input = grad * out * (1 - out)",
                 "by sigmoid_grad_input(grad, out)", "saved       out (result)", "4 B read and 4 B written per element",
                 "floating dtypes", "schedules contiguous", "schedules flat", "codegen/specs/pointwise.yaml:",
                 "weftgrad show sigmoid --kernel"):  # fmt: skip
        assert part in page
    assert len(page.splitlines()) <= 25
    assert "\x1b" not in page


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("softmax", ("scale = 1 / sum(shifted)", "row_max, row_sum", "dim: int = -1")),
        ("sum", ("combine  a + b", "d input = grad", "saved       nothing")),
        ("mm", ("2·m·k·n FLOP", "mm_grad_mat2(grad, input)", "linear")),
        ("where", ("9 B read", "every dtype")),
        ("multiply", ("mul(input", "saved       other (operand), input (operand)")),
        ("add_", ("add_ (in place)", "operator +")),
        ("permute", ("no kernel",)),
        ("sigmoid_grad_input", ("result = grad * out * (1 - out)",)),
    ],
)
def test_pages_of_ops(show, name, parts):
    page = show(name)
    assert not [part for part in parts if part not in page]


@pytest.mark.thorough
def test_pages_of_ops_fit_two_screens():
    options = {"kernel": False, "source": False}
    for record in (registry[name] for name in sorted(NAMES)):
        # Not second derivatives, and derivatives of a recurrent layer's gates. The latter have up to 20 operands and
        # results, each of which takes a line or more.
        if record.name.count("_grad_") < 2 and "gates_grad" not in record.name:
            lines = list(sections(argparse.Namespace(op=record.name, name=None, **options), Style()))
            assert 1 < len(lines) <= MAX_LINES, record.name


@pytest.mark.parametrize(
    ("name", "ops", "summary"),
    [
        ("gelu", {"gelu_erf", "gelu_tanh"}, "Gaussian error linear unit"),
        ("linear", {"mm", "linear_bias"}, "input @ weight.T + bias"),
        ("dropout", {"dropout_draw"}, "Zero each element with probability"),
        ("rand", {"uniform_fill"}, "Sample uniformly from [0, 1)"),
        ("conv2d", {"convolution"}, "Cross-correlate images"),
    ],
)
def test_the_page_of_a_python_function(show, name, ops, summary):
    assert ops <= set(called_ops(public_functions()[name]))
    page = show(name)
    assert summary in page
    assert f"a function in Python: {public_functions()[name].__module__}.{name}, line" in page
    assert all(op in page for op in ops)


def test_a_page_names_ops_that_its_function_launches():
    """An op that a profile of `gelu` or `dropout` sees is one that their pages name."""
    with wg.profiler.profile() as profile:
        wg.nn.functional.gelu(wg.ones(3))
        wg.nn.functional.dropout(wg.ones(3))
    launched_ops = {event.key for event in profile.key_averages()} & {"gelu_erf", "dropout_draw"}
    functions = public_functions()
    assert launched_ops <= {*called_ops(functions["gelu"]), *called_ops(functions["dropout"])}
    assert launched_ops


def test_every_function_has_a_page():
    for name in public_functions():
        lines = list(sections(argparse.Namespace(op=name, name=None, kernel=False, source=False), Style()))
        assert len(lines) <= MAX_LINES, name


def test_the_list_has_every_op_once(show):
    text = show()
    # An op has an indented line of its own that begins with its name. Functions in Python share lines, with commas.
    first_words = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
    listed_names = [word for word in first_words if "," not in word]
    public = [n for n, (_, namespace, _) in generated.FUNCTIONS.items() if namespace != "hidden" and n in registry]
    assert sorted(n for n in listed_names if n in public) == sorted(public)
    assert "pointwise: each element" in text
    assert "gelu" in text
    assert max(map(len, text.splitlines())) <= 118


SPEC = """
- op: "smooth_hinge(input, a: Scalar)"
  kind: pointwise
  doc: Softplus of slope a.
  dtypes: float
  out: softplus(a * input) / a
- op: "half_square(input)"
  kind: pointwise
  doc: Half of the square.
  out: input * input / 2
"""


def test_ops_of_a_spec_file(show, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(SPEC, encoding="utf-8")
    pages = show(str(path))
    assert pages.index("Softplus of slope a.") < pages.index("Half of the square.")
    page = show(str(path), "half_square")
    assert "d input = 2 * (grad / 2 * input)" in page
    assert "smooth_hinge" not in page
    assert "wg_softplus" in show(str(path), "smooth_hinge", "--kernel", "--device", "cpu")
    assert "has no op named 'hinge'; it has smooth_hinge, half_square" in show(str(path), "hinge")
    assert "exp is no spec file (.yaml)" in show("exp", "half_square")


def test_the_kernel_of_a_call(show):
    text = show("sigmoid", "--kernel", "--device", "cpu", "--dtype", "float16", "--shape", "4x16")
    assert text.startswith("// sigmoid_contiguous_")
    assert "wg_from_half(" in text
    assert "calls wg_from_half, wg_logistic, wg_to_half (--functions prints them)" in text
    assert "wg_logistic(float" in show("sigmoid", "--kernel", "--device", "cpu", "--functions")
    assert "#define S0" in show("sigmoid", "--kernel", "--device", "cpu", "--source")
    assert "SCHEDULE_TILES" in show("sigmoid", "--source")
    assert "kernel void sigmoid_grid(" in show("sigmoid", "--kernel", "--device", "opencl-gpu")
    assert "def softmax_whole(" in show("softmax", "--kernel", "--device", "cuda")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sigmoud",), "no op named 'sigmoud'; did you mean sigmoid"),
        (("linnear",), "did you mean linear"),
        (("gelu", "--kernel"), "gelu is a function in Python"),
        (("permute", "--kernel"), "permute has no kernel: it is a view op"),
        (("sigmoid", "--kernel", "--device", "tpu"), "descriptions of devices: sm_80"),
        (("permute", "--source"), "permute has no kernels for opencl"),
    ],
)
def test_errors_say_what_is_possible(show, arguments, message):
    assert message in show(*arguments)
