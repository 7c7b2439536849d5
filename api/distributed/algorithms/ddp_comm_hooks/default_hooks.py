"""Communication hooks that average gradients as they are, or in float16 or bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from .... import distributed as dist
from ....runtime import dtypes
from ....runtime.dtypes import DType

if TYPE_CHECKING:
    from ....nn.parallel.buckets import GradBucket
    from ...works import Future

__all__ = [
    "allreduce_hook",
    "bf16_compress_hook",
    "bf16_compress_wrapper",
    "fp16_compress_hook",
    "fp16_compress_wrapper",
]

Hook: TypeAlias = Callable[[Any, "GradBucket"], "Future"]


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Future:
    """Average the gradients of a bucket, as `DistributedDataParallel` does without a hook.

    Args:
        process_group: The group; None for all ranks. It is the `state` of `register_comm_hook`.
        bucket: The bucket.

    Returns:
        Future of the average.
    """
    buffer = bucket.buffer()
    buffer.div_(dist.get_world_size(process_group))
    work = dist.all_reduce(buffer, group=process_group, async_op=True)
    assert work is not None
    return work.get_future().then(lambda future: future.value()[0])


def _average_in(dtype: DType, process_group: Any, bucket: GradBucket) -> Future:
    buffer = bucket.buffer()
    compressed = buffer.to(dtype).div_(dist.get_world_size(process_group))
    work = dist.all_reduce(compressed, group=process_group, async_op=True)
    assert work is not None
    return work.get_future().then(lambda future: buffer.copy_(future.value()[0]))


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Future:
    """Average the gradients of a bucket in float16, which halves what is sent.

    Args:
        process_group: The group; None for all ranks. It is the `state` of `register_comm_hook`.
        bucket: The bucket.

    Returns:
        Future of the average, in the gradients' dtype.
    """
    return _average_in(dtypes.float16, process_group, bucket)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Future:
    """Average the gradients of a bucket in bfloat16, which halves what is sent.

    Args:
        process_group: The group; None for all ranks. It is the `state` of `register_comm_hook`.
        bucket: The bucket.

    Returns:
        Future of the average, in the gradients' dtype.
    """
    return _average_in(dtypes.bfloat16, process_group, bucket)


def _wrap(dtype: DType, hook: Hook) -> Hook:
    def compressing_hook(state: Any, bucket: GradBucket) -> Future:
        buffer = bucket.buffer()
        bucket.set_buffer(buffer.to(dtype))
        future = hook(state, bucket)
        bucket.set_buffer(buffer)
        return future.then(lambda result: buffer.copy_(result.value()))

    return compressing_hook


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """Return a hook that casts the gradients to float16 before `hook`, and its result back.

    Args:
        hook: A communication hook.
    """
    return _wrap(dtypes.float16, hook)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """Return a hook that casts the gradients to bfloat16 before `hook`, and its result back.

    Args:
        hook: A communication hook.
    """
    return _wrap(dtypes.bfloat16, hook)
