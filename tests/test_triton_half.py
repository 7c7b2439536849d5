"""Math functions of Triton kernels that read and write half precision only, in the interpreter."""

from importlib import resources

import numpy as np
import pytest
import scipy.special

pytest.importorskip("triton")

from triton_running import interpreter

import weftgrad as wg
from weftgrad.runtime.backends.protocol import Instance, Slot
from weftgrad.runtime.records import registry
from weftgrad.runtime.triton import source

DEVICE, _ = interpreter("block=64,cores=2")
FOLDER = resources.files("weftgrad.templates") / "triton" / "math"


def test_functions_for_half_precision_replace_others_in_kernels_of_half_precision_only():
    halves = {f.name.removesuffix(".half.py") for f in FOLDER.iterdir() if f.name.endswith(".half.py")}
    assert {"div", "erf", "exp_scaled", "logistic", "tanh"} <= halves
    text = registry["sigmoid"].texts["triton"]
    texts = {}
    for dtypes in (("bfloat16", "bfloat16"), ("float16", "float32"), ("float32", "float32"), ("int64", "int64")):
        slots = tuple(Slot(dtype) for dtype in dtypes)
        instance = Instance("sigmoid", text.source, "sigmoid_flat", "float", 1, slots, (), text.functions)
        texts[dtypes] = source.module_text(instance)
    half = texts.pop(("bfloat16", "bfloat16"))
    assert len(set(texts.values())) == 1
    assert "tl.exp2(" in half
    assert "tl.exp2(" not in next(iter(texts.values()))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_functions_for_half_precision_are_within_one_unit(dtype):
    rng = np.random.default_rng(0)
    special_values = [0.0, -0.0, np.inf, -np.inf, np.nan, 11.0, -17.0, 88.5, -87.0, -100.0, 1e-6]
    numbers = np.concatenate([*(rng.normal(size=2000) * scale for scale in (1e-2, 1, 4, 30)), special_values])
    x = wg.tensor(numbers).to(getattr(wg, dtype))
    values = x.to(wg.float64).numpy()
    with np.errstate(all="ignore"):
        cases = {
            "exp": np.exp(values), "sigmoid": scipy.special.expit(values), "tanh": np.tanh(values),
            "erf": scipy.special.erf(values), "silu": values * scipy.special.expit(values),
            "softplus": np.logaddexp(0, values),
        }  # fmt: skip
    for name, expected in cases.items():
        function = getattr(wg, name, None) or getattr(wg.nn.functional, name)
        actual = function(x.to(DEVICE)).cpu()
        rounded = wg.tensor(expected).to(x.dtype)
        is_nan = np.isnan(rounded.to(wg.float64).numpy())
        assert np.array_equal(np.isnan(actual.to(wg.float64).numpy()), is_nan), name
        distances = np.abs(_position(actual) - _position(rounded))[~is_nan]
        assert distances.max() <= 1, (name, dtype, values[~is_nan][distances.argmax()])
        assert (distances > 0).mean() < 0.02, (name, dtype)


def _position(tensor):
    """Return the number of each element of half precision in the order of all its numbers; both zeros are 0."""
    bits = tensor.view(wg.int16).numpy().astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFF), bits)
