"""Files as `torch.save` writes them, put together from opcodes and records: neither weftgrad's writer nor PyTorch."""

import io
import struct
import zipfile

MAGIC = 0x1950A86A20F9469CFC6C


def text(value):
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def integer(value):
    return b"J" + struct.pack("<i", value)


def long(value):
    data = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def boolean(value):
    return b"\x88" if value else b"\x89"


def named(module, name):
    return b"c" + f"{module}\n{name}\n".encode()


def tuple_of(*items):
    return b"(" + b"".join(items) + b"t"


def list_of(*items):
    return b"](" + b"".join(items) + b"e"


def dict_of(items):
    return b"}(" + b"".join(text(key) + value for key, value in items.items()) + b"u"


def call(function, *args):
    return function + tuple_of(*args) + b"R"


def ordered_dict():
    return call(named("collections", "OrderedDict"))


def storage(kind, key, count, device="cpu", view=None, module="torch"):
    """A reference to a storage; with `view`, bytes of a sixth item, as in the older format."""
    items = [text("storage"), named(module, kind), text(key), text(device), long(count)]
    return tuple_of(*items, *([] if view is None else [view])) + b"Q"


def tensor(memory, shape, strides, offset=0, needs_grad=False, function="_rebuild_tensor_v2"):
    sizes = [tuple_of(*map(long, numbers)) for numbers in (shape, strides)]
    args = [memory, long(offset), *sizes]
    if function == "_rebuild_tensor_v2":
        args += [boolean(needs_grad), ordered_dict()]
    return call(named("torch._utils", function), *args)


def float_tensor(key, shape, strides, count, **kwargs):
    return tensor(storage("FloatStorage", key, count), shape, strides, **kwargs)


def parameter(data, needs_grad=True):
    return call(named("torch._utils", "_rebuild_parameter"), data, boolean(needs_grad), ordered_dict())


def pickled(body, protocol=2):
    return b"\x80" + bytes([protocol]) + body + b"."


def archive(body, storages=None, byteorder=b"little", compression=zipfile.ZIP_STORED, folder="model", records=None):
    """An archive with a pickle and the bytes of its storages by key."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as zip_file:
        zip_file.writestr(f"{folder}/data.pkl", pickled(body))
        if byteorder is not None:
            zip_file.writestr(f"{folder}/byteorder", byteorder)
        for key, content in (storages or {}).items():
            zip_file.writestr(f"{folder}/data/{key}", content)
        for name, content in (records or {}).items():
            zip_file.writestr(f"{folder}/{name}", content)
        zip_file.writestr(f"{folder}/version", b"3\n")
    return file.getvalue()


def legacy(body, storages=None, protocol=2):
    """A file of the format before PyTorch 1.6; `storages` has (number of elements, bytes) by key."""
    storages = storages or {}
    machine = dict_of({"protocol_version": integer(1001), "little_endian": boolean(True)})
    parts = [long(MAGIC), integer(1001), machine, body, list_of(*map(text, storages))]
    contents = [struct.pack("<q", count) + content for count, content in storages.values()]
    return b"".join([pickled(part, protocol) for part in parts] + contents)


def single(key, value):
    """A dict of one item, for which pickle has an opcode of its own."""
    return b"}" + text(key) + value + b"s"
