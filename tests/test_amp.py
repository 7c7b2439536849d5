"""Autocast: the spec field, casts on each device, the cache of casts, threads, custom functions.

Tests of dtypes run with launches only listed, so that nothing is compiled.
"""

import threading

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.cli.op_page import op_page
from weftgrad.cli.samples import capture_steps
from weftgrad.cli.terminal import Style
from weftgrad.codegen import reference
from weftgrad.codegen.loader import load_text
from weftgrad.codegen.model import SpecErrors
from weftgrad.nn import functional as F
from weftgrad.runtime.errors import ArgumentError, DomainError, UnknownDevice
from weftgrad.runtime.modes import Mode
from weftgrad.runtime.records import registry

DEVICES = ("cpu", "opencl:0")
HALVES = {wg.float16: np.float16, wg.bfloat16: None}


def ones(*shape, dtype=wg.float32, device="cpu", grad=False):
    return wg.tensor(np.ones(shape), dtype=dtype, device=device, requires_grad=grad)


class OpCounter(Mode):
    """Records the names of called ops; casts are recorded as `cast`."""

    def __init__(self):
        self.op_names = []

    def call(self, record, operands, statics, outs, in_place):
        self.op_names.append("cast" if record.name == "copy" and statics != (None,) else record.name)
        return self.proceed(record, operands, statics, outs, in_place)


# The spec field -------------------------------------------------------------------------------------------------------

ENTRY = '- op: "f(x)"\n  kind: {kind}\n  out: x\n  autocast: {autocast}\n'


@pytest.mark.parametrize(
    ("autocast", "words"),
    [
        ("lower", ("lower", "lower")),
        ("{gpu: float32}", ("", "float32")),
        ("{cpu: widest, gpu: refuse}", ("widest", "refuse")),
    ],
)
def test_autocast_field_is_parsed(autocast, words):
    (op,) = load_text(ENTRY.format(kind="pointwise", autocast=autocast))
    assert op.autocast == words


@pytest.mark.parametrize(
    ("kind", "autocast", "message"),
    [
        ("pointwise", "low", "autocast: unknown word 'low' (did you mean 'lower'?)"),
        ("pointwise", "3", "must be dict or str"),
        ("pointwise", "{tpu: lower}", "autocast: unknown list 'tpu' (known: cpu, gpu)"),
        ("pointwise", "{cpu: [lower]}", "unknown word"),
        ("composite", "lower", "computes nothing itself"),
    ],
)
def test_invalid_autocast_fields_are_reported(kind, autocast, message):
    with pytest.raises(SpecErrors) as error:
        load_text(ENTRY.format(kind=kind, autocast=autocast))
    assert message in str(error.value)
    assert ":4:" in str(error.value)


def test_autocast_is_documented():
    assert "## Autocast" in reference.language_reference()
    assert all(f"`{word}`" in reference.language_reference() for word in ("lower", "float32", "widest", "refuse"))
    entry = reference.json_schema()["items"]["oneOf"][0]["properties"]["autocast"]
    assert entry["anyOf"][0] == {"enum": ["lower", "float32", "widest", "refuse"]}
    assert any(line.startswith("autocast") and "gpu: float32" in line for line in op_page(registry["exp"], Style()))


# By PyTorch's documentation, "Autocast Op Reference": CUDA ops, and those of CPUs.
LOWER = "mm bmm mv matmul_batched linear_product convolution convolution_input attention prelu_slope"
LOWER += " linear_bias addmm_product baddbmm_product addmv_product addmm_relu addmm_gelu"
FLOAT32_GPU = (
    "acos asin cosh cumprod cumsum erfinv exp expm1 layer_norm log log10 log1p log2 log_softmax pow prod reciprocal "
    "rsqrt sinh softmax softplus sum tan pair_norms squared_error absolute_error divergence poisson_error"
)
FLOAT32_CPU = "prod pair_norms squared_error absolute_error divergence poisson_error smooth_l1_error"
WIDEST_GPU = "addcdiv addcmul atan2 dot scatter_add put_at"
UNTOUCHED = "add mul relu mean amax gather tanh sigmoid"


