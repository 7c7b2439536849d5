"""Read damaged and hostile files: `load` raises an error, runs nothing and allocates little."""

import collections
import io
import pickle
import random
import resource
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
import torch_file_bytes as files

import weftgrad as wg
from weftgrad import nn
from weftgrad.runtime.errors import ArgumentError, WeftgradError
from weftgrad.serialization import file_format

FLOATS = struct.pack("<6f", *range(6))
BODY = files.dict_of(
    {
        "w": files.parameter(files.float_tensor("0", (2, 3), (3, 1), 6)),
        "v": files.float_tensor("0", (2,), (1,), 6, offset=3),
        "n": files.list_of(files.integer(1), files.text("é"), files.boolean(True)),
        "s": files.call(files.named("torch", "Size"), files.tuple_of(files.integer(2))),
    }
)
HOSTILE_PICKLES = 10_000
MIB = 1 << 20
CALLS = []


def record_call(*args):
    """What hostile pickles call, by the name of this module."""
    CALLS.append(args)


def load(data, **kwargs):
    return wg.load(io.BytesIO(data), **kwargs)


def archive():
    return files.archive(BODY, {"0": FLOATS})


def legacy():
    return files.legacy(BODY, {"0": (6, FLOATS)})


def is_refused(data):
    """Return True if loading raises an error of weftgrad's. Any other exception fails the test."""
    try:
        load(data)
    except WeftgradError:
        return True
    return False


@pytest.mark.parametrize("make", [archive, legacy])
def test_every_truncation_is_an_error(make, tmp_path):
    data = make()
    assert not is_refused(data)
    assert all(is_refused(data[:end]) for end in range(len(data)))
    path = tmp_path / "a.pt"
    for end in range(0, len(data), 7):
        path.write_bytes(data[:end])
        with pytest.raises(WeftgradError):
            wg.load(path, mmap=True)


