"""Read hostile files that describe memory, copy it, or lie about types, in weftgrad's own format and PyTorch's."""

import collections
import dataclasses
import enum
import io
import pickle
import struct
import time
import tracemalloc

import numpy as np
import pytest
import torch_file_bytes as files

import weftgrad as wg
from weftgrad import nn, serialization
from weftgrad.runtime.errors import ArgumentError, WeftgradError

FLOATS = struct.pack("<6f", *range(6))
MIB = 1 << 20


def load(data, **kwargs):
    return wg.load(io.BytesIO(data), **kwargs)


@pytest.fixture(scope="module", autouse=True)
def readers():
    """Import the readers before a test measures memory."""
    load(plain(NONE))
    load(files.archive(NONE))


def plain(body, protocol=5):
    """A plain pickle, which is read as weftgrad's own format."""
    return pickle.PROTO + bytes([protocol]) + body + b"."


def value(python_value):
    return pickle.dumps(python_value, 2)[2:-1]


def call(module, name, *args):
    return files.call(files.named(module, name), *args)


def dtype(code, *state):
    """A dtype, and the state that BUILD sets."""
    built = call("numpy", "dtype", value(code), value(False), value(True))
    return built + files.tuple_of(*state) + b"b" if state else built


def array(shape, element_type, content):
    empty = call("numpy._core.multiarray", "_reconstruct", files.named("numpy", "ndarray"), value((0,)), b"C\1b")
    raw = b"B" + struct.pack("<I", len(content)) + content if type(content) is bytes else value(content)
    return empty + files.tuple_of(value(1), value(shape), element_type, value(False), raw) + b"b"


NONE = b"N"
CPU = value("cpu")
TENSOR = files.named("weftgrad.runtime.tensor", "Tensor")
FLOAT32 = call("weftgrad.runtime.dtypes", "parse", value("float32"))
NO_FLAGS = [value(n) for n in (3, "|")] + [NONE] * 3 + [value(n) for n in (-1, -1, 0)]
FIELDS = b"}" + value("a") + files.tuple_of(dtype("i4"), value(1 << 20)) + b"s"
OBJECT_FIELDS = b"}" + value("a") + files.tuple_of(dtype("O"), value(0)) + b"s"


def void(fields, size=8, flags=16):
    return dtype("V8", value(3), value("|"), NONE, value(("a",)), fields, value(size), value(1), value(flags))


