"""How `all_reduce` sends the values of tensors of one layout, and combines those of all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..autograd.grad_mode import no_grad
from ..runtime.device import Meta, meta
from ..runtime.dispatch import call_into
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from .buffers import is_half
from .headers import HEADER_BYTES, pack
from .local_reductions import RECORDS, combine, combine_in_order
from .reduce_ops import ReduceOp, mpi_datatype, mpi_operation

if TYPE_CHECKING:
    from .exchanges import DirectMessages

__all__ = ["ValueLayout"]

_COPY = registry["copy"]


class ValueLayout:
    """How the values of an `all_reduce` travel in a small group, for tensors of one layout and one reduction.

    Args:
        messages: The group's messages.
        layout: The tensors' layout, on `cpu`.
        op: The reduction.

    Attributes:
        is_behind_header: Whether the values travel in one message with the header. Otherwise MPI's `Iallreduce`
            combines them, and the messages are headers.
        sends: Persistent requests that send this rank's message.
        receives: Persistent requests that receive what follows the first part of the others' messages.
        plan: The same for `native.exchange_messages`; None if the layout needs the Python code.
        synchronize: Waits for launches that write the tensors.
    """

    def __init__(self, messages: DirectMessages, layout: Meta, op: ReduceOp):
        self._op, self._mpi = op, messages.mpi
        self._header_end = pack(0, "all_reduce", layout.dtype, layout.shape, op)[4:]
        self.synchronize = layout.device.driver.synchronize
        self._nbytes = layout.numel * layout.dtype.itemsize
        self._is_contiguous = layout.contiguous
        self.is_behind_header = messages.has_room(layout)
        if not self.is_behind_header:
            self.sends, self.receives = messages.header_sends, list[Any]()
            self.plan = messages.plan_of(layout, self.sends, self.receives, 0)
            self._datatype = mpi_datatype(self._mpi, layout.dtype)
            self._operation = mpi_operation(self._mpi, op, layout.dtype)
            return
        self.sends, self.receives = messages.make_requests(HEADER_BYTES + self._nbytes)
        self.plan = messages.plan_of(layout, self.sends, self.receives, self._nbytes)
        self._rows = messages.values(layout)
        self._row = self._rows[messages.rank]
        self._row_bytes = messages.row_bytes(self._nbytes)
        self._parts: Tensor | None = None
        size = len(self._rows)
        self._record = RECORDS[op] if size == 2 and op is not ReduceOp.AVG else None
        if is_half(layout.dtype) and (size > 2 or op is ReduceOp.AVG):  # rounded once, from a sum in float32
            strides = (messages.row_nbytes // layout.dtype.itemsize, *self._row.meta.strides)
            parts = meta(layout.dtype, (size, *layout.shape), strides, layout.device)
            self._parts = Tensor(self._row.storage, parts, self._rows[0].start)

    def header(self, number: int) -> bytes:
        """Return the header of the call with a number."""
        return (number & 0xFFFFFFFF).to_bytes(4, "little") + self._header_end

    def load(self, tensor: Tensor | None) -> None:
        """Copy a tensor's values to this rank's row, if they travel behind the header."""
        assert tensor is not None
        nbytes = self._nbytes
        if not self.is_behind_header or not nbytes:
            return
        if self._is_contiguous:
            self.synchronize()
            self._row_bytes[:] = self._mpi.buffer.fromaddress(tensor.storage.buffer + tensor.start, nbytes)
        else:
            call_into(_COPY, (_detached(tensor),), (None,), (self._row,), in_place=True)
            self.synchronize()

    def store(self, tensor: Tensor | None) -> None:
        """Combine the values of all rows, and write them to a tensor, if they travel behind the header."""
        assert tensor is not None
        if not self.is_behind_header or not self._nbytes:
            return
        target, rows, op = _detached(tensor), self._rows, self._op
        if self._record is not None:
            call_into(self._record, rows, (), (target,), in_place=False)
        elif self._parts is not None:
            with no_grad():
                target.copy_(combine(self._parts, op))
        else:
            combine_in_order(rows, op, target)
        self.synchronize()  # MPI is about to overwrite the rows

    def start_beside(self, tensor: Tensor, comm: Any) -> Any:
        """Start MPI's reduction of values that do not travel behind the header, and return the request."""
        self.synchronize()
        storage = tensor.storage
        storage.version += 1
        memory = self._mpi.buffer.fromaddress(storage.buffer + tensor.start, self._nbytes)
        return comm.Iallreduce(self._mpi.IN_PLACE, [memory, self._datatype], self._operation)


def _detached(tensor: Tensor) -> Tensor:
    """Return a tensor of the same memory that has no history and needs no gradient."""
    if tensor.extra is None and not tensor.needs_grad:
        return tensor
    return Tensor(tensor.storage, tensor.meta, tensor.start)