@pytest.mark.parametrize("make", [archive, legacy])
def test_flipped_bits_are_an_error_or_change_nothing_else(make):
    data = make()
    generator = random.Random(1)
    refused = 0
    for _ in range(2000):
        broken = bytearray(data)
        for _ in range(generator.choice((1, 1, 1, 4))):
            broken[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        refused += is_refused(bytes(broken))
    assert refused > 500


def test_a_flipped_bit_of_a_tensor_is_seen_by_the_checksum():
    data = archive()
    begin = data.index(FLOATS)
    for position in range(begin, begin + len(FLOATS)):
        broken = bytearray(data)
        broken[position] ^= 1
        with pytest.raises(ArgumentError, match=r"checksum of its record model/data/0 is wrong"):
            load(bytes(broken))


def test_archives_without_checksums_are_read():
    """PyTorch writes 0 for each under `set_crc32_options(False)`."""
    data = archive()
    file = zipfile.ZipFile(io.BytesIO(data))
    for info in file.infolist():
        data = data.replace(struct.pack("<I", info.CRC), bytes(4))
    assert load(data)["v"].tolist() == [3, 4]


_OPCODES = [
    code for name, code in vars(pickle).items() if isinstance(code, bytes) and len(code) == 1 and name.isupper()
]
_NAMES = [
    ("torch", "FloatStorage"), ("torch._utils", "_rebuild_tensor_v2"), ("torch._utils", "_rebuild_parameter"),
    ("torch._tensor", "_rebuild_from_type_v2"), ("torch", "Tensor"), ("torch", "Size"), ("torch", "device"),
    ("collections", "OrderedDict"), ("builtins", "set"), ("builtins", "bytearray"), ("builtins", "eval"),
    ("builtins", "getattr"), ("os", "system"), (__name__, "record_call"), ("numpy", "ndarray"), ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"), ("weftgrad.serialization", "_rebuild"), ("weftgrad.random", "Generator"),
    ("weftgrad.tensor_methods.conversion", "_unpickle"), ("weftgrad.tensor_methods.size", "Size"),
    ("weftgrad.runtime.dtypes", "parse"), ("weftgrad.runtime.device", "device"), ("collections", "deque"),
    ("collections", "defaultdict"), ("builtins", "range"), ("builtins", "slice"),
]  # fmt: skip
_FRAGMENTS = [
    *_OPCODES, *(files.named(*name) for name in _NAMES), files.text("storage"), files.text("0"), files.text("cpu"),
    files.integer(6), files.long(1 << 62), files.storage("FloatStorage", "0", 6),
    files.float_tensor("0", (2, 3), (3, 1), 6), b"}", b"]", b")", b"(", b"R", b"b", b"q\0",
    b"h\0", b"K\1", b"\x85", b"\x86",
    b"\x8e" + struct.pack("<Q", 1 << 60), b"\x96" + struct.pack("<Q", 1 << 40), b"\x95" + struct.pack("<Q", 1 << 62),
    b"\x8b" + struct.pack("<i", (1 << 31) - 1),
]  # fmt: skip


def hostile_pickle(generator, valid=BODY):
    """Return opcodes that are random, or mutations of a valid pickle."""
    if generator.random() < 0.5:
        return b"".join(generator.choices(_FRAGMENTS, k=generator.randrange(1, 40)))
    body = bytearray(valid)
    for _ in range(generator.randrange(1, 6)):
        position = generator.randrange(len(body))
        action = generator.randrange(3)
        if action == 0:
            body[position] = generator.randrange(256)
        elif action == 1:
            body[position:position] = generator.choice(_FRAGMENTS)
        else:
            del body[position : position + generator.randrange(1, 8)]
    return bytes(body)


def check_hostile_pickles(seed, count):
    generator = random.Random(seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for _ in range(count):
        body = hostile_pickle(generator)
        if generator.random() < 0.9:
            data = files.archive(body, {"0": FLOATS}) if generator.random() < 0.5 else _archive_of(body)
        else:
            data = files.legacy(body, {"0": (6, FLOATS)})
        refused += is_refused(data)
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # KiB
    assert refused > count // 2
    assert CALLS == []
    assert growth < 100 * 1024


def _archive_of(body):
    """Return an archive with this pickle, put together without `zipfile`, which takes most of the time."""
    text = files.pickled(body)
    return zip_bytes([("m/data.pkl", text), ("m/data/0", FLOATS)])


def zip_bytes(records, **changes):
    """Return a zip archive. `changes` replace fields of the last record's entry in the directory."""
    data, directory = b"", b""
    for number, (name, content) in enumerate(records):
        fields = {
            "method": 0, "checksum": zlib.crc32(content), "packed": len(content), "size": len(content),
            "offset": len(data),
        }  # fmt: skip
        common = struct.pack("<HHHHHIII", 20, 0, 0, 0, 0, fields["checksum"], len(content), len(content))
        data += b"PK\3\4" + common + struct.pack("<HH", len(name), 0) + name.encode() + content
        fields |= changes if number == len(records) - 1 else {}
        common = struct.pack(
            "<HHHHHHIII", 20, 20, 0, fields["method"], 0, 0, fields["checksum"], fields["packed"], fields["size"]
        )
        ends = struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, fields["offset"])
        directory += b"PK\1\2" + common + ends + name.encode()
    count = changes.get("count", len(records))
    end = struct.pack("<HHHHIIH", 0, 0, count, count, len(directory), changes.get("start", len(data)), 0)
    return data + directory + b"PK\5\6" + end


def test_hostile_pickles_in_our_own_format():
    file = io.BytesIO()
    array = np.arange(3)
    value = {
        "w": nn.Parameter(wg.ones(2, 3)), "v": [wg.ones(2), 1.5, "é"], "a": array, "s": {1}, "g": wg.Generator(),
        "r": np.zeros(2, [("a", "i4"), ("b", "f8", (2,))]), "o": np.array([None], object),
        "t": np.array(["2020"], "M8[D]"), "d": collections.deque([1]), "f": collections.defaultdict(set),
    }  # fmt: skip
    wg.save(value, file)
    data = file.getvalue()
    header = file_format.HEADER
    size = header.unpack_from(data)[2]
    body, storages = data[header.size : header.size + size], data[header.size + size :]
    generator = random.Random(0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for _ in range(HOSTILE_PICKLES // 2):
        text = hostile_pickle(generator, body)
        fields = (b"weftgrad", 1, len(text), 2, zlib.crc32(text))
        is_plain = generator.random() < 0.3
        refused += is_refused(files.pickled(text, 5) if is_plain else header.pack(*fields) + text + storages)
    assert refused > HOSTILE_PICKLES // 4
    assert CALLS == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


def test_hostile_pickles():
    check_hostile_pickles(seed=0, count=HOSTILE_PICKLES)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(1, 11))
def test_more_hostile_pickles(seed):
    check_hostile_pickles(seed, HOSTILE_PICKLES)


def nest_tuples(depth):
    """Return opcodes for a tuple of twice the tuple of twice … : 2 ** depth parts by reference."""
    return b")" + b"2\x86" * depth


BOMBS = {
    "a length of 2**60 bytes": b"\x8e" + struct.pack("<Q", 1 << 60),
    "an array of 2**40 bytes": b"\x96" + struct.pack("<Q", 1 << 40),
    "bytearray(2**40)": files.call(files.named("builtins", "bytearray"), files.long(1 << 40)),
    "set(range(2**40))": files.call(files.named("builtins", "set"), files.named("builtins", "range")),
    "a shape of 2**62": files.float_tensor("0", (1 << 62, 1 << 62), (0, 0), 6),
    "many dimensions": files.float_tensor("0", (1 << 60,) * 1000, (0,) * 1000, 6),
    "a stride of 2**62": files.float_tensor("0", (2,), (1 << 62,), 6),
    "a negative stride": files.float_tensor("0", (2,), (-1,), 6),
    "an offset of 2**62": files.float_tensor("0", (2,), (1,), 6, offset=1 << 62),
    "an offset of -1": files.float_tensor("0", (2,), (1,), 6, offset=-1),
    "a storage of 2**60": files.float_tensor("0", (2,), (1,), 1 << 60),
    "a storage of -1": files.float_tensor("0", (2,), (1,), -1),
    "a storage in a parent folder": files.float_tensor("../0", (2,), (1,), 6),
    "a numpy array of 2**40": files.call(
        files.named("numpy._core.multiarray", "_reconstruct"), files.named("numpy", "ndarray"),
        files.tuple_of(files.long(1 << 40)), files.text("b"),
    ),
    "numpy.ndarray(2**40)": files.call(files.named("numpy", "ndarray"), files.tuple_of(files.long(1 << 40))),
    "a numpy dtype of 2**30 bytes": files.call(files.named("numpy", "dtype"), files.text("V1073741824")),
    "a hash of 2**100 parts": b"}" + nest_tuples(100) + b"Ns",
    "a set of 2**100 parts": b"\x8f(" + nest_tuples(100) + b"\x90",
    "a key in OrderedDict": files.call(
        files.named("collections", "OrderedDict"), b"]" + nest_tuples(100) + b"N\x86a"
    ),
    "Tensor(2**20, 2**20)": files.call(files.named("torch", "Tensor"), files.long(1 << 20), files.long(1 << 20)),
    "the state of a tensor": files.float_tensor("0", (2,), (1,), 6)
    + files.dict_of({"start": files.long(1 << 40)}) + b"b",
    "a method of OrderedDict": files.ordered_dict() + files.dict_of({"keys": b"N"}) + b"b",
    "a pickle in a pickle": files.call(files.named("pickle", "loads"), files.text("x")),
    "a cycle as a key": b"]q\0h\0\x85q\1h\0h\1ah\1}h\1Nsu",
    "two types of one storage": files.list_of(
        files.float_tensor("0", (2,), (1,), 6), files.tensor(files.storage("IntStorage", "0", 6), (2,), (1,))
    ),
    "an integral parameter": files.parameter(files.tensor(files.storage("IntStorage", "0", 6), (2,), (1,))),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name):
    data = [files.archive(BOMBS[name], {"0": FLOATS}), files.legacy(BOMBS[name], {"0": (6, FLOATS)})]
    tracemalloc.start()
    try:
        for content in data:
            with pytest.raises(WeftgradError):
                load(content)
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


def test_functions_are_not_called():
    call = files.call(files.named(__name__, "record_call"), files.text("x"))
    reduced = pickle.dumps(Reduced(), 4)
    for data in (files.archive(call), files.legacy(call), files.archive(reduced[2:-1]), files.archive(b"N0" + call)):
        with pytest.raises(ArgumentError, match="record_call"):
            load(data)
    assert CALLS == []


class Reduced:
    def __reduce__(self):
        return record_call, (1,)


def test_compressed_records_are_refused():
    size = 64 * MIB
    body = files.tensor(files.storage("ByteStorage", "0", size), (size,), (1,))
    data = files.archive(body, {"0": bytes(size)}, compression=zipfile.ZIP_DEFLATED)
    assert len(data) < MIB
    tracemalloc.start()
    with pytest.raises(ArgumentError, match=r"compressed.*zip -0"):
        load(data)
    assert tracemalloc.get_traced_memory()[1] < MIB
    tracemalloc.stop()


def test_records_that_overlap_or_lie():
    text = files.pickled(files.float_tensor("0", (6,), (1,), 6))
    records = [("m/data.pkl", text), ("m/data/0", FLOATS)]
    assert load(zip_bytes(records)).tolist() == list(range(6))
    lies = [
        {"offset": 0}, {"offset": 7}, {"offset": 1 << 31}, {"size": 5}, {"packed": 5},
        {"packed": 1 << 31, "size": 1 << 31}, {"packed": len(FLOATS) + 1, "size": len(FLOATS) + 1},
        {"packed": 0xFFFFFFFF, "size": 0xFFFFFFFF},
        {"method": 8}, {"checksum": 1}, {"count": 3}, {"count": 0xFFFF}, {"start": 0}, {"start": 1 << 31},
        {"start": 0xFFFFFFFF},
    ]  # fmt: skip
    for lie in lies:
        with pytest.raises(ArgumentError):
            load(zip_bytes(records, **lie))
    with pytest.raises(ArgumentError, match="two records"):
        load(zip_bytes([*records, ("m/data/0", FLOATS)]))
    with pytest.raises(ArgumentError, match="bytes by its description"):
        load(files.archive(files.float_tensor("0", (5,), (1,), 5), {"0": FLOATS}))


def test_old_files_that_lie_about_storages():
    body = files.float_tensor("0", (6,), (1,), 6)
    storages = [{}, {"1": (6, FLOATS)}, {"0": (5, FLOATS)}, {"0": (6, FLOATS[:20])}, {"0": (1 << 60, FLOATS)},
                {"0": (-6, FLOATS)}, {"0": (6, FLOATS), "1": (6, FLOATS)}]  # fmt: skip
    for lie in storages:
        with pytest.raises(ArgumentError):
            load(files.legacy(body, lie))
    body = files.list_of(*[files.float_tensor(str(n), (1,), (1,), 1 << 40) for n in range(100)])
    with pytest.raises(ArgumentError, match="more bytes than it has"):
        load(files.legacy(body, {"0": (6, FLOATS)}))


def test_a_large_directory_needs_little_memory():
    data = zip_bytes([(f"m/{n}", b"") for n in range(4000)])
    tracemalloc.start()
    with pytest.raises(ArgumentError, match=r"data\.pkl"):
        load(data)
    assert tracemalloc.get_traced_memory()[1] < 30 * len(data)
    tracemalloc.stop()
