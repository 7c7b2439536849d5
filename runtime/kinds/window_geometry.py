"""The geometry of a window op, which the planners for OpenCL and for Triton share."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..backends.protocol import Slot
from ..schedules import Choice, choose
from . import Request

__all__ = ["Sizes", "Windows", "choose_schedule"]

Sizes = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Windows:
    """Geometry of one call, extended to three spatial dimensions.

    Attributes:
        planes: spatial planes of the result.
        channels: channels of an image.
        output_size: spatial size of the result.
        source_size: spatial size of the input.
        kernel, stride, padding, dilation: as in PyTorch.
        counted_padding: padding that average pooling counts as elements.
        divisor: divisor of average pooling; 0 means the number of elements.
        strides: strides of each input along image, channel and the spatial dimensions.
        taps: for ops that produce columns, the kernel size; for ops that read columns, their strides along the
            dimensions of a window; otherwise 0.
        adaptive: the windows differ in size (adaptive pooling).
        covering: a result combines all windows that cover an element (gradients); otherwise all elements of a window.
        from_columns: the input is columns.
    """

    planes: int
    channels: int
    output_size: Sizes
    source_size: Sizes
    kernel: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    counted_padding: Sizes
    divisor: int
    strides: tuple[tuple[int, ...], ...]
    taps: Sizes
    adaptive: bool
    covering: bool
    from_columns: bool

    @property
    def numel(self) -> int:
        """Elements of the result."""
        return self.planes * prod(self.output_size)

    @property
    def is_dilated(self) -> bool:
        """True if windows have gaps between their elements."""
        return any(d > 1 and k > 1 for d, k in zip(self.dilation, self.kernel, strict=True))


def choose_schedule(request: Request, windows: Windows, slots: tuple[Slot, ...]) -> Choice:
    """Return the schedule parameters of `grid`, and of the Triton kernel."""
    return choose(request, "window", {"numel": windows.numel, "taps": prod(windows.kernel)}, slots[0].dtype)
