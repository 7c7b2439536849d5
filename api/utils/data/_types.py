"""Types of data sets, batches, and of the messages between a loader and its workers, as names for annotations.

Data sets and collate functions are written by users, who choose the types of samples and batches. As in PyTorch, type
checkers therefore do not check these: `for images, labels in loader` needs no declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NotRequired, Protocol, TypeAlias, TypedDict, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from typing_extensions import TypeVar as _TypeVar

    from .worker import Failure

    T_co = _TypeVar("T_co", covariant=True, default=Any)
else:
    T_co = TypeVar("T_co", covariant=True)

__all__ = [
    "Answer", "Batch", "BatchAnswer", "Collate", "CollateFunctions", "EpochStart", "Places", "Position", "Request",
    "Sample", "SampleIndex", "Samples", "SetupMessage", "SizedSamples", "StateDict", "StatefulSampler", "T_co",
    "UserDataset", "WorkerOptions", "Workload",
]  # fmt: skip

SampleIndex: TypeAlias = Any
"""What a sampler yields and `__getitem__` of the data set takes: an int, or a key of another type."""

Sample: TypeAlias = Any
"""What the data set returns for one index: a tensor, an array, a number, or containers of them."""

Batch: TypeAlias = Any
"""What `collate_fn` makes of a list of samples."""

UserDataset: TypeAlias = Any
"""A data set of a user's class: programs read attributes of their own from `loader.dataset`."""

StateDict: TypeAlias = dict[str, Any]
"""What `state_dict` of a loader or a sampler returns, and `load_state_dict` takes."""

Collate: TypeAlias = Callable[[Sample], Batch]
"""A `collate_fn`: it gets a list of samples, or one sample if the loader makes no batches."""

CollateFunctions: TypeAlias = Mapping[Any, Callable[..., object]]
"""Functions `function(batch, *, collate_fn_map)` by the class of the samples, or by a tuple of classes.

The keys have no narrower type, because mappings are invariant in it: `{str: function}` has the key type `type[str]`.
"""

Places: TypeAlias = list[tuple[int, int]]
"""The (offset, size) in bytes of arrays in shared memory."""


class Samples(Protocol[T_co]):
    """What type checkers accept as a data set with indices: a `Dataset`, a list, a tensor, an array."""

    def __getitem__(self, index: SampleIndex, /) -> T_co: ...


class SizedSamples(Samples[T_co], Protocol[T_co]):
    """A data set with indices and a length."""

    def __len__(self) -> int: ...


@runtime_checkable
class StatefulSampler(Protocol):
    """A sampler whose position is saved with the loader's."""

    def state_dict(self) -> StateDict: ...
    def load_state_dict(self, state: StateDict, /) -> None: ...


# A loader's position --------------------------------------------------------------------------------------------------


class EpochStart(TypedDict):
    """The states that an epoch depends on, when it begins.

    Attributes:
        generators: (seed, offset) of the generators of the loader and its samplers.
        default: (seed, offset) of the default generator.
        sampler: The sampler's own `state_dict()`, if it has one.
    """

    generators: list[list[int]]
    default: list[int]
    sampler: NotRequired[StateDict]


class Position(EpochStart):
    """A position within an epoch. yielded: the number of batches that were yielded."""

    yielded: int


# Messages between a loader and its workers ----------------------------------------------------------------------------
# Plain tuples, because pickles of them are smaller and faster than those of classes.

WorkerOptions: TypeAlias = tuple[bool, bool, bool]
"""Options of a `Recipe`: is_iterable, is_batched, drop_last."""

Workload: TypeAlias = tuple[UserDataset, Collate, Callable[[int], object] | None, WorkerOptions]
"""What every worker gets once: data set, `collate_fn`, `worker_init_fn`, options."""

SetupMessage: TypeAlias = tuple[Literal["setup"], bytes, int | None, Places, list[int], int]
"""The first message to a worker: the pickle of its `Parcel`, the size of the parcel's segment, the places of arrays in
it, the sizes of the segments of large tensors, and the maximum number of free slots. File descriptors of the segments
come with it and, if they are too many for one packet, with messages `("descriptors",)`."""

_Epoch: TypeAlias = tuple[Literal["epoch"], int]
_Task: TypeAlias = tuple[Literal["task"], int, int, SampleIndex, list[int]]
_Stop: TypeAlias = tuple[Literal["stop"]]
Request: TypeAlias = SetupMessage | tuple[Literal["descriptors"]] | _Epoch | _Task | _Stop
"""A message to a worker. `epoch` begins another pass over the data set. A task has the number of the epoch, its own
number, the indices of its samples, and the slots that are free."""

BatchAnswer: TypeAlias = tuple[Literal["batch"], int, int, bytes, int | None, int, Places, list[int]]
_TaskFailedAnswer: TypeAlias = tuple[Literal["task_failed"], int, int, "Failure"]
_EndAnswer: TypeAlias = tuple[Literal["end"], int, int]
_WorkerFailedAnswer: TypeAlias = tuple[Literal["worker_failed"], "Failure"]
Answer: TypeAlias = BatchAnswer | _TaskFailedAnswer | _EndAnswer | _WorkerFailedAnswer
"""A message from a worker. Answers to a task have the epoch and the task's number:

- batch: the pickle, the slot, the size of a new slot's segment or 0, the places of arrays, and slots that were freed;
- task_failed: the exception that the data set or `collate_fn` raised;
- end: the worker has no samples left.

worker_failed: the worker ended, because of this exception."""
