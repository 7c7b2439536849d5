"""Check interpolation in every mode and grid sampling: values by formulas, gradients by transposed matrices."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

import weftgrad as wg
from weftgrad import nn
from weftgrad.nn import functional as F
from weftgrad.runtime.errors import ArgumentError, DTypeError, NotSupported, ShapeError, UnsupportedDType

RNG = np.random.default_rng(6)
X = RNG.standard_normal((2, 3, 6, 5)).astype(np.float32)


def source_positions(in_size, out_size, align_corners):
    """Return the input positions of the centres of `out_size` cells."""
    if align_corners:
        return np.arange(out_size) * ((in_size - 1) / (out_size - 1))
    return (np.arange(out_size) + 0.5) * in_size / out_size - 0.5


def tent(d):
    """Return the weights of linear interpolation at distances d."""
    return np.maximum(1 - np.abs(d), 0)


def keys_cubic(d, a=-0.75):
    """Return the weights of cubic convolution at distances d (Keys 1981, equation 15, with a for -1/2)."""
    d = np.abs(d)
    inner, outer = (a + 2) * d**3 - (a + 3) * d**2 + 1, a * (d**3 - 5 * d**2 + 8 * d - 4)
    return np.where(d < 1, inner, np.where(d < 2, outer, 0))


def weight_matrix(kernel, in_size, out_size, align_corners):
    """Return the matrix `(out_size, in_size)` of interpolation weights, with border elements repeated."""
    padded_index = np.arange(-8, in_size + 8)
    weights = kernel(source_positions(in_size, out_size, align_corners)[:, None] - padded_index)
    result = np.zeros((out_size, in_size))
    np.add.at(result, (slice(None), np.clip(padded_index, 0, in_size - 1)), weights)
    return result


def antialias_matrix(kernel, in_size, out_size):
    """Return the weights of a kernel that is stretched to the output cells and truncated at the borders."""
    stretch = max(in_size / out_size, 1)
    weights = kernel((source_positions(in_size, out_size, False)[:, None] - np.arange(in_size)) / stretch)
    return weights / weights.sum(1, keepdims=True)


@pytest.mark.parametrize("size", [(12, 10), (3, 8), (6, 2)])
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(("mode", "kernel"), [("bilinear", tent), ("bicubic", keys_cubic)])
def test_linear_and_cubic_images(mode, kernel, align_corners, size):
    """Interpolation is a product with one matrix per dimension, and its gradient with the transposed matrices."""
    rows, columns = (weight_matrix(kernel, w, n, align_corners) for w, n in zip(X.shape[2:], size, strict=True))
    x = wg.tensor(X, requires_grad=True)
    out = F.interpolate(x, size, mode=mode, align_corners=align_corners)
    np.testing.assert_allclose(out.detach().numpy(), rows @ X @ columns.T, atol=3e-6)
    grad = RNG.standard_normal(out.shape).astype(np.float32)
    out.backward(wg.tensor(grad))
    np.testing.assert_allclose(x.grad.numpy(), rows.T @ grad @ columns, atol=1e-5)


def test_antialias():
    for mode, kernel in (("bilinear", tent), ("bicubic", lambda d: keys_cubic(d, -0.5))):
        rows, columns = antialias_matrix(kernel, 6, 2), antialias_matrix(kernel, 5, 7)
        output = F.interpolate(wg.tensor(X), (2, 7), mode=mode, antialias=True).numpy()
        np.testing.assert_allclose(output, rows @ X @ columns.T, atol=3e-6)


def test_nearest_and_area():
    x = wg.tensor(X)
    for factor in (2, 3):
        repeated = X.repeat(factor, 2).repeat(factor, 3)
        for mode in ("nearest", "nearest-exact"):
            np.testing.assert_array_equal(F.interpolate(x, scale_factor=factor, mode=mode).numpy(), repeated)
    np.testing.assert_array_equal(F.interpolate(x, (3, 5)).numpy(), X[:, :, ::2])
    np.testing.assert_array_equal(F.interpolate(x, (2, 5), mode="nearest-exact").numpy(), X[:, :, 1::3])
    area = F.interpolate(x, (3, 5), mode="area").numpy()
    np.testing.assert_allclose(area, (X[:, :, ::2] + X[:, :, 1::2]) / 2, rtol=1e-5, atol=1e-6)
    unscaled = F.interpolate(x, (6, 5))
    assert unscaled.data_ptr() != x.data_ptr()
    np.testing.assert_array_equal(unscaled.numpy(), X)


def test_signals_and_volumes():
    signal = X[0]
    output = F.interpolate(wg.tensor(signal), 9, mode="linear").numpy()
    np.testing.assert_allclose(output, signal @ weight_matrix(tent, 5, 9, False).T, atol=3e-6)
    volume = X[None]
    output = F.interpolate(wg.tensor(volume), scale_factor=(2, 1, 1.5), mode="trilinear", recompute_scale_factor=True)
    expected = np.einsum(
        "ncdhw,ed,xw->ncehx", volume, weight_matrix(tent, 3, 6, False), weight_matrix(tent, 5, 7, False)
    )
    np.testing.assert_allclose(output.numpy(), expected, atol=3e-6)


def test_scale_factors_determine_positions():
    """A factor of 1.5 makes 7 elements of 5. Their positions follow the factor 1.5, not 7 / 5."""
    x = wg.tensor(X[0])
    output = F.interpolate(x, scale_factor=1.5, mode="linear").numpy()
    positions = np.clip((np.arange(7) + 0.5) / 1.5 - 0.5, 0, 4)
    np.testing.assert_allclose(output, X[0] @ tent(positions[:, None] - np.arange(5)).T, atol=3e-6)


def test_nan_spreads_to_its_neighbours_only():
    x = np.zeros((1, 1, 6), np.float32)
    x[..., 0] = np.nan
    output = F.interpolate(wg.tensor(x), 12, mode="linear").numpy()
    assert np.isnan(output[0, 0]).tolist() == [True] * 3 + [False] * 9


def test_half_types_are_rounded_once():
    x = wg.tensor(X).half()
    output = F.interpolate(x, (12, 10), mode="bilinear")
    expected = F.interpolate(x.float(), (12, 10), mode="bilinear").half()
    assert output.dtype is wg.float16
    np.testing.assert_array_equal(output.numpy(), expected.numpy())


def test_grid_sample_agrees_with_scipy():
    """Compare with SciPy's map_coordinates of order 1, with zeros beyond the borders."""
    grid = RNG.uniform(-1.4, 1.4, (2, 4, 7, 2)).astype(np.float32)
    output = F.grid_sample(wg.tensor(X), wg.tensor(grid), align_corners=False).numpy()
    border = 9
    for n in range(2):
        # Grids hold (x, y): -1 and 1 are the outer edges of the first and last element.
        coordinates = [(grid[n, ..., axis].astype(np.float64) + 1) / 2 for axis in (1, 0)]
        positions = [c * size - 0.5 + border for c, size in zip(coordinates, X.shape[2:], strict=True)]
        padded = np.pad(X[n], ((0, 0), (border, border), (border, border))).astype(np.float64)
        for c in range(3):
            np.testing.assert_allclose(output[n, c], ndimage.map_coordinates(padded[c], positions, order=1), atol=1e-5)


