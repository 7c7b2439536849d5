"""Check the types that users see: programs under `mypy --strict`, and the stubs against the package at run time."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import weftgrad as wg

pytest.importorskip("mypy")

PACKAGE = Path(wg.__file__).parent
if PACKAGE.name != "weftgrad":
    pytest.skip("a type checker cannot see through an editable install", allow_module_level=True)
STUB = PACKAGE / "_generated" / "tensor_methods.pyi"
# Set by the runtime, by Python or by the class statement, not by the package's tables of methods.
OWN_MEMBERS = {
    "__annotations__", "__dict__", "__doc__", "__firstlineno__", "__init__", "__init_subclass__", "__module__",
    "__slots__", "__static_attributes__", "__weakref__", "device", "dtype", "extra", "meta", "ensure_extra", "ndim",
    "needs_grad", "node", "output", "read", "start", "storage",
}  # fmt: skip

TRAINING = """
from typing import Any

import weftgrad as wg
from weftgrad import Tensor, nn, optim
from weftgrad.nn import functional as F
from weftgrad.utils.data import DataLoader, Dataset, TensorDataset, random_split


class Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Dropout(0.1))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm(self.body(x))
        return self.head(F.gelu(hidden))


def accuracy(scores: Tensor, target: Tensor) -> float:
    return float((scores.argmax(1) == target).float().mean())


