"""The exceptions of `weftgrad.distributed`; the first four have PyTorch's names."""

from __future__ import annotations

from ..runtime.errors import WeftgradError

__all__ = [
    "CollectiveMismatch",
    "CollectiveTimeout",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "RankFailure",
]


class DistError(WeftgradError, RuntimeError):
    """Base class of all errors of `weftgrad.distributed`."""


class DistBackendError(DistError):
    """A collective or a message failed, or MPI or NCCL is missing."""


class DistNetworkError(DistError):
    """The ranks could not connect to each other."""


class DistStoreError(DistError):
    """A key-value store failed. PyTorch's name: there are no stores here."""


class RankFailure(DistBackendError):
    """Another rank was killed, raised an error or has ended its program, so a collective cannot complete."""


class CollectiveTimeout(DistBackendError, TimeoutError):
    """A collective or a message has not completed within the group's timeout."""


class CollectiveMismatch(DistBackendError, ValueError):
    """The ranks of a group have called different collectives, or with different shapes or dtypes."""
