"""How tensors show themselves: NumPy's formatting under PyTorch's frame."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _hosting
from .runtime import dtypes
from .runtime.tensor import Tensor

__all__ = ["set_printoptions", "show"]

_options = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80}


def set_printoptions(
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
) -> None:
    """How tensors are shown: digits, from how many elements on they are shortened, and to how many at each end."""
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    _options.update({k: v for k, v in given.items() if v is not None})


def _whole(array: np.ndarray[Any, Any]) -> bool:
    """Whether floats are shown as `1.`: where all finite ones are whole, and near enough to do without exponents."""
    values = np.abs(array[np.isfinite(array) & (array != 0)].astype(np.float64))
    if not values.size:
        return True
    low, high = values.min(), values.max()
    return bool((values == np.ceil(values)).all() and high / low <= 1000 and high <= 1e8)


def show(tensor: Tensor) -> str:
    """`tensor([...])` with what is not the default: dtype, device, and the history."""
    layout = tensor.meta
    array = _hosting.host_array(tensor)
    floats = layout.dtype.kind == "f"
    options: dict[str, Any] = {"max_line_width" if k == "linewidth" else k: v for k, v in _options.items()}
    mode: Any = "maxprec" if floats and _whole(array) else "fixed"
    if layout.dtype is dtypes.bool_ and array.all():
        options["formatter"] = {"bool": str}  # no room for False
    body = np.array2string(array, separator=", ", prefix="tensor(", floatmode=mode, **options)
    body = body.replace(", ..., ", ",  ..., ")
    notes = []
    if not layout.numel and layout.shape != (0,):
        notes.append(f"size={layout.shape}")
    shown = (dtypes.default_dtype(), dtypes.int64, dtypes.bool_) if layout.numel else (dtypes.default_dtype(),)
    if layout.dtype not in shown:
        notes.append(f"dtype={layout.dtype!r}")
    if layout.device.type != "cpu":
        notes.append(f"device='{layout.device}'")
    if tensor.grad_fn is not None:  # type: ignore[attr-defined]
        notes.append(f"grad_fn=<{tensor.node.name}>")  # type: ignore[union-attr]
    elif tensor.needs:
        notes.append("requires_grad=True")
    return f"tensor({', '.join([body, *notes])})"
