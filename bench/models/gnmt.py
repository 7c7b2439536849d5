"""GNMT, version 2: translation by LSTM layers with residual connections and attention.

Paper: Y. Wu et al., "Google's neural machine translation system: bridging the gap between human and machine
translation" (2016). The encoder's first layer reads the sentence in both directions. Version 2, the form in which
MLPerf trains it, attends with the decoder's first layer and passes the context to all later layers at the same
position, so that training runs each layer over a whole sentence at once. The attention is D. Bahdanau et al., "Neural
machine translation by jointly learning to align and translate" (2015), normalized as in T. Salimans, D. Kingma, "Weight
normalization" (2016). Read `translation` next: the search for the best sentence.

    >>> import weftgrad as wg
    >>> source, lengths, target = wg.tensor([[5, 6, 7], [5, 6, 0]]), wg.tensor([3, 2]), wg.tensor([[1, 8], [1, 9]])
    >>> small_gnmt(vocabulary=10)(source, lengths, target).shape
    weftgrad.Size([2, 2, 10])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import weftgrad as wg
from weftgrad import Tensor, nn
from weftgrad.nn import functional as F
from weftgrad.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

__all__ = ["BEGIN", "END", "GNMT", "PAD", "Decoder", "Encoder", "NormalizedAttention", "Source", "gnmt", "small_gnmt",
           "smoothed_loss"]  # fmt: skip

PAD, BEGIN, END = 0, 1, 2
"""Tokens that fill a sentence up, begin it and end it."""

State = Sequence[tuple[Tensor, Tensor]]
"""Hidden state and cell of each decoder layer, `(1, N, width)` each."""


class Source(NamedTuple):
    """An encoded batch of source sentences.

    memory: the encoder's output `(N, S, width)`.
    keys: the memory projected for attention `(N, S, width)`.
    padding: True where a sentence has ended `(N, S)`.
    """

    memory: Tensor
    keys: Tensor
    padding: Tensor


class Encoder(nn.Module):
    """Read sentences: one bidirectional layer, then `layers - 1` others, with residual connections from the third on.

    Shapes: tokens `(N, S)`, lengths `(N,)`, output `(N, S, width)`.
    """

    def __init__(self, vocabulary: int, width: int, layers: int, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.bidirectional = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.layers = nn.ModuleList(
            nn.LSTM(2 * width if index == 0 else width, width, batch_first=True) for index in range(layers - 1)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        x = self.dropout(self.embedding(tokens))
        # Packed, because the backward direction must start at a sentence's end and not at its padding.
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        packed, _ = self.bidirectional(packed)
        x, _ = pad_packed_sequence(packed, batch_first=True, total_length=tokens.shape[1])
        for index, layer in enumerate(self.layers):
            y, _ = layer(self.dropout(x))
            x = y + x if index else y
        return x


class NormalizedAttention(nn.Module):
    """Attend by the score `gain * v / |v| . tanh(query(q) + key(k) + bias)`.

    Shapes: queries `(N, T, width)`, context `(N, T, width)`, weights `(N, T, S)`.
    """

    def __init__(self, width: int):
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.bias = nn.Parameter(wg.zeros(width))
        self.vector = nn.Parameter(wg.zeros(width))
        self.gain = nn.Parameter(wg.full((1,), width**-0.5))

    def forward(self, queries: Tensor, source: Source) -> tuple[Tensor, Tensor]:
        sums = self.query(queries).unsqueeze(2) + source.keys.unsqueeze(1) + self.bias
        scores = sums.tanh() @ (self.vector * (self.gain / self.vector.norm()))
        weights = scores.masked_fill(source.padding.unsqueeze(1), float("-inf")).softmax(-1)
        return weights @ source.memory, weights


class Decoder(nn.Module):
    """Predict the next token at each position. The first layer attends, and all later layers read the context.

    Shapes: tokens `(N, T)`, logits `(N, T, vocabulary)`, attention weights `(N, T, S)`.
    """

    def __init__(self, vocabulary: int, width: int, layers: int, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.attending = nn.LSTM(width, width, batch_first=True)
        self.attention = NormalizedAttention(width)
        self.layers = nn.ModuleList(nn.LSTM(2 * width, width, batch_first=True) for _ in range(layers - 1))
        self.classifier = nn.Linear(width, vocabulary)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, source: Source, state: State | None = None) -> tuple[Tensor, State, Tensor]:
        """Return logits, the state after the last token, and attention weights; `state` continues a sentence."""
        x = self.dropout(self.embedding(tokens))
        x, first_state = self.attending(x, None if state is None else state[0])
        context, weights = self.attention(x, source)
        next_state = [first_state]
        for index, layer in enumerate(self.layers):
            inputs = self.dropout(wg.cat([x, context], dim=-1))
            y, layer_state = layer(inputs, None if state is None else state[index + 1])
            x = y + x if index else y
            next_state.append(layer_state)
        return self.classifier(x), next_state, weights


class GNMT(nn.Module):
    """Translate sentences of tokens into sentences of tokens of one shared vocabulary.

    Args:
        vocabulary: Number of tokens, `PAD`, `BEGIN` and `END` among them.
        width: Units of each LSTM layer and each direction, and of the embeddings.
        layers: LSTM layers of the encoder, and of the decoder.
        dropout: Probability of zeroing an input of an LSTM layer.
        shared: Whether source and target share one embedding.

    Shapes: source `(N, S)`, lengths `(N,)`, target `(N, T)`, logits `(N, T, vocabulary)`.
    """

    def __init__(
        self, vocabulary: int, width: int = 1024, layers: int = 4, dropout: float = 0.2, shared: bool = True
    ):  # fmt: skip
        super().__init__()
        self.encoder = Encoder(vocabulary, width, layers, dropout)
        self.decoder = Decoder(vocabulary, width, layers, dropout)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)
        nn.init.constant_(self.decoder.attention.gain, width**-0.5)
        if shared:
            self.decoder.embedding = self.encoder.embedding

    def encode(self, tokens: Tensor, lengths: Tensor) -> Source:
        """Return the encoded source sentences `(N, S)`."""
        memory = self.encoder(tokens, lengths)
        return Source(memory, self.decoder.attention.key(memory), tokens == PAD)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Return the logits of the token after each token of `target`, which starts with `BEGIN`."""
        return self.decoder(target, self.encode(source, lengths))[0]


def smoothed_loss(logits: Tensor, target: Tensor, smoothing: float = 0.1) -> Tensor:
    """Return the cross entropy with smoothed labels, over all tokens but padding.

    Each label keeps the probability `1 - smoothing` and shares the rest with all tokens (C. Szegedy et al., "Rethinking
    the Inception architecture", 2016, section 7).

    Args:
        logits: `(N, T, vocabulary)`.
        target: The correct tokens `(N, T)`.
        smoothing: Probability that is spread over all tokens.
    """
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=smoothing)


def gnmt(vocabulary: int = 32_317) -> GNMT:
    """Return the network that MLPerf trains: 4 + 4 layers of 1024 units, about 160 million parameters."""
    return GNMT(vocabulary)


def small_gnmt(vocabulary: int, dropout: float = 0.0) -> GNMT:
    """Return a network for tests: 3 + 3 layers of 32 units."""
    return GNMT(vocabulary, width=32, layers=3, dropout=dropout)
