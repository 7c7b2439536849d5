"""Random numbers: generators, sampling functions, and their in-place forms on Tensor.

A generator is two integers: a seed, and an offset that grows with every call. A call passes both to its kernel, where
element i uses the Philox counter (i, offset) (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
Results are therefore the same on every device, for every layout and schedule. Nothing waits for a device, and the host
always knows the state of a generator.
"""

from .distributions import bernoulli, normal
from .distributions import host_permutation as host_permutation
from .distributions import philox as philox
from .drawing import draw as draw
from .factories import rand, rand_like, randint, randint_like, randn, randn_like
from .generator import (
    Generator,
    default_generator,
    fork_rng,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from .indices import multinomial, randperm
from .methods import install as install

__all__ = [
    "Generator", "bernoulli", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed",
    "multinomial", "normal", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "seed",
    "set_rng_state",
]  # fmt: skip