def test_the_lists_are_pytorchs():
    for words, cpu_word, gpu_word in (
        (LOWER, "lower", "lower"), (FLOAT32_CPU, "float32", "float32"), (FLOAT32_GPU, None, "float32"),
        (WIDEST_GPU, "", "widest"), (UNTOUCHED, None, None), ("probability_error", "float32", "refuse"),
    ):  # fmt: skip
        for name in words.split():
            lists = registry[name].autocast or (None, None)
            assert lists[1] == gpu_word, name
            assert cpu_word in (None, lists[0]), name


# What is cast ---------------------------------------------------------------------------------------------------------

# op -> result dtype for half operands under autocast to the same half: on cpu, on other devices (None: that half)
HALF_OPERANDS = {
    "exp": (None, wg.float32), "softmax": (None, wg.float32), "sum": (None, wg.float32), "prod": (wg.float32,) * 2,
    "cumsum": (None, wg.float32), "relu": (None, None), "mean": (None, None), "tanh": (None, None),
}  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("half", HALVES)
def test_dtypes_of_results(device, half):
    x, w, b = (ones(*s, device=device) for s in ((4, 6), (5, 6), (5,)))
    image, kernel = ones(2, 3, 8, 8, device=device), ones(4, 3, 3, 3, device=device)
    q = ones(2, 2, 6, 8, device=device)
    bool_mask = wg.tensor(np.ones((6, 6), bool), device=device)
    low = ones(4, 6, dtype=half, device=device)
    gpu = device != "cpu"
    with capture_steps(wg.device(device)), wg.autocast(device.partition(":")[0], dtype=half):
        lowered = [
            x @ w.T, F.linear(x, w, b), F.linear(x.reshape(2, 2, 6), w, b), x[0] @ w[0], x @ w[0], w[0] @ x.T,
            wg.mm(low, w.T), wg.addmm(b, x, w.T), wg.addmv(b[:4], x, w[0]), wg.einsum("ik,jk->ij", x, w),
            wg.baddbmm(q[0], q[0], q[0][:, :1, :].expand(2, 8, 8), beta=2), wg.bmm(q[0], q[0].transpose(1, 2)),
            F.conv2d(image, kernel, b[:4]), F.conv2d(image[0], kernel), F.prelu(x, b[:1]),
            F.conv_transpose2d(image, kernel.transpose(0, 1), b[:4]), F.conv1d(image[0], ones(2, 8, 3, device=device)),
            F.scaled_dot_product_attention(q, q, q), F.scaled_dot_product_attention(q, q, q, x[0, 0].expand(6, 6)),
            F.scaled_dot_product_attention(q, q.to(half), q, bool_mask),
        ]  # fmt: skip
        assert [t.dtype for t in lowered] == [half] * len(lowered)
        for name, results in HALF_OPERANDS.items():
            statics = () if name in ("prod", "mean") else (0,) if name in ("softmax", "cumsum", "sum") else ()
            assert getattr(wg, name)(low, *statics).dtype is (results[gpu] or half), name
            assert getattr(wg, name)(x, *statics).dtype is wg.float32, name
        assert wg.sum(low, dtype=half).dtype is half  # an explicit dtype is respected
        assert wg.addcdiv(low, low, low).dtype is half
        assert (low + x).dtype is wg.float32
        assert wg.cat([low, x]).dtype is wg.stack([low, x]).dtype is wg.float32
        assert wg.dot(low[0], x[0]).dtype is wg.float32
        assert (x.double() @ w.double().T).dtype is wg.float64
        norm_dtype = wg.float32 if gpu else half
        assert F.group_norm(low.reshape(1, 2, 12), 2).dtype is F.layer_norm(low, (6,)).dtype is norm_dtype
        grid = ones(1, 2, 2, 2, device=device)
        assert F.grid_sample(low.reshape(1, 1, 4, 6), grid, align_corners=False).dtype is wg.float32
        index = wg.tensor([0, 1], device=device)
        write = wg.scatter_add if gpu else wg.index_copy
        assert write(b, 0, index, low[0, :2]).dtype is wg.float32
        losses = [
            F.mse_loss(low, low), F.l1_loss(low, x), F.huber_loss(low, low), F.kl_div(low, low, reduction="batchmean"),
            F.cross_entropy(low, wg.tensor([1, 2, 3, 4], device=device)), F.binary_cross_entropy_with_logits(low, low),
        ]  # fmt: skip
        assert [t.dtype for t in losses] == [wg.float32] * len(losses)
        if gpu:
            with pytest.raises(DomainError, match=r"autocast(.|\n)*binary_cross_entropy_with_logits"):
                F.binary_cross_entropy(low, low)
            assert isinstance(DomainError(), RuntimeError)
        else:
            assert F.binary_cross_entropy(low, low).dtype is wg.float32


