"""Communication hooks of `DistributedDataParallel`: reductions of a bucket, mostly with compression.

`default_hooks` sends gradients as they are or in 16 bits, `powerSGD_hook` sends products of low rank.
"""

from __future__ import annotations
