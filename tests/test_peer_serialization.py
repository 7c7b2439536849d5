"""Exchange checkpoints with PyTorch, which has to be installed: each reads what the other writes."""

import io
import zipfile
from collections import Counter, OrderedDict

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn, serialization
from weftgrad.runtime.errors import NotSupported, UnsupportedDType

torch = pytest.importorskip("torch")

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def torch_model():
    torch.manual_seed(0)
    layers = (torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    return torch.nn.Sequential(*layers)


def our_model():
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))


def torch_values():
    base = torch.arange(10.0)
    marked = torch.ones(2)
    marked.note = "x"
    return {
        **{name: torch.ones(2, 3).to(getattr(torch, name)) for name in DTYPES},
        "view": base[2:5], "overlapping": base[3:], "transposed": torch.arange(6).reshape(2, 3).T,
        "scalar": torch.tensor(3), "expanded": torch.ones(1).expand(4), "empty": torch.empty(0, 3),
        "leaf": torch.ones(2, requires_grad=True), "parameter": torch.nn.Parameter(base), "marked": marked,
        "others": (
            torch.Size([2, 3]), torch.device("cuda:1"), torch.float16, {1, 2}, 1j, b"\0\1", 1 << 70, Counter("aab"),
        ),
    }  # fmt: skip


def is_same(ours, theirs):
    attributes = (tuple(ours.shape), ours.stride(), ours.dtype.name, ours.requires_grad, ours.tolist())
    return attributes == (
        tuple(theirs.shape), theirs.stride(), str(theirs.dtype).removeprefix("torch."), theirs.requires_grad,
        theirs.tolist(),
    )  # fmt: skip


@pytest.mark.parametrize("is_archive", [True, False])
@pytest.mark.parametrize("kwargs", [{}, {"weights_only": False}, {"mmap": True}])
def test_files_that_torch_writes(is_archive, kwargs, tmp_path):
    if kwargs.get("mmap") and not is_archive:
        pytest.skip("the old format is not mapped")
    path = tmp_path / "torch.pt"
    expected = torch_values()
    torch.save(expected, path, _use_new_zipfile_serialization=is_archive)
    actual = wg.load(path, **kwargs)
    assert list(actual) == list(expected)
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert is_same(actual[name], value), name
    actual["view"].numpy()[1] = 50
    assert actual["overlapping"][0].item() == 50
    assert type(actual["parameter"]) is nn.Parameter
    assert actual["marked"].note == "x"
    others = (wg.Size([2, 3]), wg.device("cuda:1"), wg.float16, {1, 2}, 1j, b"\0\1", 1 << 70, Counter("aab"))
    assert actual["others"] == others


def test_a_model_and_its_optimizer_go_on_from_torchs_checkpoint(tmp_path):
    theirs = torch_model()
    their_optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9)
    x = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)

    def step_torch():
        their_optimizer.zero_grad()
        theirs(torch.from_numpy(x)).square().mean().backward()
        their_optimizer.step()

    step_torch()
    path = tmp_path / "checkpoint.pt"
    torch.save({"model": theirs.state_dict(), "optimizer": their_optimizer.state_dict(), "epoch": 3}, path)
    checkpoint = wg.load(path, map_location="cpu")
    ours = our_model().to("cpu")
    assert str(ours.load_state_dict(checkpoint["model"])) == "<All keys matched successfully>"
    assert checkpoint["model"]._metadata == theirs.state_dict()._metadata
    optimizer = wg.optim.SGD(ours.parameters(), lr=0.5)
    optimizer.load_state_dict(checkpoint["optimizer"])
    step_torch()
    ours(wg.from_numpy(x)).square().mean().backward()
    optimizer.step()
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[name].numpy(), value.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)


def our_values():
    base = wg.arange(1000.0, device="cpu")
    return {
        **{name: wg.ones(2, 3, device="cpu").to(getattr(wg, name)) for name in DTYPES},
        "view": base[500:503], "overlapping": base[502:505], "reversed": wg.arange(3, device="cpu").flip(0),
        "transposed": wg.arange(6, device="cpu").reshape(2, 3).T, "scalar": wg.tensor(3, device="cpu"),
        "expanded": wg.ones(1, device="cpu").expand(4), "empty": wg.empty(0, 3, device="cpu"),
        "leaf": wg.ones(2, device="cpu", requires_grad=True), "parameter": nn.Parameter(wg.arange(4.0, device="cpu")),
        "empty parameter": nn.Parameter(wg.empty(0, device="cpu"), requires_grad=False),
    }  # fmt: skip