def test_other_devices_are_left_alone():
    x = ones(2, 2)
    with capture_steps(x.device), wg.autocast("opencl"):
        assert (x @ x).dtype is wg.float32


def test_results_that_exist_are_not_cast():
    x, out = ones(2, 2), ones(2, 2)
    with capture_steps(x.device), wg.autocast("cpu"):
        wg.mm(x, x, out=out)
        x += x
        assert x.dtype is out.dtype is wg.float32


@pytest.mark.parametrize("half", HALVES)
def test_values_and_gradients(half):
    """Results are products of rounded operands, and gradients of cast tensors are float32."""
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((4, 6), (5, 6), (5,))]
    x, w, b = (wg.tensor(a, device="cpu", requires_grad=True) for a in arrays)
    with wg.autocast("cpu", dtype=half):
        out = F.linear(x, w, b)
    upstream = wg.tensor(rng.standard_normal((4, 5)), dtype=half, device="cpu")
    out.backward(upstream)

    def round_to_half(array):
        return np.array(wg.tensor(array, device="cpu").to(half).tolist())

    xs, ws, bs = map(round_to_half, arrays)
    g = np.array(upstream.tolist())
    eps = {wg.float16: 2.0**-11, wg.bfloat16: 2.0**-8}[half]
    np.testing.assert_allclose(np.array(out.tolist()), xs @ ws.T + bs, rtol=0, atol=16 * eps)
    for leaf, expected in ((x, g @ ws), (w, g.T @ xs), (b, g.sum(0))):
        assert leaf.grad.dtype is wg.float32
        np.testing.assert_allclose(leaf.grad.numpy(), expected, rtol=0, atol=16 * eps)


# Regions --------------------------------------------------------------------------------------------------------------


def test_regions_nest_and_make_exceptions():
    x = ones(2, 2)
    assert not wg.is_autocast_enabled("cpu")
    with capture_steps(x.device):
        with wg.autocast("cpu", dtype=wg.float16):
            assert wg.is_autocast_enabled("cpu")
            assert not wg.is_autocast_enabled()
            assert wg.get_autocast_dtype("cpu") is wg.get_autocast_cpu_dtype() is wg.float16
            with wg.autocast("cpu", enabled=False):
                assert not wg.is_autocast_cpu_enabled()
                assert (x @ x).dtype is wg.float32
                with wg.autocast("cpu", dtype=wg.bfloat16):
                    assert (x @ x).dtype is wg.bfloat16
            with wg.autocast("opencl", dtype=wg.bfloat16):
                assert wg.is_autocast_enabled("opencl")
                assert (x @ x).dtype is wg.float16
            assert not wg.is_autocast_enabled("opencl")
            assert (x @ x).dtype is wg.float16
            with pytest.raises(ZeroDivisionError), wg.autocast("cpu", enabled=False):
                raise ZeroDivisionError
            assert (x @ x).dtype is wg.float16
        assert (x @ x).dtype is wg.float32
    assert wg.get_autocast_dtype("cpu") is wg.bfloat16
    assert wg.get_autocast_gpu_dtype() is wg.get_autocast_dtype("opencl") is wg.float16


def test_as_a_decorator_and_twice():
    x = ones(2, 2)

    @wg.autocast("cpu")
    def product(a, *, depth=0):
        """Recursive: each call enters its own region."""
        return product(a, depth=depth - 1) if depth else a @ a

    region = wg.autocast("cpu", dtype=wg.float16)
    with capture_steps(x.device):
        assert product(x, depth=2).dtype is wg.bfloat16
        assert product.__doc__.startswith("Recursive")
        with region:
            assert (x @ x).dtype is wg.float16
        with region, region:
            assert (x @ x).dtype is wg.float16
        assert (x @ x).dtype is wg.float32


def test_a_region_is_its_threads():
    states = []
    with wg.autocast("cpu"):
        thread = threading.Thread(target=lambda: states.append(wg.is_autocast_enabled("cpu")))
        thread.start()
        thread.join()
    assert states == [False]


