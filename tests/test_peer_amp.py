"""Compare autocast and gradient scaling with PyTorch, if installed: dtypes of results, values, gradients."""

import numpy as np
import pytest

import weftgrad as wg

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
X, W, B = (RNG.standard_normal(s).astype(np.float32) for s in ((4, 6), (5, 6), (5,)))
IMAGE, KERNEL, KERNEL_T = (
    RNG.standard_normal(s).astype(np.float32) for s in ((2, 3, 8, 8), (4, 3, 3, 3), (3, 4, 3, 3))
)
QUERY = RNG.standard_normal((2, 2, 6, 8)).astype(np.float32)
UNIT = RNG.uniform(0.1, 0.9, (4, 6)).astype(np.float32)

# name: (function of (package, its nn.functional, *tensors), arrays). Only functions that both autocast on a CPU.
CALLS = {
    "linear": (lambda t, f, x, w, b: f.linear(x, w, b), (X, W, B)),
    "linear of batches": (lambda t, f, x, w, b: f.linear(x.reshape(2, 2, 6), w, b), (X, W, B)),
    "matmul": (lambda t, f, x, w: x @ w.T, (X, W)),
    "inner product": (lambda t, f, x: t.matmul(x[0], x[1]), (X,)),
    "mm": (lambda t, f, x, w: t.mm(x, w.T), (X, W)),
    "bmm": (lambda t, f, q: t.bmm(q[0], q[1].transpose(1, 2)), (QUERY,)),
    "baddbmm": (lambda t, f, q: t.baddbmm(q[0][:, :, :6], q[0], q[1].transpose(1, 2), beta=0.5), (QUERY,)),
    "addmm": (lambda t, f, b, x, w: t.addmm(b, x, w.T), (B, X, W)),
    "einsum": (lambda t, f, x, w: t.einsum("ik,jk->ij", x, w), (X, W)),
    "conv2d": (lambda t, f, x, w, b: f.conv2d(x, w, b, padding=1), (IMAGE, KERNEL, B[:4])),
    "conv1d": (lambda t, f, x, w: f.conv1d(x[:, :, 0], w[:, :, 0]), (IMAGE, KERNEL)),
    "conv_transpose2d": (lambda t, f, x, w, b: f.conv_transpose2d(x, w, b, stride=2), (IMAGE, KERNEL_T, B[:4])),
    "attention": (lambda t, f, q: f.scaled_dot_product_attention(q, q, q), (QUERY,)),
    "attention, masked": (lambda t, f, q, m: f.scaled_dot_product_attention(q, q, q, m), (QUERY, QUERY[0, 0, :6, :6])),
    "prelu": (lambda t, f, x, w: f.prelu(x, w), (X, B[:1])),
    "softmax of a product": (lambda t, f, x, w: f.softmax(x @ w.T, -1), (X, W)),
    "sum of a product": (lambda t, f, x, w: (x @ w.T).sum(), (X, W)),
    "prod of a product": (lambda t, f, x, w: (x @ w.T).prod(), (X, W)),
    "exp of a product": (lambda t, f, x, w: (x @ w.T).exp(), (X, W)),
    "mean of a product": (lambda t, f, x, w: (x @ w.T).mean(), (X, W)),
    "relu of a product": (lambda t, f, x, w: f.relu(x @ w.T), (X, W)),
    "product and a float32": (lambda t, f, x, w, b: x @ w.T + b, (X, W, B)),
    "cat": (lambda t, f, x, w: t.cat([x @ w.T, x[:, :5]]), (X, W)),
    "cross_entropy": (lambda t, f, x, w: f.cross_entropy(x @ w.T, t.tensor([0, 1, 2, 4])), (X, W)),
    "nll_loss": (lambda t, f, x, w: f.nll_loss((x @ w.T), t.tensor([0, 1, 2, 4])), (X, W)),
    "mse_loss": (lambda t, f, x, w: f.mse_loss(x @ w.T, (x @ w.T).detach() * 2), (X, W)),
    "l1_loss": (lambda t, f, x, w: f.l1_loss(x @ w.T, t.zeros(4, 5)), (X, W)),
    "smooth_l1_loss": (lambda t, f, x, w: f.smooth_l1_loss(x @ w.T, t.zeros(4, 5)), (X, W)),
    "huber_loss": (lambda t, f, x, w: f.huber_loss(x @ w.T, t.zeros(4, 5)), (X, W)),
    "kl_div": (lambda t, f, x, w: f.kl_div(x @ w.T, t.ones(4, 5), reduction="batchmean"), (X, W)),
    "poisson_nll_loss": (lambda t, f, x, w: f.poisson_nll_loss(x @ w.T, t.ones(4, 5)), (X, W)),
    "soft_margin_loss": (lambda t, f, x, w: f.soft_margin_loss(x @ w.T, t.ones(4, 5)), (X, W)),
    "hinge_embedding_loss": (lambda t, f, x, w: f.hinge_embedding_loss(x @ w.T, t.ones(4, 5)), (X, W)),
    "margin_ranking_loss": (
        lambda t, f, x, w: f.margin_ranking_loss(x @ w.T, x @ w.T * 2, t.ones(4, 5)), (X, W)),
    "cosine_embedding_loss": (
        lambda t, f, x, w: f.cosine_embedding_loss(x @ w.T, x @ w.T + 1, t.ones(4)), (X, W)),
    "triplet_margin_loss": (
        lambda t, f, x, w: f.triplet_margin_loss(x @ w.T, x @ w.T + 1, x @ w.T - 1), (X, W)),
    "multi_margin_loss": (lambda t, f, x, w: f.multi_margin_loss(x @ w.T, t.tensor([0, 1, 2, 4])), (X, W)),
    "multilabel_margin_loss": (
        lambda t, f, x, w: f.multilabel_margin_loss(x @ w.T, t.tensor([[0, 1, -1, 2, 3]] * 4)), (X, W)),
    "binary_cross_entropy_with_logits": (
        lambda t, f, x, w: f.binary_cross_entropy_with_logits(x @ w.T, t.ones(4, 5)), (X, W)),
    "binary_cross_entropy": (
        lambda t, f, x, w: f.binary_cross_entropy(t.sigmoid(x @ w.T), t.ones(4, 5) * 0.5), (X, W)),
    "cdist": (lambda t, f, x, w: t.cdist(x @ w.T, (x @ w.T)[:2] + 1), (X, W)),
    "layer_norm": (lambda t, f, x, w, b: f.layer_norm(x @ w.T, (5,), b, b), (X, W, B)),
    "batch_norm": (lambda t, f, x, w, b: f.batch_norm(x @ w.T, None, None, b, b, True), (X, W, B)),
    "group_norm": (lambda t, f, x, w, b: f.group_norm(f.conv2d(x, w), 2, b, b), (IMAGE, KERNEL, B[:4])),
    "bilinear": (lambda t, f, x, w, b: f.bilinear(x, x, w.reshape(5, 1, 6).expand(5, 6, 6), b), (X, W, B)),
}  # fmt: skip


