"""Check `save` and `load`: restored values, shared memory, other devices, and truncated, damaged or hostile files."""

import base64
import collections
import io
import pathlib
import pickle
import pickletools
import tracemalloc
import zlib

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import serialization
from weftgrad.runtime.errors import ArgumentError, DeviceError
from weftgrad.serialization import file_format
from weftgrad.serialization.file_memory import FileMemory


def save_to_bytes(value):
    file = io.BytesIO()
    wg.save(value, file)
    return file.getvalue()


def load_from_bytes(data, *args, **kwargs):
    return wg.load(io.BytesIO(data), *args, **kwargs)


def save_and_load(value, **kwargs):
    return load_from_bytes(save_to_bytes(value), **kwargs)


def vector(*values, **kwargs):
    return wg.tensor(np.array(values, np.float32), device="cpu", **kwargs)


def test_saved_values_are_restored(tmp_path):
    state = collections.OrderedDict(weight=vector(1, 2, 3), steps=7)
    state._metadata = {"version": 1}
    value = {
        "state": state, "nested": [(1, 2.5, None), {"a": {3}}, frozenset({4})], "dtype": wg.bfloat16,
        "device": wg.device("opencl:0"), "count": collections.Counter("aab"), "queue": collections.deque([1]),
        "array": np.arange(3), "number": np.float32(2), "generator": wg.Generator().manual_seed(5),
        "empty": wg.empty(0, 3, device="cpu"), "slice": slice(1, 2), "bytes": b"\0\1", "complex": 1j,
        "shape": wg.ones(2, 3).shape,
    }  # fmt: skip
    path = tmp_path / "all.pt"
    wg.save(value, path)
    wg.save(value, str(path))  # overwrites the first file
    actual = wg.load(path)
    assert list(tmp_path.iterdir()) == [path]
    assert actual.keys() == value.keys()
    assert actual["state"]["weight"].tolist() == [1, 2, 3]
    assert type(actual["state"]) is collections.OrderedDict
    assert actual["state"]._metadata == {"version": 1}
    assert actual["array"].tolist() == [0, 1, 2]
    assert actual["generator"].initial_seed() == 5
    assert actual["empty"].shape == (0, 3)
    for name in ("nested", "dtype", "device", "count", "queue", "number", "slice", "bytes", "complex", "shape"):
        assert actual[name] == value[name], name
    assert type(actual["shape"]) is wg.Size
    with pytest.raises(pickle.PicklingError):
        wg.save(lambda: 1, path)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float64"])
def test_dtypes_and_values_are_restored(dtype):
    values = wg.tensor([0.0, 1.0, 1.0], dtype=getattr(wg, dtype), device="cpu")
    actual = save_and_load(values)
    assert actual.dtype is values.dtype
    assert actual.tolist() == [0, 1, 1]


def test_classes_and_gradients():
    leaf = wg.nn.Parameter(vector(1, 2))
    fixed = wg.nn.Parameter(vector(1), requires_grad=False)
    restored = save_and_load([leaf, fixed, vector(1, requires_grad=True), leaf])
    assert [type(f) for f in restored[:3]] == [wg.nn.Parameter, wg.nn.Parameter, wg.Tensor]
    assert [f.requires_grad for f in restored] == [True, False, True, True]
    assert restored[0] is restored[3]
    computed = save_and_load({"loss": (leaf * 2).sum()})["loss"]  # as tutorials save a loss: it is loaded as a leaf
    assert (computed.item(), computed.is_leaf, computed.requires_grad) == ((leaf * 2).sum().item(), True, True)
    assert pickle.loads(pickle.dumps(leaf * 2)).tolist() == (leaf * 2).tolist()


def test_views_of_one_tensor_still_share_memory():
    base = wg.tensor(np.arange(12, dtype=np.float32).reshape(3, 4), device="cpu")
    row, strided, transposed = save_and_load([base[2], base[1:, ::2], base.T])
    np.testing.assert_array_equal(strided.numpy(), [[4, 6], [8, 10]])
    assert transposed.stride() == (1, 4)
    transposed.numpy()[2, 1] = 50.0
    assert strided.tolist() == [[4, 50], [8, 10]]
    assert row.tolist() == [8, 9, 10, 11]


def test_only_the_elements_of_a_view_are_written():
    large = wg.zeros(100_000, device="cpu")
    assert len(save_to_bytes(large[500:600])) < 1000


def test_several_in_one_file():
    file = io.BytesIO()
    wg.save(vector(1), file)
    wg.save(vector(2, 3), file)
    file.seek(0)
    assert [wg.load(file).tolist(), wg.load(file).tolist()] == [[1], [2, 3]]


