"""Compare interpolation and grid sampling with PyTorch: results, gradients and second gradients of every mode.

Skipped where torch is not installed.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn
from weftgrad.nn import functional as F

torch = pytest.importorskip("torch")
T = torch.nn.functional
RNG = np.random.default_rng(8)


def tensor_pair(array, dtype="float64"):
    ours = wg.tensor(array.copy()).to(getattr(wg, dtype)).requires_grad_()
    return ours, torch.tensor(array.copy()).to(getattr(torch, dtype)).requires_grad_()


def as_float64(tensor):
    tensor = tensor.detach()
    return (tensor.double() if isinstance(tensor, torch.Tensor) else tensor.to(wg.float64)).numpy()


def assert_close(ours, theirs, tolerance):
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
    np.testing.assert_allclose(as_float64(ours), as_float64(theirs), rtol=tolerance, atol=tolerance)


def compare(our_function, their_function, arrays, dtype="float64", tolerance=1e-9, twice=True):
    ours, theirs = zip(*(tensor_pair(a, dtype) for a in arrays), strict=True)
    out, expected = our_function(*ours), their_function(*theirs)
    assert_close(out, expected, tolerance)
    seeds = tensor_pair(RNG.standard_normal(out.shape), dtype)
    grads = wg.autograd.grad(out, ours, seeds[0], create_graph=twice)
    expected_grads = torch.autograd.grad(expected, theirs, seeds[1], create_graph=twice)
    for a, b in zip(grads, expected_grads, strict=True):
        assert_close(a, b, tolerance)
    if twice:
        second_grads = wg.autograd.grad(sum((g * g).sum() for g in grads), seeds[0])[0]
        assert_close(
            second_grads, torch.autograd.grad(sum((g * g).sum() for g in expected_grads), seeds[1])[0], tolerance
        )


SHAPES = {1: (2, 3, 7), 2: (2, 3, 7, 5), 3: (1, 2, 5, 4, 6)}
SIZES = {1: [(7,), (11,), (3,), (1,)], 2: [(14, 10), (3, 8), (1, 5)], 3: [(8, 3, 6), (2, 2, 9)]}
FACTORS = {1: [2, 1.7, 0.6], 2: [2, (1.5, 0.7), 0.5], 3: [1.5, (0.5, 2.3, 1)]}
MODES = {
    1: ["nearest", "nearest-exact", "linear", "area"], 2: ["nearest", "nearest-exact", "bilinear", "bicubic", "area"],
    3: ["nearest", "nearest-exact", "trilinear", "area"],
}  # fmt: skip


@pytest.mark.parametrize(("count", "mode"), [(n, m) for n, modes in MODES.items() for m in modes])
def test_interpolate(count, mode):
    x = RNG.standard_normal(SHAPES[count])
    corners = [None] if mode in ("nearest", "nearest-exact", "area") else [None, False, True]
    dtype, tolerance = ("float32", 2e-5) if mode.startswith("nearest") else ("float64", 1e-9)
    for align in corners:
        option_sets = [{"size": s} for s in SIZES[count]]
        option_sets += [{"scale_factor": f} for f in FACTORS[count]]
        option_sets += [{"scale_factor": f, "recompute_scale_factor": True} for f in FACTORS[count][1:2]]
        for options in option_sets:
            kwargs = {"mode": mode, "align_corners": align, **options}
            compare(
                lambda x, c=kwargs: F.interpolate(x, **c),
                lambda x, c=kwargs: T.interpolate(x, **c),
                [x],
                dtype,
                tolerance,
            )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
def test_antialias(mode):
    x = RNG.standard_normal((2, 3, 13, 9))
    for align in (None, True) if mode != "lanczos" else (None,):
        for size in ((5, 4), (3, 20), (26, 2), (13, 7)):
            kwargs = {"size": size, "mode": mode, "align_corners": align, "antialias": True}
            compare(
                lambda x, c=kwargs: F.interpolate(x, **c), lambda x, c=kwargs: T.interpolate(x, **c), [x], twice=False
            )
        kwargs = {"scale_factor": 0.45, "mode": mode, "align_corners": align, "antialias": True}
        compare(lambda x, c=kwargs: F.interpolate(x, **c), lambda x, c=kwargs: T.interpolate(x, **c), [x], twice=False)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_dtypes(dtype):
    tolerance = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
    x = RNG.standard_normal((2, 3, 40, 33))
    for mode, size in (
        ("bilinear", (80, 50)),
        ("bicubic", (50, 20)),
        ("nearest", (90, 17)),
        ("nearest-exact", (31, 77)),
    ):
        kwargs = {"size": size, "mode": mode}
        compare(
            lambda x, c=kwargs: F.interpolate(x, **c),
            lambda x, c=kwargs: T.interpolate(x, **c),
            [x],
            dtype,
            tolerance,
            False,
        )


def test_every_nearest_size():
    """Compare the rounding of source positions, for all input sizes up to 12 and output sizes up to 40."""
    for in_size in range(1, 13):
        x = np.arange(in_size, dtype=np.float32)[None, None]
        for out_size in range(1, 41):
            for mode in ("nearest", "nearest-exact"):
                ours = F.interpolate(wg.tensor(x), out_size, mode=mode).numpy()
                np.testing.assert_array_equal(
                    ours, T.interpolate(torch.tensor(x), out_size, mode=mode).numpy(), f"{in_size} {out_size}"
                )


MODES_OF_GRIDS = [("bilinear", 2), ("nearest", 2), ("bicubic", 2), ("bilinear", 3), ("nearest", 3)]


@pytest.mark.parametrize(("mode", "count"), MODES_OF_GRIDS)
def test_grid_sample(mode, count):
    x = RNG.standard_normal((2, 3, 5, 4, 6)[: count + 2])
    grid = RNG.uniform(-1.8, 1.8, (2, 3, 7, 2)[: count + 1] + (count,))
    for padding, align in itertools.product(("zeros", "border", "reflection"), (False, True)):
        kwargs = {"mode": mode, "padding_mode": padding, "align_corners": align}
        compare(
            lambda x, g, c=kwargs: F.grid_sample(x, g, **c), lambda x, g, c=kwargs: T.grid_sample(x, g, **c), [x, grid],
            twice=False,
        )  # fmt: skip


@pytest.mark.filterwarnings("ignore:Since version")
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 1, 6), (2, 3, 4, 3, 5)])
def test_affine_grid(size):
    count = len(size) - 2
    theta = RNG.standard_normal((2, count, count + 1))
    for align in (False, True):
        compare(lambda t, a=align: F.affine_grid(t, size, a), lambda t, a=align: T.affine_grid(t, size, a), [theta])


def test_identity_grid_at_the_border():
    """Corners of an identity map lie on the border, where gradients have kinks."""
    theta = np.array([[[1.0, 0, 0], [0, 1, 0]]])
    x = RNG.standard_normal((1, 2, 4, 5))
    for mode, padding, align in itertools.product(
        ("bilinear", "nearest"), ("zeros", "border", "reflection"), (True, False)
    ):

        def sample(package, x, t, kwargs=(mode, padding, align), align=align):
            return package.grid_sample(x, package.affine_grid(t, (1, 2, 4, 5), align), *kwargs)

        compare(lambda x, t, s=sample: s(F, x, t), lambda x, t, s=sample: s(T, x, t), [x, theta], twice=False)


def test_layers():
    x = RNG.standard_normal((1, 2, 3, 4))
    for name, args, options in (
        ("Upsample", (), {"scale_factor": 2}), ("Upsample", ((5, 6), None, "bilinear", True), {}),
        ("Upsample", (), {"scale_factor": (2, 1.5), "mode": "bicubic"}),
        ("UpsamplingNearest2d", (), {"scale_factor": 2}),
        ("UpsamplingBilinear2d", ((7, 6),), {}),
    ):  # fmt: skip
        ours, theirs = getattr(nn, name)(*args, **options), getattr(torch.nn, name)(*args, **options)
        assert repr(ours) == repr(theirs)
        compare(ours, theirs, [x])


ERRORS = {
    "both": lambda f, t: f.interpolate(t(1, 2, 3), 4, 2.0),
    "none": lambda f, t: f.interpolate(t(1, 2, 3)),
    "align": lambda f, t: f.interpolate(t(1, 2, 3), 4, align_corners=True),
    "dims": lambda f, t: f.interpolate(t(1, 2, 3), 4, mode="bilinear"),
    "mode": lambda f, t: f.interpolate(t(1, 2, 3), 4, mode="nearer"),
    "sizes": lambda f, t: f.interpolate(t(1, 2, 3), (4, 5)),
    "factors": lambda f, t: f.interpolate(t(1, 2, 3), scale_factor=(4, 5)),
    "float size": lambda f, t: f.interpolate(t(1, 2, 3), (4.5,)),
    "zero": lambda f, t: f.interpolate(t(1, 2, 3), 0),
    "antialias": lambda f, t: f.interpolate(t(1, 2, 3), 2, antialias=True),
    "recompute": lambda f, t: f.interpolate(t(1, 2, 3), 2, recompute_scale_factor=True),
    "integers": lambda f, t: f.interpolate(t(1, 2, 3).long(), 2),
    "lanczos": lambda f, t: f.interpolate(t(1, 2, 3, 3), 2, mode="lanczos"),
    "grid mode": lambda f, t: f.grid_sample(t(1, 2, 3, 3), t(1, 2, 2, 2), "linear", align_corners=False),
    "grid padding": lambda f, t: f.grid_sample(t(1, 2, 3, 3), t(1, 2, 2, 2), padding_mode="wrap", align_corners=False),
    "grid last": lambda f, t: f.grid_sample(t(1, 2, 3, 3), t(1, 2, 2, 3), align_corners=False),
    "grid batch": lambda f, t: f.grid_sample(t(1, 2, 3, 3), t(2, 2, 2, 2), align_corners=False),
    "grid dtype": lambda f, t: f.grid_sample(t(1, 2, 3, 3), t(1, 2, 2, 2).double(), align_corners=False),
    "grid empty": lambda f, t: f.grid_sample(t(1, 2, 0, 3), t(1, 2, 2, 2), align_corners=False),
    "theta": lambda f, t: f.affine_grid(t(1, 2, 2), (1, 2, 3, 3), False),
    "theta integers": lambda f, t: f.affine_grid(t(1, 2, 3).long(), (1, 2, 3, 3), False),
    "affine size": lambda f, t: f.affine_grid(t(1, 2, 3), (1, 2, 3), False),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    with pytest.raises(Exception) as theirs:
        ERRORS[name](T, torch.ones)
    builtin = next(c for c in type(theirs.value).__mro__ if c.__module__ == "builtins")
    with pytest.raises(builtin):
        ERRORS[name](F, wg.ones)
