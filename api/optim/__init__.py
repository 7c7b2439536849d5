"""Optimizers and learning rate schedules, under `torch.optim`'s names.

One step of an optimizer is one generated kernel for all parameters of a group that have the same device, dtype and
step count. The kernel reads and writes parameters and state together. `optimizer` holds the base class, `adam`,
`algorithms`, `adafactor`, `muon` and `lbfgs` the update rules, `lr_scheduler` the schedules, `swa_utils` weight
averaging. Muon and Adafactor, whose updates mix the elements of a matrix, run several kernels for each parameter.
"""

from . import lr_scheduler, swa_utils
from .adafactor import Adafactor
from .adam import Adam, Adamax, AdamW, NAdam, RAdam
from .algorithms import ASGD, SGD, Adadelta, Adagrad, RMSprop, Rprop
from .lbfgs import LBFGS
from .muon import Muon
from .optimizer import Optimizer

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "Optimizer",
    "RAdam", "RMSprop", "Rprop", "lr_scheduler", "swa_utils",
]  # fmt: skip
