"""weftgrad: a PyTorch-style framework for every vendor's devices, with each op written once as a spec.

    import weftgrad as wg          # or: import weftgrad as torch
    x = wg.ones(3, requires_grad=True)
    (x * x).sum().backward()
    x.grad

Submodules (`nn`, `optim`, `utils`, `ops`, `testing`, …) are imported on first use.
"""

from __future__ import annotations

import math as _math
import typing as _typing
from importlib import import_module as _import_module

from .indexing import gathering as _gathering
from .indexing import index_writes as _index_writes
from .indexing import scattering as _scattering
from .indexing import subscripts as _subscripts
from .layer_functions import embeddings as _embeddings
from .linear_algebra import older_names as _older_names
from .linear_algebra import products as _products
from .linear_algebra import special_products as _special_products
from .linear_algebra import triangles as _triangles
from .pointwise import arithmetic as _arithmetic
from .pointwise import comparison as _comparison
from .pointwise import complex_functions as _complex_functions
from .pointwise import composites as _composites
from .pointwise import incomplete_gamma as _incomplete_gamma
from .pointwise import special_functions as _special_functions
from .pointwise import type_info as _type_info
from .linear_algebra import matrix_updates as _matrix_updates
from .pointwise import floating_point as _floating_point
from .reductions import nan_reductions as _nan_reductions
from .reductions import softmax as _softmax
from .reductions import differences as _differences
from .reductions import extrema as _extrema
from .reductions import histograms as _histograms
from .reductions import order_statistics as _order_statistics
from .reductions import quantiles as _quantiles
from .reductions import scans as _scans
from .reductions import sorting as _sorting
from .reductions import statistics as _statistics
from .reductions import unique_elements as _unique_elements
from .runtime import dtypes as _dtypes
from .runtime import overriding as _overriding
from .runtime.backends import available as _available_devices
from .runtime.dtypes import DType as DType, bfloat16 as bfloat16, float16 as float16, float32 as float32
from .runtime.dtypes import float64 as float64, int8 as int8, int16 as int16, int32 as int32, int64 as int64
from .runtime.dtypes import uint8 as uint8
from .runtime.dtypes import bool_ as _bool
from .runtime.tensor import Tensor as Tensor
from .shape import assembling as _assembling
from .shape import broadcasting as _broadcasting
from .shape import repeating as _repeating
from .shape import reshaping as _reshaping
from .shape import splitting as _splitting
from .tensor_methods import methods as _methods
from .tensor_methods import resizing as _resizing
from .tensor_methods.generated_methods import OF_LAYERS as _OF_LAYERS
from .tensor_methods.generated_methods import install_ops as _install_ops

# Methods of Tensor. Functions written in Python come first: a generated op of the same name does not replace them.
_methods.install()
for _source in (
    _arithmetic, _comparison, _type_info, _special_functions, _complex_functions, _composites, _resizing, _products,
    _extrema, _statistics, _broadcasting, _reshaping, _gathering, _subscripts, _scans, _differences, _index_writes,
    _scattering, _sorting, _order_statistics, _quantiles, _unique_elements, _histograms, _nan_reductions, _softmax,
    _floating_point, _matrix_updates, _assembling, _splitting, _special_products, _repeating, _triangles,
    _incomplete_gamma,
    _older_names,
):  # fmt: skip
    for _name, _function in _source.METHODS.items():
        setattr(Tensor, _name, _function)
_namespaces: dict[str, dict[str, object]] = {"torch": {}, "nn.functional": {}, "special": {}}
_install_ops(_namespaces)
_namespaces["nn.functional"].update(embedding=_embeddings.embedding, one_hot=_embeddings.one_hot)

