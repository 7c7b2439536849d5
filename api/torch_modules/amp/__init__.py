"""Automatic mixed precision, under PyTorch's names: `autocast`, `GradScaler`, `custom_fwd`, `custom_bwd`.

    scaler = wg.amp.GradScaler()
    with wg.autocast("opencl", dtype=wg.float16):
        loss = F.cross_entropy(net(images), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()

Each op's spec says whether it runs in the half type or in float32 (`autocast:`).
"""

from .autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from .grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
