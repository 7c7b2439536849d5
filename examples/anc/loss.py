"""The loss of Adaptive Neural Compilation (Bunel et al. 2016, section 3.3): be right, be sure, be fast, and stop."""

from dataclasses import dataclass

from .machine import HALTED


@dataclass(frozen=True)
class LossWeights:
    """Weights of the four terms."""

    correctness: float  # alpha: the squared error of the memory at the end
    confidence: float  # beta: the error after each step, by the probability that the program stops there
    efficiency: float  # gamma: the probability that the program still runs, summed over the steps
    halting: float  # delta: the probability that a program that was cut off still runs


def compute_loss(trace, weights):
    """Return the loss of each seed `(S)`, summed over samples.

    With the error E_t and the stop probability p_t after step t, and N steps:

        alpha E_N + beta sum_t (p_t - p_{t-1}) E_t + gamma sum_t (1 - p_t) + [p_N < 0.9] delta (1 - p_N)

    where the sum of gamma includes the start, t = 0, and beta's does not.
    """
    errors, halting, _ = trace
    running = 1 - halting
    has_state = (halting[..., :-1] <= HALTED).to(halting.dtype)  # which states 1 .. N a sample reaches
    loss = weights.correctness * errors[..., -1]
    if weights.confidence:
        loss = loss + weights.confidence * ((halting[..., 1:] - halting[..., :-1]) * errors[..., 1:]).sum(-1)
    if weights.efficiency:
        loss = loss + weights.efficiency * (running[..., 0] + (running[..., 1:] * has_state).sum(-1))
    if weights.halting:
        was_cut_off = (halting[..., -1] < HALTED).to(halting.dtype)
        loss = loss + weights.halting * running[..., -1] * was_cut_off
    return loss.sum(-1)


def count_states(halting):
    """Return the number of states `(S, B)` of each sample: executed steps and the start, as the paper counts."""
    return 1 + (halting[..., :-1] <= HALTED).sum(-1)
