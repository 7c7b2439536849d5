"""Check multi-head attention and the Transformer against NumPy loops over heads; gradients by central differences."""

from __future__ import annotations

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn

RNG = np.random.default_rng(3)
FEATURES, HEADS, BATCH, ROWS, KEYS = 8, 2, 3, 5, 4
PADDING = np.array([[0, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 1]], bool)


def _tensor(array, **options):
    """Return a tensor, of float32 if `array` has floats: kernels for float32 are compiled by other tests anyway.

    The references compute in float64.
    """
    return wg.tensor(array.astype(np.float32) if array.dtype.kind == "f" else array, **options)


def _randomize_parameters(module):
    """Set all parameters to random numbers and return them as arrays by name. Zero biases would hide errors."""
    state = {k: RNG.standard_normal(v.shape) * 0.4 for k, v in module.state_dict().items()}
    module.load_state_dict({k: _tensor(v) for k, v in state.items()})
    return state


def _attention(params, query, key, value, *, bias=0.0, zeros=False):
    """Compute multi-head attention in NumPy.

    Args:
        params: arrays by the names of `nn.MultiheadAttention`'s parameters.
        query: `(N, L, E)`.
        key: `(N, S, kE)`.
        value: `(N, S, vE)`.
        bias: added to the scores; broadcast to `(N, H, L, S)`.
        zeros: whether a zero key and value are appended, as by `add_zero_attn`.

    Returns:
        The output `(N, L, E)` and the probabilities `(N, H, L, S + added keys)`.
    """
    if "in_proj_weight" in params:
        weights = np.split(params["in_proj_weight"], 3)
    else:
        weights = [params[f"{n}_proj_weight"] for n in "qkv"]
    biases = np.split(params["in_proj_bias"], 3) if "in_proj_bias" in params else [0.0] * 3
    q, k, v = (x @ w.T + b for x, w, b in zip((query, key, value), weights, biases, strict=True))
    if "bias_k" in params:
        k, v = (np.concatenate([x, np.repeat(params[n], len(x), 0)], 1) for x, n in ((k, "bias_k"), (v, "bias_v")))
    if zeros:
        k, v = (np.concatenate([x, np.zeros_like(x[:, :1])], 1) for x in (k, v))
    added_keys = k.shape[1] - key.shape[1]
    bias = np.broadcast_to(bias, (len(q), HEADS, q.shape[1], key.shape[1]))
    bias = np.concatenate([bias, np.zeros((*bias.shape[:3], added_keys))], -1)
    head_width = q.shape[-1] // HEADS
    results, probabilities = [], []
    for head_index in range(HEADS):
        head = slice(head_index * head_width, (head_index + 1) * head_width)
        scores = np.einsum("nle,nse->nls", q[..., head], k[..., head]) / np.sqrt(head_width) + bias[:, head_index]
        exponentials = np.exp(scores - scores.max(-1, keepdims=True))
        probabilities.append(exponentials / exponentials.sum(-1, keepdims=True))
        results.append(np.einsum("nls,nse->nle", probabilities[-1], v[..., head]))
    out = np.concatenate(results, -1) @ params["out_proj.weight"].T + params.get("out_proj.bias", 0.0)
    return out, np.stack(probabilities, 1)


def _norm(params, name, x, eps):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * params[f"{name}.weight"] + params[f"{name}.bias"]


def _sub_params(params, prefix):
    return {k[len(prefix) + 1 :]: v for k, v in params.items() if k.startswith(f"{prefix}.")}


def _layer(params, x, memory=None, bias=0.0, memory_bias=0.0, *, norm_first, eps):
    """Compute an encoder layer with ReLU, or a decoder layer if `memory` is passed."""

    def blocks():
        yield lambda y: _attention(_sub_params(params, "self_attn"), y, y, y, bias=bias)[0]
        if memory is not None:
            yield lambda y: _attention(_sub_params(params, "multihead_attn"), y, memory, memory, bias=memory_bias)[0]
        yield (
            lambda y: (
                np.maximum(y @ params["linear1.weight"].T + params["linear1.bias"], 0) @ params["linear2.weight"].T
                + params["linear2.bias"]
            )
        )

    for n, block in enumerate(blocks(), 1):
        x = x + block(_norm(params, f"norm{n}", x, eps)) if norm_first else _norm(params, f"norm{n}", x + block(x), eps)
    return x


def _transformer(params, src, tgt, causal, padding, *, norm_first, eps):
    padding_bias = np.where(padding, -np.inf, 0.0)[:, None, None, :]
    for n in range(2):
        src = _layer(_sub_params(params, f"encoder.layers.{n}"), src, bias=padding_bias, norm_first=norm_first, eps=eps)
    memory = _norm(params, "encoder.norm", src, eps)
    tgt = _layer(
        _sub_params(params, "decoder.layers.0"), tgt, memory, causal, padding_bias, norm_first=norm_first, eps=eps
    )
    return _norm(params, "decoder.norm", tgt, eps)


