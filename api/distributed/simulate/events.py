"""A discrete-event simulation of tasks on streams, with cores that tasks of a node share.

A task occupies one or more streams: computing occupies its rank's compute stream, a collective the communication
streams of all ranks of its group. A stream runs its tasks in the order in which they were added, one at a time, as a
CUDA stream does. A task starts when it is first in all of its streams and the tasks it waits for have ended.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...runtime.errors import ArgumentError

__all__ = ["EventSimulation", "Task"]


@dataclass(slots=True)
class Task:
    """A task and, after the run, when it began and ended.

    Args:
        name: Name, for traces.
        seconds: Duration; for a task that needs a core, the duration with a core of its own.
        streams: Streams that it occupies.
        node: The node whose cores it shares; None if it needs no core.
        begin: Start time in seconds.
        end: End time in seconds.

    Example:
        >>> from weftgrad.distributed.simulate import Task
        >>> Task("forward", 0.5, ("rank 0",)).end
        0.0
    """

    name: str
    seconds: float
    streams: tuple[Hashable, ...]
    node: Hashable | None = None
    begin: float = 0.0
    end: float = 0.0


@dataclass(slots=True)
class _Node:
    """The cores of a node, under processor sharing: k tasks on c cores each run at the speed min(1, c/k).

    All running tasks have one speed, so `progress`, the work that a task would have done since time 0, orders their
    ends: a task ends when progress reaches its value at the start plus the task's seconds.
    """

    cores: int
    progress: float = 0.0
    updated: float = 0.0
    version: int = 0  # of the node's next event; older events in the queue are stale
    running: list[tuple[float, int]] = field(default_factory=list)  # heap of (progress at the end, task)

    @property
    def speed(self) -> float:
        return min(1.0, self.cores / len(self.running)) if self.running else 1.0

    def advance(self, time: float) -> None:
        self.progress += (time - self.updated) * self.speed
        self.updated = time


class EventSimulation:
    """Tasks to simulate. Add them in the order of their streams, then `run`.

    Args:
        cores: Number of cores of each node whose tasks share cores.

    Example:
        >>> from weftgrad.distributed.simulate import EventSimulation
        >>> simulation = EventSimulation()
        >>> forward = simulation.add("forward", 2.0, ["rank 0"])
        >>> send = simulation.add("send", 1.0, ["network"], after=[forward])
        >>> simulation.run()
        3.0
    """

    def __init__(self, cores: Mapping[Hashable, int] | None = None):
        self.tasks: list[Task] = []
        self._cores = dict(cores or {})
        self._successors: list[list[int]] = []
        self._pending_counts: list[int] = []
        self._last_of_stream: dict[Hashable, int] = {}

    def add(
        self, name: str, seconds: float, streams: Sequence[Hashable], after: Iterable[int] = (),
        node: Hashable | None = None,
    ) -> int:  # fmt: skip
        """Add a task at the end of its streams.

        Args:
            name: Name, for traces.
            seconds: Duration.
            streams: Streams that it occupies, without repetition.
            after: Numbers of tasks that must have ended.
            node: The node whose cores it shares; None if it needs no core.

        Returns:
            The task's number.

        Raises:
            ArgumentError: `seconds` is negative or no number, `after` names a later task, or the node is unknown.
        """
        number = len(self.tasks)
        predecessors = set(after)
        if not seconds >= 0 or any(not 0 <= p < number for p in predecessors):
            raise ArgumentError(f"EventSimulation: task {name!r}: {seconds} s after tasks {sorted(predecessors)}")
        if node is not None and node not in self._cores:
            raise ArgumentError(f"EventSimulation: task {name!r}: the cores of node {node!r} are not described")
        for stream in streams:
            if stream in self._last_of_stream:
                predecessors.add(self._last_of_stream[stream])
            self._last_of_stream[stream] = number
        for predecessor in predecessors:
            self._successors[predecessor].append(number)
        self.tasks.append(Task(name, seconds, tuple(streams), node))
        self._successors.append([])
        self._pending_counts.append(len(predecessors))
        return number

    def run(self) -> float:
        """Simulate all tasks, and fill in when each began and ended.

        Returns:
            The time at which the last task ends, in seconds.
        """
        pending = list(self._pending_counts)
        nodes = {name: _Node(cores) for name, cores in self._cores.items()}
        queue: list[tuple[float, int, int, Hashable]] = []  # (time, task or -1, version of the node, node)
        time = 0.0

        def queue_next(name: Hashable) -> None:
            """Queue the end of the node's first task at the present speed."""
            node = nodes[name]
            node.version += 1
            if node.running:
                seconds_left = max(0.0, node.running[0][0] - node.progress) / node.speed
                heapq.heappush(queue, (time + seconds_left, -node.version, node.version, name))

        def start(number: int) -> None:
            task = self.tasks[number]
            task.begin = time
            if task.node is None:
                heapq.heappush(queue, (time + task.seconds, number, 0, None))
                return
            node = nodes[task.node]
            node.advance(time)
            heapq.heappush(node.running, (node.progress + task.seconds, number))
            queue_next(task.node)

        def finish(number: int) -> None:
            self.tasks[number].end = time
            for successor in self._successors[number]:
                pending[successor] -= 1
                if not pending[successor]:
                    start(successor)

        for number, count in enumerate(pending):
            if not count:
                start(number)
        while queue:
            event_time, number, version, name = heapq.heappop(queue)
            if name is None:
                time = event_time
                finish(number)
            elif version == nodes[name].version:
                time = event_time
                node = nodes[name]
                node.advance(time)
                _, number = heapq.heappop(node.running)
                queue_next(name)
                finish(number)
        return time
