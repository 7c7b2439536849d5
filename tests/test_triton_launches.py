"""Check that every op on the Triton target launches kernels and that the host does not read device memory.

An op that is computed by NumPy on the host would pass every comparison of values. Therefore no call here may read
device memory, in forward or in derivatives, and every call with a result must launch a kernel. Exceptions are listed
with their reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import op_cases as cases
import pytest
from op_running import caller, specs

pytest.importorskip("triton")

from triton_running import interpreter

import weftgrad as wg
from weftgrad import nn, optim
from weftgrad.demo.train import train
from weftgrad.nn import functional as F
from weftgrad.runtime.records import registry

DEVICE, DRIVER = interpreter()
OPS = cases.names()


def first_case(name: str) -> Any:
    """Return the first case of the op in the small selection whose result is not empty."""
    op_cases = cases.cases(name, DEVICE, "small")
    return next(
        c for c in op_cases if all(np.size(e) for e in (c.expected if isinstance(c.expected, tuple) else [c.expected]))
    )


@pytest.mark.parametrize("name", OPS)
def test_ops_launch_kernels_without_host_reads(name: str) -> None:
    case = first_case(name)
    launches_before = DRIVER.launches
    with DRIVER.no_host_reads():
        caller(specs()[name])(*case.operands, statics=case.statics)
    launches = 0 if registry[name].kind == "view" else 1
    assert (DRIVER.launches > launches_before) == bool(launches)


DIFFERENTIABLE = [name for name in OPS if cases.differentiable(specs()[name]) and name not in cases.ONCE]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_without_host_reads(name: str) -> None:
    case = min(
        cases.gradient_cases(name, DEVICE, "small"),
        key=lambda gradient_case: sum(np.prod(t.shape) for t in gradient_case.inputs if hasattr(t, "shape")),
    )
    with DRIVER.no_host_reads():
        result = case.func(*case.inputs)
        outputs = [t for t in (result if isinstance(result, tuple) else (result,)) if t.requires_grad]
        differentiable = [x for x in case.inputs if isinstance(x, wg.Tensor) and x.requires_grad]
        grad_outputs = [wg.ones_like(o).requires_grad_(True) for o in outputs]
        launches_before = DRIVER.launches
        grads = wg.autograd.grad(outputs, differentiable, grad_outputs, create_graph=True, allow_unused=True)
        differentiable_grads = [g for g in grads if g is not None and g.requires_grad]
        if differentiable_grads:
            wg.autograd.grad(
                differentiable_grads,
                [*differentiable, *grad_outputs],
                [wg.ones_like(g) for g in differentiable_grads],
                allow_unused=True,
            )
    assert grads
    # The gradient of a view is a view or its copy, and that of a sum is the incoming gradient: they need no kernel.
    if registry[name].kind in ("rowwise", "index", "custom", "contraction", "window", "scan"):
        assert DRIVER.launches > launches_before


# Functions that users call


class Inputs:
    """Operands of the functions below: 6 x 5 tensors, and indices, masks and images to go with them."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)

        def random_tensor(*shape: int) -> Any:
            return wg.tensor(rng.uniform(0.2, 0.9, shape).astype(np.float32), device=DEVICE, requires_grad=True)

        def random_integers(high: int, *shape: int) -> Any:
            return wg.tensor(rng.integers(0, high, shape), device=DEVICE)

        self.x, self.y, self.square, self.batch = (
            random_tensor(6, 5),
            random_tensor(6, 5),
            random_tensor(5, 5),
            random_tensor(2, 6, 5),
        )
        self.row, self.column, self.number = random_tensor(5), random_tensor(6), random_tensor()
        self.mask = wg.tensor(rng.random((6, 5)) > 0.5, device=DEVICE)
        self.rows, self.columns, self.classes = random_integers(6, 4), random_integers(5, 6, 3), random_integers(5, 6)
        self.image, self.kernel = random_tensor(2, 3, 7, 8), random_tensor(4, 3, 3, 3)
        self.sign = wg.tensor(np.where(rng.random(6) > 0.5, 1, -1).astype(np.float32), device=DEVICE)
        self.detached = self.x.detach() * 1
        self.lengths = wg.tensor([1] * 6, device=DEVICE)


