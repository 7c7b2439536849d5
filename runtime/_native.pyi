"""Types of the C extension (`csrc/module.c`); `native` says what its functions do."""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Operands

from .autograd.backward_state import BackwardState
from .autograd.node import Node
from .backends.queues import Counter
from .call_types import Call, CallInto, Empty
from .call_types import Launcher as _Run
from .device import Device, Meta
from .plans import Plan
from .records import OpRecord

call: Call
call_into: CallInto
empty: Empty

class Kernel:
    name: str
    address: int
    def __init__(self, name: str, /) -> None: ...

class HostTemplate:
    def __init__(
        self, kernel: object, buffers: tuple[int, ...], integers: tuple[int, ...], scalars: tuple[int, ...],
        element: str, make_fallback: Callable[[bytes, tuple[int, int, int], int], _Run], counter: Counter, helpers: int,
        max_locked_work: int, /,
    ) -> None: ...  # fmt: skip
    def __call__(self, geometry: bytes, size: tuple[int, int, int], work: int, /) -> HostLauncher: ...

class HostLauncher:
    fallback: _Run
    template: HostTemplate
    def __call__(self, tensors: Operands[object], numbers: Operands[object], stream: object, /) -> None: ...

class Sequence:
    launchers: tuple[_Run, ...]
    def __init__(
        self, device: Device, driver: object, launchers: tuple[_Run, ...], scratch: tuple[int, ...], /
    ) -> None: ...
    def __call__(self, tensors: Operands[object], numbers: Operands[object], stream: object, /) -> None: ...

class Program:
    def __init__(
        self, layouts: int, sizes: int, constants: tuple[int | float, ...], loads: bytes, instructions: bytes,
        parts: bytes, lists: bytes, objects: tuple[object, ...], classes: tuple[type, ...], driver: object, /,
    ) -> None: ...  # fmt: skip
    def __call__(self, layouts: list[Meta], sizes: list[int], /) -> tuple[object, ...] | int | None: ...

class Launcher:
    fallback: _Run
    def __init__(
        self, kernel: object, handle: int, geometry: object, global_size: tuple[int, ...],
        local_size: tuple[int, ...] | None, buffers: tuple[int, ...], integers: tuple[int, ...],
        scalars: tuple[int, ...], element: str, fallback: _Run, counter: Counter, /,
    ) -> None: ...  # fmt: skip
    def __call__(self, tensors: Operands[object], numbers: Operands[object], stream: object, /) -> None: ...

class Operator:
    def __init__(self, record: OpRecord, method: Callable[..., object], reflected: bool, /) -> None: ...
    def __call__(self, *operands: object) -> object: ...

def advance(state: BackwardState, /) -> None: ...
def bind_families(*arguments: object) -> None: ...
def fill_plan(
    record: OpRecord, operands: list[Meta | type | None], statics: tuple[object, ...], grad_mask: int,
    into: tuple[Meta, ...] | None, /,
) -> Plan | None: ...  # fmt: skip
def bind(
    classes: Mapping[str, type], local: object, node_numbers: Iterator[int], call: object, call_into: object,
    empty: object, overriding: set[type], /,
) -> None: ...  # fmt: skip
def call_kernel(
    kernel: object, buffers: tuple[int, ...], geometry: object, dynamic: bytes, size: tuple[int, int, int],
    helpers: int, work: int, releases: bool, /,
) -> None: ...  # fmt: skip
def exchange_messages(
    plan: bytes, number: int, values: int, request: int, send_polls: int, receive_polls: int, /
) -> int: ...
def limit_helpers(helpers: int, /) -> None: ...
def processor_features() -> Operands[str]: ...
def record_stacks(function: Callable[[], str] | None, /) -> None: ...
def route_through_python(on: bool, /) -> None: ...
def set_reaching_nodes(state: BackwardState, nodes: list[Node], /) -> None: ...
def set_mpi_functions(start: int, test: int, /) -> None: ...
def set_opencl_functions(*addresses: int | None) -> None: ...
