"""Check random numbers: Philox, independence of layout and schedule, distributions, generators, dropout."""

import pickle
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

import weftgrad as wg
from weftgrad._generated import ops
from weftgrad.random import Generator, philox
from weftgrad.runtime.errors import ArgumentError
from weftgrad.runtime.kinds import shuffle

F = wg.nn.functional
DEVICES = ("cpu", "opencl:0")
# Values of chi-squared that a right distribution exceeds once in 10,000 seeds, by degrees of freedom.
CHI_SQUARED_LIMITS = {2: 18.4, 5: 25.7}


def chi_squared(counts, expected):
    counts, expected = np.asarray(counts), np.asarray(expected)
    return float(((counts - expected) ** 2 / expected).sum())


def reference(counter, key):
    """Return Philox4x32-10 of a counter and a key, on Python integers (Salmon et al., 2011)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & 0xFFFFFFFF, (p >> 32) ^ c[3] ^ k[1], p & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def words(i, offset, seed):
    return reference((i & 0xFFFFFFFF, i >> 32, offset & 0xFFFFFFFF, offset >> 32), (seed & 0xFFFFFFFF, seed >> 32))


def test_the_reference_gives_the_vectors_of_random123():
    assert reference((0,) * 4, (0,) * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert reference((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    assert reference(*pi) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


@pytest.mark.parametrize("seed", [0, 1, 0xDEADBEEF12345678, (1 << 64) - 1])
def test_kernels_and_host_agree_with_the_reference(seed):
    generator = Generator().manual_seed(seed)
    generator.offset = 7
    numbers = wg.rand(37, generator=generator).numpy()
    assert numbers.tolist() == [(words(i, 7, seed)[0] >> 8) / 2**24 for i in range(37)]
    assert generator.offset == 8
    doubles = wg.rand(5, generator=generator, dtype=wg.float64).numpy()
    raw_words = [words(i, 8, seed) for i in range(5)]
    assert doubles.tolist() == [((w[1] << 32 | w[0]) >> 11) / 2**53 for w in raw_words]
    assert philox(9, seed, 3).tolist() == [words(i, 3, seed)[0] << 32 | words(i, 3, seed)[1] for i in range(9)]
    integers = wg.randint(-50, 50, (11,), generator=generator).numpy()
    raw_integers = [words(i, 9, seed)[0] << 32 | words(i, 10, seed)[0] for i in range(11)]
    assert integers.tolist() == [(raw * 100 >> 64) - 50 for raw in raw_integers]
    wide = wg.randint(-(1 << 40), 1 << 41, (11,), generator=generator).numpy()
    raw_integers = [words(i, 11, seed)[0] << 31 | words(i, 12, seed)[0] >> 1 for i in range(11)]
    assert wide.tolist() == [raw % (3 << 40) - (1 << 40) for raw in raw_integers]
    normal = wg.randn(64, generator=generator).numpy()
    u = np.array([words(i, 13, seed)[:2] for i in range(64)], np.float64)
    radius = np.sqrt(-2 * np.log((u[:, 0] + 1) / 2**32))
    np.testing.assert_allclose(normal, radius * np.cos(2 * np.pi * (u[:, 1] // 256) / 2**24), rtol=2e-6, atol=2e-6)


def test_values_do_not_depend_on_layout():
    def draw(make):
        wg.manual_seed(3)
        return make().uniform_().numpy()

    expected = draw(lambda: wg.empty(70, 33))
    for make in (
        lambda: wg.empty(33, 70).t(), lambda: wg.empty(70, 66)[:, ::2], lambda: wg.empty(3, 140, 33)[1, ::2],
        lambda: wg.empty(33, 2, 70).permute(2, 0, 1)[..., 1],
    ):  # fmt: skip
        assert (draw(make) == expected).all()
    wg.manual_seed(3)
    assert (wg.rand(70 * 33).numpy() == expected.ravel()).all()


def test_values_do_not_depend_on_the_schedule():
    program = (
        "import weftgrad as wg; wg.manual_seed(5); x = wg.empty(9, 50).t(); x.normal_(); "
        "print(wg.rand(300).numpy().tobytes().hex(), wg.randint(9, (77,)).tolist(), x.numpy().round(4).tolist())"
    )
    import os

    outputs = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True,
            env=os.environ | ({"WEFTGRAD_CAPABILITIES": capabilities} if capabilities else {}),
        ).stdout
        for capabilities in ("", "style=gpu,lanes=4,max_group=64,optimize=0")
    ]  # fmt: skip
    assert outputs[0] == outputs[1]


def test_moments():
    wg.manual_seed(0)
    n = 200_000
    for samples, mean, std in (
        (wg.rand(n), 0.5, 12**-0.5), (wg.randn(n), 0.0, 1.0), (wg.empty(n).normal_(3.0, 0.5), 3.0, 0.5),
        (wg.empty(n).uniform_(-2, 6), 2.0, 8 * 12**-0.5), (wg.empty(n).exponential_(2.0), 0.5, 0.5),
        (wg.empty(n).bernoulli_(0.3), 0.3, 0.21**0.5), (wg.bernoulli(wg.full((n,), 0.8)), 0.8, 0.4),
        (wg.randint(10, (n,)), 4.5, 8.25**0.5),
    ):  # fmt: skip
        values = samples.numpy().astype(np.float64)
        assert abs(values.mean() - mean) < 5 * std / n**0.5
        assert abs(values.std() - std) < 0.01 * std
    for dtype in (wg.float16, wg.bfloat16):
        values = wg.rand(100_000, dtype=dtype).float().numpy()
        assert values.min() >= 0
        assert values.max() < 1
    counts = np.bincount(wg.randint(-3, 4, (70_000,)).numpy() + 3)
    assert len(counts) == 7
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 22.5  # chi-squared, 6 degrees of freedom, p = 0.001


def test_random_bounds():
    """A None as the second bound is the end of the dtype, as in PyTorch; a single bound is the upper one."""
    zeros = wg.zeros(200, dtype=wg.uint8)
    assert zeros.random_(250, None).min() >= 250
    assert zeros.random_(3).max() == 2
    assert zeros.random_(to=3).max() == 2
    assert zeros.random_(2, to=4).min() == 2
    assert zeros.random_(**{"from": 2, "to": 4}).unique().tolist() == [2, 3]
    assert zeros.random_(**{"from": 250}).min() >= 250
    assert wg.zeros(200, dtype=wg.float16).random_(2040, None).unique().tolist() == [2040.0 + k for k in range(9)]
    for bounds, named in (((1, 2, 3), {}), ((None, 3), {}), ((5, 5), {}), ((0,), {}), ((), {"form": 3})):
        with pytest.raises(ValueError, match=r"random_"):
            zeros.random_(*bounds, **named)


def test_random_dtypes_and_errors():
    assert wg.empty(4, dtype=wg.int64).random_().numpy().min() >= 0
    assert wg.empty(1000, dtype=wg.uint8).random_().numpy().max() <= 255
    assert set(wg.empty(100, dtype=wg.int32).random_(2, 5).tolist()) == {2, 3, 4}
    assert set(wg.empty(100).random_(-3, 0).tolist()) == {-3, -2, -1}
    assert set(wg.empty(100, dtype=wg.int64).random_(to=2).tolist()) == {0, 1}
    for bounds in ((0,), (0, 0)):
        with pytest.raises(ArgumentError, match="low 0 is not below high 0"):
            wg.empty(2).random_(*bounds)
    assert wg.randint(5, (2, 3), dtype=wg.float32).dtype is wg.float32
    assert wg.rand(0).shape == (0,)
    assert wg.randn_like(wg.empty(2, 3, dtype=wg.float64)).dtype is wg.float64
    with pytest.raises(ValueError, match="not below"):
        wg.randint(3, 3, (1,))
    with pytest.raises(NotImplementedError, match="floating dtype"):
        wg.rand(3, dtype=wg.int64)
    with pytest.raises(ValueError, match="probability"):
        wg.empty(3).bernoulli_(1.5)
    with pytest.raises(ValueError, match="64 bits"):
        wg.manual_seed(1 << 70)
    with pytest.raises(RuntimeError, match="leaf"):
        wg.empty(3, requires_grad=True).uniform_()


def test_parameters_in_tensors_are_checked():
    zeros, ones = wg.zeros(2, device="cpu"), wg.ones(2, device="cpu")
    options = ({"size": (3,)}, {"dtype": wg.float64}, {"device": "cpu"}, {"requires_grad": True}, {"pin_memory": True})
    for parameters in ((zeros, 1.0), (0.0, ones), (zeros, ones)):
        assert wg.normal(*parameters).shape == (2,)
        for option in options:
            with pytest.raises(TypeError, match=f"leave out {next(iter(option))}"):
                wg.normal(*parameters, **option)
    for wrong in (-ones, ones * float("nan")):
        with pytest.raises(RuntimeError, match="all elements of std must be at least 0"):
            wg.normal(zeros, wrong)
    for wrong in (ones * 2, -ones, ones * float("nan")):
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            wg.bernoulli(wrong)
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            wg.zeros(3, 2, device="cpu").bernoulli_(wrong)


@pytest.mark.parametrize("device", DEVICES)
def test_permutations_are_uniform(device):
    wg.manual_seed(1)
    for n in (0, 1, 2, 1000):
        assert sorted(wg.randperm(n, device=device).tolist()) == list(range(n))
    orders = Counter(tuple(wg.randperm(3, device=device).tolist()) for _ in range(1200))
    assert len(orders) == 6
    assert chi_squared(list(orders.values()), [200] * 6) < CHI_SQUARED_LIMITS[5]
    assert wg.randperm(5, dtype=wg.int16, device=device).dtype is wg.int16
    with pytest.raises(ArgumentError, match="at least 0, not -1"):
        wg.randperm(-1, device=device)


def fisher_yates(n, seed):
    """Return the permutation of 0 to n - 1 that exchanges element i with element floor((i + 1) * fraction)."""
    is_narrow = n <= 1 << 20
    numbers = [word >> 32 for word in philox(n, seed, 0).tolist()]
    if not is_narrow:
        more_bits = (word >> 32 for word in philox(n, seed, 1).tolist())
        numbers = [high << 32 | low for high, low in zip(numbers, more_bits, strict=True)]
    order = list(range(n))
    for i, number in enumerate(numbers):
        partner = (i + 1) * number >> (32 if is_narrow else 64)
        order[i], order[partner] = order[partner], order[i]
    return order


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [1, 2, 700, 5001])
def test_permutations_are_the_shuffles_of_fisher_and_yates(n, device):
    generator = Generator().manual_seed(n)
    assert wg.randperm(n, generator=generator, device=device).tolist() == fisher_yates(n, n)


def test_a_permutation_of_more_elements_than_32_bits_shuffle():
    n = (1 << 20) + 5
    assert wg.randperm(n, generator=Generator().manual_seed(3), device="cpu").tolist() == fisher_yates(n, 3)


@pytest.mark.parametrize("wide", [False, True])
def test_many_cores_shuffle_as_one_does(wide, monkeypatch):
    monkeypatch.setattr(shuffle, "_MIN_CORES", 1)
    monkeypatch.setattr(shuffle, "_MIN_PARALLEL", 1)
    n = 5003 + wide  # a size that no other test plans
    numbers = np.random.default_rng(1).integers(0, np.arange(1, n + 1))
    order = ops.shuffle_order(wg.tensor(numbers, dtype=wg.int64 if wide else wg.int32, device="cpu")).tolist()
    expected = list(range(n))
    for i, partner in enumerate(numbers.tolist()):
        expected[i], expected[partner] = expected[partner], expected[i]
    assert order == expected


def test_partners_that_do_not_precede_their_element_stay_inside_the_result():
    for device in DEVICES:
        assert sorted(ops.shuffle_order(wg.tensor([5, -1, 1 << 40], device=device)).tolist()) == [0, 1, 2]
    for wrong, error in ((wg.zeros(2, 2, dtype=wg.int64), "vector"), (wg.zeros(3, dtype=wg.int16), "int32 or int64")):
        with pytest.raises(RuntimeError, match=error):
            ops.shuffle_order(wrong)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
@pytest.mark.parametrize("device", DEVICES)
def test_multinomial_draws_in_proportion_to_weights(device, dtype):
    wg.manual_seed(2)
    weights = wg.tensor([[1, 0, 3, 4], [0, 5, 0, 0]], dtype=dtype, device=device)
    samples = wg.multinomial(weights, 4000, replacement=True)
    assert samples.dtype is wg.int64
    assert (samples[1] == 1).all().item()
    counts = np.bincount(samples[0].tolist(), minlength=4)
    assert counts[1] == 0
    assert chi_squared(counts[[0, 2, 3]], [500, 1500, 2000]) < CHI_SQUARED_LIMITS[2]


@pytest.mark.parametrize("device", DEVICES)
def test_multinomial_without_replacement_draws_one_after_the_other(device):
    wg.manual_seed(3)
    weights = wg.tensor([1.0, 0.0, 3.0, 4.0], device=device).expand(3000, 4)
    pairs = Counter(map(tuple, wg.multinomial(weights, 2).tolist()))
    shares = {0: 1 / 8, 2: 3 / 8, 3: 4 / 8}
    expected = {(a, b): 3000 * p * shares[b] / (1 - p) for a, p in shares.items() for b in shares if a != b}
    assert set(pairs) == set(expected)
    assert chi_squared([pairs[k] for k in expected], list(expected.values())) < CHI_SQUARED_LIMITS[5]
    assert wg.multinomial(weights[0], 4)[3] == 1  # an index of weight 0 comes last


@pytest.mark.parametrize("wrong", [[-1.0, 2.0], [float("nan"), 1.0], [float("inf"), 1.0], [0.0, 0.0]])
def test_multinomial_refuses_weights(wrong):
    with pytest.raises(ArgumentError, match="finite, not negative, and not all 0"):
        wg.multinomial(wg.tensor(wrong), 1)
    for weights, count in ((wg.ones(2), 3), (wg.ones(2), 0), (wg.ones(1, 1, 2), 1), (wg.ones(0), 1)):
        with pytest.raises(ArgumentError, match="multinomial: "):
            wg.multinomial(weights, count)


def test_generators():
    g = Generator().manual_seed(4)
    first = wg.rand(3, generator=g).tolist()
    state = g.get_state()
    second = wg.rand(3, generator=g).tolist()
    assert first != second
    g.set_state(state)
    assert wg.rand(3, generator=g).tolist() == second
    copied = pickle.loads(pickle.dumps(g))
    assert wg.rand(3, generator=copied).tolist() == wg.rand(3, generator=g).tolist()
    wg.manual_seed(9)
    assert wg.initial_seed() == 9
    rng_state = wg.get_rng_state()
    with wg.fork_rng():
        numbers = wg.rand(2).tolist()
    assert wg.rand(2).tolist() == numbers
    wg.set_rng_state(rng_state)
    assert wg.rand(2).tolist() == numbers


def test_dropout_redraws_its_mask_in_backward():
    wg.manual_seed(0)
    x = wg.ones(5000, requires_grad=True)
    y = F.dropout(x * 2, 0.25)
    survives = y.detach().numpy() != 0
    assert abs(survives.mean() - 0.75) < 0.03
    np.testing.assert_allclose(y.detach().numpy()[survives], 2 / 0.75, rtol=1e-6)
    (grad,) = wg.autograd.grad((y * y).sum(), x, create_graph=True)
    np.testing.assert_allclose(grad.detach().numpy(), np.where(survives, 8 / 0.75**2, 0), rtol=1e-6)
    (second,) = wg.autograd.grad(grad.sum(), x)
    np.testing.assert_allclose(second.numpy(), np.where(survives, 8 / 0.75**2, 0), rtol=1e-6)
    assert F.dropout(x, 0.5, training=False) is x
    assert (F.dropout(x, 1.0).detach().numpy() == 0).all()
    # backward saves only two integers
    saved = F.dropout(x, 0.5).grad_fn.saved
    assert all(isinstance(value, (int, float)) for value in saved)