@pytest.mark.parametrize(
    "location",
    ["opencl:0", wg.device("opencl:0"), {"cpu": "opencl:0"}, lambda stored, device_name: stored.to("opencl:0"),
     lambda stored, device_name: {"cpu": "opencl:0"}[device_name]],
)  # fmt: skip
def test_map_location(location):
    assert str(save_and_load(vector(1, 2), map_location=location).device) == "opencl:0"
    data = save_to_bytes([vector(1, 2).to("opencl:0"), vector(3)])
    on_cpu = load_from_bytes(data, map_location={"opencl:0": "cpu"})
    assert [t.tolist() for t in on_cpu] == [[1, 2], [3]]
    assert {str(t.device) for t in on_cpu} == {"cpu"}
    unmapped = load_from_bytes(data, map_location=lambda stored, device_name: None)
    assert [str(t.device) for t in unmapped] == ["opencl:0", "cpu"]
    assert [str(t.device) for t in load_from_bytes(data, lambda stored, device_name: stored)] == ["cpu", "cpu"]


def test_an_unknown_device():
    data = save_to_bytes(vector(1)).replace(b"\x8c\x03cpu", b"\x8c\x03xpu")
    header = file_format.HEADER
    magic, version, size, count, _ = header.unpack(data[: header.size])
    text = data[header.size : header.size + size]
    data = header.pack(magic, version, size, count, zlib.crc32(text)) + data[header.size :]
    with pytest.raises(DeviceError, match=r"'xpu'.*map_location='cpu'"):
        load_from_bytes(data)
    assert load_from_bytes(data, map_location="cpu").tolist() == [1]


def test_files_cut_off_or_damaged():
    data = save_to_bytes({"a": vector(1, 2, 3), "b": vector(4)})
    for end in range(1, len(data)):
        with pytest.raises(ArgumentError, match=r"cut off|no file of"):
            load_from_bytes(data[:end])
    for position in (50, len(data) - 1):
        broken = bytearray(data)
        broken[position] ^= 1
        with pytest.raises(ArgumentError, match="damaged"):
            load_from_bytes(bytes(broken))
    kinds = {b"": "empty", b"PK\x03\x04..": "PyTorch", b"\x93NUMPY": "numpy.load", b"GIF89a": "no file"}
    for foreign, word in kinds.items():
        with pytest.raises(ArgumentError, match=word):
            load_from_bytes(foreign)


def test_containers_that_hold_others_twice_or_themselves():
    """A list of twice the list of twice … has 2**100 parts by reference."""
    doubled = wg.ones(1, device="cpu")
    for _ in range(100):
        doubled = [doubled, doubled]
    actual = load_from_bytes(pickle.dumps(doubled), map_location="cpu")
    assert actual[0] is actual[1]
    cycle = []
    cycle.append(cycle)
    cycle = load_from_bytes(pickle.dumps(cycle), map_location="cpu")
    assert cycle[0] is cycle


def test_sizes_in_a_header_that_lie(tmp_path):
    data = save_to_bytes(vector(1, 2))
    header = file_format.HEADER
    magic, version, size, count, checksum = header.unpack(data[: header.size])
    begin = header.size + size
    entry = file_format.TABLE_ENTRY.unpack_from(data, begin)
    text, content = data[header.size : begin], data[begin + file_format.TABLE_ENTRY.size :]
    path = tmp_path / "a.pt"
    for lie in (1 << 40, 1 << 62, (1 << 64) - 1):
        for broken in (
            header.pack(magic, version, lie, count, checksum) + data[header.size :],
            header.pack(magic, version, size, lie, checksum) + data[header.size :],
            data[: header.size] + text + file_format.TABLE_ENTRY.pack(entry[0], lie, entry[2]) + content,
            data[: header.size] + text + file_format.TABLE_ENTRY.pack(lie, *entry[1:]) + content,
        ):
            path.write_bytes(broken)
            with pytest.raises(ArgumentError, match=r"cut off|damaged"):
                wg.load(path)


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.pt"
    wg.save(vector(1), path)
    with pytest.raises(ArgumentError, match="lambda"):
        wg.save({"f": lambda: 0}, path)
    assert wg.load(path).tolist() == [1]
    assert list(tmp_path.iterdir()) == [path]


class Evil:
    def __reduce__(self):
        return pathlib.Path("/nowhere").unlink, ()