def test_grids_of_affine_maps():
    """The identity grid reads every element. The gradient along x is the difference of neighbours."""
    theta = wg.tensor([[[1.0, 0, 0], [0, 1, 0]]] * 2, requires_grad=True)
    x = wg.tensor(X, requires_grad=True)
    grid = F.affine_grid(theta, X.shape, align_corners=False)
    out = F.grid_sample(x, grid, align_corners=False)
    np.testing.assert_allclose(out.detach().numpy(), X, atol=1e-5)
    out.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 1, atol=1e-5)
    shifted_theta = wg.tensor([[[1.0, 0, 0.1], [0, 1, 0]]] * 2, requires_grad=True)  # x + 0.1: a quarter of an element
    F.grid_sample(
        x.detach(), F.affine_grid(shifted_theta, X.shape, align_corners=False), align_corners=False
    ).sum().backward()
    padded = np.pad(X.astype(np.float64), ((0, 0), (0, 0), (0, 0), (0, 1)))
    slope = (padded[..., 1:] - padded[..., :-1]).sum((1, 2, 3)) * 5 / 2
    np.testing.assert_allclose(shifted_theta.grad.numpy()[:, 0, 2], slope, rtol=1e-4)


def test_layers():
    layer = nn.Upsample(scale_factor=2)
    assert repr(layer) == "Upsample(scale_factor=2.0, mode='nearest')"
    np.testing.assert_array_equal(layer(wg.tensor(X)).numpy(), X.repeat(2, 2).repeat(2, 3))
    assert repr(nn.UpsamplingBilinear2d((3, 4))) == "UpsamplingBilinear2d(size=(3, 4), mode='bilinear')"


