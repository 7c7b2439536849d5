"""Types of the dictionaries in a report, as JSON files hold them. `rows` says what their keys mean.

Keys that may be missing belong to some rows only, or are newer than the oldest reports that are still read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

__all__ = [
    "Accuracy",
    "Band",
    "Bar",
    "CachingRow",
    "Cell",
    "Column",
    "CurveRow",
    "DeviceFacts",
    "Facts",
    "HostRow",
    "IterationRow",
    "KernelRow",
    "LegendItem",
    "Machine",
    "MachineFacts",
    "MemoryStep",
    "Panel",
    "Report",
    "Table",
    "TableRow",
    "Tick",
    "TimelineRow",
    "Times",
    "TraceEvents",
    "TraceRow",
]


class Times(TypedDict):
    """A contender's times in seconds; `measure.Timing` has the same names."""

    least: float
    median: float
    p20: NotRequired[float]
    p80: NotRequired[float]
    samples: NotRequired[int]
    late: NotRequired[int]
    host: NotRequired[float]
    mean: NotRequired[float]
    deviation: NotRequired[float]
    largest: NotRequired[float]
    rounds: NotRequired[Sequence[float]]


class Accuracy(TypedDict, total=False):
    """Largest errors over all values of a result."""

    abs: float
    rel: float
    ulp: float


class Facts(TypedDict, total=False):
    """What a row records about one of our devices beside its times."""

    schedule: list[str]
    launches: int
    cold_ms: float
    warm_ms: float
    peak_bytes: int
    driver_allocations: int
    accuracy: Accuracy
    host_us: float


class HostRow(TypedDict):
    """A row of host costs. A row with a `problem` has no times."""

    name: str
    least: NotRequired[float]
    median: NotRequired[float]
    p20: NotRequired[float]
    p80: NotRequired[float]
    samples: NotRequired[int]
    late: NotRequired[int]
    host: NotRequired[float]
    mean: NotRequired[float]
    deviation: NotRequired[float]
    largest: NotRequired[float]
    rounds: NotRequired[Sequence[float]]
    target_us: NotRequired[Sequence[float]]
    met: NotRequired[bool]
    peers: NotRequired[dict[str, Times]]
    problem: NotRequired[str]
    wrong: NotRequired[bool]
    device: NotRequired[str]
    load: NotRequired[float]


class KernelRow(TypedDict):
    """A row of kernels. A row with a `problem` has no times."""

    group: str
    name: str
    bytes: int
    flops: int
    target: Mapping[str, float] | None
    clock: str
    errors: dict[str, float]
    notes: list[str]
    precision: NotRequired[str]
    dtype: NotRequired[str]
    against: NotRequired[str]
    facts: NotRequired[dict[str, Facts]]
    items: NotRequired[int]
    unit: NotRequired[str]
    resident: NotRequired[dict[str, int]]
    least: NotRequired[float]
    times: NotRequired[dict[str, Times]]
    ratios: NotRequired[dict[str, Sequence[float]]]
    missed: NotRequired[list[str]]
    share: NotRequired[dict[str, float]]
    limit: NotRequired[dict[str, str]]
    problem: NotRequired[str]
    wrong: NotRequired[bool]
    device: NotRequired[str]
    load: NotRequired[float]


class DeviceFacts(TypedDict):
    """One of our devices. `places` has the devices of its own peers, if several processes measured."""

    device: str
    name: str
    schedules: NotRequired[str]
    cores: NotRequired[int]
    memory: NotRequired[int]
    kind: NotRequired[str]
    sm: NotRequired[int]
    driver: NotRequired[str]
    platform: NotRequired[str]
    places: NotRequired[Mapping[str, str]]


class Machine(TypedDict):
    """The machine of a report, with the versions of its libraries.

    `cores` counts the machine's logical processors, `threads` those that the process may use. `cache` is the size of
    the largest cache in bytes. `torch` and `places` have the devices of the other libraries.
    """

    date: str
    devices: list[DeviceFacts]
    versions: dict[str, str | None]
    torch: str | None
    places: NotRequired[Mapping[str, str]]
    cores: NotRequired[int | None]
    threads: NotRequired[int]
    cache: NotRequired[int]
    system: NotRequired[str]
    processor: NotRequired[str]
    python: NotRequired[str]
    driver: NotRequired[str | None]
    commit: NotRequired[str | None]
    specs: NotRequired[str]
    calls: NotRequired[str]
    load_before: NotRequired[float | None]


