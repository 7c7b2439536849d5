"""Check safetensors files: values, laziness, shards, damaged and lying headers."""

import json
import random
import struct
import sys

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import serialization
from weftgrad.runtime.errors import ArgumentError, UnsupportedDType, WeftgradError

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def file_bytes(entries, content=b"", metadata=None):
    """A file with a header of (dtype, shape, begin, end) by name, whatever they say."""
    header = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        for name, (dtype, shape, begin, end) in entries.items()
    }
    if metadata is not None:
        header["__metadata__"] = metadata
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + content


@pytest.fixture
def path(tmp_path):
    pytest.importorskip("safetensors")
    return tmp_path / "model.safetensors"


def tensors():
    values = {name: wg.tensor([[0, 1], [1, 0]], dtype=getattr(wg, name), device="cpu") for name in DTYPES}
    transposed = wg.arange(6, device="cpu").reshape(2, 3).T
    return values | {
        "transposed": transposed,
        "scalar": wg.tensor(2.5, device="cpu"),
        "empty": wg.empty(0, 2, device="cpu"),
    }


def check_same(actual, expected):
    assert set(actual) == set(expected)
    for name, tensor in expected.items():
        assert actual[name].dtype is tensor.dtype
        assert actual[name].shape == tensor.shape
        assert actual[name].tolist() == tensor.tolist(), name


def test_values_are_restored(path):
    serialization.save_safetensors(tensors(), path, {"note": "x"})
    check_same(serialization.load_safetensors(path), tensors())
    check_same(serialization.load_safetensors(path, device="opencl:0"), tensors())
    assert str(serialization.load_safetensors(path, device="opencl:0")["int32"].device) == "opencl:0"
    assert serialization.SafetensorsFile(path).metadata() == {"note": "x"}
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    with pytest.raises(ArgumentError, match="load_safetensors"):
        wg.load(path)


def test_the_package_reads_and_writes_the_same(path):
    from safetensors.numpy import load_file, save_file

    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.int8)}
    save_file(arrays, path)
    ours = serialization.load_safetensors(path)
    assert {name: tensor.tolist() for name, tensor in ours.items()} == {k: v.tolist() for k, v in arrays.items()}
    serialization.save_safetensors({"transposed": ours["a"].T, **ours}, path)  # replaces the file that `ours` maps
    theirs = load_file(path)
    np.testing.assert_array_equal(theirs["transposed"], arrays["a"].T)
    assert ours["a"].tolist() == arrays["a"].tolist()


def test_tensors_are_mapped_and_read_one_by_one(path):
    serialization.save_safetensors({"a": wg.arange(4.0), "b": wg.ones(2)}, path)
    before = path.read_bytes()
    file = serialization.SafetensorsFile(path)
    assert (list(file), len(file), "a" in file, "c" in file) == (["a", "b"], 2, True, False)
    tensor = file["a"]
    assert tensor.storage.block is None  # not the pool's memory
    tensor += 1
    assert tensor.tolist() == [1, 2, 3, 4]
    assert path.read_bytes() == before
    with pytest.raises(KeyError):
        file["c"]
    layer = wg.nn.Linear(2, 2)
    serialization.save_safetensors(layer.state_dict(), path)
    other = wg.nn.Linear(2, 2)
    assert str(other.load_state_dict(serialization.SafetensorsFile(path))) == "<All keys matched successfully>"
    assert other.weight.tolist() == layer.weight.tolist()


def test_tensors_that_are_not_aligned_are_copied(path):
    content = b"\1" + struct.pack("<2f", 1, 2)
    path.write_bytes(file_bytes({"a": ("U8", [1], 0, 1), "b": ("F32", [2], 1, 9)}, content))
    loaded = serialization.load_safetensors(path)
    assert (loaded["a"].tolist(), loaded["b"].tolist()) == ([1], [1, 2])
    assert loaded["b"].data_ptr() % 4 == 0