Function = Callable[[Inputs], Any]

WITHOUT_HOST_READS: dict[str, Function] = {
    "max_unpool2d": lambda g: F.max_unpool2d(*F.max_pool2d(g.image, 2, return_indices=True), 2),
    "get by index": lambda g: g.x[g.rows],
    "set by index": lambda g: g.detached.__setitem__(g.rows, 1.0),
    "gather": lambda g: g.x.gather(1, g.columns),
    "scatter": lambda g: g.detached.scatter(1, g.columns, 2.0),
    "index_select": lambda g: g.x.index_select(0, g.rows),
    "index_add": lambda g: g.x.index_add(0, g.rows, g.y[:4]),
    "take": lambda g: g.x.take(g.rows),
    "embedding": lambda g: F.embedding(g.rows, g.x),
    "cross_entropy": lambda g: F.cross_entropy(g.x, g.classes),
    "nll_loss": lambda g: F.nll_loss(g.x, g.classes),
    "one_hot of classes": lambda g: F.one_hot(g.classes, 5),
    "embedding_bag": lambda g: F.embedding_bag(g.rows, g.x, g.rows * 0),
    "scatter_reduce": lambda g: g.x.scatter_reduce(1, g.columns, g.y[:, :3], "mean"),
    "index_reduce": lambda g: g.x.index_reduce(0, g.rows, g.y[:4], "amax"),
    "put": lambda g: g.x.put(g.rows, g.y[0, :4]),
    "add of a 0-d tensor": lambda g: g.x + g.number,
    "addmm": lambda g: wg.addmm(g.x, g.x, g.square),
    "addmv": lambda g: wg.addmv(g.column, g.x, g.row),
    "aminmax": lambda g: wg.aminmax(g.x, dim=1).max,
    "baddbmm": lambda g: wg.baddbmm(g.batch, g.batch, g.square.expand(2, 5, 5)),
    "bernoulli": lambda g: wg.bernoulli(g.x.detach()),
    "bernoulli_": lambda g: g.detached.bernoulli_(0.5),
    "cat": lambda g: wg.cat([g.x, g.y], 1),
    "clamp": lambda g: g.x.clamp(0.3, 0.6),
    "clamp of tensors": lambda g: g.x.clamp(g.row, g.number),
    "clone": lambda g: g.x.clone(),
    "copy_": lambda g: g.detached.copy_(g.y),
    "column_stack": lambda g: wg.column_stack([g.x, g.y]),
    "contiguous": lambda g: g.x.T.contiguous(),
    "dstack": lambda g: wg.dstack([g.x, g.y]),
    "div with rounding": lambda g: wg.div(g.x, g.y, rounding_mode="floor"),
    "double": lambda g: g.x.double(),
    "flip": lambda g: g.x.flip(0),
    "full": lambda g: wg.full((6, 5), 2.5, device=DEVICE),
    "full_like": lambda g: wg.full_like(g.x, 2.5),
    "ger": lambda g: wg.ger(g.column, g.row),
    "inner": lambda g: wg.inner(g.x, g.row),
    "isclose": lambda g: wg.isclose(g.x, g.y),
    "logsumexp": lambda g: wg.logsumexp(g.x, (0, 1)),
    "masked_fill": lambda g: g.x.masked_fill(g.mask, 2.0),
    "masked_fill of a tensor": lambda g: g.x.masked_fill(g.mask, g.number),
    "masked_fill_": lambda g: g.detached.masked_fill_(g.mask, g.number.detach()),
    "matmul": lambda g: g.batch @ g.square,
    "max": lambda g: g.x.max(1).values,
    "max of two": lambda g: wg.max(g.x, g.y),
    "meshgrid": lambda g: wg.meshgrid(g.row, g.column, indexing="ij")[0] * 1,
    "nan_to_num": lambda g: wg.nan_to_num(g.x),
    "norm": lambda g: g.x.norm(dim=1),
    "norm of an order": lambda g: wg.norm(g.x, 3, 0),
    "normal": lambda g: wg.normal(g.x.detach(), g.y.detach()),
    "normal_": lambda g: g.detached.normal_(),
    "permute and reshape": lambda g: g.batch.permute(2, 0, 1).reshape(10, 6),
    "power": lambda g: g.x**2 + 2**g.y,
    "rand": lambda g: wg.rand(6, 5, device=DEVICE),
    "randint": lambda g: wg.randint(0, 9, (6, 5), device=DEVICE),
    "randn": lambda g: wg.randn(6, 5, device=DEVICE),
    "repeat": lambda g: g.x.repeat(2, 3),
    "repeat_interleave": lambda g: g.x.repeat_interleave(3, 1),
    "roll": lambda g: g.x.roll(2, 1),
    "set a slice": lambda g: g.detached.__setitem__((slice(1, 3), 2), g.number.detach()) or g.detached,
    "set by mask": lambda g: g.detached.__setitem__(g.mask, 1.5) or g.detached,
    "stack": lambda g: wg.stack([g.x, g.y], 1),
    "std": lambda g: g.x.std(1),
    "take part of": lambda g: g.x[1:4, ::2] * 1,
    "to another dtype": lambda g: g.x.to(wg.float16),
    "trace": lambda g: g.square.trace(),
    "tril": lambda g: g.square.tril(-1),
    "triu": lambda g: g.square.triu(),
    "uniform_": lambda g: g.detached.uniform_(0, 1),
    "var_mean": lambda g: wg.var_mean(g.x, 0)[0],
    "vdot": lambda g: wg.vdot(g.row, g.row),
    "zero_": lambda g: g.detached.zero_(),
    "zeros": lambda g: wg.zeros(6, 5, device=DEVICE),
    # nn.functional
    "adaptive_avg_pool2d": lambda g: F.adaptive_avg_pool2d(g.image, (3, 5)),
    "activations": lambda g: F.gelu(g.x) + F.silu(g.y),
    "alpha_dropout": lambda g: F.alpha_dropout(g.x, 0.5, True) + F.rrelu(g.y, training=True),
    "avg_pool2d": lambda g: F.avg_pool2d(g.image, 3, 2, 1),
    "batch_norm": lambda g: F.batch_norm(g.image, None, None, training=True),
    "batch_norm with statistics": lambda g: nn.BatchNorm2d(3).to(DEVICE)(g.image),
    "bilinear": lambda g: F.bilinear(g.x, g.y, g.batch.reshape(2, 5, 6)[:, :, :5]),
    "binary_cross_entropy": lambda g: F.binary_cross_entropy(g.x, g.y.detach()),
    "binary_cross_entropy_with_logits": lambda g: F.binary_cross_entropy_with_logits(g.x, g.y.detach()),
    "conv1d": lambda g: F.conv1d(g.image[:, 0], g.kernel[:, 0, 0].expand(4, 3)[:, None].expand(4, 7, 3)),
    "conv2d": lambda g: F.conv2d(g.image, g.kernel, padding=1),
    "conv_transpose2d": lambda g: F.conv_transpose2d(g.image, g.kernel.transpose(0, 1), stride=2),
    "cosine_embedding_loss": lambda g: F.cosine_embedding_loss(g.x, g.y, g.sign, margin=0.1),
    "cosine_similarity": lambda g: F.cosine_similarity(g.x, g.y),
    "dropout": lambda g: F.dropout(g.x, 0.5),
    "dropout2d": lambda g: F.dropout2d(g.image, 0.5),
    "fold": lambda g: F.fold(F.unfold(g.image, 3), (7, 8), 3),
    "glu": lambda g: F.glu(g.batch.permute(0, 2, 1)),
    "group_norm": lambda g: F.group_norm(g.image, 3),
    "gumbel_softmax": lambda g: F.gumbel_softmax(g.x),
    "hinge_embedding_loss": lambda g: F.hinge_embedding_loss(g.column, g.sign),
    "huber_loss": lambda g: F.huber_loss(g.x, g.y),
    "instance_norm": lambda g: F.instance_norm(g.image),
    "kl_div": lambda g: F.kl_div(g.x.log(), g.y.detach(), reduction="batchmean"),
    "l1_loss": lambda g: F.l1_loss(g.x, g.y),
    "layer_norm": lambda g: F.layer_norm(g.x, (5,), g.row, g.row),
    "linear": lambda g: F.linear(g.x, g.square, g.row),
    "lp_pool2d": lambda g: F.lp_pool2d(g.image, 2, 3),
    "margin_ranking_loss": lambda g: F.margin_ranking_loss(g.column, g.x[:, 0], g.sign),
    "max_pool2d": lambda g: F.max_pool2d(g.image, 3, 2, 1),
    "mse_loss": lambda g: F.mse_loss(g.x, g.y),
    "multi_margin_loss": lambda g: F.multi_margin_loss(g.x, g.classes, weight=g.row.detach()),
    "multilabel_margin_loss": lambda g: F.multilabel_margin_loss(g.x[:, :3], g.columns % 3),
    "nanmean": lambda g: wg.nanmean(g.x, 1) + g.x.renorm(2, 0, 1.0).sum(),
    "normalize": lambda g: F.normalize(g.x),
    "pairwise_distance": lambda g: F.pairwise_distance(g.x, g.y),
    "poisson_nll_loss": lambda g: F.poisson_nll_loss(g.x, g.y.detach()),
    "prelu": lambda g: F.prelu(g.image, g.number.reshape(1)),
    "rms_norm": lambda g: F.rms_norm(g.x, (5,), g.row),
    "scaled_dot_product_attention": lambda g: F.scaled_dot_product_attention(g.batch, g.batch, g.batch, is_causal=True),
    "smooth_l1_loss": lambda g: F.smooth_l1_loss(g.x, g.y),
    "soft_margin_loss": lambda g: F.soft_margin_loss(g.column, g.sign),
    "softmin": lambda g: F.softmin(g.x, 1),
    "triplet_margin_loss": lambda g: F.triplet_margin_loss(g.x, g.y, g.x.flip(0)),
    "clip_grad_norm_": lambda g: clip_gradient(g.x),
}

