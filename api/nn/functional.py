"""The functions behind the layers, under `torch.nn.functional`'s names.

They check arguments and call generated ops. Modules in `_WHOLE_MODULES` are imported whole: all names that
they export belong here, so this module does not list them again.
"""

from __future__ import annotations

from ..layer_functions import adaptive_pooling as _adaptive_pooling
from ..layer_functions import fractional_pooling as _fractional_pooling
from ..layer_functions import max_pooling as _max_pooling
from ..layer_functions import pooling as _pooling
from ..layer_functions import unpooling as _unpooling
from ..layer_functions.adaptive_pooling import *  # noqa: F403
from ..layer_functions.channel_shuffle import channel_shuffle, pixel_shuffle, pixel_unshuffle
from ..layer_functions.convolutions import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from ..layer_functions.embeddings import embedding, embedding_bag, one_hot
from ..layer_functions.fold import fold, unfold
from ..layer_functions.fractional_pooling import *  # noqa: F403
from ..layer_functions.grid_sampling import affine_grid, grid_sample
from ..layer_functions.max_pooling import *  # noqa: F403
from ..layer_functions.padding import pad
from ..layer_functions.pooling import *  # noqa: F403
from ..layer_functions.resampling import interpolate, upsample, upsample_bilinear, upsample_nearest
from ..layer_functions.unpooling import *  # noqa: F403
from ..linear_algebra.distances import cosine_similarity, pairwise_distance, pdist
from ..linear_algebra.products import linear
from ..linear_algebra.special_products import bilinear
from ..runtime.overriding import add_functions as _add_functions
from . import _activations, _class_losses, _ctc, _dropout, _losses, _rectified_units, _softmax, _vector_losses
from ._activations import *  # noqa: F403
from ._attention_heads import multi_head_attention_forward
from ._class_losses import *  # noqa: F403
from ._ctc import *  # noqa: F403
from ._dropout import *  # noqa: F403
from ._losses import *  # noqa: F403
from ._normalization import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    normalize,
    rms_norm,
)
from ._rectified_units import *  # noqa: F403
from ._softmax import *  # noqa: F403
from ._vector_losses import *  # noqa: F403
from .attention import scaled_dot_product_attention

_WHOLE_MODULES = (
    _activations, _adaptive_pooling, _class_losses, _ctc, _dropout, _fractional_pooling, _losses, _max_pooling,
    _pooling, _rectified_units, _softmax, _unpooling, _vector_losses,
)  # fmt: skip

__all__ = [
    "affine_grid",
    "batch_norm",
    "bilinear",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_similarity",
    "embedding",
    "embedding_bag",
    "fold",
    "grid_sample",
    "group_norm",
    "instance_norm",
    "interpolate",
    "layer_norm",
    "linear",
    "local_response_norm",
    "multi_head_attention_forward",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "rms_norm",
    "scaled_dot_product_attention",
    "unfold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]
__all__ += [name for module in _WHOLE_MODULES for name in module.__all__]

_add_functions({name: globals()[name] for name in __all__})
