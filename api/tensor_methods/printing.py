"""The repr of tensors: NumPy formats the numbers, in PyTorch's layout."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..runtime import dtypes, host_data
from ..runtime.dtypes import Array
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor

__all__ = ["set_printoptions", "show"]


@dataclass(frozen=True)
class _Options:
    """How tensors are printed; `set_printoptions` explains the fields."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_PROFILES = {
    "default": _Options(),
    "short": _Options(precision=2, edgeitems=2),
    "full": _Options(threshold=math.inf),
}
_options = _Options()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed. None leaves an option unchanged, except for `sci_mode`.

    Args:
        precision: Digits after the point.
        threshold: Number of elements above which a tensor is summarised.
        edgeitems: Elements shown at each end of a summarised dimension.
        linewidth: Characters in a line.
        profile: "default", "short" or "full": sets the options above together.
        sci_mode: Whether to use exponents; None decides by the range of the numbers.

    Raises:
        ArgumentError: The profile is unknown.

    Example:
        >>> wg.set_printoptions(precision=2)
        >>> wg.tensor([0.12345])
        tensor([0.12])
        >>> wg.set_printoptions(profile='default')
    """
    global _options
    base = _options
    if profile is not None:
        if profile not in _PROFILES:
            raise ArgumentError(f"set_printoptions: a profile is {', '.join(_PROFILES)}, not {profile!r}")
        base = _PROFILES[profile]
    _options = replace(
        base,
        precision=base.precision if precision is None else precision,
        threshold=base.threshold if threshold is None else threshold,
        edgeitems=base.edgeitems if edgeitems is None else edgeitems,
        linewidth=base.linewidth if linewidth is None else linewidth,
        sci_mode=sci_mode,
    )


def _visible_elements(array: Array) -> Array:
    """Return the elements that will be printed: of a summarised array, those at the ends."""
    if array.size > _options.threshold:
        ends = _options.edgeitems
        for dim, size in enumerate(array.shape):
            if size > 2 * ends:
                array = np.take(array, [*range(ends), *range(size - ends, size)], dim)
    return array


def _float_formatter(values: Array) -> Callable[[float], str]:
    """Return the formatter of floats: `1.` for integral values, else with digits, or exponents for a wide range.

    All numbers get the width of the widest finite one.
    """
    values = values[np.isfinite(values) & (values != 0)].astype(np.float64)
    digits, forced = _options.precision, _options.sci_mode
    low, high = (np.abs(values).min(), np.abs(values).max()) if values.size else (1, 1)
    is_whole = bool((values == np.ceil(values)).all())
    needs_exponent = bool(high / low > 1000 or high > 1e8 or (low < 1e-4 and not is_whole))
    style = f".{digits}e" if (needs_exponent if forced is None else forced) else ".0f" if is_whole else f".{digits}f"
    point = "." if style == ".0f" else ""
    width = max((len(f"{v:{style}}{point}") for v in values.tolist()), default=1)
    return lambda v: (f"{v:{style}}" + (point if math.isfinite(v) else "")).rjust(width)


def show(tensor: Tensor) -> str:
    """Return the repr `tensor([...])`, with dtype, device and autograd history where they are not the default."""
    layout = tensor.meta
    if layout.device.type == "meta":
        return _show_layout(tensor)
    array = host_data.host_array(tensor)
    visible = _visible_elements(array)
    format_float = _float_formatter(visible) if layout.dtype.kind == "f" else None
    is_all_true = layout.dtype is dtypes.bool_ and bool(visible.all())
    body = np.array2string(
        array,
        separator=", ",
        prefix="tensor(",
        max_line_width=_options.linewidth + max(layout.ndim - 1, 0),  # NumPy reserves room for all closing brackets
        threshold=int(min(_options.threshold, sys.maxsize)),
        edgeitems=_options.edgeitems,
        formatter={"float_kind": lambda v: format_float(float(v))}
        if format_float is not None
        else {"bool": str}  # do not reserve the width of False
        if is_all_true
        else None,
    )
    body = body.replace(", ..., ", ",  ..., ")
    notes = []
    if not layout.numel and layout.shape != (0,):
        notes.append(f"size={layout.shape}")
    default_dtypes = (dtypes.default_dtype(), dtypes.int64, dtypes.bool_) if layout.numel else (dtypes.default_dtype(),)
    if layout.dtype not in default_dtypes:
        notes.append(f"dtype={layout.dtype!r}")
    if layout.device.type != "cpu":
        notes.append(f"device='{layout.device}'")
    return f"tensor({', '.join([body, *notes, *_history(tensor)])})"


def _show_layout(tensor: Tensor) -> str:
    """Return the repr of a tensor without values, as PyTorch writes it: `tensor(..., device='meta', size=(2,))`."""
    layout = tensor.meta
    notes = ["...", f"device='{layout.device}'", f"size={layout.shape}"]
    if layout.dtype is not dtypes.default_dtype():
        notes.append(f"dtype={layout.dtype!r}")
    return f"tensor({', '.join([*notes, *_history(tensor)])})"


def _history(tensor: Tensor) -> list[str]:
    """Return how a repr shows the history of a tensor: nothing for one without gradients."""
    grad_fn = tensor.grad_fn
    if grad_fn is not None:
        return [f"grad_fn=<{grad_fn.name}>"]
    return ["requires_grad=True"] if tensor.needs_grad else []
