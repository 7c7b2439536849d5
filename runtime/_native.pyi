"""Types of the C extension (`csrc/module.c`); `native` says what its functions do."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from .backends.queues import Counter
from .call_types import Call, CallInto, Empty
from .call_types import Launcher as _Run
from .records import OpRecord

call: Call
call_into: CallInto
empty: Empty

class Kernel:
    name: str
    address: int
    def __init__(self, name: str, /) -> None: ...

class HostLauncher:
    fallback: _Run
    def __init__(
        self, kernel: object, geometry: object, size: tuple[int, int, int], buffers: tuple[int, ...],
        integers: tuple[int, ...], scalars: tuple[int, ...], element: str, fallback: _Run, counter: Counter,
        helpers: int, work: int, releases: bool, /,
    ) -> None: ...  # fmt: skip
    def __call__(self, tensors: Sequence[object], numbers: Sequence[object], stream: object, /) -> None: ...

class Launcher:
    fallback: _Run
    def __init__(
        self, kernel: object, handle: int, geometry: object, global_size: tuple[int, ...],
        local_size: tuple[int, ...] | None, buffers: tuple[int, ...], integers: tuple[int, ...],
        scalars: tuple[int, ...], element: str, fallback: _Run, counter: Counter, /,
    ) -> None: ...  # fmt: skip
    def __call__(self, tensors: Sequence[object], numbers: Sequence[object], stream: object, /) -> None: ...

class Operator:
    def __init__(self, record: OpRecord, method: Callable[..., object], reflected: bool, /) -> None: ...
    def __call__(self, *operands: object) -> object: ...

def bind(
    classes: Mapping[str, type], local: object, node_numbers: Iterator[int], call: object, call_into: object,
    empty: object, /,
) -> None: ...  # fmt: skip
def call_kernel(
    kernel: object, buffers: tuple[int, ...], geometry: object, dynamic: bytes, size: tuple[int, int, int],
    helpers: int, work: int, releases: bool, /,
) -> None: ...  # fmt: skip
def limit_helpers(helpers: int, /) -> None: ...
def processor_features() -> Sequence[str]: ...
def record_stacks(function: Callable[[], str] | None, /) -> None: ...
def route_through_python(on: bool, /) -> None: ...
def set_opencl_functions(*addresses: int | None) -> None: ...
