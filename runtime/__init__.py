"""Tensors' state, memory pools, streams, the autograd engine, dispatch, backends.

Modules import only modules below them (`tests/test_import_graph.py`). Where a lower module has to call a higher one, it
has a hook, and the hooks are set here.
"""

from __future__ import annotations

import os

from . import backends, device, dispatch, schedules
from .autograd import inplace
from .autograd.rule_lookup import gradient_rules
from .records import registry

device.set_backends(backends.open_driver, backends.best_device)
registry.set_gradient_source(gradient_rules)
dispatch.set_inplace_history(inplace)
if os.environ.get("WEFTGRAD_TUNE") == "1":
    from .tuning import autotune  # lazy: only with WEFTGRAD_TUNE=1

    schedules.on_plan = autotune.tune
