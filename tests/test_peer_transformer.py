"""Compare multi-head attention and the Transformer with PyTorch, if installed."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import weftgrad as wg

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch warns about nested tensors and mismatched masks
RNG = np.random.default_rng(7)


def _pair(name, *args, training=True, **kwargs):
    """Return the same module of both libraries, with the same parameters."""
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(*args, **kwargs).double()
    ours = getattr(wg.nn, name)(*args, dtype=wg.float64, **kwargs)
    state = theirs.state_dict()
    for key, value in state.items():  # biases start as zeros, which would hide errors
        state[key] = torch.tensor(RNG.standard_normal(value.shape) * 0.3)
    theirs.load_state_dict(state)
    assert list(state) == list(ours.state_dict())
    ours.load_state_dict({k: wg.tensor(v.numpy()) for k, v in state.items()})
    return theirs.train(training), ours.train(training)


def _compare(theirs, ours, arrays, tolerance=1e-10, **options):
    """Compare the results, the attention weights if there are any, and all gradients of the sum of squares.

    Args:
        theirs, ours: The modules.
        arrays: Positional arguments, as arrays.
        tolerance: The absolute tolerance of results; that of gradients is ten times as large.
        options: Keyword arguments; arrays become tensors.
    """
    theirs.zero_grad()
    ours.zero_grad()
    their_inputs = [torch.tensor(a, requires_grad=True) for a in arrays]
    our_inputs = [wg.tensor(a, requires_grad=True) for a in arrays]
    tensors = {k: v for k, v in options.items() if isinstance(v, np.ndarray)}
    plain = {k: v for k, v in options.items() if k not in tensors}
    expected = theirs(*their_inputs, **plain, **{k: torch.tensor(v) for k, v in tensors.items()})
    actual = ours(*our_inputs, **plain, **{k: wg.tensor(v) for k, v in tensors.items()})
    if isinstance(expected, tuple):
        assert (expected[1] is None) == (actual[1] is None)
        if expected[1] is not None:
            assert tuple(expected[1].shape) == tuple(actual[1].shape)
            np.testing.assert_allclose(actual[1].detach().numpy(), expected[1].detach().numpy(), atol=tolerance)
        expected, actual = expected[0], actual[0]
    assert tuple(expected.shape) == tuple(actual.shape)
    np.testing.assert_allclose(actual.detach().numpy(), expected.detach().numpy(), atol=tolerance)
    (expected**2).sum().backward()
    (actual**2).sum().backward()
    our_leaves = [*((f"argument {i}", x) for i, x in enumerate(our_inputs)), *ours.named_parameters()]
    for (name, x), y in zip(our_leaves, [*their_inputs, *theirs.parameters()], strict=True):
        assert (y.grad is None) == (x.grad is None), name
        if y.grad is not None:
            np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), atol=10 * tolerance, rtol=1e-8, err_msg=name)


class _SharedKeyValue:
    """An attention module that takes its last argument as key and as value."""

    def __init__(self, module):
        self.module = module
        self.parameters, self.named_parameters = module.parameters, module.named_parameters
        self.zero_grad = module.zero_grad

    def __call__(self, *inputs, **options):
        return self.module(inputs[0], inputs[-1], inputs[-1], **options)


OPTIONS = [
    {}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"add_bias_kv": True, "add_zero_attn": True},
    {"kdim": 6, "vdim": 10}, {"kdim": 6, "vdim": 10, "bias": False, "add_bias_kv": True},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("batch", ["first", "second", "none"])
@pytest.mark.parametrize("need_weights", ["weights", "each head", "nothing"])
def test_attention(options, batch, need_weights):
    theirs, ours = _pair("MultiheadAttention", 8, 2, batch_first=batch == "first", **options)
    sizes = {"first": ((3, 5), (3, 4)), "second": ((5, 3), (4, 3)), "none": ((5,), (4,))}[batch]
    query = RNG.standard_normal((*sizes[0], 8))
    key = RNG.standard_normal((*sizes[1], options.get("kdim", 8)))
    value = RNG.standard_normal((*sizes[1], options.get("vdim", 8)))
    weight_options = {"need_weights": need_weights != "nothing", "average_attn_weights": need_weights == "weights"}
    padding = np.array([[0, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 1]], bool)
    padding = padding[0] if batch == "none" else padding
    mask_2d = RNG.random((5, 4)) < 0.3
    mask_2d[:, 0] = False
    per_head = np.broadcast_to(mask_2d, (2 if batch == "none" else 6, 5, 4)).copy()
    masks = [None, mask_2d, per_head, np.where(mask_2d, -np.inf, 0.5), RNG.standard_normal(per_head.shape)]
    for mask, padded in itertools.product(masks, (None, padding, np.where(padding, -np.inf, 0.25))):
        mask_options = {k: v for k, v in (("attn_mask", mask), ("key_padding_mask", padded)) if v is not None}
        _compare(theirs, ours, [query, key, value], **weight_options, **mask_options)


@pytest.mark.parametrize("batch_first", [False, True])
def test_self_attention_and_causal_masks(batch_first):
    theirs, ours = _pair("MultiheadAttention", 8, 2, batch_first=batch_first)
    x, memory = RNG.standard_normal((5, 5, 8)), RNG.standard_normal((5, 5, 8))
    causal = torch.nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64).numpy()
    theirs, ours = _SharedKeyValue(theirs), _SharedKeyValue(ours)
    mask_options = ({}, {"attn_mask": causal, "is_causal": True})
    for need_weights, masks, arrays in itertools.product((False, True), mask_options, ([x], [x, memory])):
        _compare(theirs, ours, arrays, need_weights=need_weights, **masks)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
def test_transformer(norm_first, batch_first, activation, bias):
    theirs, ours = _pair(
        "Transformer", 8, 2, 2, 2, 12, dropout=0.0, activation=activation, layer_norm_eps=1e-3,
        batch_first=batch_first, norm_first=norm_first, bias=bias,
    )  # fmt: skip
    shape = (lambda n: (3, n, 8)) if batch_first else (lambda n: (n, 3, 8))
    src, tgt = RNG.standard_normal(shape(5)), RNG.standard_normal(shape(4))
    padding = np.array([[0, 0, 0, 0, 1], [0] * 5, [0, 0, 0, 1, 1]], bool)
    causal = torch.nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.float64).numpy()
    for masks in ({}, {"tgt_mask": causal}, {"src_key_padding_mask": padding, "memory_key_padding_mask": padding},
                 {"tgt_mask": np.isinf(causal), "tgt_key_padding_mask": padding[:, 1:]},
                 {"tgt_mask": causal, "tgt_is_causal": True, "memory_mask": np.eye(4, 5)}):  # fmt: skip
        _compare(theirs, ours, [src, tgt], 1e-9, **masks)
    with torch.no_grad(), wg.no_grad():
        theirs.eval(), ours.eval()
        expected = theirs(torch.tensor(src), torch.tensor(tgt)).numpy()
        np.testing.assert_allclose(ours(wg.tensor(src), wg.tensor(tgt)).numpy(), expected, atol=1e-9)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_padding_in_evaluation(norm, batch_first):
    """Padded positions give 0 where PyTorch takes its fast path: evaluation, no gradients, padding at the end."""
    torch.manual_seed(0)
    stacks = []
    for library, dtype in ((torch, torch.float64), (wg, wg.float64)):
        layer = library.nn.TransformerEncoderLayer(8, 2, 12, batch_first=batch_first, dtype=dtype)
        final_norm = library.nn.LayerNorm(8, dtype=dtype) if norm else None
        stacks.append(library.nn.TransformerEncoder(layer, 2, final_norm).eval())
    state = {k: RNG.standard_normal(v.shape) for k, v in stacks[0].state_dict().items()}
    for stack, library in zip(stacks, (torch, wg), strict=True):
        stack.load_state_dict({k: library.tensor(v) for k, v in state.items()})
    x = RNG.standard_normal((3, 5, 8) if batch_first else (5, 3, 8))
    end = np.array([[0, 0, 0, 1, 1], [0] * 5, [0, 0, 0, 0, 1]], bool)
    for padding in (end, end[:, ::-1].copy(), np.where(end, -np.inf, 0.0)):
        for grad_enabled in (False, True):
            outputs = []
            for stack, library in zip(stacks, (torch, wg), strict=True):
                with library.set_grad_enabled(grad_enabled):
                    mask_options = {"src_key_padding_mask": library.tensor(padding)}
                    outputs.append(stack(library.tensor(x), **mask_options).detach().numpy())
            np.testing.assert_allclose(outputs[1], outputs[0], atol=1e-9)


def test_names_and_initial_values():
    """Compare the names, the order and the distributions of the initial parameters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        wg.manual_seed(1)
        theirs, ours = torch.nn.Transformer(64, 4, 1, 1, 96), wg.nn.Transformer(64, 4, 1, 1, 96)
    for (name, expected), (actual_name, actual) in zip(theirs.named_parameters(), ours.named_parameters(), strict=True):
        assert (name, tuple(expected.shape)) == (actual_name, tuple(actual.shape))
        a, b = expected.detach().numpy(), actual.detach().numpy()
        assert abs(a.std() - b.std()) <= 0.2 * a.std() + 1e-6, name  # biases have 64 values
        assert abs(a.max() - b.max()) <= 0.1 * abs(a.max()) + 1e-6, name
    attention = torch.nn.MultiheadAttention(64, 4, kdim=32, add_bias_kv=True)
    assert list(wg.nn.MultiheadAttention(64, 4, kdim=32, add_bias_kv=True).state_dict()) == list(attention.state_dict())