def torch_result(call, arrays, dtype):
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    with torch.autocast("cpu", dtype=dtype):
        out = call(torch, torch.nn.functional, *leaves)
    out.float().sum().backward()
    return out, leaves


def our_result(call, arrays, dtype):
    leaves = [wg.tensor(a, device="cpu", requires_grad=True) for a in arrays]
    with wg.autocast("cpu", dtype=dtype):
        out = call(wg, wg.nn.functional, *leaves)
    out.float().sum().backward()
    return out, leaves


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", CALLS)
def test_results_have_torchs_dtypes(name, half):
    call, arrays = CALLS[name]
    theirs, their_leaves = torch_result(call, arrays, getattr(torch, half))
    ours, our_leaves = our_result(call, arrays, getattr(wg, half))
    assert ours.dtype is getattr(wg, str(theirs.dtype).removeprefix("torch."))
    tolerance = {"rtol": 0.05, "atol": 0.1} if half == "bfloat16" else {"rtol": 0.01, "atol": 0.02}
    scale = max(1.0, float(theirs.detach().float().abs().max()))
    np.testing.assert_allclose(
        ours.float().tolist(), theirs.float().tolist(), tolerance["rtol"], tolerance["atol"] * scale
    )
    for our_leaf, their_leaf in zip(our_leaves, their_leaves, strict=True):
        assert our_leaf.grad.dtype is wg.float32
        scale = max(1.0, float(their_leaf.grad.abs().max()))
        np.testing.assert_allclose(
            our_leaf.grad.numpy(), their_leaf.grad.numpy(), tolerance["rtol"], tolerance["atol"] * scale
        )


def test_a_scaler_takes_the_same_steps():
    ours = wg.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    theirs = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    p, q = wg.nn.Parameter(wg.ones(3, device="cpu")), torch.nn.Parameter(torch.ones(3))
    a, b = wg.optim.SGD([p], lr=0.1), torch.optim.SGD([q], lr=0.1)
    for step in range(12):
        factor = float("inf") if step in (4, 5, 9) else 1.0
        for parameter, optimizer, scaler in ((p, a, ours), (q, b, theirs)):
            optimizer.zero_grad()
            scaler.scale((parameter * parameter * factor).sum()).backward()
            if step % 2:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        assert ours.state_dict() == theirs.state_dict(), step
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-6)