# (function, why the host must read memory)
WITH_HOST_READS: dict[str, tuple[Function, str]] = {
    "item": (lambda g: g.number.item(), "returns a Python number"),
    "tolist": (lambda g: g.x.tolist(), "returns Python numbers"),
    "bool": (lambda g: bool(g.number > 0), "returns a Python number"),
    "equal": (lambda g: wg.equal(g.x, g.y), "returns a Python bool"),
    "allclose": (lambda g: wg.allclose(g.x, g.y), "returns a Python bool"),
    "cpu": (lambda g: g.x.cpu(), "returns a copy in host memory"),
    "print": (lambda g: repr(g.x), "returns numbers as text"),
    "nonzero": (lambda g: wg.nonzero(g.mask), "the result's shape is the number of elements"),
    "argwhere": (lambda g: wg.argwhere(g.mask), "as nonzero"),
    "masked_select": (lambda g: wg.masked_select(g.x, g.mask), "as nonzero"),
    "ctc_loss": (lambda g: F.ctc_loss(g.batch.log(), g.columns % 4 + 1, g.lengths, g.lengths), "checks the lengths"),
    "gaussian_nll_loss": (lambda g: F.gaussian_nll_loss(g.x, g.y, g.y.detach()), "checks that no variance is negative"),
    "get by mask": (lambda g: g.x[g.mask], "as nonzero"),
    "masked_scatter": (lambda g: g.x.masked_scatter(g.mask, g.y), "as nonzero"),
    "one_hot": (lambda g: F.one_hot(g.classes), "the result's shape is the largest class"),
    "repeat_interleave": (lambda g: g.x.repeat_interleave(g.classes, 0), "the result's shape is the sum of counts"),
    "multinomial": (lambda g: wg.multinomial(g.x.detach(), 2), "checks the weights"),
}
# Tensors of Python numbers are computed on the host and copied to the device, without reads of device memory.
CREATED_ON_THE_HOST: dict[str, Function] = {
    "tensor": lambda g: wg.tensor([1.0, 2.0], device=DEVICE),
    "arange": lambda g: wg.arange(9, device=DEVICE),
    "linspace": lambda g: wg.linspace(0, 1, 9, device=DEVICE),
    "logspace": lambda g: wg.logspace(0, 1, 9, device=DEVICE),
    "eye": lambda g: wg.eye(4, device=DEVICE),
    "randperm": lambda g: wg.randperm(9, device=DEVICE),
}


