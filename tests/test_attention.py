"""scaled_dot_product_attention as users call it: shapes, masks, memory, dropout, derivatives, errors."""

import numpy as np
import pytest
from op_attention import backward, forward
from op_devices import prebuilt

import weftgrad as wg

attention = wg.nn.functional.scaled_dot_product_attention


def make_tensor(*shape, grad=True, dtype=None, seed=0):
    array = np.random.default_rng(seed + sum(shape)).standard_normal(shape)
    return wg.tensor(array, dtype=dtype or wg.float32, requires_grad=grad)


def to_4d_array(tensor, heads=None):
    """Return the values in float64, of shape (batch, heads, length, features)."""
    array = tensor.detach().float().numpy().astype(np.float64)
    shape = (1,) * (4 - array.ndim) + array.shape
    return array.reshape(-1, *shape[-3:])


def check(query, key, value, mask=None, atol=3e-6, **options):
    """Compare result and gradients with formulas, for operands with equal leading dimensions."""
    causal = options.get("is_causal", False)
    float_mask = None if mask is None else mask.numpy() if mask.dtype is wg.bool else mask.numpy().astype(np.float64)
    result = prebuilt(query.device, lambda: attention(query, key, value, mask, **options))
    grad = make_tensor(*result.shape, grad=False, dtype=query.dtype)
    arrays = [to_4d_array(t) for t in (query, key, value)]
    expected = forward(*arrays, float_mask, causal, 1.0)[0]
    assert result.dtype is query.dtype
    np.testing.assert_allclose(to_4d_array(result), expected, atol=atol, rtol=atol)
    grads = wg.autograd.grad(result, (query, key, value), grad)
    for grad_input, tensor, expected_grad in zip(
        grads, (query, key, value), backward(*arrays, float_mask, to_4d_array(grad), causal, 1.0), strict=True
    ):
        assert grad_input.shape == tensor.shape
        np.testing.assert_allclose(to_4d_array(grad_input), expected_grad, atol=5 * atol, rtol=atol)


def test_any_number_of_leading_dimensions():
    check(make_tensor(5, 4), make_tensor(6, 4), make_tensor(6, 3))
    check(make_tensor(3, 5, 4), make_tensor(3, 6, 4), make_tensor(3, 6, 3))
    check(make_tensor(2, 2, 3, 5, 4), make_tensor(2, 2, 3, 6, 4), make_tensor(2, 2, 3, 6, 3))


def test_leading_dimensions_broadcast_and_their_gradients_are_sums():
    query, key, value = make_tensor(2, 3, 5, 4), make_tensor(3, 6, 4), make_tensor(1, 6, 3)
    expanded = [
        query,
        *(
            wg.tensor(np.broadcast_to(t.detach().numpy(), (2, 3, *t.shape[-2:])), requires_grad=True)
            for t in (key, value)
        ),
    ]
    output, expected_output = attention(query, key, value), attention(*expanded)
    np.testing.assert_allclose(output.detach().numpy(), expected_output.detach().numpy(), atol=1e-6)
    grads = wg.autograd.grad(output.sum(), (query, key, value))
    query_grad, key_grad, value_grad = wg.autograd.grad(expected_output.sum(), expanded)
    for actual, expected in zip(grads, (query_grad, key_grad.sum(0), value_grad.sum((0, 1))[None]), strict=True):
        np.testing.assert_allclose(actual.numpy(), expected.numpy(), atol=5e-6)


def test_grouped_heads():
    check(make_tensor(2, 4, 5, 4), make_tensor(2, 2, 6, 4), make_tensor(2, 2, 6, 3), enable_gqa=True)
    check(make_tensor(4, 5, 4), make_tensor(1, 6, 4), make_tensor(1, 6, 3))  # one head for all needs no flag
    query, key, value = make_tensor(1, 4, 5, 4), make_tensor(1, 2, 6, 4), make_tensor(1, 1, 6, 3)
    actual = attention(query, key, value, enable_gqa=True)
    twice = wg.cat([value, value], 1)
    np.testing.assert_allclose(
        actual.detach().numpy(), attention(query, key, twice, enable_gqa=True).detach().numpy(), atol=1e-6
    )


@pytest.mark.parametrize("shape", [(5, 6), (3, 5, 6), (2, 1, 5, 6), (2, 3, 5, 6)])
def test_masks_broadcast(shape):
    mask = wg.tensor(np.random.default_rng(7).random(shape) > 0.3)
    check(make_tensor(2, 3, 5, 4), make_tensor(2, 3, 6, 4), make_tensor(2, 3, 6, 3), mask)