@pytest.mark.parametrize("mmap", [False, True])
def test_files_that_we_write(mmap, tmp_path):
    path = tmp_path / "ours.pt"
    expected = our_values()
    model = our_model()
    numbers = [
        1,
        -1,
        1 << 70,
        2.5,
        None,
        True,
        "é",
        1j,
        b"",
        b"\xff\0",
        bytearray(b"ab"),
        {1, 2},
        (1, (2,)),
        Counter("a"),
    ]
    state = {
        "model": model.state_dict(), "numbers": numbers, "size": expected["bool"].shape, "dtype": wg.bfloat16,
        "device": wg.device("cpu"), "meta": wg.empty(2, device="meta"), "buffer": nn.Buffer(wg.ones(1)),
    }  # fmt: skip
    wg.save(expected | state, path, format="torch")
    actual = torch.load(path, weights_only=True, mmap=mmap)
    for name, value in expected.items():
        assert is_same(value, actual[name]), name
    assert actual["numbers"] == numbers
    assert (actual["size"], actual["dtype"], actual["device"]) == (
        torch.Size([2, 3]),
        torch.bfloat16,
        torch.device("cpu"),
    )
    assert type(actual["size"]) is torch.Size
    assert type(actual["parameter"]) is torch.nn.Parameter
    assert (actual["meta"].device.type, tuple(actual["meta"].shape), actual["buffer"].item()) == ("meta", (2,), 1)
    assert type(actual["model"]) is OrderedDict
    assert actual["model"]._metadata == model.state_dict()._metadata
    assert str(torch_model().load_state_dict(actual["model"])) == "<All keys matched successfully>"
    actual["view"][2] = 7  # the two share memory, and no more of the base than they use is in the file
    assert actual["overlapping"][0].item() == 7
    assert actual["view"].untyped_storage().nbytes() == 20
    ours = wg.load(path, mmap=mmap)
    assert all(is_same(ours[name], torch.load(path, weights_only=True)[name]) for name in expected)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


def test_state_dicts_of_torch_are_loaded():
    theirs = torch_model()
    ours = our_model()
    for dtype in (torch.float32, torch.bfloat16):
        state = theirs.to(dtype).state_dict()
        ours.load_state_dict(state)
        assert ours[0].weight.tolist() == state["0.weight"].tolist()
        ours.load_state_dict(theirs.state_dict(keep_vars=True), assign=True)
        assert ours[0].weight.dtype.name == str(dtype).removeprefix("torch.")
        before = ours[0].weight.tolist()
        theirs[0].weight.data.zero_()
        assert ours[0].weight.tolist() == before  # a copy
    state = theirs.state_dict() | {"0.weight": torch.ones(6, 4, dtype=torch.complex64)}
    with pytest.raises(ValueError, match=r"0\.weight: .*complex64"):
        ours.load_state_dict(state)
    with pytest.raises(ValueError, match=r"0\.bias: .*Sparse"):
        ours.load_state_dict(theirs.state_dict() | {"0.bias": torch.ones(6).to_sparse()})


def test_an_optimizer_loads_the_state_of_torchs():
    weight = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    theirs = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    weight.square().sum().backward()
    theirs.step()
    ours = wg.optim.SGD([wg.ones(3, dtype=wg.bfloat16, requires_grad=True)], lr=0.5)
    ours.load_state_dict(theirs.state_dict())
    assert ours.param_groups[0]["momentum"] == 0.9
    assert next(iter(ours.state.values()))["momentum_buffer"].tolist() == [2, 2, 2]


REFUSED = {
    "uint16": (lambda: torch.ones(2).to(torch.uint16), UnsupportedDType),
    "complex64": (lambda: torch.ones(2, dtype=torch.complex64), UnsupportedDType),
    "float8_e5m2": (lambda: torch.ones(2).to(torch.float8_e5m2), UnsupportedDType),
    "sparse": (lambda: torch.eye(2).to_sparse(), NotSupported),
    "neg": (lambda: torch.ones(2, dtype=torch.complex64).conj().imag, NotSupported),
}


@pytest.mark.parametrize("name", REFUSED)
def test_tensors_that_we_lack(name):
    make, error = REFUSED[name]
    file = io.BytesIO()
    torch.save({"model": {"w": make()}}, file)
    file.seek(0)
    with pytest.raises(error, match=rf"model\.w: .*{name}"):
        wg.load(file)


def test_files_without_checksums():
    options = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        file = io.BytesIO()
        torch.save(torch.ones(3), file)
    finally:
        torch.serialization.set_crc32_options(options)
    file.seek(0)
    assert wg.load(file).tolist() == [1, 1, 1]


def test_safetensors_of_torch(tmp_path):
    package = pytest.importorskip("safetensors.torch")
    tensors = {name: torch.ones(2, 3).to(getattr(torch, name)) for name in DTYPES}
    package.save_file(tensors, tmp_path / "model.safetensors")
    ours = serialization.load_safetensors(tmp_path)
    assert all(is_same(ours[name], tensors[name]) for name in DTYPES)
    serialization.save_safetensors(ours, tmp_path / "back.safetensors")
    theirs = package.load_file(tmp_path / "back.safetensors")
    assert all(is_same(ours[name], theirs[name]) for name in DTYPES)
