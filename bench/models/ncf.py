"""NeuMF: predict whether a user interacts with an item, by a product of factors and by a network.

Paper: X. He, L. Liao, H. Zhang, L. Nie, X. Hu, T.-S. Chua, "Neural collaborative filtering" (WWW 2017), section 3.4.
Generalized matrix factorization (GMF) multiplies a user's factors with an item's. A multilayer perceptron reads another
embedding of both. One linear layer scores the two results together. The paper draws all weights from a normal
distribution with standard deviation 0.01; here the linear layers start by Glorot's rule, with which a deep perceptron
learns from the first steps. Read `bench.models.data.interactions` next: the data and how the paper evaluates.

    >>> import weftgrad as wg
    >>> small_neumf(users=5, items=7)(wg.tensor([0, 4]), wg.tensor([6, 1])).shape
    weftgrad.Size([2])
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import weftgrad as wg
from weftgrad import Tensor, nn

__all__ = ["NeuMF", "neumf", "small_neumf"]


class NeuMF(nn.Module):
    """Score pairs of a user and an item.

    Args:
        users: Number of users.
        items: Number of items.
        factors: Number of factors of each user and each item in the matrix factorization.
        layers: Widths of the perceptron. The first is the width of its input: the embeddings of the user and of the
            item, concatenated, have half of it each.

    Shapes: user indices `(N,)`, item indices `(N,)`, logits `(N,)`.
    """

    def __init__(self, users: int, items: int, factors: int = 64, layers: Sequence[int] = (256, 256, 128, 64)):
        super().__init__()
        self.user_factors = nn.Embedding(users, factors)
        self.item_factors = nn.Embedding(items, factors)
        self.user_features = nn.Embedding(users, layers[0] // 2)
        self.item_features = nn.Embedding(items, layers[0] // 2)
        perceptron: list[nn.Module] = []
        for width, next_width in pairwise(layers):
            perceptron += [nn.Linear(width, next_width), nn.ReLU()]
        self.perceptron = nn.Sequential(*perceptron)
        self.score = nn.Linear(factors + layers[-1], 1)
        self.apply(_initialize)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        products = self.user_factors(users) * self.item_factors(items)
        features = self.perceptron(wg.cat([self.user_features(users), self.item_features(items)], dim=-1))
        return self.score(wg.cat([products, features], dim=-1)).squeeze(-1)


def _initialize(module: nn.Module) -> None:
    """Draw embeddings as in the paper, and linear layers by Glorot's rule."""
    if isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, 0.0, 0.01)
    elif isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


def neumf(users: int = 138_493, items: int = 26_744) -> NeuMF:
    """Return the network with 64 factors and a perceptron of widths 256, 256, 128 and 64.

    Args:
        users: Number of users.
        items: Number of items.

    Returns:
        With the default numbers, those of MovieLens 20M: 31.8 million parameters, nearly all in the embeddings.
    """
    return NeuMF(users, items)


def small_neumf(users: int, items: int) -> NeuMF:
    """Return a network for tests, with 8 factors and a perceptron of widths 32, 16 and 8.

    Args:
        users: Number of users.
        items: Number of items.
    """
    return NeuMF(users, items, factors=8, layers=(32, 16, 8))
