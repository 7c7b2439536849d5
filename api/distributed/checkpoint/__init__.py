"""Checkpoints that all ranks write and read, under `torch.distributed.checkpoint`'s names.

Each rank writes its parts to a file of its own. A checkpoint can be loaded by another number of ranks, and from sharded
into whole parameters and back. `state_dict` has the states of models and optimizers with the parameters' paths as keys.
"""

from .saving import load, save
from .state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)

__all__ = [
    "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "load", "save", "set_model_state_dict",
    "set_optimizer_state_dict", "set_state_dict",
]  # fmt: skip
