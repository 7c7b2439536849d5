"""How float32 products are computed on NVIDIA's GPUs: `matmul.allow_tf32`, another name of the matmul precision."""

from __future__ import annotations

from ..runtime.precision import get_float32_matmul_precision, set_float32_matmul_precision

__all__ = ["is_built", "matmul"]


def is_built() -> bool:
    """True: the backend is there; `cuda.is_available` says whether a GPU is."""
    return True


class _Products:
    """Switches of matrix products."""

    @property
    def allow_tf32(self) -> bool:
        """Whether products of float32 may be computed in TF32 (see `set_float32_matmul_precision`)."""
        return get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        set_float32_matmul_precision("high" if value else "highest")


matmul = _Products()
