"""PowerSGD: gradients of matrices as products of low rank (Vogels et al. 2019, arXiv 1905.13727, algorithm 1).

A matrix M of a bucket, n x m, becomes P Q^T with P of n x r and Q of m x r. The ranks average P = M Q, orthogonalize
it, and average Q = M^T P. What the product lacks is added to the next step's gradient (error feedback). Vectors, and
matrices that would hardly become smaller, are averaged as they are.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from .... import distributed as dist
from ....creation.factories import empty, zeros
from ....random import Generator, randn
from ....runtime.errors import ArgumentError
from ....runtime.tensor import Tensor
from ...works import Future
from . import default_hooks

if TYPE_CHECKING:
    from ....nn.parallel.buckets import GradBucket

__all__ = ["PowerSGDState", "powerSGD_hook"]


class PowerSGDState:
    """Options of `powerSGD_hook`, and what it stores from step to step.

    Args:
        process_group: The group; None for all ranks.
        matrix_approximation_rank: Rank r of the products.
        start_powerSGD_iter: Number of steps before, whose gradients are averaged as they are.
        min_compression_rate: Compress matrices that become smaller by this factor at least.
        use_error_feedback: Add what a product lacks to the gradient of the next step.
        warm_start: Begin with the Q of the previous step.
        orthogonalization_epsilon: Added to norms in the orthogonalization.
        random_seed: Seed of the first Q, equal on all ranks.

    Raises:
        ArgumentError: `start_powerSGD_iter` is less than 2 with error feedback or warm start, because the buckets are
            built anew after the first step.

    Example:
        >>> from weftgrad.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
        >>> PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=10).matrix_approximation_rank
        2
    """

    def __init__(
        self,
        process_group: Any,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
    ):
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ArgumentError(
                "PowerSGDState: start_powerSGD_iter must be at least 2 with use_error_feedback or warm_start, because "
                f"the buckets are built anew after the first step; it is {start_powerSGD_iter}"
            )
        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.generator = Generator().manual_seed(random_seed)
        self.iter = 0
        self.error_dict: dict[int, Tensor] = {}
        self.q_memory_dict: dict[int, list[Tensor]] = {}
        self.elements_before_compression = self.elements_after_compression = 0

    def compression_stats(self) -> tuple[float, int, int]:
        """Return the compression rate, the number of elements before it, and the number sent."""
        before, after = self.elements_before_compression, self.elements_after_compression
        return (before / after if after else 0.0), before, after

    def should_compress(self, rows: int, columns: int) -> bool:
        """Return whether a product of low rank is smaller than a matrix by `min_compression_rate`."""
        rank = min(rows, columns, self.matrix_approximation_rank)
        return (rows + columns) * rank * self.min_compression_rate < rows * columns


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future:
    """Average the gradients of a bucket as products of low rank.

    Args:
        state: The options, the `state` of `register_comm_hook`.
        bucket: The bucket.

    Returns:
        Future of the average, written to the bucket's vector.
    """
    iteration = state.iter
    if bucket.is_last():
        state.iter += 1
    if iteration < state.start_powerSGD_iter:
        return default_hooks.allreduce_hook(state.process_group, bucket)
    buffer, index = bucket.buffer(), bucket.index()
    if state.use_error_feedback:
        previous = state.error_dict.get(index)
        if previous is None or previous.numel() != buffer.numel():
            previous = zeros(buffer.numel(), dtype=buffer.dtype, device=buffer.device)
        buffer.add_(previous)
        state.error_dict[index] = buffer.clone()
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for gradient in bucket.gradients():
        shape = gradient.shape
        rows, columns = shape[0] if shape else 1, prod(shape[1:])
        if len(shape) > 1 and state.should_compress(rows, columns):
            matrices.append(gradient.view(rows, columns))
        else:
            others.append(gradient.view(-1))
    sent = _average_uncompressed(state, others)
    state.elements_before_compression += buffer.numel()
    state.elements_after_compression += sent + _average_products(state, index, matrices)
    if state.use_error_feedback:
        error = state.error_dict[index]
        error.sub_(buffer)
        for gradient in others:  # these were averaged exactly
            offset = (gradient.start - buffer.start) // buffer.dtype.itemsize
            error[offset : offset + gradient.numel()].zero_()
    future = Future()
    future.set_result(buffer)
    return future


def _average_uncompressed(state: PowerSGDState, vectors: list[Tensor]) -> int:
    """Average vectors by one collective; return the number of elements."""
    count = sum(vector.numel() for vector in vectors)
    if not count:
        return 0
    packed = empty(count, dtype=vectors[0].dtype, device=vectors[0].device)
    _copy_parts(vectors, packed, to_packed=True)
    packed.div_(dist.get_world_size(state.process_group))
    dist.all_reduce(packed, group=state.process_group)
    _copy_parts(vectors, packed, to_packed=False)
    return count


def _copy_parts(parts: list[Tensor], packed: Tensor, to_packed: bool) -> None:
    offset = 0
    for part in parts:
        section = packed[offset : offset + part.numel()].view(part.shape)
        (section if to_packed else part).copy_(part if to_packed else section)
        offset += part.numel()


def _average_products(state: PowerSGDState, index: int, matrices: list[Tensor]) -> int:
    """Replace matrices by averages of products of low rank; return the number of elements sent."""
    if not matrices:
        return 0
    world_size = dist.get_world_size(state.process_group)
    ranks = [min(*matrix.shape, state.matrix_approximation_rank) for matrix in matrices]
    options: dict[str, Any] = {"dtype": matrices[0].dtype, "device": matrices[0].device}
    qs = state.q_memory_dict.get(index) if state.warm_start else None
    if qs is None or [q.shape[0] for q in qs] != [matrix.shape[1] for matrix in matrices]:
        qs = [
            randn(matrix.shape[1], rank, generator=state.generator, dtype=options["dtype"]).to(options["device"])
            for matrix, rank in zip(matrices, ranks, strict=True)
        ]
    qs = [_orthogonalize(q, state.orthogonalization_epsilon) for q in qs]
    ps = [matrix @ q for matrix, q in zip(matrices, qs, strict=True)]
    sent = _all_reduce_parts(state, ps, 1.0)
    ps = [_orthogonalize(p, state.orthogonalization_epsilon) for p in ps]
    qs = [matrix.t() @ p for matrix, p in zip(matrices, ps, strict=True)]
    sent += _all_reduce_parts(state, qs, 1.0 / world_size)
    for matrix, p, q in zip(matrices, ps, qs, strict=True):
        matrix.copy_(p @ q.t())
    if state.warm_start:
        state.q_memory_dict[index] = qs
    return sent


def _all_reduce_parts(state: PowerSGDState, parts: list[Tensor], factor: float) -> int:
    count = sum(part.numel() for part in parts)
    packed = empty(count, dtype=parts[0].dtype, device=parts[0].device)
    _copy_parts(parts, packed, to_packed=True)
    if factor != 1.0:
        packed.mul_(factor)
    dist.all_reduce(packed, group=state.process_group)
    _copy_parts(parts, packed, to_packed=False)
    return count


def _orthogonalize(matrix: Tensor, epsilon: float) -> Tensor:
    """Return the matrix with orthonormal columns, by modified Gram-Schmidt."""
    columns: list[Tensor] = []
    for position in range(matrix.shape[1]):
        column = matrix[:, position].clone()
        for other in columns:
            column = column - (other * column).sum() * other
        norm = column.norm()
        columns.append(column / (norm + epsilon) if epsilon or float(norm) > 0 else column)
    return _stack_columns(columns)


def _stack_columns(columns: list[Tensor]) -> Tensor:
    matrix = empty(columns[0].numel(), len(columns), dtype=columns[0].dtype, device=columns[0].device)
    for position, column in enumerate(columns):
        matrix[:, position].copy_(column)
    return matrix
