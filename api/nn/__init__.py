"""Neural networks under `torch.nn`'s names: modules, layers and losses.

`functional` has the functions behind the layers, `init` initial values, `utils` gradient clipping, parametrizations and
packed sequences. Start with `module.Module`.
"""

from . import functional, init, modules, parallel, utils
from .activations import *  # noqa: F403
from .adaptive import *  # noqa: F403
from .adaptive_pooling_layers import *  # noqa: F403
from .batch_normalization import *  # noqa: F403
from .classification_losses import *  # noqa: F403
from .containers import *  # noqa: F403
from .convolutions import *  # noqa: F403
from .dropouts import *  # noqa: F403
from .embeddings import *  # noqa: F403
from .folding import *  # noqa: F403
from .fractional import *  # noqa: F403
from .layers import *  # noqa: F403
from .lazy import *  # noqa: F403
from .lazy_convolutions import *  # noqa: F403
from .lazy_normalization import *  # noqa: F403
from .losses import *  # noqa: F403
from .module import Module
from .multihead_attention import *  # noqa: F403
from .normalization import *  # noqa: F403
from .padding import *  # noqa: F403
from .parallel import DataParallel  # noqa: F401
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter
from .parameter_containers import *  # noqa: F403
from .pooling_layers import *  # noqa: F403
from .rectified_units import *  # noqa: F403
from .recurrent import *  # noqa: F403
from .recurrent_cells import *  # noqa: F403
from .shuffling import *  # noqa: F403
from .transformer_layers import *  # noqa: F403
from .transformers import *  # noqa: F403
from .upsampling import *  # noqa: F403

__all__ = [
    "Buffer", "Module", "Parameter", "UninitializedBuffer", "UninitializedParameter", "functional", "init", "modules",
    "parallel", "utils",
]  # fmt: skip
__all__ += sorted(n for n, v in globals().items() if isinstance(v, type) and not n.startswith("_") and n not in __all__)