def train() -> float:
    wg.manual_seed(0)
    x = wg.randn(64, 4)
    y = (x @ wg.randn(4, 3)).argmax(1)
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    model = Net(8)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    total = 0.0
    for _ in range(2):
        for batch, target in loader:
            loss = F.cross_entropy(model(batch), target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        schedule.step()
    with wg.no_grad():
        return total + accuracy(model(x), y)


def gradients() -> Tensor:
    x = wg.ones(3, requires_grad=True)
    (2 * x**2 - x / 3).sum().backward()
    assert x.grad is not None
    (grad,) = wg.autograd.grad((x * x).sum(), [x])
    x.data.mul_(2).relu_()
    values, indices = x.max(0)
    smaller: Tensor = wg.where(x < 1, x, 0.0).clamp(min=0)
    rows, columns = x.reshape(1, 3).shape
    return x.grad + grad + values + indices + smaller.view(-1)[0] + rows * columns


class Squares(Dataset[tuple[Tensor, int]]):
    def __init__(self, count: int, device: wg.device, dtype: wg.dtype) -> None:
        self.values = wg.arange(count).to(device, dtype) ** 2

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.values[index], index

    def __len__(self) -> int:
        return self.values.size(0)


class Double(wg.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x + x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad + grad


def squares() -> list[Tensor]:
    first, second = random_split(Squares(4, wg.device("cpu"), wg.float32), [3, 1])
    value, index = first[0]
    assert isinstance(value.device, wg.device) and value.item() == index**2
    loader: DataLoader[tuple[Tensor, int]] = DataLoader(first, batch_size=3)
    x, y = wg.ones(1, requires_grad=True), wg.zeros(1, requires_grad=True)
    loss = optim.SGD([{"params": [x]}, {"params": [y], "lr": 0.5}], lr=0.1).step(lambda: wg.ones(1))
    return [loss, *(values for values, _ in loader), second[0][0]]


@wg.no_grad()
def evaluate(model: nn.Module, x: Tensor) -> Tensor:
    model.eval()
    return x.softmax(-1)


if __name__ == "__main__":
    assert train() > 0
    assert gradients().shape == (3,)
    assert len(squares()) == 3
    assert Double.apply(wg.ones(1)).item() == 2
    assert evaluate(Net(2), wg.ones(2)).tolist() == [0.5, 0.5]
"""

# An expression and its type.
TYPES = [
    ("x.sum()", "Tensor"),
    ("x.sum(dim=-1, keepdim=True)", "Tensor"),
    ("x.sum(axis=0)", "Tensor"),
    ("x + 1", "Tensor"),
    ("1 - x", "Tensor"),
    ("x @ x", "Tensor"),
    ("x == x", "Tensor"),
    ("-x", "Tensor"),
    ("abs(x)", "Tensor"),
    ("x[0, 1:]", "Tensor"),
    ("x.T", "Tensor"),
    ("x.grad", "Tensor | None"),
    ("x.shape", "Size"),
    ("x.size()", "Size"),
    ("x.size(0)", "int"),
    ("x.dtype", "DType"),
    ("x.device", "Device"),
    ("wg.device('cpu')", "Device"),
    ("x.to('cpu', wg.float64)", "Tensor"),
    ("x.to(np.float64, copy=True)", "Tensor"),
    ("x.to(x)", "Tensor"),
    ("wg.zeros(2, 3, dtype=np.dtype('f4'), device=0, layout=wg.strided)", "Tensor"),
    ("wg.empty_like(x, dtype='float64', memory_format=wg.contiguous_format)", "Tensor"),
    ("wg.full((2,), 1, dtype=float)", "Tensor"),
    ("wg.sum(x, dtype='float64')", "Tensor"),
    ("len(x)", "int"),
    ("float(x.sum())", "float"),
    ("x.relu_()", "Tensor"),
    ("x.absolute()", "Tensor"),
    ("x.arctan2_(x)", "Tensor"),
    ("x.squeeze_()", "Tensor"),
    ("x.addmm_(x, x)", "Tensor"),
    ("x.normal_(std=2.0)", "Tensor"),
    ("x.max()", "Tensor"),
    ("x.max(1).indices", "Tensor"),
    ("x.sort().values", "Tensor"),
    ("x.nonzero(as_tuple=True)", "tuple[Tensor, ...]"),
    ("x.unique(return_counts=True)", "tuple[Tensor, ...]"),
    ("x.split(1)", "tuple[Tensor, ...]"),
    ("wg.absolute(x)", "Tensor"),
    ("wg.softmax(x, 0)", "Tensor"),
    ("wg.cat([x, x])", "Tensor"),
    ("wg.dropout(x, 0.5, True)", "Tensor"),
    ("wg.float32", "DType"),
    ("wg.bool", "DType"),
    ("wg.pi", "float"),
    ("nn.Linear(2, 3)(x)", "Tensor"),
    ("nn.ReLU(inplace=True)(x)", "Tensor"),
    ("nn.Threshold(0.5, 0.0).value", "float"),
    ("nn.CrossEntropyLoss()(x, x)", "Tensor"),
    ("nn.GRU(2, 3)(x)[0]", "Tensor"),
    ("nn.LSTM(2, 3)(x)", "tuple[Tensor, tuple[Tensor, Tensor]]"),
    ("nn.LSTMCell(2, 3)(x)", "tuple[Tensor, Tensor]"),
    ("wg.lstm(x, (x, x), [x], False, 1, 0.0, False, False)", "tuple[Tensor, Tensor, Tensor]"),
    ("wg.gru(x, x, x, [x], False, 1, 0.0, False, False)", "tuple[Tensor, Tensor]"),
    ("nn.modules.Linear(2, 3)(x)", "Tensor"),
    ("nn.utils.skip_init(nn.Linear, 2, 3)", "Linear"),
    ("nn.init.xavier_uniform(x)", "Tensor"),
    ("nn.Sequential(nn.ReLU(), nn.Tanh())(x)", "Tensor"),
    ("nn.Sequential(nn.ReLU(), nn.Tanh())[0]", "Module"),
    ("nn.ModuleList([nn.ReLU()])[:1]", "ModuleList"),
    ("nn.Module().scale", "Tensor | Module"),
    ("wg.compile(nn.ReLU())", "ReLU"),
    ("optim.SGD([x]).step()", "None"),
    ("optim.SGD([x]).step(lambda: 0.5)", "float"),
    ("optim.LBFGS([x]).step(lambda: x.sum())", "Tensor"),
    ("optim.lr_scheduler.StepLR(optim.SGD([x]), 1).get_last_lr()", "list[float | Tensor]"),
    ("optim.swa_utils.get_ema_avg_fn()(x, x)", "Tensor"),
    ("wg.amp.GradScaler('cpu').scale([x])", "list[Tensor]"),
    ("wg.autocast('cpu')(len)([1])", "int"),
    ("DataLoader([1, 2])", "DataLoader[int]"),
    ("DataLoader(TensorDataset(x))", "DataLoader[tuple[Tensor, ...]]"),
    ("list(SubsetRandomSampler([1, 2]))", "list[int]"),
    ("list(SubsetRandomSampler(x))", "list[Tensor]"),
    ("TensorDataset(x)[0]", "tuple[Tensor, ...]"),
    ("x[None, ..., [0, 1], x > 0]", "Tensor"),
    ("x.shape[0]", "int"),
    ("x.shape[1:]", "Size"),
    ("x.shape + (1,)", "Size"),
    ("(1,) + x.shape", "Size"),
    ("x.shape * 2", "Size"),
    ("x[wg.Size((0, 1))]", "Tensor"),
    ("x[range(2), [True, False]]", "Tensor"),
    ("x.type(wg.LongTensor)", "Tensor"),
    ("x.new_tensor([1], dtype=wg.int64)", "Tensor"),
    ("wg.jit.ignore(wg.relu)(x)", "Tensor"),
    ("wg.jit.annotate(int, 3)", "int"),
    ("wg.frombuffer(memoryview(bytes(4)), dtype=wg.uint8)", "Tensor"),
    ("wg.from_dlpack(np.arange(3))", "Tensor"),
    ("wg.softmax(x, 0)", "Tensor"),
    ("x.reshape(np.int64(2), 2)", "Tensor"),
    ("wg.zeros(np.int64(2), 2)", "Tensor"),
    ("wg.rand((2, 3))", "Tensor"),
    ("wg.randint(3, (2,))", "Tensor"),
    ("wg.randint(0, 3, size=(2,), dtype=wg.int32)", "Tensor"),
    ("wg.randint(low=0, high=np.int64(3), size=[2])", "Tensor"),
    ("x.new_zeros((2, 3), dtype=wg.int64)", "Tensor"),
    ("x.clamp(0, np.float32(1))", "Tensor"),
    ("wg.maximum(x, np.float32(1))", "Tensor"),
    ("F.max_pool1d(x, 2, return_indices=True)", "tuple[Tensor, Tensor]"),
    ("wg.no_grad(wg.relu)(x)", "Tensor"),
    ("wg.inference_mode(wg.relu)(x)", "Tensor"),
    ("wg.inference_mode(mode=False)", "inference_mode"),
    ("wg.autograd.Variable(x, requires_grad=True).relu()", "Tensor"),
    ("wg.autograd.functional.jacobian(wg.relu, x)", "Tensor"),
    ("wg.autograd.functional.jacobian(wg.aminmax, (x,))", "tuple[tuple[Tensor, ...], ...]"),
    ("wg.autograd.functional.vjp(wg.relu, [x], x)", "tuple[Tensor, tuple[Tensor, ...]]"),
    ("wg.autograd.functional.hvp(wg.sum, x, x)[1]", "Tensor"),
    ("wg.profiler.profile().key_averages()[0].count", "int"),
    ("wg.profiler.profile().events()[0].cpu_parent", "FunctionEvent | None"),
    ("wg.profiler.record_function('f')(wg.relu)(x)", "Tensor"),
    ("wg.einsum('ij->ji', x)", "Tensor"),
    ("wg.einsum(x, [0, ...], [..., 0])", "Tensor"),
    ("wg.searchsorted(x, 0.5)", "Tensor"),
]
# An expression and the error that mypy reports.
ERRORS = [
    ("wg.softmaxx(x, 0)", 'has no attribute "softmaxx"'),
    ("x.summ()", 'has no attribute "summ"'),
    ("x.relu__()", 'has no attribute "relu__"'),
    ("nn.Lineaar(2, 3)", 'has no attribute "Lineaar"'),
    ("F.reluu(x)", 'has no attribute "reluu"'),
    ('x.sum(dim="rows")', 'incompatible type "str"'),
    ("wg.relu([x])", 'incompatible type "list[Tensor]"'),
    ("wg.add(x, x, beta=2)", 'Unexpected keyword argument "beta"'),
    ("wg.ones(2, dtypes=wg.float32)", "No overload variant"),
    ('x + "a"', "Unsupported operand types"),
    ('nn.Linear("2", 3)', 'incompatible type "str"'),
    ("nn.Linear(2, 3)(3)", 'incompatible type "int"'),
    ("nn.Linear(2, 3)(x, x)", "Too many arguments"),
    ("nn.Sequential(nn.ReLU(), 3)", 'incompatible type "int"'),
    ('nn.utils.skip_init(nn.Linear, 2, "3")', 'incompatible type "str"'),
    ('nn.init.xavier_uniform("x")', 'incompatible type "str"'),
    ("wg.gru(x, [x], False, 1, 0.0, False, False)", "No overload variant"),
    ("nn.Sigmoid(3)", "Too many arguments"),
    ("nn.ReLU(inplce=True)", "Unexpected keyword argument"),
    ("wg.zeros(2, dtype=5)", "No overload variant"),
    ("wg.full((2,), 1, dtype=5)", 'incompatible type "int"'),
    ("wg.full((2,), 1, device=0.5)", 'incompatible type "float"'),
    ('wg.full((2,), 1, layout="sparse")', "incompatible type"),
    ('x.sum(dtype=["float32"])', 'incompatible type "list[str]"'),
    ("x.to([1])", "No overload variant"),
    ("wg.randint(3.5, (2,))", "No overload variant"),
    ("wg.randint(3, 2)", "No overload variant"),
    ('x.clone(memory_format="row_major")', "incompatible type"),
    ('nn.Conv2d("3", 4, 3)', 'incompatible type "str"'),
    ('nn.Conv2d(3, 4, "3")', 'incompatible type "str"'),
    ('nn.MaxPool2d("2")', 'incompatible type "str"'),
    ('nn.AdaptiveAvgPool2d("2")', 'incompatible type "str"'),
    ('F.avg_pool2d(x, "2")', 'incompatible type "str"'),
    ('nn.Upsample(scale_factor="2")', 'incompatible type "str"'),
    ("nn.ZeroPad2d(0.5)", 'incompatible type "float"'),
    ('nn.LayerNorm("3")', 'incompatible type "str"'),
    ("nn.Parameter(3)", 'incompatible type "int"'),
    ("nn.Module().scale + 1", "Unsupported operand types"),
    ('optim.SGD([x], lr="0.1")', 'incompatible type "str"'),
    ("optim.Adam(5)", 'incompatible type "int"'),
    ("optim.Adam([x], betas=0.9)", 'incompatible type "float"'),
    ("optim.LBFGS([x]).step()", "Missing positional argument"),
    ("optim.SGD([x]).register_step_pre_hook(lambda optimizer, args, kwargs: 3)", "incompatible type"),
    ("optim.lr_scheduler.LambdaLR(optim.SGD([x]), 0.5)", 'incompatible type "float"'),
    ("wg.utils.checkpoint.checkpoint(x, 1)", "incompatible type"),
    ("DataLoader(5)", 'incompatible type "int"'),
    ("DataLoader([1], multiprocessing_context=5)", 'incompatible type "int"'),
    ('x["rows"]', "Invalid index type"),
    ("x[0.5]", "Invalid index type"),
    ('wg.tensor(1, dtype=["int64"])', "incompatible type"),
    ('x.shape + "a"', "Unsupported operand types"),
    ("wg.where(x > 0, [x], x)", "No overload variant"),
    ('x.reshape("3")', 'incompatible type "str"'),
    ('x.new_zeros(2, dtypes="int64")', "Unexpected keyword argument"),
    ('wg.add(x, "1")', 'incompatible type "str"'),
    ("wg.mm(x, 2.0)", 'incompatible type "float"'),
    ("wg.exp(2.0)", 'incompatible type "float"'),
    ("F.softmax(2.0, 0)", 'incompatible type "float"'),
    ('wg.clamp(x, min="0")', 'incompatible type "str"'),
    ('wg.full((2,), "1")', 'incompatible type "str"'),
    ('wg.median(x, "rows")', "No overload variant"),
    ("wg.einsum('ij,j->i', x, 3)", 'incompatible type "int"'),
    ('wg.autograd.functional.vjp(wg.relu, "x")', 'incompatible type "str"'),
    ("wg.profiler.profile().events().table(sort_by=3)", 'incompatible type "int"'),
]
HEAD = """import numpy as np
import weftgrad as wg
from weftgrad import nn, optim
from weftgrad.nn import functional as F
from weftgrad.utils.data import DataLoader, SubsetRandomSampler, TensorDataset
x = wg.ones(2, 2)
"""


def mypy(folder, files):
    """Return what `mypy --strict` reports on the files, by file and line."""
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary"]
    search_path = str(PACKAGE.parent)
    environment = {"MYPYPATH": search_path, "PATH": "/usr/bin:/bin"} if "site-packages" not in search_path else None
    for name, text in files.items():
        (folder / name).write_text(text)
    result = subprocess.run(
        [*command, "--cache-dir", str(folder / "cache"), *files], cwd=folder, env=environment, capture_output=True,
        text=True, timeout=240,
    )  # fmt: skip
    assert not result.stderr, result.stderr
    messages = {}
    for line in result.stdout.splitlines():
        name, number, message = line.split(":", 2)
        messages.setdefault((name, int(number)), []).append(message)
    return messages


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    lines = [f"reveal_type({expression})" for expression, _ in TYPES + ERRORS]
    files = {"training.py": TRAINING, "expressions.py": HEAD + "\n".join(lines) + "\n"}
    return mypy(tmp_path_factory.mktemp("typing"), files)


def messages_about(report, expression):
    line = [row[0] for row in TYPES + ERRORS].index(expression) + HEAD.count("\n") + 1
    return report["expressions.py", line]


def test_a_training_program_has_no_type_errors_and_runs(report):
    assert {key: text for key, text in report.items() if key[0] == "training.py"} == {}
    exec(compile(TRAINING, "training.py", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(("expression", "type_name"), TYPES)
def test_an_expression_has_its_type(report, expression, type_name):
    (message,) = messages_about(report, expression)
    assert re.sub(r"\b\w+\.(?=\w)", "", message).strip() == f'note: Revealed type is "{type_name}"'


@pytest.mark.parametrize(("expression", "error"), ERRORS)
def test_a_wrong_expression_is_an_error(report, expression, error):
    assert any(error in text for text in messages_about(report, expression) if "error:" in text)


# Pyright: not in the extra `test`, because it brings Node, 200 MiB ----------------------------------------------------


# Pyright asks the left operand first, also if the right one is of a subclass, which Python asks first.
PYRIGHT_TYPES = {"(1,) + x.shape": "tuple[int, ...]"}


def pyright(folder, files):
    """Return (severity, message) of what pyright reports in its strict mode, by file and line."""
    name = next((name for name in ("basedpyright", "pyright") if importlib.util.find_spec(name)), None)
    if name is None:
        pytest.skip("needs pyright or basedpyright")
    command = [sys.executable, "-m", name]
    if subprocess.run([*command, "--version"], capture_output=True, timeout=240).returncode:
        pytest.skip(f"{name} does not run; it may need the network to fetch Node")
    for file, text in files.items():
        (folder / file).write_text(text)
    options = {"typeCheckingMode": "strict", "include": ["."], "extraPaths": [str(PACKAGE.parent)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(options))
    command += ["--outputjson", "--pythonpath", sys.executable, "--project", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240)
    messages = {}
    for row in json.loads(result.stdout)["generalDiagnostics"]:
        key = Path(row["file"]).name, row["range"]["start"]["line"] + 1
        messages.setdefault(key, []).append((row["severity"], row["message"]))
    return messages


def test_pyright_agrees_with_mypy(tmp_path):
    lines = [f"reveal_type({expression})" for expression, _ in TYPES + ERRORS]
    report = pyright(tmp_path, {"training.py": TRAINING, "expressions.py": HEAD + "\n".join(lines) + "\n"})
    assert {key: rows for key, rows in report.items() if key[0] == "training.py"} == {}
    for number, (expression, expected) in enumerate(TYPES + ERRORS, HEAD.count("\n") + 1):
        rows = report["expressions.py", number]
        errors = [text for severity, text in rows if severity == "error"]
        types = [text.rpartition(" is ")[2] for severity, text in rows if severity == "information"]
        if number - HEAD.count("\n") <= len(TYPES):
            assert (errors, types) == ([], [f'"{PYRIGHT_TYPES.get(expression, expected)}"']), expression
        else:
            assert errors, expression


# Stubs and run time ---------------------------------------------------------------------------------------------------


@cache
def declared_members():
    names = {}
    (declaration,) = (node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ClassDef))
    for node in declaration.body:
        if isinstance(node, ast.FunctionDef):
            names[node.name] = node
        elif isinstance(node, ast.AnnAssign):
            names[node.target.id] = node
    return names


def test_the_stub_declares_every_member_of_tensor_and_no_other():
    assert set(declared_members()) == set(vars(wg.Tensor)) - OWN_MEMBERS


def test_the_stub_agrees_with_tensor_on_properties():
    for name, node in declared_members().items():
        decorators = {ast.unparse(d).rpartition(".")[2] for d in getattr(node, "decorator_list", ())}
        is_property = bool(decorators & {"property", "setter", "deleter"})
        assert isinstance(vars(wg.Tensor)[name], property) == is_property, name


def test_no_result_in_the_stub_is_any_except_where_python_objects_are_returned():
    untyped = {
        name
        for name, node in declared_members().items()
        if isinstance(node, ast.FunctionDef) and node.returns is not None and ast.unparse(node.returns) == "Any"
    }
    assert untyped == {"__dlpack__", "tolist"}


def test_type_checkers_see_every_name_of_the_package(tmp_path):
    names = sorted({*wg.__all__, *wg._LAZY, *wg._OF_LAYERS})
    lines = ["import weftgrad as wg", *(f"wg.{name}" for name in names), "wg.no_such_name"]
    messages = mypy(tmp_path, {"names.py": "\n".join(lines) + "\n"})
    missing = {lines[number - 1] for _, number in messages}
    assert missing == {"wg.no_such_name"}


def test_every_name_that_the_function_stub_exports_exists():
    names = {
        alias.asname
        for node in ast.parse((PACKAGE / "_generated" / "functions.pyi").read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if not alias.asname.startswith("_")
    }
    assert len(names) > 100
    assert {name for name in names if not hasattr(wg, name)} == set()
