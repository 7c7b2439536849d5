"""Read a pickle without Python's unpickler: a machine that has no opcode for running code.

It knows the opcodes that containers, numbers and texts need. What a pickle names (`GLOBAL`) is looked up in a table of
the caller's, and only constructors of that table are called. Python's unpickler calls what it can import, and allocates
what a pickle claims: `bytearray(1 << 40)`. Here an opcode that creates an object allocates at most a constant times its
own length. A call may copy its arguments, and six bytes call `set(x)` on an `x` of any length. All calls of a pickle
together therefore get arguments of at most a constant times the length of the pickle (`PickleReader.charge`).
The opcodes are described in the standard module `pickletools`.
"""

from __future__ import annotations

import pickle
import struct
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeGuard

__all__ = ["CONTAINERS", "Constructor", "PickleReader", "check_keys", "is_protocol_name", "is_shape"]

_MAX_DIMENSIONS = 64
_MAX_SIZE = (1 << 63) - 1
_MAX_KEY_PARTS = 100  # tuples that hold one another take exponential time to hash
_MAX_KEY_BITS = 128  # Python computes the hash of an int anew each time, in time that grows with its length
_SHORT_KEY = 1 << 16  # characters; longer keys count against the budget, because equal keys are compared
_BUDGET_PER_BYTE = 4
_MIN_BUDGET = 1 << 14
_MAX_PATH_KEYS = 16
_MAX_PATH_KEY_LENGTH = 100
_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset, deque)
_LATIN1_NAMES = ("latin1", "latin-1", "iso-8859-1", "iso8859-1")


@dataclass(frozen=True, eq=False)
class Constructor:
    """A class or function that a pickle may name.

    Attributes:
        name: Its name in the pickle.
        construct: Called with the arguments in the pickle; None for a class that is an argument only.
    """

    name: str
    construct: Callable[..., object] | None = None

    def __call__(self, *args: object) -> object:
        """Call `construct`, for an unpickler of Python's."""
        if self.construct is None:
            raise pickle.UnpicklingError(f"it calls {self.name}, which is no function")
        return self.construct(*args)


def is_shape(value: object) -> TypeGuard[tuple[int, ...]]:
    """Return True if `value` is a tuple of sizes or strides whose product is quickly computed."""
    return (
        type(value) is tuple
        and len(value) <= _MAX_DIMENSIONS
        and all(type(n) is int and 0 <= n <= _MAX_SIZE for n in value)
    )


def is_protocol_name(name: str) -> bool:
    """Return True if NumPy or another library reads the memory that an instance's attribute of this name describes."""
    return name.startswith("__") and ("array" in name or "dlpack" in name or "buffer" in name)


def check_keys(keys: Iterable[object]) -> None:
    """Raise `UnpicklingError` if a key of a dict, or an item of a set, would take long to hash."""
    for key in keys:
        _count_key_parts(key, _MAX_KEY_PARTS)


def _count_key_parts(key: object, limit: int) -> int:
    """Return `limit` less the number of parts of a key."""
    if isinstance(key, (tuple, frozenset)) and limit > 0:
        for part in key:
            limit = _count_key_parts(part, limit - 1)
    if limit <= 0:
        raise pickle.UnpicklingError("a key of a dict or set has too many parts")
    if isinstance(key, int) and key.bit_length() > _MAX_KEY_BITS:
        raise pickle.UnpicklingError(f"a key of a dict or set is an integer of more than {_MAX_KEY_BITS} bits")
    return limit