def test_rows_that_attend_to_nothing_are_zero():
    query, key, value = make_tensor(1, 1, 3, 4), make_tensor(1, 1, 6, 4), make_tensor(1, 1, 6, 3)
    mask = np.ones((3, 6), bool)
    mask[1] = False
    for any_mask in (wg.tensor(mask), wg.tensor(np.where(mask, 0, -np.inf).astype(np.float32))):
        result = attention(query, key, value, any_mask)
        assert not result[0, 0, 1].detach().numpy().any()
        (query_grad,) = wg.autograd.grad(result.sum(), query)
        assert not query_grad[0, 0, 1].numpy().any()
        assert np.isfinite(query_grad.numpy()).all()
    by_ops = attention(query, key, value, any_mask.requires_grad_())
    np.testing.assert_allclose(by_ops.detach().numpy(), result.detach().numpy(), atol=1e-6)


def test_nan_in_a_query_row_propagates():
    query, key, value = (make_tensor(1, 1, n, 4, grad=False) for n in (3, 6, 6))
    query[0, 0, 1, 2] = float("nan")
    output = attention(query, key, value).numpy()
    assert np.isnan(output[0, 0, 1]).all()
    assert np.isfinite(output[0, 0, [0, 2]]).all()


def test_a_mask_has_a_gradient():
    query, key, value = make_tensor(2, 5, 4), make_tensor(2, 6, 4), make_tensor(2, 6, 3)
    mask = make_tensor(5, 6)
    (mask_grad,) = wg.autograd.grad(attention(query, key, value, mask).sum(), mask)
    arrays = [to_4d_array(t)[0] for t in (query, key, value)]
    probabilities = forward(*(a[None] for a in arrays), mask.detach().numpy().astype(np.float64), False, 1.0)[2]
    value_sums = arrays[2].sum(-1)[None, :, None, :]
    expected = (probabilities * (value_sums - (probabilities * value_sums).sum(-1, keepdims=True))).sum((0, 1))
    np.testing.assert_allclose(mask_grad.numpy(), expected, atol=2e-6)


def test_dropout_draws_the_same_numbers_in_backward():
    query, key, value = make_tensor(1, 2, 9, 4), make_tensor(1, 2, 6, 4), make_tensor(1, 2, 6, 3)
    wg.manual_seed(3)
    result = attention(query, key, value, dropout_p=0.5)
    # The result is linear in `value`, so <result, grad> equals <value, value_grad> if both runs drop the same elements.
    grad = make_tensor(1, 2, 9, 3, grad=False)
    (value_grad,) = wg.autograd.grad(result, value, grad)
    np.testing.assert_allclose((result * grad).sum().item(), (value_grad * value).sum().item(), rtol=1e-4)
    wg.manual_seed(3)
    repeated = attention(query, key, value, dropout_p=0.5)
    assert (repeated == result).all()
    assert (attention(query, key, value, dropout_p=0.5) != result).any()
    assert not attention(query, key, value, dropout_p=1.0).detach().numpy().any()
    ones = wg.ones(1, 2, 6, 4)
    dropped_ones = wg.cat([attention(query, key, ones, dropout_p=0.5) for _ in range(200)])
    assert abs(dropped_ones.mean().item() - 1) < 0.03


def test_second_derivatives_use_ops():
    query, key, value = (make_tensor(1, *s, dtype=wg.float64) for s in ((2, 3, 2), (1, 4, 2), (1, 4, 3)))
    options = {"is_causal": True, "enable_gqa": True, "scale": 0.7}
    wg.autograd.gradgradcheck(lambda *x: attention(*x, **options), (query, key, value))


def test_memory_is_linear_in_the_positions():
    """With 16k positions, the scores alone would take a gigabyte."""
    length, features, device = 1 << 14, 16, wg.device("cpu")
    query, key, value = (wg.randn(1, 1, length, features, requires_grad=True) for _ in range(3))
    mask = wg.ones(1, length, dtype=wg.bool).expand(length, length)
    pool = device.driver.default_stream.pool
    allocated_before = wg.memory_allocated(device)
    wg.reset_peak_memory_stats(device)
    result = attention(query, key, value, mask)
    assert wg.max_memory_allocated(device) - allocated_before < 4 * query.numel() * 4
    result.backward(query.detach())
    assert wg.max_memory_allocated(device) - allocated_before < 10 * query.numel() * 4, pool
    rows = slice(0, length, 4096)
    scores = query.detach().numpy()[0, 0, rows].astype(np.float64) @ key.detach().numpy()[0, 0].T / features**0.5
    probabilities = np.exp(scores - scores.max(1, keepdims=True))
    probabilities /= probabilities.sum(1, keepdims=True)
    np.testing.assert_allclose(
        result.detach().numpy()[0, 0, rows], probabilities @ value.detach().numpy()[0, 0], atol=1e-5
    )


