"""Search for a GNMT's translation: greedy, and beam search with length and coverage penalties.

Paper: Y. Wu et al., "Google's neural machine translation system" (2016), section 7. A translation Y of X has the score
`log P(Y | X) / lp(Y) + cp(X, Y)`, where

    lp(Y) = (5 + |Y|)^alpha / 6^alpha
    cp(X, Y) = beta * sum over source tokens of log(min(attention that the token got in all, 1))

Without lp, search prefers short sentences. Without cp, it may leave source words untranslated.
"""

from __future__ import annotations

import weftgrad as wg
from weftgrad import Tensor

from .gnmt import BEGIN, END, GNMT, PAD, Source

__all__ = ["beam_search", "greedy", "length_penalty"]


def length_penalty(lengths: Tensor, alpha: float) -> Tensor:
    """Return `(5 + length)^alpha / 6^alpha` of each length."""
    return ((5.0 + lengths) / 6.0) ** alpha


@wg.no_grad()
def greedy(model: GNMT, source: Tensor, lengths: Tensor, max_length: int) -> tuple[Tensor, Tensor]:
    """Translate by the most probable token at each position.

    Args:
        model: The network, in evaluation mode if it has dropout.
        source: Source sentences `(N, S)`.
        lengths: Their lengths `(N,)`.
        max_length: Number of tokens after which a translation stops.

    Returns:
        Tokens `(N, T)` up to `END`, then `PAD`, and log-probabilities `(N,)`.
    """
    encoded = model.encode(source, lengths)
    count = source.shape[0]
    tokens = wg.full((count, 1), BEGIN, dtype=source.dtype, device=source.device)
    ended = wg.zeros(count, dtype=wg.bool, device=source.device)
    total = wg.zeros(count, device=source.device)
    state = None
    columns = []
    for _ in range(max_length):
        logits, state, _ = model.decoder(tokens, encoded, state)
        log_probability, best = logits[:, -1].log_softmax(-1).max(-1)
        total = total + log_probability.masked_fill(ended, 0.0)
        best = best.masked_fill(ended, PAD)
        ended = ended | (best == END)
        columns.append(best)
        tokens = best.unsqueeze(1)
        if bool(ended.all()):
            break
    return wg.stack(columns, dim=1), total


@wg.no_grad()
def beam_search(
    model: GNMT, source: Tensor, lengths: Tensor, max_length: int, beams: int = 4, alpha: float = 0.6, beta: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Translate by extending the `beams` most probable beginnings of each sentence by one token at a time.

    Args:
        model: The network, in evaluation mode if it has dropout.
        source: Source sentences `(N, S)`.
        lengths: Their lengths `(N,)`.
        max_length: Number of tokens after which a translation stops.
        beams: Beginnings that are extended.
        alpha: Exponent of the length penalty; 0 turns it off.
        beta: Factor of the coverage penalty; 0 turns it off.

    Returns:
        Of each sentence's translation with the best score: tokens `(N, T)` up to `END`, then `PAD`; log-probability
        `(N,)`; and score `(N,)`.
    """
    count, device = source.shape[0], source.device
    # Row n * beams + b of every tensor in the loop is beam b of sentence n.
    encoded = Source(*(part.repeat_interleave(beams, 0) for part in model.encode(source, lengths)))
    first_rows = wg.arange(count, device=device).unsqueeze(1) * beams
    tokens = wg.full((count * beams, 1), BEGIN, dtype=source.dtype, device=device)
    history = tokens[:, :0]
    ended = wg.zeros(count * beams, dtype=wg.bool, device=device)
    sizes = wg.zeros(count * beams, device=device)
    coverage = wg.zeros(tuple(encoded.padding.shape), device=device)
    # All beams of a sentence start alike, so only the first may be extended at first.
    total = wg.full((count, beams), float("-inf"), device=device)
    total[:, 0] = 0.0
    state = None
    for _ in range(max_length):
        logits, state, weights = model.decoder(tokens, encoded, state)
        log_probabilities = logits[:, -1].log_softmax(-1)
        vocabulary = log_probabilities.shape[1]
        # A sentence that has ended continues with PAD only, at no cost.
        only_pad = wg.full((vocabulary,), float("-inf"), device=device)
        only_pad[PAD] = 0.0
        log_probabilities = wg.where(ended.unsqueeze(1), only_pad, log_probabilities)
        extended = total.unsqueeze(2) + log_probabilities.reshape(count, beams, vocabulary)
        total, choices = extended.flatten(1).topk(beams, dim=1)
        rows = (first_rows + choices // vocabulary).flatten()
        best = (choices % vocabulary).flatten()
        ended = ended[rows]
        coverage = coverage[rows] + weights[:, -1][rows].masked_fill(ended.unsqueeze(1), 0.0)
        sizes = sizes[rows] + (~ended).to(sizes.dtype)
        history = wg.cat([history[rows], best.unsqueeze(1)], dim=1)
        state = [(hidden[:, rows], cell[:, rows]) for hidden, cell in state]
        ended = ended | (best == END)
        tokens = best.unsqueeze(1)
        if bool(ended.all()):
            break
    scores = total.flatten() / length_penalty(sizes, alpha)
    if beta:
        covered = coverage.clamp(1e-9, 1.0).log().masked_fill(encoded.padding, 0.0)
        scores = scores + beta * covered.sum(1)
    winners = scores.reshape(count, beams).argmax(1)
    rows = first_rows.squeeze(1) + winners
    return history[rows], total.flatten()[rows], scores[rows]
