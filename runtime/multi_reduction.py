"""Reductions of many tensors to one result, as if they were one tensor: two launches for those of a device and dtype.

    norm = MultiReduction(registry["euclidean_norm"])
    norm(gradients)        # a list of 0-d tensors

Tables and launchers are cached as in `multi_tensor.py`, and nothing waits for the device. `kinds.many_reduction` plans
the kernels. The ops are reductions with the spec field `multi_tensor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from .backends.arguments import Scratch
from .context import _local
from .dispatch import call, empty
from .kinds.many import Runs
from .kinds.many_reduction import divide_into_runs, partial_bytes, plan_finish, plan_partial, result_layout
from .multi_tensor import CachedLaunches, Group
from .records import OpRecord
from .tensor import Tensor

if TYPE_CHECKING:
    from .backends.protocol import Stream
    from .call_types import Launcher
    from .device import Device

__all__ = ["MultiReduction"]


class _ReductionGroup(Group):
    """The tensors of a call that have the same device and dtype."""

    def __init__(self, record: OpRecord, device: Device, lists: Sequence[Sequence[Tensor]], indices: list[int]):
        super().__init__(record, device, lists, indices)
        self.layout = result_layout(record, self.types, device)
        self.state_bytes = partial_bytes(record, self.types, device)
        self.finishes: dict[int, Launcher] = {}

    def divide_into_runs(self, sizes: Sequence[int]) -> Runs:
        return divide_into_runs(self.record, self.types, self.device, sizes)

    def launcher(self, runs: Runs, is_aligned: bool, largest: int) -> Launcher:
        step = plan_partial(self.record, self.types, self.device, runs, is_aligned)
        return self.driver.launcher((step,), ())

    def states_of(self, number: int) -> int:
        """Return how many partial states the launch of this number writes."""
        runs = self.tensor_ranges[number][1]
        assert runs is not None
        return runs.items

    def finish(self, states: int) -> Launcher:
        """Return the launcher of the kernel that combines this many partial states."""
        if states not in self.finishes:
            step = plan_finish(self.record, self.types, self.device, sum(self.sizes), states)
            self.finishes[states] = self.driver.launcher((step,), ())
        return self.finishes[states]

    def partial_states(self, states: int, stream: Stream) -> list[Scratch]:
        """Allocate memory for this many partial states: a buffer for each field."""
        return [Scratch(self.driver.allocate(nbytes * states, stream)) for nbytes in self.state_bytes]

    def part_from(self, buffers: Sequence[Scratch], first: int) -> list[Scratch]:
        """Return the buffers of partial states from state number `first` on."""
        parts = [Scratch(buffer.storage) for buffer in buffers]
        for part, nbytes in zip(parts, self.state_bytes, strict=True):
            part.start += nbytes * first
        return parts


class MultiReduction(CachedLaunches):
    """A reduction of many tensors, with the launchers and tables of its last call.

    Threads must not call it at the same time.
    """

    group_type = _ReductionGroup

    def __call__(self, tensors: list[Tensor], numbers: Sequence[float] = ()) -> list[Tensor]:
        """Reduce the elements of all tensors.

        Args:
            tensors: Tensors without history, or under `no_grad`.
            numbers: The number operands.

        Returns:
            A 0-d tensor for the tensors of each device and dtype, and one for each tensor whose memory has gaps. None
            for tensors without elements.
        """
        state = _local.state
        if state.mode is not None and state.has_active_mode():
            return [self._reduce_one(t, numbers) for t in tensors if t.meta.numel]
        self.follow([tensors], state)
        results: list[Tensor] = []
        first = 0
        for group, numbered in groupby(self._launch_groups, key=lambda entry: entry[0]):
            assert isinstance(group, _ReductionGroup)
            counts = [group.states_of(number) for _, number in numbered]
            stream = self._launches[first][0]
            buffers = group.partial_states(sum(counts), stream)
            begin = 0
            for (_, launch, arguments, reached), count in zip(
                self._launches[first : first + len(counts)], counts, strict=True
            ):
                part = group.part_from(buffers, begin) if begin else buffers
                launch([*arguments, *part, *[tensors[i] for i in reached]], numbers, stream)
                begin += count
            first += len(counts)
            result = empty(group.layout, stream)
            group.finish(begin)([*buffers, result], numbers, stream)
            results.append(result)
        results += [self._reduce_one(tensors[i], numbers) for i in self._single_tensors]
        return results

    def _reduce_one(self, tensor: Tensor, numbers: Sequence[float]) -> Tensor:
        """Reduce one tensor by the plain op, for layouts with gaps, and for modes that must see every call."""
        return call(self.record, (tensor, *numbers), (None, False))