class MemoryStep(TypedDict):
    """One step of a memory curve: bytes, and calls of the driver."""

    allocated: int
    peak: int
    reserved: int
    driver_allocations: int
    driver_frees: int


class CurveRow(TypedDict):
    """A memory curve."""

    name: str
    device: str
    steps: list[MemoryStep]


class TimelineRow(TypedDict):
    """A timeline. bars: by lane, `begin length name` in microseconds."""

    name: str
    device: str
    span: float
    bars: dict[str, list[str]]


class TraceEvents(TypedDict):
    """The parts of a trace that come from a profile, in microseconds. Each bar is one string."""

    host_end: float
    device_end: float
    host: list[str]
    kernels: list[str]


class TraceRow(TraceEvents):
    """A step's trace for the first figure of the PyTorch paper."""

    name: str
    device: str
    is_synchronous: bool
    unprofiled: Sequence[float]


class IterationRow(TypedDict):
    """An iteration of a training, in milliseconds, calls and bytes."""

    total: float
    driver: float
    allocations: int
    frees: int
    reserved: int


class CachingRow(TypedDict):
    """A training with and without a cache, for the second figure of the PyTorch paper."""

    name: str
    device: str
    tries: dict[str, list[list[IterationRow]]]


class LearningRow(TypedDict):
    """What a model learnt on a device: the loss of each step, and a score from 0 to 1 at equal distances."""

    name: str
    device: str
    measure: str
    losses: list[float]
    scores: list[float]
    seconds: float


class Report(TypedDict):
    """A report of one run. Reports of format 1 without `format` or `suite` are read, too."""

    machine: Machine
    host: list[HostRow]
    kernels: list[KernelRow]
    format: NotRequired[int]
    suite: NotRequired[str]
    curves: NotRequired[list[CurveRow]]
    timelines: NotRequired[list[TimelineRow]]
    step_traces: NotRequired[list[TraceRow]]
    caching_runs: NotRequired[list[CachingRow]]
    learning: NotRequired[list[LearningRow]]


# What the template of the HTML page gets.


class MachineFacts(TypedDict):
    """The head of the page for one report: facts by name."""

    caption: str
    facts: list[tuple[str, str]]


class Cell(TypedDict):
    """A table's cell. value: by which the column is sorted. bar: the length of a bar, in pixels."""

    text: str
    value: float | None
    role: str
    bar: float | None


class Column(TypedDict):
    """A table's column. detail: it is hidden until a reader switches it on."""

    name: str
    help: str
    number: bool
    detail: bool


class TableRow(TypedDict):
    """A table's row."""

    group: str
    missed: bool
    cells: list[Cell]


class Table(TypedDict):
    """A table."""

    title: str
    device: str
    columns: list[Column]
    rows: list[TableRow]


class Tick(TypedDict):
    """A tick of a panel's axis."""

    x: float
    label: str


class Band(TypedDict):
    """The part of a panel with the bars of one class of ops."""

    label: str
    y: float
    height: float


class Bar(TypedDict):
    """A bar of a panel. colour: the number of its device. text: what a reader sees when pointing at it."""

    x: float
    y: float
    width: float
    height: float
    colour: int
    doubtful: bool
    text: str


class LegendItem(TypedDict):
    """A device in a panel's legend."""

    colour: int
    label: str


class Panel(TypedDict):
    """A picture of bars, in the units of its view box.

    top, left: where the bars' area begins, right of the classes' names and below the axis. origin: the x at which bars
    begin.
    """

    title: str
    width: float
    height: float
    top: float
    left: float
    origin: float
    bands: list[Band]
    bars: list[Bar]
    ticks: list[Tick]
    legend: list[LegendItem]
    has_doubts: bool
