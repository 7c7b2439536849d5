"""The program of each pipeline stage: computation, collectives and messages in the order in which they are issued."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from .collectives import CollectiveCosts
from .plans import Stage
from .timeline import Gradient

__all__ = ["Operation", "ProgramBuilder"]

Key = Hashable


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a rank.

    Args:
        kind: `compute`; `tensor` or `data`, a collective of the tensor group or of the replicas; `next` or `previous`,
            a message to the neighbouring stage.
        name: Name, for traces.
        seconds: Duration.
        key: Names the operation to others that wait for it.
        after: Keys of operations that must have ended, of this stage or of a neighbour.
    """

    kind: str
    name: str
    seconds: float
    key: Key
    after: tuple[Key, ...] = ()


class ProgramBuilder:
    """Builds the program of one stage.

    Args:
        stage: The stage.
        position: Its position in the pipeline, from 0.
        replicas: Number of replicas.
        costs: Times of collectives.
    """

    def __init__(self, stage: Stage, position: int, replicas: int, costs: CollectiveCosts):
        self.stage = stage
        self.plan = stage.plan
        self.position = position
        self.replicas = replicas
        self.costs = costs
        machine = costs.machine
        self.data_group = machine.group(replicas, self.plan.tensor)
        self.tensor_group = machine.group(self.plan.tensor)
        self.link = machine.link_between(0, self.plan.tensor * replicas)  # to the next stage
        self.operations: list[Operation] = []
        self._last_key: Key = None  # of the last operation on the compute stream
        self._seconds = 0.0  # of computation that is not yet an operation
        self._awaited: list[Key] = []  # what that computation waits for

    def build(self) -> list[Operation]:
        """Return the operations of one step."""
        if self.plan.sharding == "zero3" and self.replicas > 1:
            reductions = self._gathered_passes()
        else:
            reductions = self._passes()
        self._update(reductions)
        return self.operations

    # passes with whole parameters

    def _passes(self) -> list[Key]:
        """Add forward and backward passes under 1F1B; return the keys of the gradients' reductions."""
        count, depth = self.plan.microbatches, self.plan.pipeline
        warmup = min(count, depth - 1 - self.position)
        reductions: list[Key] = []
        for batch in range(warmup):
            self._forward(batch)
        for batch in range(count):
            if batch + warmup < count:
                self._forward(batch + warmup)
            reduces = batch == count - 1 or self.plan.sharding == "zero2"
            reductions += self._backward(batch, reduces=reduces and self.replicas > 1)
        return reductions

    def _forward(self, batch: int) -> None:
        if self.position > 0:
            self._awaited.append((self.position - 1, "activations", batch))
        for index in range(self.stage.first, self.stage.last):
            self._layer_forward(index)
        key = self._flush(f"forward {batch}")
        if self.position < self.plan.pipeline - 1:
            self._send("next", "activations", batch, self.stage.output_bytes, key)

    def _layer_forward(self, index: int) -> None:
        self._seconds += self.stage.timeline.layers[index].forward_seconds * self.stage.compute_share(index)
        self._tensor_collective(self.stage.forward_collective_bytes(index))

    def _backward(self, batch: int, *, reduces: bool) -> list[Key]:
        """Add a backward pass; with `reduces`, reduce the gradients by buckets as they arrive."""
        if self.position < self.plan.pipeline - 1:
            self._awaited.append((self.position + 1, "gradients", batch))
        reductions: list[Key] = []
        bucket, limit = 0.0, self.plan.first_bucket_bytes
        name = f"backward {batch}"
        for nbytes in self._gradients(self.stage.gradients):
            bucket += nbytes
            if reduces and bucket >= limit:
                reductions.append(self._reduce(bucket, self._flush(name)))
                bucket, limit = 0.0, self.plan.bucket_bytes
        key = self._flush(name)
        if reduces and bucket:
            reductions.append(self._reduce(bucket, key))
        if self.position > 0:
            nbytes = self.stage.timeline.layers[self.stage.first - 1].output_bytes
            self._send("previous", "gradients", batch, nbytes, key)
        return reductions

    def _gradients(self, gradients: Sequence[Gradient]) -> Iterator[float]:
        """Count the time of each gradient, and yield its bytes."""
        final_positions = {gradient.layer: position for position, gradient in enumerate(gradients)}
        for position, gradient in enumerate(gradients):
            self._seconds += gradient.seconds * self.stage.compute_share(gradient.layer)
            if final_positions[gradient.layer] == position:
                self._tensor_collective(self.stage.backward_collective_bytes(gradient.layer))
            yield gradient.nbytes * self.stage.parameter_share(gradient.layer)

    def _reduce(self, nbytes: float, after: Key) -> Key:
        scatters = self.plan.sharding in ("zero2", "zero3")
        function = self.costs.reduce_scatter if scatters else self.costs.all_reduce
        return self._add("data", "reduce-scatter" if scatters else "all-reduce", function(self.data_group, nbytes),
                         (after,))  # fmt: skip

    # passes that gather the parameters of a unit before its use

    def _gathered_passes(self) -> list[Key]:
        """Add the passes of `zero3`. While a unit computes, the next one is gathered; two are whole at a time."""
        units = self.stage.units()
        gradients = [[g for g in self.stage.gradients if g.layer in {*unit}] for unit in units]
        order = [("forward", unit) for unit in range(len(units))]
        order += [("backward", unit) for unit in reversed(range(len(units)))]
        reductions: list[Key] = []
        for batch in range(self.plan.microbatches):
            gathers: dict[int, Key] = {0: self._gather(units[0], self._last_key)}
            for number, (direction, unit) in enumerate(order):
                following = order[number + 1][1] if number + 1 < len(order) else unit
                if following != unit:  # the last unit stays whole between forward and backward
                    gathers[number + 1] = self._gather(units[following], self._last_key)
                if number in gathers:
                    self._awaited.append(gathers[number])
                if direction == "forward":
                    for index in units[unit]:
                        self._layer_forward(index)
                    self._flush(f"forward {batch}")
                else:
                    nbytes = sum(self._gradients(gradients[unit]))
                    key = self._flush(f"backward {batch}")
                    if nbytes:
                        reductions.append(self._reduce(nbytes, key))
        return reductions

    def _gather(self, unit: Sequence[int], after: Key) -> Key:
        seconds = self.costs.all_gather(self.data_group, self.stage.parameter_bytes(unit))
        return self._add("data", "all-gather", seconds, () if after is None else (after,))

    # the end of the step

    def _update(self, reductions: list[Key]) -> None:
        timeline, plan = self.stage.timeline, self.plan
        share = 1 / plan.pipeline  # of a model without parameters
        if timeline.parameter_bytes:
            share = self.stage.parameter_bytes() / timeline.parameter_bytes
        self._awaited += reductions
        self._seconds += timeline.update_seconds * share / (1 if plan.sharding == "ddp" else self.replicas)
        key = self._flush("update")
        if plan.sharding in ("zero1", "zero2") and self.replicas > 1:
            seconds = self.costs.all_gather(self.data_group, self.stage.parameter_bytes())
            self._add("data", "all-gather", seconds, (key,))

    # operations

    def _flush(self, name: str) -> Key:
        """Make the counted computation an operation, and return the key of the compute stream's last operation."""
        if self._seconds or self._awaited or self._last_key is None:
            key = self._add("compute", name, self._seconds, tuple(self._awaited))
            self._seconds, self._awaited, self._last_key = 0.0, [], key
        return self._last_key

    def _tensor_collective(self, nbytes: float) -> None:
        if nbytes:
            self._flush("compute")
            self._last_key = self._add("tensor", "all-reduce", self.costs.all_reduce(self.tensor_group, nbytes), ())

    def _send(self, direction: str, what: str, batch: int, nbytes: float, after: Key) -> None:
        nbytes = nbytes / self.plan.tensor  # each rank of the tensor group sends a part
        key = (self.position, what, batch)
        self.operations.append(Operation(direction, f"{what} {batch}", self.link.seconds(nbytes), key, (after,)))

    def _add(self, kind: str, name: str, seconds: float, after: tuple[Key, ...]) -> Key:
        key = (self.position, len(self.operations))
        self.operations.append(Operation(kind, name, seconds, key, after))
        return key