FORGED_ARRAYS = {
    "an object dtype without flags": array((1,), dtype("O", *NO_FLAGS), bytes(8)),
    "an object dtype of bytes": array((1,), dtype("O"), bytes(8)),
    "numbers from a list": array((1,), dtype("f8"), [1.0]),
    "a field outside of the element": array((1,), void(FIELDS), bytes(8)),
    "a field of objects": array((1,), void(OBJECT_FIELDS, flags=16), bytes(8)),
    "a field of objects with its flags": array((1,), void(OBJECT_FIELDS, flags=63), bytes(8)),
    "a larger element": array((1,), dtype("V8", *NO_FLAGS[:5], value(1 << 20), value(1), value(0)), bytes(8)),
    "elements of no bytes": array((1 << 40,), dtype("V0"), b""),
    "two objects in a list of one": array((2,), dtype("O"), [None]),
    "fields that a used dtype gets": files.list_of(
        array((1,), dtype("V8") + b"q\1", bytes(8)),
        b"h\1" + files.tuple_of(value(3), value("|"), NONE, value(("a",)), OBJECT_FIELDS, value(8), value(1), value(63))
        + b"b",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED_ARRAYS)
def test_dtypes_do_not_turn_bytes_into_pointers(name):
    for data in (plain(FORGED_ARRAYS[name]), files.archive(FORGED_ARRAYS[name])):
        with pytest.raises(ArgumentError):
            load(data)


def test_a_file_does_not_change_numpys_dtypes():
    swapped = dtype("i4", value(3), value(">"), NONE, NONE, NONE, value(-1), value(-1), value(0))
    swapped = swapped.replace(value(True), value(False))  # no copy
    assert load(plain(swapped)) == np.dtype(">i4")
    assert np.dtype("i4").byteorder == "="


RECORD_STATE = [value(3), value("|"), NONE, value(("a",))]
RECORD_FLAGS = [value(8), value(1), value(16)]


def record_of(element):
    return b"}" + value("a") + files.tuple_of(element, value(0)) + b"s"


def test_a_file_does_not_change_a_dtype_in_use():
    fields = record_of(dtype("i4")) + b"q\2"
    built = dtype("V8") + b"q\1" + files.tuple_of(*RECORD_STATE, fields, *RECORD_FLAGS) + b"b"
    changed = b"h\2" + value("a") + files.tuple_of(dtype("i4"), value(1 << 20)) + b"s"
    used, _ = load(plain(files.list_of(array((1,), built, bytes(8)), changed)))
    assert used.dtype.fields["a"][1] == 0
    assert used["a"].tolist() == [0]


def test_dtypes_that_hold_each_other():
    inner = dtype("V8") + b"q\1"
    outer = dtype("V8") + files.tuple_of(*RECORD_STATE, record_of(inner), *RECORD_FLAGS) + b"bq\2"
    cycle = b"h\1" + files.tuple_of(*RECORD_STATE, record_of(b"h\2"), *RECORD_FLAGS) + b"b"
    first, second = load(plain(files.list_of(outer, cycle)))
    assert first.fields["a"][0].names is None
    assert second.fields["a"][0] == first


def test_keys_that_dicts_share_are_read():
    key = ("x" * 300, *range(30))
    rows = [{key: n, "y" * 300: n} for n in range(2000)]
    assert load(pickle.dumps(rows)) == rows


RECORDS = np.array([(1, (2.0, 3.0))], [("a", "<i4"), ("b", "<f8", (2,))])
ARRAYS = [
    np.arange(6.0).reshape(2, 3), np.arange(3, dtype=">i2"), np.array(["é", "ab"]), np.array([b"x", b"yz"]),
    np.array(["2020-01-02"], "M8[D]"), np.array([3], "m8[25s]"), np.array([None, "x", 2], object), RECORDS,
    np.array([(1, 2)], np.dtype([("a", "u1"), ("b", "f8")], align=True)), np.asfortranarray(np.ones((2, 3))),
    np.array(1.5), np.zeros((0, 3)), np.array([b"ab"], "V2"), np.float32(2), np.str_("é"), np.datetime64("2020-01-02"),
    np.bool_(True), np.complex64(1j), np.dtype("f8"), RECORDS.dtype, np.str_(""),
]  # fmt: skip


@pytest.mark.parametrize("protocol", [1, 2, 4, 5])
@pytest.mark.parametrize("number", range(len(ARRAYS)))
def test_arrays_and_scalars_are_restored(number, protocol):
    original = ARRAYS[number]
    file = io.BytesIO()
    wg.save({"x": original}, file, pickle_protocol=protocol)
    restored = load(file.getvalue())["x"]
    assert type(restored) is type(original)
    if isinstance(original, (np.ndarray, np.generic)):
        assert restored.dtype.newbyteorder("=") == original.dtype.newbyteorder("=")  # NumPy swaps the elements
        assert restored.shape == original.shape
        np.testing.assert_array_equal(restored, original)
    else:
        assert restored == original


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
def test_every_protocol_restores_python_values(protocol):
    counts = collections.defaultdict(set, a={1})
    original = {
        "numbers": [True, False, 1, -1, 1 << 40, -(1 << 70), 1.5, 2j, None], "set": {1, 2}, "frozen": frozenset({3}),
        "bytes": b"\0\xff", "array": bytearray(b"ab\xff"), "slice": slice(1, None, 2), "range": range(3), "text": "é\n",
        "queue": collections.deque([1, 2], 5), "count": collections.Counter("aab"), "default": counts,
        "shape": wg.Size([2, 3]), "version": wg.__version__, "class": collections.OrderedDict,
    }  # fmt: skip
    file = io.BytesIO()
    if protocol == 1:  # whose constructor is copyreg's, which files may not name
        del original["shape"]
    wg.save(original, file, pickle_protocol=protocol)
    restored = load(file.getvalue())
    assert restored == original
    assert restored["queue"].maxlen == 5
    assert restored["default"].default_factory is set


def interface(address):
    return files.dict_of(
        {
            "data": files.tuple_of(files.long(address), files.boolean(False)),
            "shape": files.tuple_of(files.integer(1), files.integer(2)),
            "typestr": files.text("<f4"),
            "version": files.integer(3),
        }
    )


def test_attributes_do_not_describe_memory():
    secret = np.array([7, 8], np.float32)
    described = interface(secret.ctypes.data)
    hostile_dict = files.ordered_dict() + files.dict_of({"__array__": NONE, "__array_interface__": described}) + b"b"
    data = files.float_tensor("0", (6,), (1,), 6)
    rebuild = files.named("torch._utils", "_rebuild_parameter_with_state")
    attributes = files.dict_of({"__array_interface__": described})
    parameter = files.call(rebuild, data, files.boolean(False), files.ordered_dict(), attributes)
    for body in (hostile_dict, parameter):
        with pytest.raises(ArgumentError, match="sets attributes"):
            load(files.archive(body, {"0": FLOATS}))
    with pytest.raises(ArgumentError, match="sets attributes"):
        load(plain(hostile_dict))
    state = collections.OrderedDict()
    state.__array_interface__ = {"data": (secret.ctypes.data, False), "shape": (1, 2), "typestr": "<f4", "version": 3}
    state.__array__ = None
    with pytest.raises(WeftgradError):
        nn.Linear(2, 1, bias=False).load_state_dict({"weight": state})


class Trusted:
    pass


def test_attributes_of_trusted_classes_do_not_describe_memory_or_replace_methods():
    described = files.dict_of({"__array_interface__": interface(1 << 20)})
    new = files.named(__name__, "Trusted") + b")\x81"
    with serialization.safe_globals([Trusted, NamedList]):
        for data in (plain(new + described + b"b"), files.archive(new + described + b"b")):
            with pytest.raises(ArgumentError, match="special attributes"):
                load(data)
        new = files.named(__name__, "NamedList") + b")\x81"
        appended = new + files.dict_of({"append": files.named("builtins", "bytearray")}) + b"b" + value(1 << 26) + b"a"
        assert load(plain(appended)) == [1 << 26]


def unpickled(elements, element_type=FLOAT32, device=CPU, kind=TENSOR):
    return call("weftgrad.tensor_methods.conversion", "_unpickle", kind, elements, element_type, device, value(False))


SHAPED = call("collections", "OrderedDict") + files.dict_of({"shape": value((1 << 24,))}) + b"b"
UINT8 = call("weftgrad.runtime.dtypes", "parse", value("uint8"))
NESTED = b")" + b"2\x86" * 20


def rebuilt(shape, strides=b")", key=None):
    memory = (files.tuple_of(value(-1), value("cpu")) if key is None else key) + b"Q"
    numbers = [shape, strides, value(0), value(False)]
    return call("weftgrad.serialization", "_rebuild", TENSOR, memory, FLOAT32, *numbers)


LIES = {
    "an array that is a dict": unpickled(SHAPED),
    "more bytes than the tensor has": unpickled(array((128,), dtype("f8"), bytes(1024)), UINT8),
    "a tensor of a list": unpickled(value([1.0])),
    "a tensor of another class": unpickled(array((1,), dtype("f4"), bytes(4)), kind=files.named("numpy", "ndarray")),
    "an unnamed device": unpickled(array((1,), dtype("f4"), bytes(4)), device=NESTED),
    "a method that a file has set": call("collections", "OrderedDict")
    + files.dict_of({"append": files.named("builtins", "bytearray")}) + b"b" + value(1 << 26) + b"a",
    "a nested version": call("weftgrad.torch_names.torch_module", "TorchVersion", NESTED),
    "a nested generator": call("weftgrad.random", "Generator") + files.tuple_of(NESTED, value(0), value(0)) + b"b",
    "a nested device": rebuilt(value((1,)), value((1,)), value(-1) + NESTED + b"\x86"),
    "a range as shape": rebuilt(call("builtins", "range", value(1 << 21))),
    "many sizes": rebuilt(value((1,) * 65), value((1,) * 65)),
    "memory as a value": files.tuple_of(value(-1), value("cpu")) + b"Q",
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_calls_of_our_own_format_are_checked(name):
    tracemalloc.start()
    begin = time.thread_time()  # on a busy machine, a thread waits for a core
    try:
        with pytest.raises(WeftgradError):
            load(plain(LIES[name]))
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()
    assert time.thread_time() - begin < 5


def copies(shared, setup, body, count):
    """A value that many short calls copy."""
    return shared + b"q\0" + setup + b"q\1" + b"(" + body * count + b"l"


NUMBERS = b"](" + b"".join(b"M" + struct.pack("<H", n) for n in range(5000)) + b"e"
CONTENT = b"B" + struct.pack("<I", 20_000) + bytes(20_000)
COPIES = {
    "bytearray": copies(CONTENT, files.named("builtins", "bytearray"), b"h\1h\0\x85R", 2000),
    "set": copies(NUMBERS, files.named("builtins", "set"), b"h\1h\0\x85R", 500),
    "frozenset": copies(NUMBERS, files.named("builtins", "frozenset"), b"h\1h\0\x85R", 500),
    "OrderedDict": copies(
        b"}(" + b"".join(files.text(f"k{n}") + NONE for n in range(1000)) + b"u",
        files.named("collections", "OrderedDict"), b"h\1)Rh\0b", 1000,
    ),
    "Counter": copies(
        b"}(" + b"".join(files.text(f"k{n}") + value(n) for n in range(1000)) + b"u",
        files.named("collections", "Counter"), b"h\1h\0\x85R", 1000,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COPIES)
def test_calls_that_copy_shared_values_are_limited(name):
    data = [plain(COPIES[name]), files.archive(COPIES[name])]
    tracemalloc.start()
    try:
        for content in data:
            with pytest.raises(ArgumentError, match="copy more"):
                load(content)
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


def test_long_key_paths_and_long_integers_as_keys():
    name = files.text("x" * 10_000)
    path = b"(" + name + b"q\0" + b"(h\0" * 3000 + files.named("os", "system")
    integer = b"\x8b" + struct.pack("<i", 40_000) + b"\1" * 40_000 + b"q\0"
    keys = integer + b"(" + b"h\0" * 98 + b"tq\1}" + b"h\1Ns" * 1000
    tracemalloc.start()
    try:
        for body in (path, keys):
            for data in (plain(body), files.archive(body)):
                with pytest.raises(ArgumentError) as error:
                    load(data)
                assert len(str(error.value)) < 10_000
        assert tracemalloc.get_traced_memory()[1] < 2 * MIB
    finally:
        tracemalloc.stop()


def test_arguments_of_constructors_are_no_values():
    storage = files.storage("FloatStorage", "0", 6)
    for body in (storage, files.list_of(storage), files.dict_of({"x": files.named("torch", "Tensor")})):
        with pytest.raises(ArgumentError, match="save the tensor"):
            load(files.archive(body, {"0": FLOATS}))


class NamedList(list):
    pass


class Queue(collections.deque):
    pass


class Keyed:
    def __new__(cls, *, rate):
        keyed = object.__new__(cls)
        keyed.rate = rate
        return keyed

    def __getnewargs_ex__(self):
        return (), {"rate": self.rate}


@dataclasses.dataclass(slots=True)
class Config:
    rate: int = 0


class Color(enum.Enum):
    RED = 1


@pytest.mark.parametrize("protocol", [2, 4])
def test_trusted_classes_get_their_whole_state(protocol):
    named = NamedList([1, 2])
    named.label = "x"
    values = [Config(3), named, Queue([1, 2], 4), Color.RED]
    if protocol == 4:  # protocol 2 writes functools.partial
        values.append(Keyed(rate=2))
    with serialization.safe_globals([Config, NamedList, Queue, Keyed, Color]):
        for body in (pickle.dumps(values, protocol), files.archive(pickle.dumps(values, protocol)[2:-1])):
            config, restored, queue, color, *keyed = load(body)
            assert config == Config(3)
            assert (restored, restored.label) == ([1, 2], "x")
            assert (list(queue), queue.maxlen) == ([1, 2], 4)
            assert color is Color.RED
            assert [k.rate for k in keyed] == [2] * (protocol == 4)


@pytest.mark.parametrize("weights_only", [True, False])
def test_map_location_changes_only_tensors_of_a_plain_pickle(weights_only):
    state = collections.OrderedDict(w=wg.ones(1, device="cpu"))
    state._metadata = {"": 1}
    values = [collections.Counter("aab"), state, collections.defaultdict(set, a={1}), collections.deque([1], 3)]
    restored = load(pickle.dumps(values), map_location="opencl:0", weights_only=weights_only)
    assert (restored[0], restored[1]._metadata, restored[3].maxlen) == (values[0], {"": 1}, 3)
    assert restored[2] == values[2]
    assert str(restored[1]["w"].device) == "opencl:0"


def test_attributes_of_tensors_in_a_plain_pickle_are_restored():
    x = wg.ones(2, device="cpu")
    x.label = "input"
    assert load(pickle.dumps(x)).label == "input"
