"""weftgrad: a PyTorch-style framework for every vendor's devices, with each op written once as a spec.

    import weftgrad as wg          # or: import weftgrad as torch
    x = wg.ones(3, requires_grad=True)
    (x * x).sum().backward()
    x.grad

Submodules (`nn`, `optim`, `utils`, `autograd`, `ops`, `testing`, …) are imported on first use.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import Any

from . import counting as _counting
from . import embeddings as _embeddings
from . import functions as _functions
from . import gathering as _gathering
from . import indexing as _indexing
from . import joining as _joining
from . import methods as _methods
from . import numeric as _numeric
from . import scanning as _scanning
from . import scattering as _scattering
from . import shaping as _shaping
from . import sorting as _sorting
from ._install import OF_LAYERS as _OF_LAYERS
from ._install import install_ops as _install_ops
from .runtime import dtypes as _dtypes
from .runtime.dtypes import DType, bfloat16, float16, float32, float64, int8, int16, int32, int64, uint8
from .runtime.dtypes import bool_ as bool
from .runtime.tensor import Tensor

_methods.install()
for _source in (_functions, _gathering, _indexing, _joining, _scanning, _scattering, _sorting, _counting, _numeric):
    for _name, _function in _source.METHODS.items():
        setattr(Tensor, _name, _function)
_shaping.install()
_namespaces: dict[str, dict[str, Any]] = {"torch": {}, "nn.functional": {}, "special": {}}
_install_ops(_namespaces)
_namespaces["nn.functional"].update(embedding=_embeddings.embedding, one_hot=_embeddings.one_hot)

from .amp import GradScaler
from .amp.autocast_mode import *
from .autograd import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .compiler import compile
from .composed import *
from .composed import install as _install_composed
from .convolutions import *
from .counting import *
from .determinism import *
from .factories import *
from .functions import *
from .gathering import *
from .joining import *
from .legacy import *
from .legacy import install as _install_legacy
from .methods import Size
from .pooling import adaptive_avg_pool1d, avg_pool1d, max_pool1d, max_pool1d_with_indices, max_pool2d, max_pool3d
from .pooling import adaptive_max_pool1d_with_indices as adaptive_max_pool1d
from .numeric import *
from .printing import set_printoptions
from .random import *
from .random import install as _install_random
from .reals import *
from .recurrent import *
from .runtime.device import Device, device, set_default_device
from .runtime.errors import OutOfMemoryError
from .runtime.precision import get_float32_matmul_precision, set_float32_matmul_precision
from .scanning import *
from .scattering import *
from .serialization import load, save
from .shaping import *
from .sorting import *
from .streams import *
from .threads import *
from .windows import *

_install_random()
_install_legacy()
_install_composed()
globals().update({k: v for k, v in _namespaces["torch"].items() if k not in globals()})

half, float, double = float16, float32, float64
short, int, long = int16, int32, int64
dtype = DType
strided, contiguous_format, preserve_format = "strided", "contiguous_format", "preserve_format"
channels_last, channels_last_3d = "channels_last", "channels_last_3d"  # tensors stay row-major
get_default_dtype, set_default_dtype = _dtypes.default_dtype, _dtypes.set_default_dtype
newaxis = None
inf, nan, pi, e = _functions.math.inf, _functions.math.nan, _functions.math.pi, _functions.math.e
__version__ = "0.1.0"

_LAZY = (
    "accelerator", "amp", "autograd", "backends", "compiler", "cpu", "cuda", "distributed", "func", "jit", "linalg",
    "mps", "multiprocessing", "nn", "ops", "optim", "profiler", "special", "testing", "utils", "version", "xpu",
)  # fmt: skip


def devices() -> list[Device]:
    """Return the available devices: `cpu`, then those of the installed drivers."""
    from .runtime.backends import available

    return available()


def get_default_device() -> Device:
    """Return the device on which factories create tensors by default."""
    return device()


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return _import_module(f".{name}", __name__)
    if name in _OF_LAYERS:
        return getattr(_import_module(".nn._torch_names", __name__), name)
    raise AttributeError(f"module 'weftgrad' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_OF_LAYERS})


__all__ = sorted(
    name
    for name, value in globals().items()
    if not name.startswith("_") and name not in ("annotations", "Any") and type(value).__name__ != "module"
)