def test_defaults_can_be_set():
    wg.set_autocast_dtype("opencl", wg.bfloat16)
    try:
        assert wg.autocast("opencl").fast_dtype is wg.bfloat16
    finally:
        wg.set_autocast_dtype("opencl", wg.float16)
    with pytest.raises(ArgumentError, match="float16 or bfloat16"):
        wg.set_autocast_dtype("cpu", wg.float32)


def test_invalid_arguments_raise():
    for device_type, error_type in ((3, ValueError), ("tpu", RuntimeError), ("opencl:0", UnknownDevice)):
        with pytest.raises(error_type, match="device_type"):
            wg.autocast(device_type)
    with pytest.warns(UserWarning, match="float16 or bfloat16"):
        assert not wg.autocast("cpu", dtype=wg.float32)._enabled
    assert wg.amp.is_autocast_available("opencl")
    assert not wg.amp.is_autocast_available("tpu")


def test_no_cost_outside():
    with wg.autocast("cpu", enabled=False), OpCounter() as counter, capture_steps(wg.device("cpu")):
        assert counter._below is None
        ones(2, 2) @ ones(2, 2)
        assert counter.op_names == ["mm"]


def test_other_spellings():
    x = ones(2, 2)
    with capture_steps(x.device), wg.cpu.amp.autocast():
        assert (x @ x).dtype is wg.bfloat16
    assert isinstance(wg.cpu.amp.GradScaler(), wg.amp.GradScaler)
    assert wg.cuda.amp.GradScaler(enabled=False).get_scale() == 1.0
    assert wg.autocast is wg.amp.autocast
    with wg.cuda.amp.autocast(enabled=False):
        assert not wg.is_autocast_enabled()


# The cache ------------------------------------------------------------------------------------------------------------


def test_casts_of_weights_are_kept_until_the_outermost_region_ends():
    x, w = ones(2, 2), ones(2, 2, grad=True)
    with capture_steps(x.device), OpCounter() as counter:
        with wg.autocast("cpu"):
            with wg.autocast("cpu"):
                x @ w
            x @ w
            w @ w
            assert counter.op_names.count("cast") == 2 + 1  # the cast of x, which needs no grad, is not cached
            wg.clear_autocast_cache()
            w @ w
            assert counter.op_names.count("cast") == 3 + 1
        with wg.autocast("cpu"):
            w @ w
        assert counter.op_names.count("cast") == 4 + 1
        with wg.autocast("cpu", cache_enabled=False):
            assert not wg.is_autocast_cache_enabled()
            w @ w
        assert counter.op_names.count("cast") == 5 + 2


def test_a_cast_is_used_only_while_it_is_right():
    w = wg.tensor([[2.0]], device="cpu", requires_grad=True)
    with wg.autocast("cpu"):
        assert (w @ w).item() == 4.0
        with wg.no_grad():
            w.fill_(3.0)
        assert (w @ w).item() == 9.0
        with wg.no_grad():
            assert not (w @ w).requires_grad
        for _ in range(2):  # backward frees the graph of the cast, so it must not be reused
            w.grad = None
            (w @ w).backward()
            assert w.grad.item() == 6.0
    with wg.autocast("cpu"):
        with wg.no_grad():
            w @ w
        assert (w @ w).requires_grad


# Custom functions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cast_inputs", [None, wg.float32])
def test_custom_forward_and_backward(cast_inputs):
    states = []

    class Product(wg.autograd.Function):
        @staticmethod
        @wg.amp.custom_fwd(device_type="cpu", cast_inputs=cast_inputs)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            states.append((a.dtype, wg.is_autocast_enabled("cpu")))
            return a @ b

        @staticmethod
        @wg.amp.custom_bwd(device_type="cpu")
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            states.append((grad.dtype, wg.is_autocast_enabled("cpu")))
            return grad @ b.T, a.T @ grad

    a, b = ones(2, 2, dtype=wg.float16, grad=True), ones(2, 2, dtype=wg.float16, grad=True)
    with capture_steps(a.device):
        with wg.autocast("cpu"):
            out = Product.apply(a, b)
        out.backward(out.detach())
        Product.apply(a, b)
    if cast_inputs is None:
        assert states == [(wg.float16, True), (wg.bfloat16, True), (wg.float16, False)]
    else:
        assert states == [(wg.float32, False), (wg.float32, False), (wg.float16, False)]
