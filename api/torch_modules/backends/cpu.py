"""`torch.backends.cpu`: what the processor can do."""

from __future__ import annotations

from ..runtime.backends.processor import best_instruction_set

__all__ = ["get_cpu_capability"]

_NAMES = {"avx512": "AVX512", "avx2": "AVX2", "neon": "NEON"}


def get_cpu_capability() -> str:
    """Return the name that PyTorch has for the instruction set for which kernels of `cpu` are compiled.

    Returns:
        `AVX512`, `AVX2`, `NEON`, or `DEFAULT` for an older one.

    Example:
        >>> wg.backends.cpu.get_cpu_capability() in ('AVX512', 'AVX2', 'NEON', 'DEFAULT')
        True
    """
    return _NAMES.get(best_instruction_set(), "DEFAULT")