def clip_gradient(x: Any) -> Any:
    x.grad = wg.ones_like(x.detach())
    return nn.utils.clip_grad_norm_([x], 1.0)


def run(function: Function, inputs: Inputs) -> Any:
    """Call a function and compute the gradients of its result."""
    output = function(inputs)
    if isinstance(output, wg.Tensor) and output.requires_grad:
        (output * output).sum().backward()
    return output


def test_a_host_read_is_noticed() -> None:
    inputs = Inputs()
    with DRIVER.no_host_reads(), pytest.raises(AssertionError, match="the host reads"):
        inputs.x.detach().cpu()
    with DRIVER.no_host_reads(), pytest.raises(AssertionError, match="the host reads"):
        inputs.number.item()


@pytest.mark.parametrize("name", WITHOUT_HOST_READS)
def test_functions_launch_kernels_without_host_reads(name: str) -> None:
    inputs = Inputs()
    launches_before = DRIVER.launches
    with DRIVER.no_host_reads():
        WITHOUT_HOST_READS[name](inputs)
        assert DRIVER.launches > launches_before
        run(WITHOUT_HOST_READS[name], Inputs())


@pytest.mark.parametrize("name", WITH_HOST_READS)
def test_functions_with_host_reads(name: str) -> None:
    """The listed functions do read memory (else they must leave the list); their gradients do not."""
    function, reason = WITH_HOST_READS[name]
    assert reason
    reads_before = DRIVER.host_reads
    output = function(Inputs())
    assert DRIVER.host_reads > reads_before
    if isinstance(output, wg.Tensor) and output.requires_grad and output.device is DEVICE:
        with DRIVER.no_host_reads():
            (output * output).sum().backward()