def ones(*shape):
    return wg.ones(*shape)


ERRORS = {
    "no size": (lambda: F.interpolate(ones(1, 2, 3)), ArgumentError, "either size or scale_factor"),
    "mode for other dimensions": (lambda: F.interpolate(ones(1, 2, 3), 4, mode="bilinear"), NotSupported, "1 spatial"),
    "align_corners": (lambda: F.interpolate(ones(1, 2, 3), 4, align_corners=True), ArgumentError, "align_corners"),
    "sizes": (lambda: F.interpolate(ones(1, 2, 3), (4, 5)), ShapeError, "2 numbers"),
    "size 0": (lambda: F.interpolate(ones(1, 2, 3), 0), ShapeError, "one element at least"),
    "integers": (lambda: F.interpolate(ones(1, 2, 3).long(), 2), UnsupportedDType, "int64"),
    "antialias": (lambda: F.interpolate(ones(1, 2, 3), 2, antialias=True), ArgumentError, "antialias"),
    "grid": (lambda: F.grid_sample(ones(1, 2, 3, 3), ones(1, 2, 2, 3)), ShapeError, "grid"),
    "dtypes": (lambda: F.grid_sample(ones(1, 2, 3, 3), ones(1, 2, 2, 2).double()), DTypeError, "float64"),
    "padding": (lambda: F.grid_sample(ones(1, 2, 3, 3), ones(1, 2, 2, 2), padding_mode="x"), ArgumentError, "border"),
    "theta": (lambda: F.affine_grid(ones(1, 2, 2), (1, 2, 3, 3), True), ShapeError, "theta"),
    "remedy for a mode": (lambda: F.interpolate(ones(1, 2, 3), 4, mode="x"), NotSupported, "use one of .*linear"),
    "a vector to interpolate": (lambda: F.interpolate(ones(2), 4), NotSupported, "0 spatial.*one to three"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        call()


def test_affine_grid_warns_without_align_corners():
    with pytest.warns(UserWarning, match="align_corners"):
        F.affine_grid(ones(1, 2, 3), (1, 1, 2, 2))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "lanczos"])
def test_images_of_uint8_are_computed_in_float32_and_rounded(mode):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 9, 7), dtype=np.uint8)
    options = {"size": (5, 11), "mode": mode, "antialias": mode == "lanczos"}
    resized = F.interpolate(wg.tensor(pixels), **options)
    expected = F.interpolate(wg.tensor(pixels.astype(np.float64)), **options).numpy()
    assert resized.dtype is wg.uint8
    assert np.abs(resized.numpy() - np.clip(expected, 0, 255)).max() <= 0.5 + 1e-4
    with pytest.raises(UnsupportedDType, match="interpolate: takes floating dtypes, not uint8"):
        F.interpolate(wg.tensor(pixels), size=3, mode="area")
