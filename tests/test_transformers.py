"""Multi-head attention and the Transformer against loops over heads in NumPy; slopes by central differences."""

from __future__ import annotations

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn

RNG = np.random.default_rng(3)
FEATURES, HEADS, BATCH, ROWS, KEYS = 8, 2, 3, 5, 4
PADDING = np.array([[0, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 1]], bool)


def _tensor(array, **options):
    """In float32, whose kernels other tests build too; the references are of float64."""
    return wg.tensor(array.astype(np.float32) if array.dtype.kind == "f" else array, **options)


def _spread(module):
    """Random numbers for all parameters (biases begin as zeros, which hides what they do); as arrays by name."""
    state = {k: RNG.standard_normal(v.shape) * 0.4 for k, v in module.state_dict().items()}
    module.load_state_dict({k: _tensor(v) for k, v in state.items()})
    return state


def _attention(p, query, key, value, *, bias=0.0, extra=None, zeros=False):
    """(N, L, E), (N, S, kE), (N, S, vE) to (result, (N, H, L, S') probabilities); `bias` is added to the scores."""
    if "in_proj_weight" in p:
        weights = np.split(p["in_proj_weight"], 3)
    else:
        weights = [p[f"{n}_proj_weight"] for n in "qkv"]
    biases = np.split(p["in_proj_bias"], 3) if "in_proj_bias" in p else [0.0] * 3
    q, k, v = (x @ w.T + b for x, w, b in zip((query, key, value), weights, biases, strict=True))
    if "bias_k" in p:
        k, v = (np.concatenate([x, np.repeat(p[n], len(x), 0)], 1) for x, n in ((k, "bias_k"), (v, "bias_v")))
    if zeros:
        k, v = (np.concatenate([x, np.zeros_like(x[:, :1])], 1) for x in (k, v))
    added = k.shape[1] - key.shape[1]
    bias = np.broadcast_to(bias, (len(q), HEADS, q.shape[1], key.shape[1]))
    bias = np.concatenate([bias, np.zeros((*bias.shape[:3], added))], -1)
    width = q.shape[-1] // HEADS
    results, chances = [], []
    for h in range(HEADS):
        own = slice(h * width, (h + 1) * width)
        scores = np.einsum("nle,nse->nls", q[..., own], k[..., own]) / np.sqrt(width) + bias[:, h]
        e = np.exp(scores - scores.max(-1, keepdims=True))
        chances.append(e / e.sum(-1, keepdims=True))
        results.append(np.einsum("nls,nse->nle", chances[-1], v[..., own]))
    out = np.concatenate(results, -1) @ p["out_proj.weight"].T + p.get("out_proj.bias", 0.0)
    return out, np.stack(chances, 1)


def _norm(p, name, x, eps):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * p[f"{name}.weight"] + p[f"{name}.bias"]


def _part(p, prefix):
    return {k[len(prefix) + 1 :]: v for k, v in p.items() if k.startswith(f"{prefix}.")}


def _layer(p, x, memory=None, bias=0.0, padding=0.0, *, first, eps):
    """A layer of the encoder, or with `memory` of the decoder; relu."""

    def blocks():
        yield lambda y: _attention(_part(p, "self_attn"), y, y, y, bias=bias)[0]
        if memory is not None:
            yield lambda y: _attention(_part(p, "multihead_attn"), y, memory, memory, bias=padding)[0]
        yield (
            lambda y: (
                np.maximum(y @ p["linear1.weight"].T + p["linear1.bias"], 0) @ p["linear2.weight"].T + p["linear2.bias"]
            )
        )

    for n, block in enumerate(blocks(), 1):
        x = x + block(_norm(p, f"norm{n}", x, eps)) if first else _norm(p, f"norm{n}", x + block(x), eps)
    return x


def _transformer(p, src, tgt, causal, padding, *, first, eps):
    keys = np.where(padding, -np.inf, 0.0)[:, None, None, :]
    for n in range(2):
        src = _layer(_part(p, f"encoder.layers.{n}"), src, bias=keys, first=first, eps=eps)
    memory = _norm(p, "encoder.norm", src, eps)
    tgt = _layer(_part(p, "decoder.layers.0"), tgt, memory, causal, keys, first=first, eps=eps)
    return _norm(p, "decoder.norm", tgt, eps)