@pytest.mark.parametrize("name", CREATED_ON_THE_HOST)
def test_factories_without_host_reads(name: str) -> None:
    inputs = Inputs()
    with DRIVER.no_host_reads():
        assert CREATED_ON_THE_HOST[name](inputs).device is DEVICE


def test_optimizers_without_host_reads() -> None:
    for make in (
        lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True), optim.Adam, lambda p: optim.Adam(p, amsgrad=True),
        optim.AdamW, optim.RMSprop, optim.Adagrad, optim.Adadelta, optim.Adamax, optim.NAdam, optim.RAdam, optim.Rprop,
        optim.ASGD,
    ):  # fmt: skip
        net = nn.Linear(5, 3).to(DEVICE)
        inputs = Inputs()
        with DRIVER.no_host_reads():
            optimizer = make(net.parameters())
            for _ in range(2):
                optimizer.zero_grad()
                net(inputs.x).square().mean().backward()
                launched_before = len(DRIVER.launched)
                optimizer.step()
                entries = [s.instance.entry for s in DRIVER.launched[launched_before:]]
                # One launch updates weight and bias.
                assert sum(e.endswith("_step_many") for e in entries) == 1, entries


def test_optimizers_of_matrices_without_host_reads() -> None:
    for make in (optim.Adafactor, lambda p: optim.Muon(q for q in p if q.ndim == 2)):
        net = nn.Linear(5, 3).to(DEVICE)
        inputs = Inputs()
        with DRIVER.no_host_reads():
            optimizer = make(net.parameters())
            for _ in range(2):
                net(inputs.x).square().mean().backward()
                optimizer.step()


@pytest.mark.slow
def test_the_demo_trains_as_on_the_cpu() -> None:
    """Weights, order and dropout are the same random numbers on every device, so losses differ only by rounding."""
    interpreted, plain = (train(epochs=1, seed=3, device=d, steps=4, batch_size=8) for d in ("interpreter", "cpu"))
    assert len(interpreted.losses) == 4
    np.testing.assert_allclose(interpreted.losses, plain.losses, rtol=2e-6)
    assert len(set(plain.losses)) == 4
    assert interpreted.launches >= 4 * 20
    assert interpreted.guesses == plain.guesses
