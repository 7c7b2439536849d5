"""The repr of tensors: NumPy formats the numbers, in PyTorch's layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..runtime import dtypes, host_data
from ..runtime.dtypes import Array
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor

__all__ = ["set_printoptions", "show"]

_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": float("inf"), "edgeitems": 3, "linewidth": 80},
}
_options = dict(_PROFILES["default"], sci_mode=None)


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
    if profile is not None:
        if profile not in _PROFILES:
            raise ArgumentError(f"set_printoptions: a profile is {', '.join(_PROFILES)}, not {profile!r}")
        _options.update(_PROFILES[profile])
    updates = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    _options.update({k: v for k, v in updates.items() if v is not None}, sci_mode=sci_mode)


def _visible_elements(array: Array) -> Array:
    """Return the elements that will be printed: of a summarised array, those at the ends."""
    if array.size > _options["threshold"]:
        ends = _options["edgeitems"]
        for dim, size in enumerate(array.shape):
            if size > 2 * ends:
                array = np.take(array, [*range(ends), *range(size - ends, size)], dim)
    return array


def _float_formatter(values: Array) -> Callable[[Any], str]:
    """Return the formatter of floats: `1.` for integral values, else with digits, or exponents for a wide range.

    All numbers get the width of the widest finite one.
    """
    values = values[np.isfinite(values) & (values != 0)].astype(np.float64)
    digits, forced = _options["precision"], _options["sci_mode"]
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
    array = host_data.host_array(tensor)
    options = {k: _options[k] for k in ("threshold", "edgeitems")}
    if layout.dtype.kind == "f":
        formatter = _float_formatter(_visible_elements(array))
        options["formatter"] = {"float_kind": lambda v: formatter(float(v))}
    elif layout.dtype is dtypes.bool_ and _visible_elements(array).all():
        options["formatter"] = {"bool": str}  # all True: do not reserve the width of False
    width = _options["linewidth"] + max(layout.ndim - 1, 0)  # NumPy reserves room for all closing brackets
    body = np.array2string(array, separator=", ", prefix="tensor(", max_line_width=width, **options)
    body = body.replace(", ..., ", ",  ..., ")
    notes = []
    if not layout.numel and layout.shape != (0,):
        notes.append(f"size={layout.shape}")
    default_dtypes = (dtypes.default_dtype(), dtypes.int64, dtypes.bool_) if layout.numel else (dtypes.default_dtype(),)
    if layout.dtype not in default_dtypes:
        notes.append(f"dtype={layout.dtype!r}")
    if layout.device.type != "cpu":
        notes.append(f"device='{layout.device}'")
    if tensor.grad_fn is not None:
        notes.append(f"grad_fn=<{tensor.node.name}>")  # type: ignore[union-attr]
    elif tensor.needs:
        notes.append("requires_grad=True")
    return f"tensor({', '.join([body, *notes])})"