class StateSetter:
    """Pickles as a tensor whose state is set to an offset outside of its memory."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __reduce__(self):
        return self.tensor.__reduce__()[0], self.tensor.__reduce__()[1], (None, {"start": 1 << 40})


class Settings:
    def __init__(self, rate):
        self.rate = rate


# What version 0.1.0 wrote for {"w": arange(3.0), "size": ones(2, 3).shape}, when modules had other names.
_FILE_OF_0_1 = (
    "eNorT00rSS9KTGFkgICbUBrGbz1ixA2iG1innoMK1U7R6GEsn9IjVg7Vq1ecWpSZmJNZlViSmZ83pYcjvig1qTQzJ2XKZKBScbiyotK8kszcVL2S1Lzi"
    "/KIpPWwhEMbkKd4MPczJBaVT2qYEYlGfUlJZkFo8pYe1ILGoOBWovIc9LSc/scTYaErrlKAp3sytU7wZgZihswTI7WEpzqxKndIjADcnN7UkIz8FaABL"
    "MEgGaB2TN3MbUG/jlFI9qKcYeKB0wZ4TBgxw0GAPJBwArSteCw=="
)


@pytest.mark.parametrize("weights_only", [True, False])
def test_files_of_version_0_1_are_read(weights_only):
    restored = load_from_bytes(zlib.decompress(base64.b64decode(_FILE_OF_0_1)), weights_only=weights_only)
    assert restored["w"].tolist() == [0, 1, 2]
    assert restored["size"] == (2, 3)
    assert type(restored["size"]) is wg.Size


def test_code_is_refused():
    for value in (Evil(), pathlib.Path("x"), np.random.default_rng(0)):
        with pytest.raises(ArgumentError, match="weights_only=False"):
            save_and_load(value)
    with pytest.raises(ArgumentError, match="sets the state of a Tensor"):
        load_from_bytes(pickle.dumps(StateSetter(vector(1))))
    assert save_and_load(pathlib.Path("x"), weights_only=False) == pathlib.Path("x")
    with pytest.raises(ArgumentError, match="Settings"):
        save_and_load(Settings(2))
    with serialization.safe_globals([Settings]):
        assert save_and_load(Settings(2)).rate == 2
    assert serialization.get_safe_globals() == []


def call(module, name, *args):
    """Opcodes that call a function with arguments that pickle writes."""
    function = pickle.GLOBAL + f"{module}\n{name}\n".encode()
    return function + pickle.MARK + b"".join(pickle.dumps(arg, 2)[2:-1] for arg in args) + pickle.TUPLE + pickle.REDUCE


_NUMPY = "numpy._core.multiarray"
_ARRAY = call(_NUMPY, "_reconstruct", np.ndarray, (0,), b"b")
_TUPLES = pickle.EMPTY_TUPLE + (pickle.DUP + pickle.TUPLE2) * 100  # of 2**100 parts, by reference
_BOMBS = {
    "bytearray of 2**40": pickle.BYTEARRAY8 + (1 << 40).to_bytes(8, "little"),
    "bytearray(2**40)": call("builtins", "bytearray", 1 << 40),
    "set(range(2**40))": call("builtins", "set", range(1 << 40)),
    "frozenset(range(2**40))": call("builtins", "frozenset", range(1 << 40)),
    "Counter(range(2**40))": call("collections", "Counter", range(1 << 40)),
    "deque(range(2**40))": call("collections", "deque", range(1 << 40)),
    "Size(range(2**40))": call("weftgrad.tensor_methods.size", "Size", range(1 << 40)),
    "ndarray(2**40)": call("numpy", "ndarray", (1 << 40,)),
    "ndarray.__new__(2**40)": b"cnumpy\nndarray\n" + pickle.dumps(((1 << 40,),), 2)[2:-1] + pickle.NEWOBJ,
    "_reconstruct(2**40)": call(_NUMPY, "_reconstruct", np.ndarray, (1 << 40,), b"b"),
    "a scalar of 2**30 bytes": call(_NUMPY, "scalar", np.dtype("V1073741824")),
    "an array's state": _ARRAY + pickle.dumps((1, (1 << 40,), np.dtype("O"), False, []), 2)[2:-1] + pickle.BUILD,
    "Tensor(2**20, 2**20)": call("weftgrad.runtime.tensor", "Tensor", 1 << 20, 1 << 20),
    "a key": pickle.EMPTY_DICT + _TUPLES + pickle.NONE + pickle.SETITEM,
    "keys": pickle.EMPTY_DICT + pickle.MARK + _TUPLES + pickle.NONE + pickle.SETITEMS,
    "a dict's key": pickle.MARK + _TUPLES + pickle.NONE + pickle.DICT,
    "an item of a set": pickle.EMPTY_SET + pickle.MARK + _TUPLES + pickle.ADDITEMS,
    "an item of a frozenset": pickle.MARK + _TUPLES + pickle.FROZENSET,
    "a dtype": b"cweftgrad.runtime.dtypes\nparse\n" + _TUPLES + pickle.TUPLE1 + pickle.REDUCE,
    "a device": b"cweftgrad.runtime.device\ndevice\n" + _TUPLES + pickle.TUPLE1 + pickle.REDUCE,
    "a class by INST": pickle.MARK + pickle.dumps((1 << 40,), 2)[2:-1] + pickle.INST + b"numpy\nndarray\n",
    "a class by OBJ": pickle.MARK + b"cnumpy\nndarray\n" + pickle.dumps((1 << 40,), 2)[2:-1] + pickle.OBJ,
}


@pytest.mark.parametrize("name", _BOMBS)
def test_small_files_allocate_little(name):
    text = pickle.PROTO + b"\x05" + _BOMBS[name] + pickle.STOP
    load_from_bytes(pickle.dumps(1))  # imports the reader
    tracemalloc.start()
    try:
        with pytest.raises(ArgumentError):
            load_from_bytes(text)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_sizes_and_strides_in_a_file_are_checked():
    memory = FileMemory(0, "cpu")
    memory.content = np.zeros(16, np.uint8)
    rebuild = serialization._rebuild
    assert rebuild(wg.Tensor, memory, wg.float32, (2, 2), (2, 1), 0, False).tolist() == [[0, 0], [0, 0]]
    outside = [((5,), (1,), 0), ((2,), (4,), 0), ((2,), (-1,), 0), ((1,), (1,), 2), ((1,), (1,), 16)]
    for shape, strides, start in outside:
        with pytest.raises(ArgumentError, match="damaged"):
            rebuild(wg.Tensor, memory, wg.float32, shape, strides, start, False)
    for kind, dtype, shape in ((int, wg.float32, (1,)), (wg.Tensor, "float32", (1,)), (wg.Tensor, wg.float32, (-1,))):
        with pytest.raises(ArgumentError, match="damaged"):
            rebuild(kind, memory, dtype, shape, (1,), 0, False)


def test_names_are_found_that_were_in_other_modules():
    for module in ("weftgrad.methods", "weftgrad.tensor_methods.methods"):
        text = pickle.PROTO + b"\x02" + pickle.GLOBAL + f"{module}\nSize\n".encode() + b"(K\x02K\x03t\x85R."
        for weights_only in (True, False):
            size = load_from_bytes(text, weights_only=weights_only)
            assert (type(size), size) == (wg.Size, (2, 3))


def test_a_file_names_functions_and_classes_by_public_modules():
    text = save_to_bytes([wg.ones(2), wg.Generator()])
    names = {arg for _, arg, _ in pickletools.genops(text[file_format.HEADER.size :]) if isinstance(arg, str)}
    modules = {name for name in names if name.startswith("weftgrad.")}
    assert modules == {f"weftgrad.{name}" for name in ("runtime.tensor", "runtime.dtypes", "serialization", "random")}


def test_plain_pickles_are_read():
    actual = load_from_bytes(pickle.dumps({"a": [vector(1, 2)]}), map_location="cpu")
    assert actual["a"][0].tolist() == [1, 2]


@pytest.mark.parametrize(
    "location", [{"cpu": "cpu:0"}, {"cuda:7": "cpu"}, lambda storage, device: storage, lambda storage, device: None]
)
def test_plain_pickles_take_every_kind_of_map_location(location):
    actual = load_from_bytes(pickle.dumps({"a": [wg.ones(2, device="cpu")]}), map_location=location)
    assert actual["a"][0].tolist() == [1, 1]
    assert actual["a"][0].device == wg.device("cpu")


def test_the_pickle_holds_no_tensor_elements():
    text = save_to_bytes(wg.zeros(10_000, device="cpu"))
    size = file_format.HEADER.unpack(text[: file_format.HEADER.size])[2]
    body = text[file_format.HEADER.size : file_format.HEADER.size + size]
    assert all(len(arg) < 100 for _, arg, _ in pickletools.genops(body) if isinstance(arg, (bytes, str)))


class Net(wg.nn.Module):
    """A module of a user's own, which a file may contain only if the user says so."""

    def __init__(self):
        super().__init__()
        self.layers = wg.nn.Sequential(wg.nn.Linear(2, 3), wg.nn.BatchNorm1d(3))

    def forward(self, x):
        return self.layers(x)


def test_a_whole_module_is_loaded_under_safe_globals():
    model = Net().eval()
    data = save_to_bytes(model)
    with pytest.raises(ArgumentError, match=r"test_serialization\.Net, which is no tensor"):
        load_from_bytes(data)
    with serialization.safe_globals([Net, wg.nn.Sequential, wg.nn.Linear, wg.nn.BatchNorm1d]):
        loaded = load_from_bytes(data)
    x = wg.ones(2, 2)
    np.testing.assert_array_equal(loaded(x).detach().numpy(), model(x).detach().numpy())