class PickleReader:
    """A reader of one pickle in a longer text.

    Args:
        text: Bytes with the pickle.
        find_global: Returns the `Constructor` or the value of a module and a name, or raises `UnpicklingError`.
        load_persistent: Returns the object of a persistent id.
        set_state: Sets the state of an object, or raises `UnpicklingError`.
        is_trusted: Tells whether an object is a class or function that the user has added to the table.
        start: Position of the pickle in `text`.
        constructors: What to call for a class or function that `find_global` returned as itself, by its id.
        internal_types: Types of objects that are arguments of constructors only, and no values that a file can hold.

    Attributes:
        position: Position in `text` of the next byte; after `load`, the end of the pickle.
    """

    _OPERATIONS: ClassVar[dict[int, Callable[[PickleReader], None]]] = {}

    def __init__(
        self, text: bytes, find_global: Callable[[str, str], object],
        load_persistent: Callable[[object], object] | None = None,
        set_state: Callable[[object, object], None] | None = None,
        is_trusted: Callable[[object], bool] = lambda value: False, start: int = 0,
        constructors: Mapping[int, Callable[..., object]] | None = None, internal_types: tuple[type, ...] = (),
    ):  # fmt: skip
        self.position = start
        self._text = text
        self._find_global = find_global
        self._load_persistent = load_persistent
        self._set_state = set_state
        self._is_trusted = is_trusted
        self._constructors = constructors or {}
        self._internal_types = (Constructor, *internal_types)
        self._budget = _BUDGET_PER_BYTE * (len(text) - start) + _MIN_BUDGET
        self._stack: list[Any] = []
        self._outer_stacks: list[list[Any]] = []  # one for each MARK whose items are being read
        self._memo: dict[int, object] = {}

    def load(self) -> object:
        """Return the object.

        Raises:
            UnpicklingError: The pickle is damaged, or holds what is refused.
            LookupError: It refers to an item that is not there. `EOFError`: It is cut off.
        """
        while True:
            code = self._read(1)[0]
            if code == pickle.STOP[0]:
                if self._outer_stacks or len(self._stack) != 1:
                    raise pickle.UnpicklingError("it ends before an object is complete")
                self._check_values(self._stack)
                return self._stack.pop()
            operation = self._OPERATIONS.get(code)
            if operation is None:
                raise pickle.UnpicklingError(f"the opcode {bytes([code])!r} at byte {self.position - 1} is not allowed")
            operation(self)

    def key_path(self) -> str:
        """Return the keys of the dicts whose item is being read, such as `model.fc.weight`; empty outside of dicts."""
        keys: list[str] = []
        for stack in (*self._outer_stacks, self._stack)[-_MAX_PATH_KEYS:]:
            index = next((i for i in reversed(range(len(stack))) if isinstance(stack[i], str)), None)
            if index is None:
                continue
            path = [stack[index]]
            while index >= 2 and type(stack[index - 2]) is str and type(stack[index - 1]) is dict:
                if stack[index - 1] or len(path) >= _MAX_PATH_KEYS:
                    break  # a finished dict, the item before this one; an unfinished one is empty until SETITEM
                index -= 2
                path.append(stack[index])
            keys += reversed(path)
        return ".".join(key[:_MAX_PATH_KEY_LENGTH] for key in keys[-_MAX_PATH_KEYS:])

    def charge(self, value: object) -> None:
        """Subtract the length of an argument, and of tuples in it, from the lengths that calls of this pickle may have.

        Raises:
            UnpicklingError: The calls copy more than a constant times the length of the pickle.
        """
        values = [value]
        while values:
            current = values.pop()
            if isinstance(current, _SIZED):
                self._budget -= len(current)
            if self._budget < 0:
                raise pickle.UnpicklingError("its calls copy more than the pickle has bytes")
            if isinstance(current, tuple):
                values += current

    def _check_keys(self, keys: Iterable[object]) -> None:
        """Raise `UnpicklingError` if a key takes long to hash, or the keys together do."""
        for key in keys:
            _count_key_parts(key, _MAX_KEY_PARTS)
            for part in key if isinstance(key, tuple) else (key,):
                if isinstance(part, (str, bytes)) and len(part) > _SHORT_KEY:
                    self.charge(part)

    def _check_values(self, values: Iterable[object]) -> None:
        """Raise `UnpicklingError` if an argument of a constructor becomes a value."""
        for value in values:
            for item in value[:8] if type(value) is tuple else (value,):  # shared ones may be long
                if isinstance(item, self._internal_types):
                    name = getattr(item, "name", type(item).__name__)
                    raise pickle.UnpicklingError(f"it holds {name} as a value: save the tensor instead")

    # Reading.

    def _read(self, size: int) -> bytes:
        data = self._text[self.position : self.position + size]
        if len(data) != size:
            raise EOFError("its pickle is cut off")
        self.position += size
        return data

    def _read_number(self, layout: str) -> Any:
        return struct.unpack(layout, self._read(struct.calcsize(layout)))[0]

    def _read_line(self) -> str:
        end = self._text.find(b"\n", self.position)
        if end < 0:
            raise EOFError("its pickle is cut off")
        return self._read(end + 1 - self.position)[:-1].decode()

    # Operations that take objects from the stack.

    def _pop_items(self) -> list[Any]:
        """Return the objects since the last MARK."""
        items, self._stack = self._stack, self._outer_stacks.pop()
        return items

    def _make_tuple(self, size: int) -> None:
        if len(self._stack) < size:
            raise IndexError("a tuple has too few items")
        items = tuple(self._stack[-size:])
        self._stack[-size:] = [items]

    def _set_items(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, dict) and not self._is_trusted(type(target)):
            raise pickle.UnpicklingError(f"it sets items of a {type(target).__name__}")
        if len(items) % 2:
            raise pickle.UnpicklingError("a dict has a key without a value")
        self._check_keys(items[::2])
        self._check_values(items[1::2])
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[key] = value

    def _append_items(self, items: list[Any]) -> None:
        target = self._stack[-1]
        self._check_values(items)
        kind = type(target)
        if kind in (list, deque):
            target.extend(items)
        elif self._is_trusted(kind):
            self._extend_trusted(target, items)
        else:
            raise pickle.UnpicklingError(f"it appends to a {kind.__name__}")

    @staticmethod
    def _extend_trusted(target: object, items: list[Any]) -> None:
        """Append items by the methods of the class: a file may have set attributes of these names on the instance."""
        kind: Any = type(target)
        if hasattr(kind, "extend"):
            kind.extend(target, items)
            return
        for item in items:
            kind.append(target, item)

    def _add_items(self) -> None:
        items = self._pop_items()
        self._check_keys(items)
        self._check_values(items)
        target = self._stack[-1]
        kind: Any = type(target)
        if kind is set:
            target.update(items)
        elif self._is_trusted(kind):
            for item in items:
                kind.add(target, item)
        else:
            raise pickle.UnpicklingError(f"it adds items to a {kind.__name__}")

    def _freeze_items(self) -> None:
        items = self._pop_items()
        self._check_keys(items)
        self._stack.append(frozenset(items))

    def _new_dict(self) -> None:
        items = self._pop_items()
        self._stack.append({})
        self._set_items(items)

    def _stack_global(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if type(name) is not str or type(module) is not str:
            raise pickle.UnpicklingError("it names a class by something else than texts")
        self._stack.append(self._find_global(module, name))

    def _reduce(self) -> None:
        args, function = self._stack.pop(), self._stack[-1]
        if type(args) is not tuple:
            raise pickle.UnpicklingError("the arguments of a call are no tuple")
        self._stack[-1] = self._call(function, args)

    def _call(self, function: Any, args: tuple[object, ...]) -> object:
        if self._is_trusted(function):
            return function(*args)
        construct = function if isinstance(function, Constructor) else self._constructors.get(id(function))
        if construct is None:
            name = getattr(function, "__name__", None)
            raise pickle.UnpicklingError(f"it calls {name if isinstance(name, str) else type(function).__name__}")
        self.charge(args)
        return construct(*args)

    def _new_object(self) -> None:
        args, kind = self._stack.pop(), self._stack[-1]
        if not self._is_trusted(kind) or type(args) is not tuple:
            self._stack.append(args)
            self._reduce()
            return
        self._stack[-1] = kind.__new__(kind, *args)

    def _new_object_with_keywords(self) -> None:
        options, args, kind = self._stack.pop(), self._stack.pop(), self._stack[-1]
        if not self._is_trusted(kind) or type(args) is not tuple or type(options) is not dict:
            raise pickle.UnpicklingError("it calls a class with keyword arguments, which no saved value needs")
        self._stack[-1] = kind.__new__(kind, *args, **options)

    def _build(self) -> None:
        state = self._stack.pop()
        if self._set_state is None:
            raise pickle.UnpicklingError("it sets the state of an object")
        target = self._stack[-1]
        if not (self._is_trusted(type(target)) and hasattr(type(target), "__setstate__")):
            self.charge(state)
            self._check_values(state.values() if type(state) is dict else ())
        self._set_state(target, state)

    def _persistent(self) -> None:
        key = self._stack.pop()
        if self._load_persistent is None:
            raise pickle.UnpicklingError("it refers to data outside of its pickle")
        self._stack.append(self._load_persistent(key))

    def _mark(self) -> None:
        self._outer_stacks.append(self._stack)
        self._stack = []

    def _pop(self) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._pop_items()

    def _check_protocol(self) -> None:
        protocol = self._read(1)[0]
        if protocol > pickle.HIGHEST_PROTOCOL:
            highest = pickle.HIGHEST_PROTOCOL
            raise pickle.UnpicklingError(f"its pickle has protocol {protocol}, and Python reads up to {highest}")

    def _push(self, value: object) -> None:
        self._stack.append(value)

    def _store(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    def _read_text(self, layout: str) -> str:
        return self._read(self._read_number(layout)).decode("utf-8", "surrogatepass")

    def _read_integer(self, layout: str) -> int:
        size = self._read_number(layout)
        if size < 0:
            raise pickle.UnpicklingError("an integer has a negative length")
        return int.from_bytes(self._read(size), "little", signed=True)


def _parse_int(line: str) -> bool | int:
    return line == "01" if line in ("00", "01") else int(line)  # protocols 0 and 1 write Booleans so


_R = PickleReader
_R._OPERATIONS.update(
    {
        code[0]: operation
        for code, operation in {
            pickle.PROTO: _R._check_protocol,
            pickle.FRAME: lambda r: r._read(8) and None,
            pickle.MARK: _R._mark,
            pickle.POP: _R._pop,
            pickle.POP_MARK: lambda r: r._pop_items() and None,
            pickle.DUP: lambda r: r._push(r._stack[-1]),
            pickle.NONE: lambda r: r._push(None),
            pickle.NEWTRUE: lambda r: r._push(True),
            pickle.NEWFALSE: lambda r: r._push(False),
            pickle.BININT: lambda r: r._push(r._read_number("<i")),
            pickle.BININT1: lambda r: r._push(r._read_number("<B")),
            pickle.BININT2: lambda r: r._push(r._read_number("<H")),
            pickle.LONG1: lambda r: r._push(r._read_integer("<B")),
            pickle.LONG4: lambda r: r._push(r._read_integer("<i")),
            pickle.INT: lambda r: r._push(_parse_int(r._read_line())),  # of protocols 0 and 1, and so are the next
            pickle.LONG: lambda r: r._push(int(r._read_line().removesuffix("L"))),
            pickle.FLOAT: lambda r: r._push(float(r._read_line())),
            pickle.BINFLOAT: lambda r: r._push(r._read_number(">d")),
            pickle.BINUNICODE: lambda r: r._push(r._read_text("<I")),
            pickle.SHORT_BINUNICODE: lambda r: r._push(r._read_text("<B")),
            pickle.BINUNICODE8: lambda r: r._push(r._read_text("<Q")),
            pickle.SHORT_BINSTRING: lambda r: r._push(r._read_text("<B")),  # of Python 2
            pickle.BINSTRING: lambda r: r._push(r._read_text("<I")),
            pickle.BINBYTES: lambda r: r._push(r._read(r._read_number("<I"))),
            pickle.SHORT_BINBYTES: lambda r: r._push(r._read(r._read_number("<B"))),
            pickle.BINBYTES8: lambda r: r._push(r._read(r._read_number("<Q"))),
            pickle.BYTEARRAY8: lambda r: r._push(bytearray(r._read(r._read_number("<Q")))),
            pickle.EMPTY_LIST: lambda r: r._push([]),
            pickle.EMPTY_DICT: lambda r: r._push({}),
            pickle.EMPTY_SET: lambda r: r._push(set()),
            pickle.EMPTY_TUPLE: lambda r: r._push(()),
            pickle.TUPLE: lambda r: r._push(tuple(r._pop_items())),
            pickle.TUPLE1: lambda r: r._make_tuple(1),
            pickle.TUPLE2: lambda r: r._make_tuple(2),
            pickle.TUPLE3: lambda r: r._make_tuple(3),
            pickle.LIST: lambda r: r._push(r._pop_items()),
            pickle.DICT: _R._new_dict,
            pickle.APPEND: lambda r: r._append_items([r._stack.pop()]),
            pickle.APPENDS: lambda r: r._append_items(r._pop_items()),
            pickle.SETITEM: lambda r: r._set_items([r._stack.pop(-2), r._stack.pop()]),
            pickle.SETITEMS: lambda r: r._set_items(r._pop_items()),
            pickle.ADDITEMS: _R._add_items,
            pickle.FROZENSET: _R._freeze_items,
            pickle.GLOBAL: lambda r: r._push(r._find_global(r._read_line(), r._read_line())),
            pickle.STACK_GLOBAL: _R._stack_global,
            pickle.REDUCE: _R._reduce,
            pickle.NEWOBJ: _R._new_object,
            pickle.NEWOBJ_EX: _R._new_object_with_keywords,
            pickle.BUILD: _R._build,
            pickle.BINPERSID: _R._persistent,
            pickle.BINGET: lambda r: r._push(r._memo[r._read_number("<B")]),
            pickle.GET: lambda r: r._push(r._memo[int(r._read_line())]),
            pickle.PUT: lambda r: r._store(int(r._read_line())),
            pickle.LONG_BINGET: lambda r: r._push(r._memo[r._read_number("<I")]),
            pickle.BINPUT: lambda r: r._store(r._read_number("<B")),
            pickle.LONG_BINPUT: lambda r: r._store(r._read_number("<I")),
            pickle.MEMOIZE: lambda r: r._store(len(r._memo)),
        }.items()
    }
)


# Constructors of containers. Each checks its arguments, so that it allocates no more than they hold.


def _new_ordered_dict(items: object = ()) -> OrderedDict[Any, Any]:
    if isinstance(items, dict):
        return OrderedDict(items)
    if not isinstance(items, (list, tuple)) or not all(isinstance(i, (list, tuple)) and len(i) == 2 for i in items):
        raise pickle.UnpicklingError("the items of an OrderedDict are no pairs")
    check_keys(key for key, _ in items)
    return OrderedDict(items)


def _new_counter(counts: object = ()) -> Counter[Any]:
    return Counter(dict(_new_ordered_dict(counts)))


def _new_set(items: object = ()) -> set[Any]:
    if not isinstance(items, (list, tuple, set, frozenset)):
        raise pickle.UnpicklingError("the items of a set are no list")
    check_keys(items)
    return set(items)


def _encode(text: object, encoding: object = "latin1") -> bytes:
    """`_codecs.encode`, by which pickles of protocol 2 write bytes as text."""
    if type(text) is not str or type(encoding) is not str or encoding.lower() not in _LATIN1_NAMES:
        raise pickle.UnpicklingError("bytes are not encoded as latin1")
    return text.encode("latin1")


def _new_bytes(content: object = b"", encoding: object = "latin1") -> bytes:
    return content if type(content) is bytes else _encode(content, encoding)


def _new_complex(real: object, imaginary: object = 0.0) -> complex:
    if not isinstance(real, (int, float)) or not isinstance(imaginary, (int, float)):
        raise pickle.UnpicklingError("the parts of a complex number are no numbers")
    return complex(real, imaginary)


CONTAINERS: dict[tuple[str, str], object] = {
    ("collections", "OrderedDict"): Constructor("OrderedDict", _new_ordered_dict),
    ("collections", "Counter"): Constructor("Counter", _new_counter),
    ("_codecs", "encode"): Constructor("_codecs.encode", _encode),
}
"""What a pickle may name besides tensors, by module and name."""
for _builtins in ("builtins", "__builtin__"):  # the second is Python 2's, which protocols up to 2 write
    CONTAINERS |= {
        (_builtins, "set"): Constructor("set", _new_set),
        (_builtins, "frozenset"): Constructor("frozenset", lambda items=(): frozenset(_new_set(items))),
        (_builtins, "complex"): Constructor("complex", _new_complex),
        (_builtins, "bytes"): Constructor("bytes", _new_bytes),
        (_builtins, "bytearray"): Constructor("bytearray", lambda *args: bytearray(_new_bytes(*args))),
    }
