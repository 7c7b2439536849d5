"""weftgrad: PyTorch's way of working on any vendor's device, with every op written once as a spec.

    import weftgrad as wg          # or: import weftgrad as torch
    x = wg.randn(3, requires_grad=True)
    (x * x).sum().backward()
    x.grad
"""

from __future__ import annotations

from typing import Any

from . import methods as _methods
from ._install import install_ops as _install_ops
from .runtime import dtypes as _dtypes
from .runtime.dtypes import DType, bfloat16, float16, float32, float64, int8, int16, int32, int64, uint8
from .runtime.dtypes import bool_ as bool  # noqa: A004
from .runtime.tensor import Tensor

_methods.install()
_namespaces: dict[str, dict[str, Any]] = {"torch": {}, "nn.functional": {}, "special": {}}
_install_ops(_namespaces)

from .autograd import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled  # noqa: E402
from .factories import *  # noqa: E402, F403
from .methods import Size  # noqa: E402
from .runtime.device import Device, device, set_default_device  # noqa: E402

globals().update({k: v for k, v in _namespaces["torch"].items() if k not in globals()})

half, float, double = float16, float32, float64  # noqa: A001
short, int, long = int16, int32, int64  # noqa: A001
dtype = DType
get_default_dtype, set_default_dtype = _dtypes.default_dtype, _dtypes.set_default_dtype
__version__ = "0.1.0"