def test_static_keys_and_values():
    shapes = {
        "query": (5, 3, 8), "key": (4, 3, 8), "value": (4, 3, 8), "in_proj_weight": (24, 8), "in_proj_bias": (24,),
        "out_proj_weight": (8, 8), "out_proj_bias": (8,), "static_k": (6, 7, 4), "static_v": (6, 7, 4),
    }  # fmt: skip
    arrays = {name: RNG.standard_normal(shape) for name, shape in shapes.items()}
    options = {
        "embed_dim_to_check": 8, "num_heads": 2, "bias_k": None, "bias_v": None, "add_zero_attn": True,
        "dropout_p": 0.0,
    }  # fmt: skip

    def call(library):
        tensors = {name: library.tensor(array) for name, array in arrays.items()}
        results = library.nn.functional.multi_head_attention_forward(**tensors, **options)
        return [x.numpy() for x in results]

    for actual, expected in zip(call(wg), call(torch), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-12)


def test_errors_have_pytorchs_types():
    batch = [(5, 3, 8)] * 3
    cases = [  # shapes of query, key and value; other arguments
        ([(5, 3, 7)] * 3, {}), ([(5, 3, 8), (4, 8), (4, 3, 8)], {}), ([(8,)] * 3, {}),
        ([(5, 3, 8), (4, 3, 8), (3, 3, 8)], {}), (batch, {"is_causal": True}),
        (batch, {"attn_mask": np.zeros((4, 4))}), (batch, {"attn_mask": np.zeros(4)}),
        (batch, {"attn_mask": np.zeros((5, 5), int)}), (batch, {"key_padding_mask": np.zeros((5,), bool)}),
        ([(5, 8)] * 3, {"attn_mask": np.zeros((3, 5, 5))}),
    ]  # fmt: skip
    for shapes, options in cases:
        theirs, ours = _pair("MultiheadAttention", 8, 2)
        with pytest.raises(Exception) as expected:
            theirs(*(torch.zeros(s, dtype=torch.float64) for s in shapes),
                   **{k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()})  # fmt: skip
        with pytest.raises(expected.type):
            ours(*(wg.zeros(s, dtype=wg.float64) for s in shapes),
                 **{k: wg.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()})  # fmt: skip
    for heads in ((9, 2), (0, 1)):  # embed_dim, num_heads
        with pytest.raises(Exception) as expected:
            torch.nn.MultiheadAttention(*heads)
        with pytest.raises(expected.type):
            wg.nn.MultiheadAttention(*heads)
