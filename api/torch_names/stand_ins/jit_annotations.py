"""`torch.jit.annotations`: types that libraries annotate TorchScript functions with."""

from __future__ import annotations

import typing
from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035  # libraries import these names from here

__all__ = ["Any", "Dict", "List", "Optional", "Tuple", "Union"]

for _length in range(1, 7):
    globals()[f"BroadcastingList{_length}"] = typing.List  # noqa: UP006