def _check(module, state, call, reference, operands, tolerance=2e-5):
    """The result of `call`, and the slope along a random direction of all parameters and operands together."""
    given = [_tensor(x, requires_grad=True) for x in operands]
    found = call(*given)
    right = reference(state, *operands)
    np.testing.assert_allclose(found.detach().numpy(), right, atol=tolerance)
    seed = RNG.standard_normal(right.shape)
    (found * _tensor(seed)).sum().backward()
    steps = {k: RNG.standard_normal(v.shape) for k, v in state.items()}
    moves = [RNG.standard_normal(x.shape) for x in operands]

    def along(t):
        moved = {k: v + t * steps[k] for k, v in state.items()}
        return float((reference(moved, *(x + t * m for x, m in zip(operands, moves, strict=True))) * seed).sum())

    slope = (along(1e-5) - along(-1e-5)) / 2e-5
    own = sum(float((p.grad.numpy() * steps[k]).sum()) for k, p in module.named_parameters())
    own += sum(float((x.grad.numpy() * m).sum()) for x, m in zip(given, moves, strict=True))
    assert own == pytest.approx(slope, rel=1e-4, abs=1e-3)


OPTIONS = [
    {}, {"bias": False}, {"add_bias_kv": True, "add_zero_attn": True}, {"kdim": 6, "vdim": 10}, {"batch_first": True},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_attention_with_masks_and_weights(options):
    """All options, with a mask a head and padding; with weights (all heads, or averaged), and without any stored."""
    module = nn.MultiheadAttention(FEATURES, HEADS, **options)
    state = _spread(module)
    first = options.get("batch_first", False)
    arrays = [RNG.standard_normal((BATCH, n, options.get(w, FEATURES)))
              for n, w in ((ROWS, ""), (KEYS, "kdim"), (KEYS, "vdim"))]  # fmt: skip
    mask = RNG.random((BATCH * HEADS, ROWS, KEYS)) < 0.3
    mask[..., 0] = False
    bias = np.where(mask.reshape(BATCH, HEADS, ROWS, KEYS) | PADDING[:, None, None, :], -np.inf, 0.0)
    zeros = options.get("add_zero_attn", False)

    def reference(p, *x):
        return _attention(p, *x, bias=bias, zeros=zeros)[0]

    def turned(x):
        return x if first else x.transpose(0, 1)

    masks = {"attn_mask": _tensor(mask), "key_padding_mask": _tensor(PADDING)}
    _check(module, state, lambda *x: turned(module(*map(turned, x), need_weights=False, **masks)[0]), reference, arrays)
    with wg.no_grad():
        _, chances = _attention(state, *arrays, bias=bias, zeros=zeros)
        given = [turned(_tensor(x)) for x in arrays]
        found = module(*given, average_attn_weights=False, **masks)[1]
        np.testing.assert_allclose(found.numpy(), chances, atol=2e-5)
        out, averaged = module(*given, **masks)
        np.testing.assert_allclose(averaged.numpy(), chances.mean(1), atol=2e-5)
        np.testing.assert_allclose(turned(out).numpy(), reference(state, *arrays), atol=2e-5)


def test_attention_without_a_batch_and_added_masks():
    module = nn.MultiheadAttention(FEATURES, HEADS)
    state = _spread(module)
    x = RNG.standard_normal((ROWS, FEATURES))
    causal = np.triu(np.full((ROWS, ROWS), -np.inf), 1)
    for bias, options in (
        (causal, {"attn_mask": _tensor(causal), "is_causal": True}),
        (causal, {"attn_mask": _tensor(np.isinf(causal))}),
        (x[:, :1].T, {"key_padding_mask": _tensor(x[:, 0])}),
    ):  # fmt: skip
        right, chances = _attention(state, x[None], x[None], x[None], bias=bias)
        own = _tensor(x)
        found, weights = module(own, own, own, **options)
        np.testing.assert_allclose(found.detach().numpy(), right[0], atol=2e-5)
        np.testing.assert_allclose(weights.detach().numpy(), chances[0].mean(0), atol=2e-5)
        found, weights = module(own, own, own, need_weights=False, **options)
        assert weights is None
        np.testing.assert_allclose(found.detach().numpy(), right[0], atol=2e-5)


@pytest.mark.parametrize("first", [False, True])
def test_transformer(first):
    module = nn.Transformer(FEATURES, HEADS, 2, 1, 12, dropout=0.0, layer_norm_eps=1e-3, batch_first=True,
                            norm_first=first)  # fmt: skip
    state = _spread(module)
    src, tgt = RNG.standard_normal((BATCH, KEYS, FEATURES)), RNG.standard_normal((BATCH, ROWS, FEATURES))
    mask, padding = _tensor(np.triu(np.full((ROWS, ROWS), -np.inf), 1)), _tensor(PADDING)
    _check(
        module, state,
        lambda a, b: module(a, b, tgt_mask=mask, src_key_padding_mask=padding, memory_key_padding_mask=padding),
        lambda p, a, b: _transformer(p, a, b, mask.numpy(), PADDING, first=first, eps=1e-3), [src, tgt],
        tolerance=1e-4,
    )  # fmt: skip
    moved = [x.swapaxes(0, 1) for x in (src, tgt)]
    for layer in module.modules():
        if isinstance(layer, (nn.MultiheadAttention, nn.Transformer)):
            layer.batch_first = False
    with wg.no_grad():  # the same, with the batch second
        found = module(*map(_tensor, moved), tgt_mask=mask, src_key_padding_mask=padding,
                       memory_key_padding_mask=padding)  # fmt: skip
    right = _transformer(state, src, tgt, mask.numpy(), PADDING, first=first, eps=1e-3)
    np.testing.assert_allclose(found.numpy().swapaxes(0, 1), right, atol=1e-4)


def test_the_causal_mask_is_found(monkeypatch):
    """A stack compares its mask with the causal one, unless told what it is; other masks stay masks."""
    seen = []
    layer = nn.TransformerEncoderLayer(FEATURES, HEADS, 8, activation="gelu", bias=False)
    stack = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    for part in stack.layers:
        monkeypatch.setattr(part, "forward", lambda x, is_causal, **_: seen.append(is_causal) or x)
    x = _tensor(np.zeros((4, 1, FEATURES)))
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    right = np.triu(np.full((4, 4), -np.inf), 1)
    np.testing.assert_array_equal(causal.numpy(), right)
    flags, right[0, 3] = _tensor(np.isinf(right)), 0.0
    other = _tensor(right)
    for mask, told in ((causal, None), (flags, None), (other, None), (other, True), (None, None)):
        stack(x, mask, is_causal=told)
    assert seen == [True] * 4 + [False] * 2 + [True] * 2 + [False] * 2


def test_padding_is_empty_in_evaluation():
    """Without gradients; where it is at the end, and PyTorch has a fast path: there it is 0 too."""
    layer = nn.TransformerEncoderLayer(FEATURES, HEADS, 12, batch_first=True)
    stack = nn.TransformerEncoder(layer, 1).eval()
    x, end = _tensor(RNG.standard_normal((2, 4, FEATURES))), np.array([[0, 0, 1, 1], [0, 0, 0, 0]], bool)
    plain = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    for padding, emptied in ((end, True), (end[:, ::-1].copy(), False)):
        given = _tensor(padding)
        with wg.no_grad():
            found, right = (part(x, src_key_padding_mask=given).numpy() for part in (stack, plain))
        assert right[padding].all()
        np.testing.assert_array_equal(found, np.where(padding[..., None] & emptied, 0.0, right))
        np.testing.assert_array_equal(stack(x, src_key_padding_mask=given).detach().numpy(), right)


def test_beginnings_and_dropout():
    """Copies of a layer begin alike; projections lie within Glorot's bound; dropout is off in evaluation."""
    wg.manual_seed(5)
    module = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, dropout=0.5), 2)
    one, two = (part.state_dict() for part in module.layers)
    assert all((one[k].numpy() == two[k].numpy()).all() for k in one)
    assert one["self_attn.in_proj_weight"].data_ptr() != two["self_attn.in_proj_weight"].data_ptr()
    bound = np.sqrt(6 / (16 + 48))
    assert 0.9 * bound < abs(one["self_attn.in_proj_weight"].numpy()).max() <= bound
    assert not any(one[f"self_attn.{name}"].numpy().any() for name in ("in_proj_bias", "out_proj.bias"))
    x = _tensor(RNG.standard_normal((3, 2, 16)))
    attention = module.layers[0].self_attn
    for part in (lambda: module.layers[0]._fed(x), lambda: attention(x, x, x)[0]):
        with wg.no_grad():
            module.train()
            assert (part().numpy() != part().numpy()).any()
            module.eval()
            assert (part().numpy() == part().numpy()).all()


