"""Names of reductions, and the MPI operations that compute them."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from ..runtime import dtypes
from ..runtime.dtypes import DType
from ..runtime.errors import DTypeError

__all__ = ["ReduceOp", "check_reduction", "mpi_datatype", "mpi_operation"]


class ReduceOp(IntEnum):
    """How a reduction combines the ranks' elements.

    `AVG` divides the sum by the number of ranks and is for floating-point dtypes, `BAND`, `BOR` and `BXOR` are for
    integers and bool. In bool, `SUM` and `MAX` are *or*, `PRODUCT` and `MIN` are *and*.

    Example:
        >>> wg.distributed.ReduceOp.SUM.name
        'SUM'
    """

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7


_BITWISE = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
_MPI_NAMES = {
    ReduceOp.SUM: "SUM",
    ReduceOp.AVG: "SUM",
    ReduceOp.PRODUCT: "PROD",
    ReduceOp.MIN: "MIN",
    ReduceOp.MAX: "MAX",
    ReduceOp.BAND: "BAND",
    ReduceOp.BOR: "BOR",
    ReduceOp.BXOR: "BXOR",
}
_OF_BOOL = {
    ReduceOp.SUM: "MAX",
    ReduceOp.PRODUCT: "MIN",
    ReduceOp.MIN: "MIN",
    ReduceOp.MAX: "MAX",
    ReduceOp.BAND: "MIN",
    ReduceOp.BOR: "MAX",
    ReduceOp.BXOR: "BXOR",
}
_DATATYPES = {
    dtypes.bool_: "UINT8_T",
    dtypes.uint8: "UINT8_T",
    dtypes.int8: "INT8_T",
    dtypes.int16: "INT16_T",
    dtypes.int32: "INT32_T",
    dtypes.int64: "INT64_T",
    dtypes.float16: "UINT16_T",  # bits: MPI moves them, kernels of ours compute
    dtypes.bfloat16: "UINT16_T",
    dtypes.float32: "FLOAT",
    dtypes.float64: "DOUBLE",
}


def check_reduction(name: str, op: ReduceOp, dtype: DType) -> None:
    """Raise `DTypeError` if `op` is not defined for `dtype`."""
    if op is ReduceOp.AVG and dtype.kind != "f":
        raise DTypeError(f"{name}: ReduceOp.AVG needs a floating-point dtype, not {dtype.name}; use ReduceOp.SUM")
    if op in _BITWISE and dtype.kind == "f":
        raise DTypeError(f"{name}: ReduceOp.{op.name} needs an integer dtype or bool, not {dtype.name}")


def mpi_operation(mpi: Any, op: ReduceOp, dtype: DType) -> Any:
    """Return the `mpi4py.MPI.Op` of a reduction. For `AVG` it is the sum, which the caller divides."""
    return getattr(mpi, (_OF_BOOL if dtype is dtypes.bool_ else _MPI_NAMES)[op])


def mpi_datatype(mpi: Any, dtype: DType) -> Any:
    """Return the `mpi4py.MPI.Datatype` of one element; float16 and bfloat16 are 16 bits without arithmetic."""
    return getattr(mpi, _DATATYPES[dtype])
