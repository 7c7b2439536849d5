"""Predict a training step on many devices: simulate every rank's streams, or one rank of each kind of equal ones."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...runtime.errors import ArgumentError
from .collectives import CollectiveCosts
from .events import EventSimulation
from .machines import Machine
from .plans import Plan, stages
from .programs import Operation, ProgramBuilder
from .timeline import Timeline

__all__ = ["DEVICE_COUNTS", "Noise", "Prediction", "predict", "predict_scaling", "simulate_step"]

DEVICE_COUNTS = (*(1 << exponent for exponent in range(14)), 10_000)
"""Numbers of devices of a scaling curve: 1, 2, 4, …, 8192, 10000."""
_COMPUTE_NAMES = ("compute", "update")  # of tasks; all others communicate
_COMPUTE_PREFIXES = ("forward ", "backward ")


@dataclass(frozen=True, slots=True)
class Noise:
    """Differences among ranks. With noise every rank is simulated.

    Args:
        jitter: Standard deviation of the logarithm of each computation's duration; its median does not change.
        slow_share: Part of the ranks that are slow in the whole step.
        slow_factor: How many times longer slow ranks compute.
        seed: Seed of the random numbers.

    Raises:
        ArgumentError: A number is out of range.

    Example:
        >>> from weftgrad.distributed.simulate import Noise
        >>> Noise(jitter=0.05).seed
        0
    """

    jitter: float = 0.0
    slow_share: float = 0.0
    slow_factor: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.jitter < 0 or not 0 <= self.slow_share <= 1 or self.slow_factor < 1:
            raise ArgumentError(
                f"Noise: jitter is 0 or more, slow_share 0 to 1 and slow_factor 1 or more, not {self.jitter}, "
                f"{self.slow_share} and {self.slow_factor}"
            )


@dataclass(frozen=True, slots=True)
class Prediction:
    """A training step on a number of devices.

    Args:
        plan: The plan.
        devices: Number of devices.
        step_seconds: Duration of the step.
        efficiency: Batches per second and device, divided by those of one device that accumulates as many microbatches.
        compute_seconds: Time in which the busiest rank computes.
        communication_seconds: Time in which that rank communicates, tensor-parallel collectives included.
        memory_bytes: Memory of the rank that needs most.

    Example:
        >>> from weftgrad.distributed.simulate import Plan, Prediction
        >>> Prediction(Plan(), 2, 0.5, 0.8, 0.4, 0.2, 1000).exposed_seconds
        0.1
    """

    plan: Plan
    devices: int
    step_seconds: float
    efficiency: float
    compute_seconds: float
    communication_seconds: float
    memory_bytes: int

    @property
    def exposed_seconds(self) -> float:
        """Time in which the busiest rank does not compute: communication that is not hidden, and waiting."""
        return max(0.0, round(self.step_seconds - self.compute_seconds, 12))


def predict(
    timeline: Timeline, machine: Machine, plan: Plan, devices: int, *, noise: Noise | None = None,
    algorithm: str = "auto",
) -> Prediction:  # fmt: skip
    """Predict the training step of `plan` on a number of devices. Each replica has the recorded batch (weak scaling).

    Args:
        timeline: The recorded step, at the speed of the machine's devices (`Timeline.with_step_seconds`).
        machine: The machine.
        plan: The plan.
        devices: Number of devices.
        noise: Differences among ranks; None for equal ones.
        algorithm: Algorithm of collectives (`CollectiveCosts`).

    Returns:
        `Prediction`.

    Raises:
        ArgumentError: The devices cannot be divided into replicas, or the model has too few layers for the pipeline.

    Example:
        >>> from weftgrad.distributed.simulate import DGX_H100, Gradient, Layer, Plan, Timeline, predict
        >>> layer = Layer("fc", 0.125, 4096, 4096, 1 << 20)
        >>> timeline = Timeline("net", "cpu", (layer,), (Gradient("fc.weight", 0, 1 << 20, 0.25),), 0.125, 0)
        >>> predict(timeline, DGX_H100, Plan(), 1).step_seconds
        0.5
    """
    replicas = plan.replicas(devices)
    simulation = simulate_step(timeline, machine, plan, devices, noise=noise, algorithm=algorithm)
    step_seconds = max((task.end for task in simulation.tasks), default=0.0)
    compute: dict[Hashable, float] = {}
    communication: dict[Hashable, float] = {}
    for task in simulation.tasks:
        is_compute = task.name in _COMPUTE_NAMES or task.name.startswith(_COMPUTE_PREFIXES)
        totals = compute if is_compute else communication
        for rank in {stream[0] for stream in task.streams if isinstance(stream, tuple)}:
            totals[rank] = totals.get(rank, 0.0) + task.end - task.begin
    busiest = max(compute, key=lambda rank: compute[rank])
    count = plan.microbatches
    reference = count * (timeline.forward_seconds + timeline.backward_seconds) + timeline.update_seconds
    memory = max(stage.memory_bytes(position, replicas) for position, stage in enumerate(stages(timeline, plan)))
    return Prediction(
        plan, devices, step_seconds, reference * replicas / (devices * step_seconds) if step_seconds else 1.0,
        compute[busiest], communication.get(busiest, 0.0), round(memory),
    )  # fmt: skip


def predict_scaling(
    timeline: Timeline, machine: Machine, plan: Plan, counts: Iterable[int] = DEVICE_COUNTS, *,
    noise: Noise | None = None, algorithm: str = "auto",
) -> list[Prediction]:  # fmt: skip
    """Predict the step for each number of devices that can be divided into replicas.

    Args:
        timeline: The recorded step.
        machine: The machine.
        plan: The plan.
        counts: Numbers of devices. Others than multiples of tensor × pipeline are left out.
        noise: Differences among ranks; None for equal ones.
        algorithm: Algorithm of collectives.

    Returns:
        Predictions, by number of devices.

    Example:
        >>> from weftgrad.distributed.simulate import DGX_H100, Gradient, Layer, Plan, Timeline, predict_scaling
        >>> layer = Layer("fc", 0.125, 4096, 4096, 1 << 20)
        >>> timeline = Timeline("net", "cpu", (layer,), (Gradient("fc.weight", 0, 1 << 20, 0.25),), 0.125, 0)
        >>> [p.devices for p in predict_scaling(timeline, DGX_H100, Plan(tensor=4), [1, 4, 6, 8])]
        [4, 8]
    """
    return [
        predict(timeline, machine, plan, devices, noise=noise, algorithm=algorithm)
        for devices in sorted({*counts})
        if devices % plan.model_ranks == 0
    ]


def simulate_step(
    timeline: Timeline, machine: Machine, plan: Plan, devices: int, *, noise: Noise | None = None,
    algorithm: str = "auto", every_rank: bool = False,
) -> EventSimulation:  # fmt: skip
    """Simulate one step, and return all tasks with their times.

    Without noise all replicas and all ranks of a tensor group do the same at the same time, so one rank of each stage
    is simulated. All ranks are simulated with noise, with `every_rank`, and if ranks share cores that waiting ranks
    leave free (`cores_per_node` without `waits_spin`).

    Args:
        timeline: The recorded step.
        machine: The machine.
        plan: The plan.
        devices: Number of devices.
        noise: Differences among ranks; None for equal ones.
        algorithm: Algorithm of collectives.
        every_rank: Simulate every rank although they are equal.

    Returns:
        The simulation, after its run. Streams are pairs of a rank and a name.

    Raises:
        ArgumentError: As `predict`.
    """
    replicas = plan.replicas(devices)
    costs = CollectiveCosts(machine, algorithm)
    programs = [
        ProgramBuilder(stage, position, replicas, costs).build()
        for position, stage in enumerate(stages(timeline, plan))
    ]
    shares_cores = machine.cores_per_node is not None and not machine.waits_spin
    is_full = every_rank or noise is not None or shares_cores
    ranks = _Ranks(plan, replicas, replicas if is_full else 1, plan.tensor if is_full else 1)
    nodes = -(-devices // machine.devices_per_node)
    cores: dict[Hashable, int] = dict.fromkeys(range(nodes), machine.cores_per_node or 1) if shares_cores else {}
    simulation = EventSimulation(cores)
    factor = _compute_factor(machine, devices)
    random = np.random.default_rng(noise.seed if noise else 0)
    is_slow = random.permutation(devices) < round(noise.slow_share * devices) if noise else None

    def add_compute(operation: Operation, position: int, after: Sequence[Sequence[int]]) -> list[int]:
        seconds = np.full(len(ranks), operation.seconds)
        if noise is not None and is_slow is not None:
            seconds *= np.exp(noise.jitter * random.standard_normal(len(ranks)))
            seconds[is_slow[ranks.numbers(position)]] *= noise.slow_factor
        return [
            simulation.add(
                operation.name, float(value) * factor, ((rank, "compute"),), [tasks[index] for tasks in after],
                rank // machine.devices_per_node if shares_cores else None,
            )
            for index, (rank, value) in enumerate(zip(ranks.numbers(position), seconds, strict=True))
        ]  # fmt: skip

    def add_group(operation: Operation, position: int, after: Sequence[Sequence[int]]) -> list[int]:
        """Add one task for each group of ranks that communicate; a message has groups of one."""
        groups = ranks.groups(operation.kind)
        is_blocking = operation.kind == "tensor" or (operation.kind == "data" and not plan.overlap)
        stream = "compute" if is_blocking else "communication" if operation.kind == "data" else operation.kind
        task_of = [0] * len(ranks)
        numbers = ranks.numbers(position)
        for group in groups:
            task = simulation.add(
                operation.name, operation.seconds, [(numbers[index], stream) for index in group],
                {tasks[index] for tasks in after for index in group},
            )  # fmt: skip
            for index in group:
                task_of[index] = task
        return task_of

    tasks_of_key: dict[Hashable, list[int]] = {}
    cursors = [0] * len(programs)
    while any(cursor < len(program) for cursor, program in zip(cursors, programs, strict=True)):
        for position, program in enumerate(programs):  # as far as the operations that it waits for are known
            while cursors[position] < len(program):
                operation = program[cursors[position]]
                if not all(key in tasks_of_key for key in operation.after):
                    break
                add = add_compute if operation.kind == "compute" else add_group
                after = [tasks_of_key[key] for key in operation.after]
                tasks_of_key[operation.key] = add(operation, position, after)
                cursors[position] += 1
    simulation.run()
    return simulation


class _Ranks:
    """The simulated ranks of a stage: by replica, then by position in the tensor group."""

    def __init__(self, plan: Plan, replicas: int, simulated_replicas: int, simulated_tensor: int):
        self.plan, self.replicas = plan, replicas
        self.simulated_replicas, self.simulated_tensor = simulated_replicas, simulated_tensor

    def __len__(self) -> int:
        return self.simulated_replicas * self.simulated_tensor

    def numbers(self, position: int) -> list[int]:
        """Return the numbers of the ranks of a stage."""
        first = position * self.replicas * self.plan.tensor
        return [
            first + replica * self.plan.tensor + t
            for replica in range(self.simulated_replicas)
            for t in range(self.simulated_tensor)
        ]

    def groups(self, kind: str) -> list[list[int]]:
        """Return indices into `numbers` of ranks that communicate by operations of a kind."""
        replicas, tensor = range(self.simulated_replicas), range(self.simulated_tensor)
        if kind == "tensor":
            return [[replica * len(tensor) + t for t in tensor] for replica in replicas]
        if kind == "data":
            return [[replica * len(tensor) + t for replica in replicas] for t in tensor]
        return [[index] for index in range(len(self))]


def _compute_factor(machine: Machine, devices: int) -> float:
    """Return by what factor computing is slower because ranks of a node share memory, and cores while others spin."""
    ranks = min(devices, machine.devices_per_node)
    others = (ranks - 1) / (machine.devices_per_node - 1) if machine.devices_per_node > 1 else 0.0
    factor = 1 + (machine.slowdown - 1) * others
    if machine.cores_per_node is not None and machine.waits_spin:
        factor *= max(1.0, ranks / machine.cores_per_node)
    return factor
