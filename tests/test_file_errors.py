"""Check what `save` and `load` say about values they cannot write, pipes, races and errors of the program."""

import collections
import importlib.util
import io
import os
import struct

import numpy as np
import pytest
import torch_file_bytes as files

import weftgrad as wg
from weftgrad import nn, optim, serialization
from weftgrad.runtime.errors import ArgumentError, NotPicklable, WeftgradError
from weftgrad.serialization import file_format, torch_reading

FLOATS = struct.pack("<6f", *range(6))
needs_safetensors = pytest.mark.skipif(importlib.util.find_spec("safetensors") is None, reason="needs safetensors")


def load(data, **kwargs):
    return wg.load(io.BytesIO(data), **kwargs)


def save_for_torch(value):
    file = io.BytesIO()
    wg.save(value, file, format="torch")
    return file.getvalue()


@needs_safetensors
def test_one_safetensors_file_replaces_shards(tmp_path):
    path = tmp_path / "model.safetensors"
    serialization.save_safetensors({"a": wg.zeros(4), "b": wg.zeros(4)}, path, max_shard_bytes=16)
    assert (tmp_path / "model.safetensors.index.json").exists()
    serialization.save_safetensors({"a": wg.ones(4)}, path)
    assert serialization.load_safetensors(tmp_path)["a"].tolist() == [1] * 4
    assert list(serialization.load_safetensors(tmp_path)) == ["a"]
    assert not list(tmp_path.glob("*.part*"))


def test_safetensors_metadata_are_texts(tmp_path):
    with pytest.raises(ArgumentError, match="metadata are texts"):
        serialization.save_safetensors({"a": wg.ones(1)}, tmp_path / "a.safetensors", metadata={"n": 1})


def test_huge_strides_of_size_1_are_replaced():
    tensor = load(files.archive(files.float_tensor("0", (1, 2), ((1 << 63) - 1, 1), 6), {"0": FLOATS}))
    assert tensor.numpy().tolist() == [[0, 1]]
    assert "0., 1." in repr(tensor)
    assert load(files.archive(files.float_tensor("0", (2, 1), (3, 1), 6), {"0": FLOATS})).stride() == (3, 1)


def test_a_mapped_file_that_became_shorter(tmp_path, monkeypatch):
    path = tmp_path / "a.pt"
    path.write_bytes(files.archive(files.float_tensor("0", (6,), (1,), 6), {"0": FLOATS}))
    original = torch_reading.memory_maps.mmap
    monkeypatch.setattr(torch_reading.memory_maps, "mmap", lambda *args, **kwargs: original(*args, **kwargs)[:64])
    with pytest.raises(ArgumentError, match="cut off in storage 0"):
        wg.load(path, mmap=True)


class Pipe(io.RawIOBase):
    """A file that cannot seek, and records how much a call asks for."""

    def __init__(self, data):
        self.file = io.BytesIO(data)
        self.largest = 0

    def seekable(self):
        return False

    def read(self, size=-1):
        self.largest = max(self.largest, size)
        return self.file.read(size)


def test_sizes_in_a_pipe_that_lie():
    file = io.BytesIO()
    wg.save(wg.ones(1 << 19), file)
    data = file.getvalue()
    assert wg.load(Pipe(data)).sum().item() == 1 << 19
    magic, version, _, count, checksum = file_format.HEADER.unpack_from(data)
    pipe = Pipe(file_format.HEADER.pack(magic, version, 1 << 62, count, checksum) + data[file_format.HEADER.size :])
    with pytest.raises(ArgumentError, match="cut off in its contents"):
        wg.load(pipe)
    assert pipe.largest <= 1 << 20


