"""Check `load` and `save` with PyTorch's files: values, memory that tensors share, devices, what is refused.

`torch_file_bytes` puts the files together, so that the tests run without PyTorch. `test_peer_serialization` reads and
writes files of a real PyTorch.
"""

import argparse
import io
import mmap
import pickle
import pickletools
import struct
import zipfile
from collections import Counter, OrderedDict

import numpy as np
import pytest
import torch_file_bytes as files

import weftgrad as wg
from weftgrad import nn, serialization
from weftgrad.runtime.errors import ArgumentError, DeviceError, NotSupported, UnsupportedDType
from weftgrad.serialization import torch_archive

FLOATS = struct.pack("<6f", *range(6))


def load(data, *args, **kwargs):
    return wg.load(io.BytesIO(data), *args, **kwargs)


def load_legacy_and_archive(body, storages):
    """Return what both formats give for a pickle; `storages` has (number of elements, bytes) by key."""
    yield load(files.archive(body, {key: content for key, (_, content) in storages.items()}))
    yield load(files.legacy(body, storages))


def test_tensors_keep_shape_strides_offset_and_gradient():
    body = files.dict_of(
        {
            "plain": files.float_tensor("0", (2, 3), (3, 1), 6),
            "transposed": files.float_tensor("0", (3, 2), (1, 3), 6),
            "part": files.float_tensor("0", (2,), (1,), 6, offset=4, needs_grad=True),
            "scalar": files.float_tensor("0", (), (), 6, offset=5),
            "expanded": files.float_tensor("0", (4,), (0,), 6, offset=1),
            "empty": files.float_tensor("1", (0, 3), (3, 1), 0),
            "weight": files.parameter(files.float_tensor("0", (6,), (1,), 6)),
            "fixed": files.parameter(files.float_tensor("0", (6,), (1,), 6), needs_grad=False),
        }
    )
    for state in load_legacy_and_archive(body, {"0": (6, FLOATS), "1": (0, b"")}):
        assert state["plain"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert state["transposed"].tolist() == [[0, 3], [1, 4], [2, 5]]
        assert state["transposed"].stride() == (1, 3)
        assert (state["part"].tolist(), state["part"].requires_grad) == ([4, 5], True)
        assert state["scalar"].item() == 5
        assert state["expanded"].tolist() == [1, 1, 1, 1]
        assert state["empty"].shape == (0, 3)
        assert [type(state[name]) for name in ("plain", "weight", "fixed")] == [wg.Tensor, nn.Parameter, nn.Parameter]
        assert [state[name].requires_grad for name in ("plain", "weight", "fixed")] == [False, True, False]
        state["plain"].numpy()[1, 1] = 50
        assert state["part"].tolist() == [50, 5]  # one storage


@pytest.mark.parametrize(
    ("kind", "dtype", "content"),
    [
        ("DoubleStorage", wg.float64, struct.pack("<2d", 1, 2)), ("HalfStorage", wg.float16, struct.pack("<2e", 1, 2)),
        ("BFloat16Storage", wg.bfloat16, struct.pack("<2H", 0x3F80, 0x4000)),
        ("LongStorage", wg.int64, struct.pack("<2q", 1, 2)), ("IntStorage", wg.int32, struct.pack("<2i", 1, 2)),
        ("ShortStorage", wg.int16, struct.pack("<2h", 1, 2)), ("CharStorage", wg.int8, b"\1\2"),
        ("ByteStorage", wg.uint8, b"\1\2"), ("FloatStorage", wg.float32, struct.pack("<2f", 1, 2)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("module", ["torch", "torch.cuda"])
def test_dtypes(kind, dtype, content, module):
    body = files.tensor(files.storage(kind, "7", 2, module=module), (2,), (1,))
    for value in load_legacy_and_archive(body, {"7": (2, content)}):
        assert (value.dtype, value.tolist()) == (dtype, [1, 2])
    swapped = b"".join(content[i : i + dtype.itemsize][::-1] for i in range(0, len(content), dtype.itemsize))
    assert load(files.archive(body, {"7": swapped}, byteorder=b"big")).tolist() == [1, 2]
    assert load(files.archive(body, {"7": content}, byteorder=None)).tolist() == [1, 2]


def test_bool_and_an_untyped_storage_with_a_dtype():
    body = files.tensor(files.storage("BoolStorage", "0", 2), (2,), (1,))
    assert load(files.archive(body, {"0": b"\1\0"})).tolist() == [True, False]
    memory = files.storage("UntypedStorage", "0", 8, module="torch.storage")
    args = [memory, files.long(1), files.tuple_of(files.long(1)), files.tuple_of(files.long(1)), files.boolean(False)]
    function = files.named("torch._utils", "_rebuild_tensor_v3")
    body = files.call(function, *args, files.ordered_dict(), files.named("torch", "int32"))
    assert load(files.archive(body, {"0": struct.pack("<2i", 7, 8)})).tolist() == [8]
    with pytest.raises(NotSupported, match="byte order"):
        load(files.archive(body, {"0": struct.pack("<2i", 7, 8)}, byteorder=b"big"))


def test_containers_numbers_and_names():
    body = files.dict_of(
        {
            "list": files.list_of(files.integer(1), b"G" + struct.pack(">d", 2.5), b"N", files.boolean(True)),
            "long": files.long(1 << 70),
            "size": files.call(files.named("torch", "Size"), files.tuple_of(files.integer(2), files.integer(3))),
            "device": files.call(files.named("torch", "device"), files.text("cuda"), files.integer(1)),
            "dtype": files.named("torch", "bfloat16"),
            "foreign dtype": files.named("torch", "complex64"),
            "layout": files.call(files.named("torch.serialization", "_get_layout"), files.text("torch.strided")),
            "bytes": files.call(files.named("_codecs", "encode"), files.text("\xff\0"), files.text("latin1")),
            "set": files.call(files.named("__builtin__", "set"), files.list_of(files.integer(1), files.integer(1))),
            "complex": files.call(files.named("builtins", "complex"), *[b"G" + struct.pack(">d", n) for n in (1, 2)]),
            "counter": files.call(files.named("collections", "Counter"), files.dict_of({"a": files.integer(2)})),
            "state": files.ordered_dict() + b"(" + files.text("k") + files.integer(1) + b"u"
            + files.dict_of({"_metadata": files.dict_of({"": files.integer(3)})}) + b"b",
        }
    )  # fmt: skip
    for value in load_legacy_and_archive(body, {}):
        assert value["list"] == [1, 2.5, None, True]
        assert value["long"] == 1 << 70
        assert (type(value["size"]), value["size"]) == (wg.Size, (2, 3))
        assert value["device"] == wg.device("cuda:1")
        assert value["dtype"] is wg.bfloat16
        assert value["foreign dtype"].name == "complex64"
        assert value["layout"] == wg.strided
        assert (value["bytes"], value["set"], value["complex"]) == (b"\xff\0", {1}, 1 + 2j)
        assert value["counter"] == Counter("aa")
        assert (type(value["state"]), value["state"]) == (OrderedDict, {"k": 1})
        assert value["state"]._metadata == {"": 3}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_values_that_python_pickles(protocol):
    """The reader of opcodes agrees with Python's on every protocol."""
    shared = [1, "é", b"x" * 300]
    value = {
        "shared": [shared, shared], "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)), "deep": {"a": {"b": [{}]}},
        "numbers": [0, 255, 256, 65536, -1, 1 << 31, -(1 << 200), 1 << 3000, 0.5, 1j], "text": "x" * 300,
        "sets": [set(), {1, 2}, frozenset({"a"})], "bytes": [b"", bytearray(b"ab"), bytearray()],
        "keys": {(1, "a"): 1, None: 2, 1.5: 3}, "ordered": OrderedDict(b=1, a=2), "many": list(range(3000)),
        "arrays": [np.arange(6, dtype=">i4").reshape(2, 3), np.asfortranarray(np.eye(2, 3)), np.ones(3, bool)],
        "scalars": [np.float64(1.5), np.int32(3), np.bool_(True), np.complex64(1j)],
    }  # fmt: skip
    text = pickle.dumps(value, protocol)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zip_file:
        zip_file.writestr("x/data.pkl", text)
    actual = load(file.getvalue())
    value = pickle.loads(text)  # NumPy's own function turns some arrays to the machine's byte order
    arrays, expected_arrays = actual.pop("arrays"), value.pop("arrays")
    assert actual == value
    assert actual["shared"][0] is actual["shared"][1]
    assert [type(x) for x in actual["scalars"]] == [type(x) for x in value["scalars"]]
    for array, expected in zip(arrays, expected_arrays, strict=True):
        np.testing.assert_array_equal(array, expected, strict=True)
        assert array.flags.writeable


def test_attributes_of_tensors_and_tensors_without_memory():
    data = files.float_tensor("0", (6,), (1,), 6)
    state = files.dict_of({"note": files.text("x")})
    function = files.named("torch._utils", "_rebuild_parameter_with_state")
    marked = files.call(function, data, files.boolean(True), files.ordered_dict(), state)
    args = data.removesuffix(b"R").removeprefix(files.named("torch._utils", "_rebuild_tensor_v2"))
    plain = files.call(
        files.named("torch._tensor", "_rebuild_from_type_v2"), files.named("torch._utils", "_rebuild_tensor_v2"),
        files.named("torch", "Tensor"), args, state,
    )  # fmt: skip
    sizes = files.tuple_of(files.long(5))
    without_memory = files.call(
        files.named("torch._utils", "_rebuild_meta_tensor_no_storage"), files.named("torch", "float16"), sizes,
        files.tuple_of(files.long(1)), files.boolean(False),
    )  # fmt: skip
    first, second, third = load(files.archive(files.list_of(marked, plain, without_memory), {"0": FLOATS}))
    assert (type(first), first.note, type(second), second.note) == (nn.Parameter, "x", wg.Tensor, "x")
    assert (third.device.type, third.shape, third.dtype) == ("meta", (5,), wg.float16)
    own_attribute = files.dict_of({"start": files.integer(1 << 20)})
    body = files.call(function, data, files.boolean(True), files.ordered_dict(), own_attribute)
    with pytest.raises(ArgumentError, match="attributes"):
        load(files.archive(body, {"0": FLOATS}))


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (files.tensor(files.storage("ComplexFloatStorage", "0", 3), (3,), (1,)), UnsupportedDType, "w: complex64"),
        (files.tensor(files.storage("QInt8Storage", "0", 24), (3,), (1,)), UnsupportedDType, "w: qint8"),
        (files.call(files.named("torch._utils", "_rebuild_qtensor")), NotSupported, "w: quantised.*dequantize"),
        (files.call(files.named("torch._utils", "_rebuild_sparse_tensor")), NotSupported, "w: sparse.*to_dense"),
        (files.call(files.named("torch._utils", "_rebuild_nested_tensor")), NotSupported, "w: nested"),
        (files.named("torch.nn.modules.linear", "Linear"), ArgumentError, r"w: .*linear\.Linear.*state_dict"),
        (files.call(files.named("os", "system"), files.text("true")), ArgumentError, r"w: it holds os\.system"),
        (files.named("argparse", "Namespace"), ArgumentError, r"w: .*\.Namespace.*add_safe_globals.*weights_only"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named_with_its_place(body, error, message):
    nested = files.dict_of({"epoch": files.integer(1), "model": files.dict_of({"v": b"N", "w": body})})
    for data in (
        files.archive(nested, {"0": FLOATS}),
        files.archive(files.single("model", files.single("w", body)), {"0": FLOATS}),
    ):
        with pytest.raises(error, match=rf"model\.{message}"):
            load(data)


def test_classes_that_the_user_trusts():
    namespace = argparse.Namespace(rate=2)
    text = pickle.dumps(namespace, 2)
    data = files.archive(text[2:-1])
    with pytest.raises(ArgumentError, match="Namespace"):
        load(data)
    with serialization.safe_globals([argparse.Namespace]):
        assert load(data) == namespace
        assert load(files.legacy(text[2:-1])) == namespace
    assert load(data, weights_only=False) == namespace


def test_all_of_the_file_is_trusted_without_weights_only():
    memory = files.parameter(files.float_tensor("0", (6,), (1,), 6))
    size = files.call(files.named("fractions", "Fraction"), files.integer(1), files.integer(2))
    body = files.list_of(memory, size, files.named("torch", "float16"))
    for data in (files.archive(body, {"0": FLOATS}), files.legacy(body, {"0": (6, FLOATS)})):
        parameter, fraction, dtype = load(data, weights_only=False)
        assert (type(parameter), parameter.tolist()) == (nn.Parameter, list(range(6)))
        assert (fraction, dtype) == (0.5, wg.float16)
    with pytest.raises(ArgumentError, match=r"torch\.nn\.modules\.linear\.Linear.*state_dict"):
        load(files.archive(files.named("torch.nn.modules.linear", "Linear")), weights_only=False)


def test_views_of_storages_in_old_files():
    view = files.tuple_of(files.text("9"), files.long(2), files.long(3))
    body = files.tensor(
        files.storage("FloatStorage", "0", 6, view=view), (2,), (1,), offset=1, function="_rebuild_tensor"
    )
    assert load(files.legacy(body, {"0": (6, FLOATS)})).tolist() == [3, 4]
    assert load(files.legacy(body, {"0": (6, FLOATS)}, protocol=4)).tolist() == [3, 4]


def test_map_location():
    body = files.tensor(files.storage("FloatStorage", "0", 6, device="cuda:1"), (6,), (1,))
    on_host = files.float_tensor("0", (6,), (1,), 6)
    names = []
    for data in (files.archive(body, {"0": FLOATS}), files.legacy(body, {"0": (6, FLOATS)})):
        with pytest.raises(DeviceError, match=r"cuda:1.*map_location='cpu'"):
            load(data)
        for location in ("cpu", {"cuda:1": "cpu"}, lambda stored, name: names.append(name) or stored):
            assert load(data, location).device == wg.device("cpu")
            assert load(data, location).tolist() == list(range(6))
        assert load(data, "opencl:0").tolist() == list(range(6))
        assert load(data, "opencl:0").device == wg.device("opencl:0")
        assert load(data, "meta").shape == (6,)
    assert set(names) == {"cuda:1"}
    assert load(files.archive(on_host, {"0": FLOATS}), lambda stored, name: stored.to("meta")).device.type == "meta"


def test_files_are_mapped(tmp_path):
    path = tmp_path / "model.pt"
    body = files.dict_of(
        {"w": files.float_tensor("0", (6,), (1,), 6), "v": files.float_tensor("0", (2,), (1,), 6, offset=1)}
    )
    path.write_bytes(files.archive(body, {"0": FLOATS}))
    wg.save(wg.load(path), path, format="torch")  # aligns the storage
    before = path.read_bytes()
    state = wg.load(path, mmap=True)
    assert state["w"].storage.block is None  # not the pool's memory
    assert state["v"].tolist() == [1, 2]
    state["w"] += 1
    assert state["v"].tolist() == [2, 3]
    assert path.read_bytes() == before
    path.write_bytes(files.archive(body, {"0": FLOATS}, folder="odd"))
    assert wg.load(path, mmap=True)["w"].tolist() == list(range(6))  # wherever the storage begins
    assert wg.load(path, "opencl:0", mmap=True)["w"].tolist() == list(range(6))
    path.write_bytes(files.archive(body, {"0": b"".join(FLOATS[i : i + 4][::-1] for i in range(0, 24, 4))}, b"big"))
    assert wg.load(path, mmap=True)["w"].tolist() == list(range(6))
    with pytest.raises(ArgumentError, match="path"):
        load(path.read_bytes(), mmap=True)
    path.write_bytes(files.legacy(body, {"0": (6, FLOATS)}))
    with pytest.raises(ArgumentError, match="mmap"):
        wg.load(path, mmap=True)


class Pipe(io.RawIOBase):
    """A file that can only be read from the beginning to the end."""

    def __init__(self, data):
        self.rest = data

    def readable(self):
        return True

    def readinto(self, buffer):
        piece = self.rest[: len(buffer)]
        self.rest = self.rest[len(piece) :]
        buffer[: len(piece)] = piece
        return len(piece)


def test_files_that_cannot_seek_and_files_in_files():
    body = files.float_tensor("0", (6,), (1,), 6)
    for data in (files.archive(body, {"0": FLOATS}), files.legacy(body, {"0": (6, FLOATS)})):
        assert wg.load(io.BufferedReader(Pipe(data))).tolist() == list(range(6))
        file = io.BytesIO(b"before" + data)
        file.seek(6)
        assert wg.load(file).tolist() == list(range(6))


def test_other_zip_files():
    def packed(**records):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as zip_file:
            for name, content in records.items():
                zip_file.writestr(f"x/{name}", content)
        return file.getvalue()

    with pytest.raises(ArgumentError, match=r"without data\.pkl"):
        load(packed(readme="x"))
    with pytest.raises(ArgumentError, match="TorchScript"):
        load(packed(**{"data.pkl": b"", "constants.pkl": b""}))
    with pytest.raises(ArgumentError, match="cut off"):
        load(b"PK\3\4..")
    with pytest.raises(ArgumentError, match="load_safetensors"):
        load(struct.pack("<Q", 2) + b"{}")


def save(value, **kwargs):
    file = io.BytesIO()
    wg.save(value, file, format="torch", **kwargs)
    return file.getvalue()


def test_what_is_saved_is_restored():
    base = wg.arange(1000.0, device="cpu")
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    value = {
        "model": model.state_dict(), "parameter": nn.Parameter(base[:2]), "view": base[4:8], "column": base[1:7:3],
        "reversed": wg.arange(3, device="cpu").flip(0), "bfloat16": wg.ones(2, dtype=wg.bfloat16),
        "empty": wg.empty(0, 2), "scalar": wg.tensor(2.5), "leaf": wg.ones(1, requires_grad=True),
        "numbers": [1, -1, 1 << 70, 2.5, None, True, "é", 1j, b"", b"\xff\0", bytearray(b"ab"), {1, 2}, (1, (2,))],
        "shape": base.shape, "dtype": wg.float16, "device": wg.device("cuda:1"), "count": Counter("aab"),
    }  # fmt: skip
    data = save(value)
    assert len(data) < 8000  # `base` has 4,000 bytes, of which 32 are used
    actual = load(data)
    assert actual["model"]._metadata == model.state_dict()._metadata
    for name, expected in {**value, **value["model"]}.items():
        tensor = {**actual, **actual["model"]}[name]
        if isinstance(expected, wg.Tensor):
            assert (tensor.tolist(), tensor.dtype, tensor.requires_grad) == (
                expected.tolist(), expected.dtype, expected.requires_grad,
            )  # fmt: skip
        elif name != "model":
            assert (type(tensor), tensor) == (type(expected), expected)
    assert type(actual["parameter"]) is nn.Parameter
    assert actual["column"].stride() == (3,)
    actual["view"].numpy()[0] = 40
    assert actual["column"].tolist() == [1, 40]


def test_archives_are_aligned_and_valid():
    data = save({"a": wg.ones(3), "b": wg.ones(5, dtype=wg.uint8), "c": wg.empty(0)})
    archive = zipfile.ZipFile(io.BytesIO(data))
    assert archive.testzip() is None
    names = ["data.pkl", ".format_version", ".storage_alignment", "byteorder", "data/0", "data/1", "data/2", "version"]
    assert archive.namelist() == [f"archive/{name}" for name in names]
    records = torch_archive.Archive(io.BytesIO(data)).records
    assert all(record.offset % 64 == 0 for record in records.values())
    assert data[records["data/0"].offset :][:12] == struct.pack("<3f", 1, 1, 1)
    assert {code.name for code, _, _ in pickletools.genops(archive.read("archive/data.pkl"))}.isdisjoint(
        {"STACK_GLOBAL", "SHORT_BINUNICODE", "MEMOIZE", "FRAME", "NEWOBJ"}  # protocol 2 has none of the first four
    )


def test_devices_that_pytorch_lacks_are_saved_as_the_host():
    value = wg.arange(100.0, device="cpu").to("opencl:0")[3:7:2]
    assert load(save(value)).tolist() == [3, 5]
    assert load(save(value)).device == wg.device("cpu")
    assert load(save(value), "opencl:0").tolist() == [3, 5]


def test_what_the_format_cannot_express(tmp_path):
    class Special(wg.Tensor):
        pass

    base = wg.arange(4, device="cpu")
    refused = [
        (np.ones(2), "from_numpy"), (np.float32(1), r"x\.item"), (nn.Linear(1, 1), "Linear.*format='weftgrad'"),
        (lambda: 0, "function"), (frozenset({1}), "frozenset"), (base.as_subclass(Special), "Special.*as_subclass"),
        ([base, base.view(wg.int32)], "int64 and int32.*clone"), (argparse.Namespace(), "Namespace"),
    ]  # fmt: skip
    path = tmp_path / "a.pt"
    for value, message in refused:
        with pytest.raises(ArgumentError, match=message):
            wg.save({"x": value}, path, format="torch")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ArgumentError, match="'weftgrad' or 'torch', not 'zip'"):
        wg.save(1, path, format="zip")


class SparseFile:
    """A file that skips large pieces, which the test writes as zeros."""

    def __init__(self, file):
        self.file = file

    def write(self, data):
        if len(data) > 1 << 30:
            self.file.seek(len(data), 1)
        else:
            self.file.write(data)


@pytest.mark.thorough
def test_archives_of_more_than_4_gib_and_65536_records(tmp_path):
    size = (1 << 32) + 5
    zeros = memoryview(mmap.mmap(-1, size, access=mmap.ACCESS_READ))
    path = tmp_path / "large.pt"
    with path.open("wb") as file:
        writer = torch_archive.ArchiveWriter(SparseFile(file))
        for number in range(66_000):
            writer.write_record(f"data/{number}", b"ab" if number % 7000 else zeros[:size] if not number else b"")
        writer.write_directory()
    with path.open("rb") as file:
        records = torch_archive.Archive(file).records
        assert (len(records), records["data/0"].nbytes) == (66_000, size)
        with zipfile.ZipFile(file) as archive:
            assert archive.getinfo("archive/data/0").file_size == size
            assert archive.read("archive/data/65999") == b"ab"
