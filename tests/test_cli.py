"""Check the command line's output and exit status, and that an error prints one message."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import weftgrad as wg
from weftgrad import cli
from weftgrad._generated import ops as generated
from weftgrad.cli.check import check_op
from weftgrad.cli.terminal import Style, table
from weftgrad.codegen.loader import load_text
from weftgrad.codegen.model import KINDS
from weftgrad.runtime.records import registry

GOOD = """\
- op: "cli_swish(input, beta)"
  kind: pointwise
  dtypes: float
  out: input / (1 + exp(-beta * input))
"""


def entry(**fields) -> str:
    return "- " + json.dumps({"kind": "pointwise", "dtypes": "float", **fields}) + "\n"


@pytest.fixture
def run(capsys, monkeypatch):
    def run(*argv: str) -> tuple[int, str, str]:
        status = cli.main(list(argv))
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    monkeypatch.setenv("NO_COLOR", "1")
    return run


def test_devices(run):
    status, out, _ = run("devices")
    assert status == 0
    assert re.match(r"cpu\*? .* \d+ +[\d.]+ [KMGT]iB  float32", out.splitlines()[1])


@pytest.mark.parametrize(
    ("name", "status", "expected"),
    [
        ("opencl:9", 0, "opencl:9* opencl:9 does not exist"),  # listed, marked as the default, with the error
        ("nonsense", 2, "WEFTGRAD_DEVICE=nonsense: unknown device 'nonsense'"),
    ],
)
def test_devices_where_the_default_is_not_here(tmp_path, name, status, expected):
    env = {**os.environ, "WEFTGRAD_DEVICE": name}
    command = [sys.executable, "-m", "weftgrad.cli", "devices"]
    process = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert process.returncode == status
    words = (process.stdout + process.stderr).split()  # the width of a column depends on the machine's devices
    assert expected in " ".join(words)


def test_without_a_command_it_explains_itself(run):
    status, out, _ = run()
    assert status == 2
    for name in ("devices", "generate", "show", "check", "prebuild"):
        assert name in out


@pytest.mark.parametrize(
    ("arguments", "modules", "packages"),
    [
        (["--version"], [], []),
        (["--help"], [], ["bench"]),  # the help of other packages' commands is in their modules
        (["cache", "--help"], ["cache"], []),
        (["show", "add"], ["compile", "prebuild", "show"], []),  # `show --kernel` uses functions of the other two
        (["demo", "--help"], [], []),
    ],
)
def test_a_command_imports_no_other_command(tmp_path, arguments, modules, packages):
    program = """
import sys
import weftgrad
start = set(sys.modules)
from weftgrad import cli
try:
    cli.main(sys.argv[1:])
except SystemExit:
    pass
