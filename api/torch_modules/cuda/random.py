"""PyTorch's functions for a GPU's random numbers. All devices share one generator."""

from __future__ import annotations

from collections.abc import Iterable

from ..random import default_generator
from ..runtime.backends import cuda_devices
from ..runtime.device import DeviceLike
from ..runtime.tensor import Tensor

__all__ = [
    "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all",
    "set_rng_state", "set_rng_state_all",
]  # fmt: skip


def manual_seed(seed: int) -> None:
    """Seed the default generator.

    Args:
        seed: 64-bit integer.

    Example:
        >>> wg.cuda.manual_seed(3)
        >>> wg.initial_seed()
        3
    """
    default_generator.manual_seed(seed)


def seed() -> None:
    """Seed the default generator from the operating system's entropy.

    Example:
        >>> with wg.random.fork_rng():
        ...     wg.cuda.seed()
        ...
    """
    default_generator.seed()


manual_seed_all, seed_all = manual_seed, seed


def initial_seed() -> int:
    """Return the default generator's seed.

    Returns:
        Python int.

    Example:
        >>> wg.cuda.initial_seed() == wg.initial_seed()
        True
    """
    return default_generator.initial_seed()


def get_rng_state(device: DeviceLike | None = "cuda") -> Tensor:
    """Return the default generator's state, which all devices share.

    Args:
        device: Ignored.

    Returns:
        uint8 tensor of 16 bytes.

    Example:
        >>> wg.cuda.get_rng_state().shape
        weftgrad.Size([16])
    """
    return default_generator.get_state()


def get_rng_state_all() -> list[Tensor]:
    """Return the default generator's state, once for each GPU.

    Returns:
        List of uint8 tensors.

    Example:
        >>> len(wg.cuda.get_rng_state_all()) == wg.cuda.device_count()
        True
    """
    return [default_generator.get_state() for _ in cuda_devices()]


def set_rng_state(new_state: Tensor, device: DeviceLike | None = "cuda") -> None:
    """Set the state of the default generator.

    Args:
        new_state: State that `get_rng_state` returned.
        device: Ignored.

    Example:
        >>> wg.cuda.set_rng_state(wg.cuda.get_rng_state())
    """
    default_generator.set_state(new_state)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Set the default generator's state to the first of `new_states`: all devices share one generator.

    Args:
        new_states: States that `get_rng_state_all` returned.

    Example:
        >>> wg.cuda.set_rng_state_all([wg.get_rng_state()])
    """
    for state in list(new_states)[:1]:
        default_generator.set_state(state)
