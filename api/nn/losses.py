"""Losses as modules: `reduction` is "mean", "sum" or "none". Formulas are with the functions of `nn.functional`."""

from __future__ import annotations

from typing import Any

from ..runtime.tensor import Tensor
from . import functional as F
from .module import Module

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "MarginRankingLoss",
    "NLLLoss",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TripletMarginLoss",
]


class _Loss(Module):
    """A function of predictions and targets. `options`: the constructor's parameters with defaults, passed by name."""

    function: Any = None
    options: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()
        names = list(self.options)
        given = dict(zip(names, args, strict=False)) | kwargs
        unknown = [k for k in given if k not in self.options]
        if unknown or len(args) > len(names):
            raise TypeError(f"{type(self).__name__}: takes {', '.join(names)}; got {', '.join(unknown) or len(args)}")
        for name, value in (self.options | given).items():
            if isinstance(value, Tensor):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *tensors: Tensor) -> Tensor:
        return type(self).function(*tensors, **{name: getattr(self, name) for name in self.options})

    def extra_repr(self) -> str:
        return ", ".join(f"{k}={getattr(self, k)!r}" for k, v in self.options.items() if getattr(self, k) is not v)


def _made(name: str, function: Any, **options: Any) -> Any:
    return type(name, (_Loss,), {
        "function": staticmethod(function), "options": options, "__module__": __name__, "__doc__": function.__doc__,
    })  # fmt: skip


MSELoss = _made("MSELoss", F.mse_loss, reduction="mean")
L1Loss = _made("L1Loss", F.l1_loss, reduction="mean")
SmoothL1Loss = _made("SmoothL1Loss", F.smooth_l1_loss, reduction="mean", beta=1.0)
HuberLoss = _made("HuberLoss", F.huber_loss, reduction="mean", delta=1.0)
CrossEntropyLoss = _made(
    "CrossEntropyLoss", F.cross_entropy, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0
)
NLLLoss = _made("NLLLoss", F.nll_loss, weight=None, ignore_index=-100, reduction="mean")
BCELoss = _made("BCELoss", F.binary_cross_entropy, weight=None, reduction="mean")
BCEWithLogitsLoss = _made(
    "BCEWithLogitsLoss", F.binary_cross_entropy_with_logits, weight=None, reduction="mean", pos_weight=None
)
KLDivLoss = _made("KLDivLoss", F.kl_div, reduction="mean", log_target=False)
PoissonNLLLoss = _made("PoissonNLLLoss", F.poisson_nll_loss, log_input=True, full=False, eps=1e-8, reduction="mean")
SoftMarginLoss = _made("SoftMarginLoss", F.soft_margin_loss, reduction="mean")
HingeEmbeddingLoss = _made("HingeEmbeddingLoss", F.hinge_embedding_loss, margin=1.0, reduction="mean")
MarginRankingLoss = _made("MarginRankingLoss", F.margin_ranking_loss, margin=0.0, reduction="mean")
CosineEmbeddingLoss = _made("CosineEmbeddingLoss", F.cosine_embedding_loss, margin=0.0, reduction="mean")
TripletMarginLoss = _made("TripletMarginLoss", F.triplet_margin_loss, margin=1.0, p=2.0, eps=1e-6, reduction="mean")
