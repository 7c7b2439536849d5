"""The precision of float32 matrix products on NVIDIA GPUs: `matmul.allow_tf32` sets the matmul precision."""

from __future__ import annotations

from ..runtime.precision import get_float32_matmul_precision, set_float32_matmul_precision

__all__ = ["is_built", "matmul"]


def is_built() -> bool:
    """Return True: the CUDA backend is always included. `cuda.is_available` tells whether there is a GPU.

    Returns:
        True.

    Example:
        >>> wg.backends.cuda.is_built()
        True
    """
    return True


class _MatmulSettings:
    """The switches of `torch.backends.cuda.matmul`."""

    @property
    def allow_tf32(self) -> bool:
        """Whether products of float32 may be computed in TF32 (see `set_float32_matmul_precision`)."""
        return get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        set_float32_matmul_precision("high" if value else "highest")


matmul = _MatmulSettings()