from .amp import GradScaler as GradScaler
from .amp.autocast_mode import *
from .autograd.anomaly import is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled
from .autograd.anomaly import is_anomaly_enabled as is_anomaly_enabled, set_anomaly_enabled as set_anomaly_enabled
from .autograd import (
    enable_grad as enable_grad,
    inference_mode as inference_mode,
    is_grad_enabled as is_grad_enabled,
    is_inference_mode_enabled as is_inference_mode_enabled,
    no_grad as no_grad,
    set_grad_enabled as set_grad_enabled,
)
from .compiler import compile as compile
from .creation.dlpack import from_dlpack as from_dlpack
from .creation.factories import *
from .creation.from_data import *
from .creation.legacy_constructors import *
from .creation.legacy_constructors import install as _install_legacy
from .creation.sequences import *
from .creation.windows import *
from .execution.determinism import *
from .execution.streams import *
from .execution.threads import *
from .indexing.gathering import *
from .indexing.index_writes import *
from .indexing.scattering import *
from .layer_functions.adaptive_pooling import adaptive_avg_pool1d as adaptive_avg_pool1d
from .layer_functions.adaptive_pooling import adaptive_max_pool1d_with_indices as _adaptive_max_pool1d
from .layer_functions.channel_shuffle import *
from .layer_functions.convolutions import *
from .layer_functions.pooling import avg_pool1d as avg_pool1d
from .layer_functions.max_pooling import max_pool1d as max_pool1d, max_pool1d_with_indices as max_pool1d_with_indices
from .layer_functions.max_pooling import max_pool2d as max_pool2d, max_pool3d as max_pool3d
from .layer_functions.recurrent import *
from .layer_functions.recurrent_cells import *
from .linear_algebra.contractions import *
from .linear_algebra.distances import *
from .linear_algebra.older_names import *
from .linear_algebra.products import *
from .linear_algebra.special_products import *
from .linear_algebra.triangles import *
from .pointwise.arithmetic import *
from .pointwise.comparison import *
from .pointwise.complex_functions import *
from .pointwise.composites import *
from .pointwise.incomplete_gamma import *
from .pointwise.special_functions import *
from .pointwise.type_info import *
from .linear_algebra.matrix_updates import *
from .linear_algebra.vandermonde import vander as vander
from .pointwise.floating_point import *
from .reductions.nan_reductions import *
from .reductions.softmax import *
from .random import *
from .random import install as _install_random
from .reductions.differences import *
from .reductions.extrema import *
from .reductions.histograms import *
from .reductions.order_statistics import *
from .reductions.quantiles import *
from .reductions.scans import *
from .reductions.searching import *
from .reductions.sorting import *
from .reductions.statistics import *
from .reductions.unique_elements import *
from .runtime.device import Device as Device, set_default_device as set_default_device
from .runtime.errors import OutOfMemoryError as OutOfMemoryError
from .runtime.precision import get_float32_matmul_precision as get_float32_matmul_precision
from .runtime.precision import set_float32_matmul_precision as set_float32_matmul_precision
from .serialization import load as load, save as save
from .shape.assembling import *
from .shape.broadcasting import *
from .shape.joining import *
from .shape.repeating import *
from .shape.reshaping import *
from .shape.splitting import *
from .tensor_methods.derived_methods import install as _install_derived_methods
from .tensor_methods.functions import *
from .tensor_methods.in_place_functions import *
from .tensor_methods.resizing import *
from .tensor_methods.size import Size as Size
from .tensor_methods.printing import set_printoptions as set_printoptions
from .version import __version__ as __version__

_install_random()
_install_legacy()
_install_derived_methods()
globals().update({k: v for k, v in _namespaces["torch"].items() if k not in globals()})

bool = _bool
half, float, double = float16, float32, float64
short, int, long = int16, int32, int64
dtype: _typing.TypeAlias = DType
device: _typing.TypeAlias = Device
adaptive_max_pool1d = _adaptive_max_pool1d
strided: _typing.Final = "strided"
contiguous_format: _typing.Final = "contiguous_format"
preserve_format: _typing.Final = "preserve_format"
channels_last: _typing.Final = "channels_last"
channels_last_3d: _typing.Final = "channels_last_3d"
get_default_dtype, set_default_dtype = _dtypes.default_dtype, _dtypes.set_default_dtype
newaxis = None
inf, nan, pi, e = _math.inf, _math.nan, _math.pi, _math.e

_LAZY = (
    "accelerator", "amp", "array_api", "autograd", "backends", "compiler", "cpu", "cuda", "distributed",
    "distributions", "func", "jit", "linalg", "mps", "multiprocessing", "nn", "onnx", "ops", "optim", "overrides",
    "profiler", "signal", "special", "testing", "utils", "version", "xpu",
)  # fmt: skip


def devices() -> list[Device]:
    """Return the available devices: `cpu`, then those of the installed drivers.

    Returns:
        List of `Device`.

    Example:
        >>> wg.device('cpu') in wg.devices()
        True
    """
    return _available_devices()


def get_default_device() -> Device:
    """Return the device on which factories create tensors by default.

    Returns:
        `Device`.

    Example:
        >>> wg.get_default_device() == wg.ones(1).device
        True
    """
    return device()


if _typing.TYPE_CHECKING:  # names that exist at run time through `globals().update` and `__getattr__`
    from . import accelerator as accelerator, amp as amp, array_api as array_api, autograd as autograd
    from . import backends as backends, compiler as compiler, cpu as cpu, cuda as cuda, distributed as distributed
    from . import distributions as distributions, func as func, jit as jit, linalg as linalg, mps as mps
    from . import multiprocessing as multiprocessing, nn as nn, onnx as onnx, ops as ops, optim as optim
    from . import overrides as overrides, profiler as profiler, signal as signal, special as special
    from . import testing as testing, utils as utils, version as version, xpu as xpu
    from ._generated.functions import *
    from .func import vmap as vmap
    from .nn._torch_losses import *
    from .nn._torch_names import *
else:

    def __getattr__(name: str) -> object:
        if name in _LAZY:
            return _import_module(f".{name}", __name__)
        if name in _OF_LAYERS:
            return getattr(_import_module(".nn._torch_names", __name__), name)
        if name == "vmap":  # imported at its first use, as `func` is
            return _import_module(".func", __name__).vmap
        raise AttributeError(f"module 'weftgrad' has no attribute {name!r}")


_overriding.set_checks(lambda: _import_module(".overrides._checks", __name__))
_overriding.add_functions(globals())
_overriding.add_functions(vars(Tensor))


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_OF_LAYERS, "vmap"})


__all__ = sorted(
    name
    for name, value in globals().items()
    if not name.startswith("_") and name != "annotations" and type(value).__name__ != "module"
)
