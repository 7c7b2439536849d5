"""Compare some emitted kernels with the copies in `tests/golden/`, so that a review shows every change of the output.

To accept a change:  pytest tests/test_golden.py --update-golden
"""

import difflib
from pathlib import Path

import pytest

from weftgrad.codegen.generate import own_specs
from weftgrad.codegen.loader import load_file
from weftgrad.codegen.render import render_all

GOLDEN = Path(__file__).parent / "golden"
ENDINGS = {"opencl": "cl", "triton": "triton.py"}
OPS = {
    "mul": ("mul",),
    "sigmoid": ("sigmoid", "sigmoid_grad_input"),
    "softmax": ("softmax", "softmax_grad_input"),
    "sum": ("sum",),
}


@pytest.mark.parametrize("name", OPS)
def test_emitted_kernels_are_the_golden_ones(name, request):
    op = next(op for path in own_specs() for op in load_file(path, trust=True) if op.name == name)
    generated = render_all([op])
    for record in OPS[name]:
        for target, source in generated.records[record].rendered.sources.items():
            text = source.text.rstrip() + "\n"
            path = GOLDEN / f"{record}.{ENDINGS[target]}"
            if request.config.getoption("--update-golden"):
                GOLDEN.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
                continue
            golden = path.read_text(encoding="utf-8") if path.is_file() else ""
            difference = "".join(
                difflib.unified_diff(golden.splitlines(True), text.splitlines(True), f"golden/{path.name}", "emitted")
            )
            assert not difference, f"{difference}\nif that is meant: pytest tests/test_golden.py --update-golden"


def test_every_golden_file_is_compared():
    names = {record for records in OPS.values() for record in records}
    assert {p.name.partition(".")[0] for p in GOLDEN.iterdir()} == names