added = {name for name in sys.modules if name.startswith("weftgrad.")} - start
commands = sorted(name for name in cli._COMMANDS if f"weftgrad.cli.{name}" in sys.modules)
print("", len(added), commands, "weftgrad.bench" in sys.modules, "yaml" in sys.modules, sep=chr(10))
"""
    environment = {**os.environ, "WEFTGRAD_CACHE": str(tmp_path)}
    process = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    count, commands, has_bench, has_yaml = process.stdout.splitlines()[-4:]
    assert commands == str(modules)
    assert has_bench == str("bench" in packages)
    assert has_yaml == str("show" in modules)
    if "show" not in modules:
        assert int(count) <= (20 if packages else 5), count


def test_every_command_has_its_own_help(run):
    for name in cli._COMMANDS:
        with pytest.raises(SystemExit) as end:
            run(name, "--help")
        assert end.value.code == 0


def test_the_help_of_a_command_says_what_it_does(capsys):
    with pytest.raises(SystemExit):
        cli.main(["cache", "--help"])
    text = capsys.readouterr().out
    assert text.startswith("usage: weftgrad cache [-h] [--clear] [--json]")
    assert "Shows the folder of compiled kernels" in text


def test_a_command_that_cannot_be_imported_says_why(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "weftgrad.cli.devices", None)
    with pytest.raises(SystemExit) as end:
        cli.main(["devices"])
    assert end.value.code == 2
    assert "weftgrad devices: error: not available: " in capsys.readouterr().err
    with pytest.raises(SystemExit) as end:
        cli.main(["--help"])
    assert end.value.code == 0


def test_an_error_is_one_message(run):
    status, out, err = run("show", "sigmoud")
    assert (status, out) == (2, "")
    assert (
        err == "weftgrad: show: there is no op named 'sigmoud'; did you mean sigmoid, " + err.partition("sigmoid, ")[2]
    )
    assert len(err.splitlines()) == 1


def test_spec_errors_have_status_1(run, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(GOOD.replace("beta *", "bita *").replace("float", "flaot"))
    status, _, err = run("check", str(path))
    assert status == 1
    assert f"{path}:3: dtypes: unknown dtypes 'flaot'" in err
    assert run("generate", str(path), "-o", str(tmp_path / "made"))[0] == 1
    assert run("check", str(tmp_path / "none.yaml"))[0] == 1


def test_traceback_on_demand():
    with pytest.raises(wg.runtime.errors.ArgumentError):
        cli.main(["show", "sigmoud", "--traceback"])


def test_an_interrupt_is_quiet(run, monkeypatch):
    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setattr("weftgrad.cli.devices.run", interrupted)
    assert run("devices") == (130, "", "")


def test_generate_and_check(run, tmp_path):
    (tmp_path / "swish.yaml").write_text(GOOD)
    arguments = ("generate", str(tmp_path / "swish.yaml"), "-o", str(tmp_path / "made"))
    assert run(*arguments, "--check")[0] == 1
    assert run(*arguments)[0] == 0
    assert run(*arguments, "--check")[0] == 0
    (tmp_path / "made" / "ops.py").write_text("")
    status, _, err = run(*arguments, "--check")
    assert status == 1
    assert "ops.py" in err
    assert run("generate", str(tmp_path / "swish.yaml"))[0] == 2
    assert run("generate", str(tmp_path / "swish.yaml"), "-o", str(tmp_path / "no-name"))[0] == 2


def test_docs_and_schema(run, tmp_path):
    status, _, _ = run("generate", "--docs", str(tmp_path / "docs"), "--schema", str(tmp_path / "schema.json"))
    assert status == 0
    assert "\n# The spec language\n" in (tmp_path / "docs" / "language.md").read_text()
    pages = {path.stem: path.read_text() for path in (tmp_path / "docs" / "ops").iterdir()}
    public = {name for name, (_, namespace, _) in generated.FUNCTIONS.items() if namespace != "hidden"}
    assert set(pages) == public & {record.name for record in registry}
    assert "grad * out * (1 - out)" in pages["sigmoid"]
    assert json.loads((tmp_path / "schema.json").read_text())["type"] == "array"


def test_check_passes_and_says_what_it_compared_with(run, tmp_path):
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    status, out, _ = run("check", str(path), "--device", "cpu")
    assert status == 0, out
    assert "(formula)" in out
    assert "all passed" in out


@pytest.mark.parametrize(
    ("name", "fields", "field"),
    [
        ("cli_wrong", {"out": "exp(input) * 1.0001", "reference": "numpy.exp"}, "error"),
        ("cli_slope", {"out": "sin(input)", "grad": {"input": "grad"}}, "gradcheck"),
        ("cli_bent", {"out": "sin(input)", "grad": {"input": "grad * detach(cos(input))"}}, "gradgradcheck"),
    ],
)
def test_check_finds(name, fields, field):
    text = entry(op=f"{name}(input)", **fields)
    (op,) = load_text(text)
    row = check_op(op, vars(wg.ops.load(text))[op.name], wg.device("cpu"))
    assert row.failed[0] == field, row


@pytest.mark.parametrize(("result", "note"), [("tensor([4.])", None), ("tensor([9.])", "prints tensor([4.])")])
def test_check_runs_the_example(result, note):
    text = entry(op="cli_square(input)", out="input * input", example=f"cli_square(tensor([2.0])) -> {result}")
    (op,) = load_text(text)
    row = check_op(op, vars(wg.ops.load(text))[op.name], wg.device("cpu"))
    assert bool(row.failed) == bool(note), row
    assert not note or note in row.notes[0]


def test_check_finds_derivatives_that_are_not_finite():
    text = entry(op="cli_root(input)", out="sqrt(input * input)", sample={"input": [0.5, 2.0]})
    (op,) = load_text(text)
    row = check_op(op, vars(wg.ops.load(text))[op.name], wg.device("cpu"))
    assert row.suspicious.startswith("input=0: nan")
    assert not row.failed


def test_prebuild_finds_kernels_of_every_op_and_its_derivatives():
    from weftgrad.cli.calls import op_calls
    from weftgrad.cli.samples import capture_steps
    from weftgrad.runtime.context import state
    from weftgrad.runtime.errors import WeftgradError

    device = wg.device("cpu")
    ops_without_launch, expected_ops, messages = [], set(), []
    with capture_steps(device) as steps:
        for record in registry:
            if record.kind in ("view", "composite") or "_grad_" in record.name or not record.spec:
                continue
            if registry.owner(record.name) or record.name.startswith("cli_") or record.kind not in KINDS:
                continue  # loaded by another test
            state().plans = {}  # or an op that was already planned as a gradient would launch nothing new
            step_count = len(steps)
            for call in op_calls(record, device, [wg.float32]):
                try:
                    call()
                except WeftgradError as error:
                    messages.append(str(error))
            if len(steps) == step_count:
                ops_without_launch.append(record.name)
            if record.kind != "contraction" and record.gradients:  # contractions share their kernels
                expected_ops |= {rule.op for rule in record.gradients.values() if rule.op and rule.op in registry}
        launched = {step.instance.name for step in steps}
        names = {step.instance.entry for step in steps}
    assert not ops_without_launch
    assert not messages
    # The schedule depends on the processor's vector width: every processor has one of these entries.
    if not names & {"convolution_weight", "convolution_outer"}:
        ops_without_launch.append("gradients of convolutions by the weight")
    assert not {op for op in expected_ops if registry[op].kind != "view"} - launched
    for entry in ("direct", "pad", "pack", "sum", "bias"):
        assert f"convolution_{entry}" in names


CALLS = """
import weftgrad as wg
from weftgrad import nn, optim
F = nn.functional
driver = wg.device("cpu").driver
driver.capabilities
for n in (18, 300):
    x, row, at = wg.rand(n, 12, requires_grad=True), wg.rand(12, requires_grad=True), wg.randint(0, n, (9,))
    ((x + 1) * row - 2 / (x + 1)).exp().sum().backward()  # pointwise
    (x.tanh() * wg.rand(n, 12)).mean().backward()
    wg.where(x > 0.5, x, 0.0).sum().backward()
    for dim in (None, 0, 1):  # reductions
        (x.sum(dim).sum() + x.mean(dim).sum() + x.var(dim).sum()).backward()
    (x.max(1).values.sum() + x.amax(0).sum()).backward()
    (x.argmax(1) == 3).sum()
    (x.softmax(1) * x + x.log_softmax(-1) + F.layer_norm(x, (12,), row)).sum().backward()  # rowwise
    (x @ wg.rand(12, 5, requires_grad=True)).sum().backward()  # contractions
    F.linear(x, wg.rand(10, 12, requires_grad=True), wg.rand(10, requires_grad=True)).sum().backward()
    F.dropout(x).sum().backward()  # random numbers
    wg.randn(n, 3)
    (x[at].sum() + F.embedding(at, x, padding_idx=1).sum()).backward()  # indexing
    x.gather(1, wg.zeros(n, 2, dtype=wg.int64)).sum().backward()
    y = wg.zeros(n, 12).index_add_(0, at, wg.rand(9, 12))
    y.scatter_add_(0, wg.zeros(n, 12, dtype=wg.int64), wg.rand(n, 12))
    y[at] = 1.0
    y[y > 0.5] = 0
    wg.nonzero(y[y >= 0].reshape(n, 12))
    F.cross_entropy(x, wg.zeros(n, dtype=wg.int64), label_smoothing=0.1).backward()  # losses
    F.mse_loss(x, wg.rand(n, 12)).backward()
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
                        nn.Conv2d(16, 16, 3, padding=1, stride=2), nn.Flatten(), nn.Linear(256, 10))
    for make in (optim.SGD, optim.AdamW, optim.RMSprop, optim.Adagrad):  # optimisers
        optimizer = make(net.parameters(), lr=1e-3)
        F.cross_entropy(net(wg.rand(n // 6, 3, 8, 8)), wg.zeros(n // 6, dtype=wg.int64)).backward()
        optimizer.step()
"""


def test_everyday_calls_need_only_kernels_that_prebuild_lists(tmp_path):
    """Compare the kernels that the calls use with prebuild's list. The next test checks that built kernels load."""
    code = CALLS.replace(
        "for n in",
        """from weftgrad.cli.prebuild import instances
listed = instances(wg.device("cpu"), None, [wg.float32])
for n in""",
        1,
    )
    code += "\nwg.cpu.synchronize()\nprint([i.entry for i in set(driver.executor.kernels._kernels) - set(listed)])"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip() == "[]"


def test_prebuilt_kernels_are_found_by_a_run(tmp_path):
    env = {**os.environ, "WEFTGRAD_CACHE": str(tmp_path / "cache")}

    def run_python(*argv: str) -> str:
        completed = subprocess.run([sys.executable, *argv], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    first_report = run_python(
        "-m", "weftgrad.cli", "prebuild", "--ops", "exp", "tanh", "--device", "cpu", "--jobs", "1"
    )
    assert ", 0 of them built already" in first_report
    code = (
        "import weftgrad as wg\n"
        "driver = wg.device('cpu').driver; driver.require(); store = driver.executor.kernels.store\n"
        "names, compile = [], store.compile\n"
        "store.compile = lambda batch: names.extend(i.name for i in batch) or compile(batch)\n"
        "x = wg.ones(3, requires_grad=True); y = x.tanh(); x.exp()\n"
        "wg.autograd.grad(y, x, grad_outputs=wg.ones(3))\n"
        "wg.cpu.synchronize(); print(*names)"
    )
    assert not {"tanh", "exp", "tanh_grad_input"} & set(run_python("-c", code).split())
    second_report = run_python(
        "-m", "weftgrad.cli", "prebuild", "--ops", "exp", "tanh", "--device", "cpu", "--jobs", "1"
    )
    assert "built 0 kernels" in second_report


def children(parent: int) -> list[int]:
    """Return the ids of the child processes of `parent` that have not ended."""
    pids = []
    for process_folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            state, parent_pid = (process_folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent_pid) == parent and state != "Z":
                pids.append(int(process_folder.name))
    return pids


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("delay", [0.0, 0.1, 1.0])
def test_ctrl_c_while_kernels_are_built_ends_every_process_quietly(tmp_path, delay):
    """A terminal sends SIGINT to the command and to its workers, at any moment of the build."""
    (tmp_path / "pocl").mkdir()
    env = {**os.environ, "WEFTGRAD_CACHE": str(tmp_path / "cache"), "POCL_CACHE_DIR": str(tmp_path / "pocl")}
    command = [sys.executable, "-m", "weftgrad.cli", "prebuild", "--device", "cpu", "--jobs", "2",
               "--ops", "softmax", "mm", "exp", "sum"]  # fmt: skip
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, env=env, start_new_session=True, **pipes) as process:
        assert process.stdout is not None
        assert "0 of them built already" in process.stdout.readline()
        while not (workers := children(process.pid)) and process.poll() is None:
            time.sleep(0.002)
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert workers
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def test_colours_only_on_a_terminal(monkeypatch):
    class Terminal:
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    style = Style(Terminal())
    assert style.highlight("c", "int x = 1; // one") == "\x1b[36mint\x1b[0m x = \x1b[35m1\x1b[0m; \x1b[2m// one\x1b[0m"
    assert style.highlight("yaml", "- op: 3") == "\x1b[34m- op\x1b[0m: \x1b[35m3\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Style(Terminal()).highlight("c", "int") == "int"
    assert table([["a", "bb"]], ("one", "two"), Style()) == "one  two\na    bb"
