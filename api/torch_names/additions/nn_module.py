"""Names of `torch.nn.modules.module` that libraries import from there."""

from ...nn._state import _EXTRA_KEY as _EXTRA_STATE_KEY_SUFFIX
from ...nn.module import IncompatibleKeys as _IncompatibleKeys

__all__ = ["_EXTRA_STATE_KEY_SUFFIX", "_IncompatibleKeys"]