def test_empty_sizes():
    assert attention(make_tensor(2, 0, 4), make_tensor(2, 6, 4), make_tensor(2, 6, 3)).shape == (2, 0, 3)
    assert attention(make_tensor(0, 5, 4), make_tensor(0, 6, 4), make_tensor(0, 6, 3)).shape == (0, 5, 3)
    value = make_tensor(2, 6, 3)
    no_keys = attention(make_tensor(2, 5, 4), make_tensor(2, 0, 4), make_tensor(2, 0, 3))
    assert not no_keys.detach().numpy().any()
    assert no_keys.shape == (2, 5, 3)
    mean = attention(make_tensor(2, 5, 0), make_tensor(2, 6, 0), value)  # without features, all scores are 0
    np.testing.assert_allclose(mean[:, 0].detach().numpy(), value.mean(1).detach().numpy(), atol=1e-6)


def test_more_features_than_kernels_support():
    check(make_tensor(1, 3, 1030), make_tensor(1, 4, 1030), make_tensor(1, 4, 3), atol=1e-5)


@pytest.mark.parametrize("rows", [5, 70])
def test_a_mask_and_is_causal_combine(rows):
    """PyTorch combines them for 4-d operands; here all do, also with dropout or a mask that needs a gradient."""
    rng = np.random.default_rng(3)
    keys = rows + 3
    flags = wg.tensor(rng.random((rows, keys)) < 0.6)
    additive = wg.tensor(rng.standard_normal((2, 1, rows, keys)), dtype=wg.float32)
    for shape in ((), (3,), (2, 2)):
        operands = [make_tensor(*shape, n, d) for n, d in ((rows, 4), (keys, 4), (keys, 3))]
        check(*operands, flags, is_causal=True)
    check(*operands, additive, is_causal=True)
    causal = wg.tensor(np.tri(rows, keys, dtype=bool))
    merged = wg.where(causal, additive, -np.inf)
    leaf = additive.detach().requires_grad_()
    results = [attention(*operands, leaf, is_causal=True), attention(*operands, wg.where(causal, leaf, -np.inf))]
    np.testing.assert_allclose(results[0].detach().numpy(), results[1].detach().numpy(), rtol=1e-5, atol=1e-6)
    grads = [wg.autograd.grad(r.square().sum(), [leaf])[0].numpy() for r in results]
    np.testing.assert_allclose(*grads, rtol=1e-4, atol=1e-6)
    dropped = []
    for mask, is_causal in ((additive, True), (merged, False)):
        wg.manual_seed(1)
        dropped.append(attention(*operands, mask, 0.3, is_causal).detach().numpy())
    np.testing.assert_allclose(*dropped, rtol=1e-5, atol=1e-6)
    empty = attention(*operands, flags & ~causal, is_causal=True)  # no row attends to anything
    assert not empty.detach().numpy().any()


def test_errors():
    query, key, value = make_tensor(2, 5, 4), make_tensor(2, 6, 4), make_tensor(2, 6, 3)
    mask = wg.ones(5, 6, dtype=wg.bool)
    with pytest.raises(RuntimeError, match="one dtype, not query float32, key float64, value float32"):
        attention(query, key.double(), value)
    with pytest.raises(RuntimeError, match="floating dtypes"):
        attention(query.long(), key.long(), value.long())
    with pytest.raises(RuntimeError, match="must be bool, float32 or float16 as the query, not float64"):
        attention(query.half(), key.half(), value.half(), mask.double())
    with pytest.raises(RuntimeError, match=r"at least 2 dimensions, not shapes \[4\]"):
        attention(query[0, 0], key, value)
    with pytest.raises(RuntimeError, match="same number of features"):
        attention(query, key[..., :3], value)
    with pytest.raises(RuntimeError, match="same number of positions"):
        attention(query, key, value[:, :5])
    with pytest.raises(RuntimeError, match=r"\[4, 6\] does not broadcast to \[2, 5, 6\]"):
        attention(query, key, value, mask[:4])
    with pytest.raises(RuntimeError, match="must divide those of the query"):
        attention(make_tensor(3, 5, 4), key, value, enable_gqa=True)
    with pytest.raises(IndexError, match="enable_gqa needs heads"):
        attention(query[0], key[0], value[0], enable_gqa=True)
    with pytest.raises(RuntimeError, match="do not broadcast"):
        attention(make_tensor(3, 5, 4), key, value)
    with pytest.raises(RuntimeError, match=r"between 0 and 1, not 1\.5"):
        attention(query, key, value, dropout_p=1.5)
    with pytest.raises(TypeError, match="takes tensors, not list"):
        attention([1.0], key, value)
    with pytest.raises(TypeError, match="positional"):
        attention(query, key, value, None, 0.0, False, 0.5)
