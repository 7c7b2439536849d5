"""`torch.nn.attention`: PyTorch's choice between implementations of attention, which has no effect here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(IntEnum):
    """PyTorch's implementations of scaled dot-product attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: Sequence[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[None]:
    """Do nothing: weftgrad chooses its implementation itself, and all of PyTorch's compute the same.

    Args:
        backends: Ignored.
        set_priority: Ignored.

    Returns:
        A context manager, whose value is None.
    """
    yield