def _check_output_and_slope(module, state, call, reference, operands, tolerance=2e-5):
    """Compare the output of `call`, and its derivative along a random direction of all parameters and operands."""
    tensors = [_tensor(x, requires_grad=True) for x in operands]
    actual = call(*tensors)
    expected = reference(state, *operands)
    np.testing.assert_allclose(actual.detach().numpy(), expected, atol=tolerance)
    output_weights = RNG.standard_normal(expected.shape)
    (actual * _tensor(output_weights)).sum().backward()
    state_directions = {k: RNG.standard_normal(v.shape) for k, v in state.items()}
    directions = [RNG.standard_normal(x.shape) for x in operands]

    def shifted_sum(t):
        shifted_state = {k: v + t * state_directions[k] for k, v in state.items()}
        return float(
            (
                reference(shifted_state, *(x + t * m for x, m in zip(operands, directions, strict=True)))
                * output_weights
            ).sum()
        )

    expected_slope = (shifted_sum(1e-5) - shifted_sum(-1e-5)) / 2e-5
    actual_slope = sum(float((p.grad.numpy() * state_directions[k]).sum()) for k, p in module.named_parameters())
    actual_slope += sum(float((x.grad.numpy() * m).sum()) for x, m in zip(tensors, directions, strict=True))
    assert actual_slope == pytest.approx(expected_slope, rel=1e-4, abs=1e-3)


