"""The header of a call: 64 bytes by which ranks compare what they have called before they use its result.

A header holds the call's number in its group, the collective, the reduction, the dtype, the root, the shape and which
way the data takes. Every collective gathers the headers of all ranks beside its data. Messages between two ranks carry
one, too.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from ..runtime import dtypes
from ..runtime.dtypes import DType
from .reduce_ops import ReduceOp

__all__ = ["HEADER_BYTES", "KINDS", "describe", "find_mismatch", "pack", "read_message"]

HEADER_BYTES = 64
KINDS = (
    "send", "recv", "broadcast", "all_reduce", "reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter",
    "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "gather", "scatter", "barrier", "monitored_barrier",
    "new_group", "destroy_process_group", "all_gather_object", "broadcast_object_list", "gather_object",
    "scatter_object_list", "init_process_group",
)  # fmt: skip
_KIND_CODES = {name: code for code, name in enumerate(KINDS)}
_DTYPES = (
    dtypes.bool_, dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.float16, dtypes.bfloat16,
    dtypes.float32, dtypes.float64,
)  # fmt: skip
_DTYPE_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
_NO_CODE = 255
_FORMAT = struct.Struct("<IBBBBBxhi6q")  # number, kind, op, dtype, dimensions, route, tag, root, sizes
_MAX_DIMS = 6
ROUTES = ("in place", "through the host", "by NCCL", "in chunks")


def pack(
    number: int,
    kind: str,
    dtype: DType | None = None,
    shape: Sequence[int] = (),
    op: ReduceOp | None = None,
    root: int = -1,
    route: int = 0,
    tag: int = 0,
) -> bytes:
    """Return the header of a call.

    Args:
        number: The count of earlier calls of the group; for a message, the sender's count.
        kind: One of `KINDS`.
        dtype: The elements' dtype; None if the call has no tensor.
        shape: The tensor's shape. Of more than six dimensions, the sixth is the product of the rest.
        op: The reduction, or None.
        root: The rank in the group that sends or receives, or -1.
        route: Index into `ROUTES`: how the data travels.
        tag: The low 15 bits of a message's tag.
    """
    sizes = tuple(shape)
    if len(sizes) > _MAX_DIMS:
        sizes = (*sizes[: _MAX_DIMS - 1], math.prod(sizes[_MAX_DIMS - 1 :]))
    return _FORMAT.pack(
        number & 0xFFFFFFFF,
        _KIND_CODES[kind],
        _NO_CODE if op is None else op,
        _NO_CODE if dtype is None else _DTYPE_CODES[dtype],
        len(shape),
        route,
        tag,
        root,
        *sizes,
        *(0,) * (_MAX_DIMS - len(sizes)),
    )


def describe(header: bytes) -> str:
    """Return a call in words: `all_reduce #3 (SUM, float32, shape [4], 16 bytes)`."""
    number, kind, op, dtype, ndim, route, _, root, *sizes = _FORMAT.unpack(header)
    words = []
    if op != _NO_CODE:
        words.append(ReduceOp(op).name)
    if dtype != _NO_CODE:
        shape = sizes[: min(ndim, _MAX_DIMS)]
        nbytes = math.prod(shape) * _DTYPES[dtype].itemsize
        words += [_DTYPES[dtype].name, f"shape {shape}", f"{nbytes} bytes"]
    if root >= 0:
        words.append(f"root {root}")
    if route:
        words.append(ROUTES[route])
    details = f" ({', '.join(words)})" if words else ""
    return f"{KINDS[kind]} #{number}{details}"


def read_message(header: bytes) -> tuple[int, DType | None, tuple[int, ...]]:
    """Return number, dtype and shape of a message's header."""
    number, _, _, dtype, ndim, _, _, _, *sizes = _FORMAT.unpack(header)
    return number, None if dtype == _NO_CODE else _DTYPES[dtype], tuple(sizes[: min(ndim, _MAX_DIMS)])


def find_mismatch(headers: bytes | bytearray, members: Sequence[int]) -> str | None:
    """Return, in words, what differs between gathered headers; None if all are equal.

    Args:
        headers: The headers of all ranks of a group, in order.
        members: The global rank of each.
    """
    first = bytes(headers[:HEADER_BYTES])
    if headers == first * len(members):
        return None
    ranks_of: dict[bytes, list[int]] = {}
    for position, rank in enumerate(members):
        header = bytes(headers[position * HEADER_BYTES : (position + 1) * HEADER_BYTES])
        ranks_of.setdefault(header, []).append(rank)
    parts = []
    for header, ranks in ranks_of.items():
        who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks[:8]))}"
        parts.append(f"{who}{' and others' if len(ranks) > 8 else ''} called {describe(header)}")
    return "; ".join(parts)