def test_errors_name_the_remedy():
    module = nn.MultiheadAttention(FEATURES, HEADS)
    x = _tensor(np.zeros((ROWS, BATCH, FEATURES)))
    with pytest.raises(AssertionError, match="must be divisible by num_heads"):
        nn.MultiheadAttention(9, 2)
    with pytest.raises(ValueError, match="must be positive"):
        nn.MultiheadAttention(0, 2)
    for operands, options, problem in (
        ((x[..., :7],) * 3, {}, "weights are for 8"), ((x, x[0], x), {}, "key needs 3 dimensions"),
        ((x, x, x[:2]), {}, "do not fit"), ((x,) * 3, {"is_causal": True}, "generate_square_subsequent_mask"),
        ((x,) * 3, {"attn_mask": _tensor(np.zeros((2, 2)))}, r"should have \[5, 5\]"),
        ((x,) * 3, {"attn_mask": _tensor(np.zeros((5, 5), int))}, "bool or floating"),
        ((x,) * 3, {"key_padding_mask": _tensor(np.zeros((2, 5)))}, r"should have \[3, 5\]"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=problem):
            module(*operands, **options)
    with pytest.raises(RuntimeError, match="relu"):
        nn.TransformerEncoderLayer(8, 2, 8, activation="tanh")
    with pytest.raises(RuntimeError, match="their batches"):
        nn.Transformer(8, 2, 1, 1, 8)(x[:, :2], x)
