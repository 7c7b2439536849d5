"""Generators of random numbers, and the functions that seed the default one."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from ..runtime import dtypes, host_data
from ..runtime.device import Device, DeviceLike
from ..runtime.device import device as to_device
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor

__all__ = [
    "Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed",
    "set_rng_state",
]  # fmt: skip

_UINT64_MAX = (1 << 64) - 1
_DEFAULT_SEED = 67280421310721  # PyTorch's default: the same numbers in every run unless a program seeds


class Generator:
    """A stream of random numbers: a seed, and an offset that every call advances.

    One generator works for every device; `device` is accepted for compatibility with PyTorch and only stored.

    Args:
        device: Device that the attribute `device` names.

    Example:
        >>> generator = wg.Generator().manual_seed(3)
        >>> x = wg.rand(2, generator=generator)
        >>> wg.equal(x, wg.rand(2, generator=generator.manual_seed(3)))
        True
    """

    __slots__ = ("_seed", "device", "offset")

    def __init__(self, device: DeviceLike | None = "cpu"):
        self.device: Device = to_device(device)
        self._seed = _DEFAULT_SEED
        self.offset = 0

    def manual_seed(self, seed: int) -> Generator:
        """Set the seed and reset the offset.

        Args:
            seed: 64-bit integer; negative ones wrap.

        Returns:
            This generator.

        Raises:
            ArgumentError: If `seed` is not an int, or does not fit 64 bits.

        Example:
            >>> wg.Generator().manual_seed(3).initial_seed()
            3
        """
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise ArgumentError(f"manual_seed: takes an int, not {type(seed).__name__}")
        number = seed.__index__()
        if not -(1 << 63) <= number <= _UINT64_MAX:
            raise ArgumentError(f"manual_seed: {number} does not fit 64 bits")
        self._seed = number & _UINT64_MAX
        self.offset = 0
        return self

    def seed(self) -> int:
        """Seed from the operating system's randomness, and return the seed.

        Returns:
            Python int.

        Example:
            >>> generator = wg.Generator()
            >>> generator.seed() == generator.initial_seed()
            True
        """
        self.manual_seed(int.from_bytes(os.urandom(8), "little"))
        return self._seed

    def initial_seed(self) -> int:
        """Return the seed.

        Returns:
            Python int.

        Example:
            >>> wg.Generator().manual_seed(3).initial_seed()
            3
        """
        return self._seed

    def take(self, draws: int) -> tuple[int, int]:
        """Return seed and offset for a call that draws `draws` times for each element, and advance the offset.

        Args:
            draws: Number of random values that the call draws for each element.

        Returns:
            Two ints.

        Example:
            >>> generator = wg.Generator().manual_seed(3)
            >>> generator.take(2), generator.take(1)
            ((3, 0), (3, 2))
        """
        offset = self.offset
        self.offset = (offset + draws) & _UINT64_MAX
        return self._seed, offset

    def get_state(self) -> Tensor:
        """Return seed and offset as a uint8 tensor of 16 bytes, little-endian.

        Returns:
            uint8 tensor of shape `(16,)` on `cpu`.

        Example:
            >>> wg.Generator().manual_seed(3).get_state()
            tensor([3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], dtype=weftgrad.uint8)
        """
        state = np.frombuffer(struct.pack("<QQ", self._seed, self.offset), np.uint8)
        return host_data.from_host(state, dtypes.uint8, to_device("cpu"))

    def set_state(self, state: Tensor) -> None:
        """Restore a state that `get_state` returned.

        Args:
            state: State that `get_state` returned.

        Raises:
            ArgumentError: If `state` does not have 16 elements.

        Example:
            >>> generator = wg.Generator()
            >>> generator.set_state(wg.Generator().manual_seed(3).get_state())
            >>> generator
            Generator(seed=3, offset=0)
        """
        data = host_data.host_array(state).astype(np.uint8).tobytes()
        if len(data) != 16:
            raise ArgumentError(f"set_state: a state has 16 bytes, this one {len(data)}")
        self._seed, self.offset = struct.unpack("<QQ", data)

    def clone_state(self) -> Generator:
        """Return a new generator with the same state.

        Returns:
            `Generator`.

        Example:
            >>> wg.Generator().manual_seed(3).clone_state()
            Generator(seed=3, offset=0)
        """
        clone = Generator(self.device)
        clone._seed, clone.offset = self._seed, self.offset
        return clone

    def __getstate__(self) -> tuple[str, int, int]:
        return str(self.device), self._seed, self.offset

    def __setstate__(self, state: tuple[str, int, int]) -> None:
        if type(state) is not tuple or [type(part) for part in state] != [str, int, int]:
            raise ArgumentError("a generator's state is a device name, a seed and an offset")
        if not all(0 <= number <= _UINT64_MAX for number in state[1:]):
            raise ArgumentError("a generator's seed and offset have 64 bits each")
        self.device, self._seed, self.offset = to_device(state[0]), state[1], state[2]

    def __repr__(self) -> str:
        return f"Generator(seed={self._seed}, offset={self.offset})"


Generator.__module__ = "weftgrad.random"  # the public path, by which pickles refer to the class
default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, and return it.

    Args:
        seed: Integer.

    Returns:
        The default generator.

    Example:
        >>> generator = wg.manual_seed(0)
        >>> wg.initial_seed()
        0
    """
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator from the operating system's randomness, and return the seed.

    Returns:
        Python int.

    Example:
        >>> with wg.random.fork_rng():
        ...     wg.seed() == wg.initial_seed()
        ...
        True
    """
    return default_generator.seed()


def initial_seed() -> int:
    """Return the seed of the default generator.

    Returns:
        Integer.

    Example:
        >>> generator = wg.manual_seed(7)
        >>> wg.initial_seed()
        7
    """
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """Return the state of the default generator; see `Generator.get_state`.

    Returns:
        uint8 tensor.

    Example:
        >>> state = wg.get_rng_state()
        >>> x = wg.rand(2)
        >>> wg.set_rng_state(state)
        >>> wg.equal(x, wg.rand(2))
        True
    """
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Restore a state of the default generator.

    Args:
        new_state: State that `get_rng_state` returned.

    Raises:
        ArgumentError: If the state does not have 16 elements.

    Example:
        >>> state = wg.get_rng_state()
        >>> x = wg.rand(2)
        >>> wg.set_rng_state(state)
        >>> wg.equal(x, wg.rand(2))
        True
    """
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(devices: Sequence[DeviceLike] | None = None, enabled: bool = True) -> Iterator[None]:
    """Restore the state of the default generator when the `with` block ends.

    Args:
        devices: Ignored: all devices share one generator.
        enabled: False changes nothing.

    Returns:
        Context manager.

    Example:
        >>> with wg.random.fork_rng():
        ...     x = wg.rand(2)
        ...
        >>> wg.equal(x, wg.rand(2))
        True
    """
    saved_state = default_generator._seed, default_generator.offset
    try:
        yield
    finally:
        if enabled:
            default_generator._seed, default_generator.offset = saved_state