def test_errors_name_the_file_and_the_entry(tmp_path):
    path = tmp_path / "broken.pt"
    path.write_bytes(files.archive(files.dict_of({"model": files.dict_of({"w": b"h\7"})})))
    with pytest.raises(ArgumentError, match=r"model\.w: .*broken\.pt"):
        wg.load(path)
    path.write_bytes(b"GIF89a")
    with pytest.raises(ArgumentError, match=r"broken\.pt"):
        wg.load(path)
    huge = files.dict_of({"w": files.float_tensor("0", (0, 1 << 62, 1 << 62), (1, 1, 1), 6)})
    with pytest.raises(WeftgradError, match="w: "):
        load(files.archive(huge, {"0": FLOATS}))


def test_exceptions_of_map_location_are_raised_as_they_are():
    own = io.BytesIO()
    wg.save(wg.ones(1, device="cpu"), own)
    for data in (own.getvalue(), files.archive(files.float_tensor("0", (6,), (1,), 6), {"0": FLOATS})):
        for weights_only in (True, False):
            with pytest.raises(KeyError, match="cpu"):
                load(data, map_location=lambda storage, device: {}[device], weights_only=weights_only)


def test_devices_that_weftgrad_does_not_have_are_names():
    device = files.call(files.named("torch", "device"), files.text("mps"), files.integer(0))
    data = files.archive(files.dict_of({"device": device, "w": files.float_tensor("0", (6,), (1,), 6)}), {"0": FLOATS})
    assert load(data)["device"] == "mps:0"


class Labelled(wg.Tensor):
    pass


def test_trusted_subclasses_of_tensor_in_files_of_torch():
    data = files.float_tensor("0", (6,), (1,), 6)
    function, _, args = data.partition(b"(")
    args = args[: -len(b"tR")] if args.endswith(b"tR") else args
    body = files.call(
        files.named("torch._tensor", "_rebuild_from_type_v2"), function, files.named(__name__, "Labelled"),
        files.tuple_of(args), files.dict_of({"label": files.text("x")}),
    )  # fmt: skip
    with serialization.safe_globals([Labelled]):
        tensor = load(files.archive(body, {"0": FLOATS}))
    assert (type(tensor), tensor.label, tensor.tolist()) == (Labelled, "x", list(range(6)))


def test_values_that_torch_would_refuse_are_not_written():
    recursive = ([],)
    recursive[0].append(recursive)
    nested = []
    for _ in range(2000):
        nested = [nested]
    for value, word in ((1 << 2040, "255 bytes"), (recursive, "holds itself"), (wg.device("interpreter"), "no device")):
        with pytest.raises(NotPicklable, match=word):
            save_for_torch([value])
    with pytest.raises(ArgumentError, match="nested too deeply"):
        save_for_torch(nested)
    with pytest.raises(ArgumentError, match="nested too deeply"):
        wg.save(nested, io.BytesIO())
    with pytest.raises(NotPicklable, match="call the module once"):
        save_for_torch(nn.LazyLinear(2).state_dict(keep_vars=True))
    edge = [(1 << 2039) - 1, -(1 << 2039) + 1, ((1, 2), (1, 2))]
    assert load(save_for_torch(edge)) == edge


def test_optimizer_states_that_hold_one_container_often():
    parameter = nn.Parameter(wg.ones(1))
    optimizer = optim.SGD([parameter], lr=0.1)
    state = optimizer.state_dict()
    nested, cycle = [], []
    for _ in range(100):
        nested = [nested, nested]
    cycle.append(cycle)
    state["state"] = {0: {"nested": nested, "cycle": cycle, "array": np.ones(1), "point": collections.OrderedDict(a=1)}}
    optimizer.load_state_dict(state)
    restored = optimizer.state[parameter]
    assert restored["nested"][0] is restored["nested"][1]
    assert restored["cycle"][0] is restored["cycle"]
    assert restored["point"] == {"a": 1}


def test_files_by_path_objects(tmp_path):
    wg.save(wg.ones(1), tmp_path / "a.pt")
    assert wg.load(os.fspath(tmp_path / "a.pt")).tolist() == [1]