def test_shards(path):
    serialization.save_safetensors(tensors(), path, max_shard_bytes=20)
    names = sorted(p.name for p in path.parent.iterdir())
    count = len(names) - 1
    assert names == [
        *(f"model-{n:05d}-of-{count:05d}.safetensors" for n in range(1, count + 1)),
        "model.safetensors.index.json",
    ]
    index = json.loads((path.parent / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == set(names[:-1])
    assert index["metadata"]["total_size"] == sum(tensor.meta.nbytes for tensor in tensors().values())
    for source in (path.parent, path.parent / "model.safetensors.index.json"):
        check_same(serialization.load_safetensors(source), tensors())
    (path.parent / names[0]).unlink()
    with pytest.raises(ArgumentError, match=f"{names[0]} is missing"):
        serialization.SafetensorsFile(path.parent)


def test_an_index_of_other_folders_is_refused(path):
    folder = path.parent / "folder"
    folder.mkdir()
    serialization.save_safetensors({"a": wg.ones(1)}, path)
    index = folder / "model.safetensors.index.json"
    for file_name in ("../model.safetensors", str(path), "..", "", 3, "a\\b"):
        index.write_text(json.dumps({"weight_map": {"a": file_name}}))
        with pytest.raises(ArgumentError, match=r"no file beside it|missing"):
            serialization.SafetensorsFile(folder)
    for text in ("[" * 100_000, "[]", '{"weight_map": []}', "{"):
        index.write_text(text)
        with pytest.raises(ArgumentError):
            serialization.SafetensorsFile(folder)
    path.rename(folder / "model.safetensors")
    index.write_text(json.dumps({"weight_map": {"b": "model.safetensors"}}))
    with pytest.raises(ArgumentError, match="has no tensor b"):
        serialization.load_safetensors(folder)


def test_dtypes_that_we_lack_are_named(path):
    path.write_bytes(file_bytes({"a": ("U16", [2], 0, 4), "b": ("F8_E4M3", [4], 4, 8)}, bytes(8)))
    file = serialization.SafetensorsFile(path)
    with pytest.raises(UnsupportedDType, match="a: uint16"):
        file["a"]
    with pytest.raises(UnsupportedDType, match="b: float8_e4m3fn"):
        file["b"]


LIES = {
    "overlapping": {"a": ("F32", [2], 0, 8), "b": ("F32", [2], 4, 12)},
    "behind the end": {"a": ("F32", [4], 0, 16)},
    "a hole": {"a": ("F32", [1], 0, 4), "b": ("F32", [1], 8, 12)},
    "another size": {"a": ("F32", [2], 0, 12)},
    "a size of 2**60": {"a": ("F32", [1 << 60], 0, 12)},
    "a product that overflows": {"a": ("F32", [1 << 62, 1 << 62], 0, 12)},
    "a negative size": {"a": ("F32", [-3], 0, 12)},
    "from the end": {"a": ("F32", [3], 12, 0)},
    "an unknown dtype": {"a": ("XYZ", [3], 0, 12)},
}


@pytest.mark.parametrize("name", LIES)
def test_headers_that_lie(path, name):
    path.write_bytes(file_bytes(LIES[name], bytes(12)))
    with pytest.raises(ArgumentError):
        serialization.load_safetensors(path)


def test_damaged_files(path):
    data = file_bytes({"a": ("F32", [2], 0, 8), "b": ("I64", [1], 8, 16)}, bytes(16), {"x": "y"})
    path.write_bytes(data)
    assert serialization.load_safetensors(path)["a"].tolist() == [0, 0]
    for end in range(len(data)):
        path.write_bytes(data[:end])
        with pytest.raises(ArgumentError):
            serialization.load_safetensors(path)
    generator = random.Random(0)
    refused = 0
    for _ in range(500):
        broken = bytearray(data)
        broken[generator.randrange(len(data) - 16)] ^= 1 << generator.randrange(8)
        path.write_bytes(broken)
        try:
            serialization.load_safetensors(path)
        except WeftgradError:
            refused += 1
    assert refused > 250
    path.write_bytes(struct.pack("<Q", 1 << 40) + b"{}")
    with pytest.raises(ArgumentError):
        serialization.load_safetensors(path)


def test_what_cannot_be_saved(path):
    for value in ({"a": np.ones(1)}, {1: wg.ones(1)}):
        with pytest.raises(ArgumentError, match="takes tensors by name"):
            serialization.save_safetensors(value, path)
    assert not path.exists()


def test_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"pip install 'weftgrad\[safetensors\]'"):
        serialization.save_safetensors({"a": wg.ones(1)}, tmp_path / "a.safetensors")