OPTIONS = [
    {}, {"bias": False}, {"add_bias_kv": True, "add_zero_attn": True}, {"kdim": 6, "vdim": 10}, {"batch_first": True},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_attention_with_masks_and_weights(options):
    """Check all options with one mask a head and padding: without weights, with weights of each head, and averaged."""
    module = nn.MultiheadAttention(FEATURES, HEADS, **options)
    state = _randomize_parameters(module)
    batch_first = options.get("batch_first", False)
    arrays = [RNG.standard_normal((BATCH, n, options.get(width_option, FEATURES)))
              for n, width_option in ((ROWS, None), (KEYS, "kdim"), (KEYS, "vdim"))]  # fmt: skip
    mask = RNG.random((BATCH * HEADS, ROWS, KEYS)) < 0.3
    mask[..., 0] = False
    bias = np.where(mask.reshape(BATCH, HEADS, ROWS, KEYS) | PADDING[:, None, None, :], -np.inf, 0.0)
    zeros = options.get("add_zero_attn", False)

    def reference(p, *x):
        return _attention(p, *x, bias=bias, zeros=zeros)[0]

    def to_layout(x):
        return x if batch_first else x.transpose(0, 1)

    masks = {"attn_mask": _tensor(mask), "key_padding_mask": _tensor(PADDING)}
    _check_output_and_slope(
        module,
        state,
        lambda *x: to_layout(module(*map(to_layout, x), need_weights=False, **masks)[0]),
        reference,
        arrays,
    )
    with wg.no_grad():
        _, probabilities = _attention(state, *arrays, bias=bias, zeros=zeros)
        inputs = [to_layout(_tensor(x)) for x in arrays]
        weights = module(*inputs, average_attn_weights=False, **masks)[1]
        np.testing.assert_allclose(weights.numpy(), probabilities, atol=2e-5)
        out, averaged = module(*inputs, **masks)
        np.testing.assert_allclose(averaged.numpy(), probabilities.mean(1), atol=2e-5)
        np.testing.assert_allclose(to_layout(out).numpy(), reference(state, *arrays), atol=2e-5)


def test_attention_with_added_masks_and_without_a_batch():
    module = nn.MultiheadAttention(FEATURES, HEADS)
    state = _randomize_parameters(module)
    x = RNG.standard_normal((ROWS, FEATURES))
    causal = np.triu(np.full((ROWS, ROWS), -np.inf), 1)
    for bias, options in (
        (causal, {"attn_mask": _tensor(causal), "is_causal": True}),
        (causal, {"attn_mask": _tensor(np.isinf(causal))}),
        (x[:, :1].T, {"key_padding_mask": _tensor(x[:, 0])}),
    ):  # fmt: skip
        expected, probabilities = _attention(state, x[None], x[None], x[None], bias=bias)
        tensor = _tensor(x)
        actual, weights = module(tensor, tensor, tensor, **options)
        np.testing.assert_allclose(actual.detach().numpy(), expected[0], atol=2e-5)
        np.testing.assert_allclose(weights.detach().numpy(), probabilities[0].mean(0), atol=2e-5)
        actual, weights = module(tensor, tensor, tensor, need_weights=False, **options)
        assert weights is None
        np.testing.assert_allclose(actual.detach().numpy(), expected[0], atol=2e-5)


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer(norm_first):
    module = nn.Transformer(FEATURES, HEADS, 2, 1, 12, dropout=0.0, layer_norm_eps=1e-3, batch_first=True,
                            norm_first=norm_first)  # fmt: skip
    state = _randomize_parameters(module)
    src, tgt = RNG.standard_normal((BATCH, KEYS, FEATURES)), RNG.standard_normal((BATCH, ROWS, FEATURES))
    mask, padding = _tensor(np.triu(np.full((ROWS, ROWS), -np.inf), 1)), _tensor(PADDING)
    _check_output_and_slope(
        module, state,
        lambda a, b: module(a, b, tgt_mask=mask, src_key_padding_mask=padding, memory_key_padding_mask=padding),
        lambda p, a, b: _transformer(p, a, b, mask.numpy(), PADDING, norm_first=norm_first, eps=1e-3), [src, tgt],
        tolerance=1e-4,
    )  # fmt: skip
    batch_second = [x.swapaxes(0, 1) for x in (src, tgt)]
    for layer in module.modules():
        if isinstance(layer, (nn.MultiheadAttention, nn.Transformer)):
            layer.batch_first = False
    with wg.no_grad():  # the same with batch_first=False
        actual = module(*map(_tensor, batch_second), tgt_mask=mask, src_key_padding_mask=padding,
                       memory_key_padding_mask=padding)  # fmt: skip
    expected = _transformer(state, src, tgt, mask.numpy(), PADDING, norm_first=norm_first, eps=1e-3)
    np.testing.assert_allclose(actual.numpy().swapaxes(0, 1), expected, atol=1e-4)


def test_the_causal_mask_is_recognized(monkeypatch):
    """`is_causal`, if given, decides; otherwise the encoder compares the mask with the causal one.

    Layers get the answer as `is_causal`.
    """
    recorded_is_causal = []
    layer = nn.TransformerEncoderLayer(FEATURES, HEADS, 8, activation="gelu", bias=False)
    stack = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    for part in stack.layers:
        monkeypatch.setattr(part, "forward", lambda x, is_causal, **_: recorded_is_causal.append(is_causal) or x)
    x = _tensor(np.zeros((4, 1, FEATURES)))
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    mask_array = np.triu(np.full((4, 4), -np.inf), 1)
    np.testing.assert_array_equal(causal.numpy(), mask_array)
    bool_causal_mask, mask_array[0, 3] = _tensor(np.isinf(mask_array)), 0.0
    other_mask = _tensor(mask_array)
    for mask, is_causal_arg in (
        (causal, None), (bool_causal_mask, None), (other_mask, None), (other_mask, True), (None, None),
    ):  # fmt: skip
        stack(x, mask, is_causal=is_causal_arg)
    assert recorded_is_causal == [True] * 4 + [False] * 2 + [True] * 2 + [False] * 2


def test_padding_is_zero_in_evaluation():
    """In evaluation without gradients, outputs of padding at the end are 0, as in PyTorch's fast path."""
    layer = nn.TransformerEncoderLayer(FEATURES, HEADS, 12, batch_first=True)
    stack = nn.TransformerEncoder(layer, 1).eval()
    x, end = _tensor(RNG.standard_normal((2, 4, FEATURES))), np.array([[0, 0, 1, 1], [0, 0, 0, 0]], bool)
    plain = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    for padding, is_emptied in ((end, True), (end[:, ::-1].copy(), False)):
        padding_mask = _tensor(padding)
        with wg.no_grad():
            actual, expected = (part(x, src_key_padding_mask=padding_mask).numpy() for part in (stack, plain))
        assert expected[padding].all()
        np.testing.assert_array_equal(actual, np.where(padding[..., None] & is_emptied, 0.0, expected))
        np.testing.assert_array_equal(stack(x, src_key_padding_mask=padding_mask).detach().numpy(), expected)


def test_initialization_and_dropout():
    """Copies of a layer start equal, projections lie within Glorot's bound, and dropout is off in evaluation."""
    wg.manual_seed(5)
    module = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, dropout=0.5), 2)
    first_state, second_state = (part.state_dict() for part in module.layers)
    assert all((first_state[k].numpy() == second_state[k].numpy()).all() for k in first_state)
    assert first_state["self_attn.in_proj_weight"].data_ptr() != second_state["self_attn.in_proj_weight"].data_ptr()
    bound = np.sqrt(6 / (16 + 48))
    assert 0.9 * bound < abs(first_state["self_attn.in_proj_weight"].numpy()).max() <= bound
    assert not any(first_state[f"self_attn.{name}"].numpy().any() for name in ("in_proj_bias", "out_proj.bias"))
    x = _tensor(RNG.standard_normal((3, 2, 16)))
    attention = module.layers[0].self_attn
    for part in (lambda: module.layers[0]._feed_forward(x), lambda: attention(x, x, x)[0]):
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
    with pytest.raises(RuntimeError, match="their batch sizes"):
        nn.Transformer(8, 2, 1, 1, 8)(x[:, :2], x)
