"""The Python array API standard, version 2024.12: its functions, with its names and arguments, for weftgrad's tensors.

    xp = x.__array_namespace__()    # this module
    xp.sum(xp.sqrt(x), axis=-1)

Programs written for the standard run on every device, and gradients are recorded. What differs from the standard, and
which functions exist, is in docs/array-api.md: there are no complex dtypes and no uint16, uint32 and uint64, and
`Tensor.size` is PyTorch's method.
"""

from __future__ import annotations

import math as _math
from typing import Final

from ..runtime.dtypes import bool_ as bool
from ..runtime.dtypes import float32, float64, int8, int16, int32, int64, uint8
from . import (
    _binary_functions,
    _comparisons,
    _manipulation,
    _powers,
    _reductions,
    _trigonometry,
    _unary_functions,
    linalg,
)
from ._binary_functions import *  # noqa: F403
from ._comparisons import *  # noqa: F403
from ._creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from ._data_types import astype, can_cast, finfo, iinfo, isdtype, result_type
from ._inspection import __array_namespace_info__
from ._linear_algebra import matmul, matrix_transpose, tensordot, vecdot
from ._manipulation import *  # noqa: F403
from ._ordering import (
    argsort,
    searchsorted,
    sort,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from ._powers import *  # noqa: F403
from ._reductions import *  # noqa: F403
from ._trigonometry import *  # noqa: F403
from ._unary_functions import *  # noqa: F403

e: Final = _math.e
inf: Final = _math.inf
nan: Final = _math.nan
newaxis: Final = None
pi: Final = _math.pi

__array_api_version__ = "2024.12"

_WHOLE_MODULES = (
    _binary_functions, _comparisons, _manipulation, _powers, _reductions, _trigonometry, _unary_functions,
)  # fmt: skip

__all__ = [
    "__array_api_version__", "__array_namespace_info__", "e", "inf", "nan", "newaxis", "pi",
    "bool", "int8", "int16", "int32", "int64", "uint8", "float32", "float64",
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid",
    "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
    "astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type",
    "linalg", "matmul", "matrix_transpose", "tensordot", "vecdot",
    "argsort", "searchsorted", "sort", "unique_all", "unique_counts", "unique_inverse", "unique_values",
]  # fmt: skip
__all__ += [name for module in _WHOLE_MODULES for name in module.__all__]
