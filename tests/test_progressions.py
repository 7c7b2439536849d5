"""Compare arange and linspace with NumPy in every dtype, and with PyTorch where the two differ."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weftgrad as wg
from weftgrad.runtime.errors import SpecError

DEVICES = ("cpu", "opencl:0")
FLOATS = {"float64": 0, "float32": 0, "float16": 0, "bfloat16": 2**-8}  # relative tolerance; NumPy has no bfloat16
_NUMBERS = st.floats(-1e3, 1e3, allow_nan=False).map(lambda x: round(x, 3))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS)
@settings(max_examples=25, deadline=None)
@given(start=_NUMBERS, step=_NUMBERS.filter(bool), count=st.integers(0, 300))
def test_arange_of_floats(device: str, dtype: str, start: float, step: float, count: int) -> None:
    """Elements are start + i * step in float64, rounded once (half types through float32), up to the end."""
    end = start + step * (count - 0.5) if count else start
    actual = wg.arange(start, end, step, dtype=getattr(wg, dtype), device=device).cpu()
    expected = start + step * np.arange(count, dtype=np.float64)
    assert actual.shape == (count,), (device, dtype)
    with np.errstate(over="ignore"):
        single = expected if dtype == "float64" else expected.astype(np.float32)
        exact = single if dtype == "bfloat16" else single.astype(dtype).astype(np.float64)
    np.testing.assert_allclose(actual.double().numpy(), exact, rtol=FLOATS[dtype], atol=0, err_msg=f"{device} {dtype}")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8"])
@settings(max_examples=25, deadline=None)
@given(start=st.integers(-90, 90), step=st.integers(-9, 9).filter(bool), count=st.integers(0, 300))
def test_arange_of_integers(device: str, dtype: str, start: int, step: int, count: int) -> None:
    """Values outside the dtype's range wrap around, as in PyTorch."""
    actual = wg.arange(start, start + step * count, step, dtype=getattr(wg, dtype), device=device).cpu()
    expected = (start + step * np.arange(count)).astype(dtype)
    np.testing.assert_array_equal(actual.numpy(), expected, f"{device} {dtype}")


def test_large_integers_are_exact() -> None:
    first = 2**62 + 1
    assert wg.arange(first, first + 7, 3).tolist() == [first, first + 3, first + 6]
    assert wg.arange(-first, -first - 3, -2).tolist() == [-first, -first - 2]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS)
@settings(max_examples=25, deadline=None)
@given(start=_NUMBERS, end=_NUMBERS, count=st.integers(1, 300))
def test_linspace(device: str, dtype: str, start: float, end: float, count: int) -> None:
    """Both ends are exact. For the other elements, NumPy and this library round the step, its multiple and the sum in
    float64; then the result is rounded once."""
    actual = wg.linspace(start, end, count, dtype=getattr(wg, dtype), device=device).cpu().double().numpy()
    expected = np.linspace(start, end, count)
    unit = {"float64": 2**-52, "float32": 2**-23, "float16": 2**-10, "bfloat16": 2**-7}[dtype]
    tolerance = 2 * (2e3 + 2e3 + 1e3) * 2**-53 + (2**-24 if dtype == "float16" else 0)  # the smallest float16
    np.testing.assert_allclose(actual, expected, rtol=unit, atol=tolerance, err_msg=f"{device} {dtype}")
    ends = wg.tensor([start, end], dtype=getattr(wg, dtype)).double().tolist()
    assert [actual[0], actual[-1]] == (ends if count > 1 else ends[:1] * 2), (device, dtype)


def test_linspace_as_in_pytorch() -> None:
    assert wg.linspace(0, 10, 4, dtype=wg.int64).tolist() == [0, 3, 6, 10]
    assert wg.linspace(10, -3, 5, dtype=wg.int32).tolist() == [10, 6, 3, 0, -3]
    assert wg.linspace(0, 1, 0).shape == (0,)
    assert wg.linspace(wg.tensor(1.0), 3, 3).tolist() == [1, 2, 3]
    assert np.isnan(wg.linspace(0, float("inf"), 3).tolist()).all()


def test_arange_as_in_pytorch() -> None:
    """For integer dtypes, start and step are rounded towards zero. For int64 the end is rounded too, beforehand."""
    assert wg.arange(0.5, 5, 1.5, dtype=wg.int64).tolist() == [0, 1, 2, 3, 4]
    assert wg.arange(0.5, 5, 1.5, dtype=wg.int32).tolist() == [0, 1, 2]
    assert wg.arange(0, 1, 0.25, dtype=wg.int32).tolist() == [0, 0, 0, 0]
    assert wg.arange(5.0, dtype=wg.float16).tolist() == [0, 1, 2, 3, 4]


def test_arange_into_a_strided_out() -> None:
    zeros = wg.zeros(9)
    wg.arange(5, out=zeros[::2])
    assert zeros.tolist() == [0, 0, 1, 0, 2, 0, 3, 0, 4]


RAMP = """
- op: "ramp(input, rate: Scalar = 0.5)"
  kind: random
  doc: input * exp(-rate * i) + input ** 2, for element i.
  dtypes: float
  out: input * exp(-rate * index) + input * input
"""


def test_a_user_op_with_positions(tmp_path: Path) -> None:
    """Check values and two derivatives of an op that uses `index`. For a view, positions are those of the view."""
    (tmp_path / "ramp.yaml").write_text(RAMP)
    ramp = wg.ops.load(tmp_path / "ramp.yaml").ramp
    x = wg.randn(4, 3, dtype=wg.float64).T.requires_grad_()
    array, decay = x.detach().numpy(), np.exp(-0.25 * np.arange(12.0).reshape(3, 4))
    y = ramp(x, 0.25)
    np.testing.assert_allclose(y.detach().numpy(), array * decay + array**2, rtol=1e-14)
    (slope,) = wg.autograd.grad(y.sum(), x, create_graph=True)
    np.testing.assert_allclose(slope.detach().numpy(), decay + 2 * array, rtol=1e-14, atol=1e-14)
    (second,) = wg.autograd.grad(slope.sum(), x)
    np.testing.assert_allclose(second.numpy(), np.full((3, 4), 2.0), rtol=1e-14)


def test_positions_need_no_seed(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(RAMP.replace(" = 0.5)", ", seed: Seed, offset: Seed)"))
    with pytest.raises(SpecError, match="takes no seed"):
        wg.ops.load(tmp_path / "wrong.yaml")


_HOST = """
import sys
import weftgrad as wg
if sys.argv[1] == "kernels":
    (wg.ones(3) + 1).tolist()
tensors = [wg.arange(-5.68, 7864, 5.24512, dtype=d) for d in (wg.float64, wg.float32, wg.float16)]
tensors += [wg.linspace(-5, 7, 1201, dtype=d) for d in (wg.float64, wg.float32, wg.float16)]
print(sys.argv[1], wg.device("cpu").driver.opened, file=sys.stderr)
print([x.numpy().tobytes().hex() for x in tensors])
"""


def test_the_host_gives_the_same_bits() -> None:
    """The host fills such tensors until a driver is open. It must give the same bits as the kernels."""
    runs = [
        subprocess.run([sys.executable, "-c", _HOST, mode], capture_output=True, text=True, check=True, timeout=120)
        for mode in ("host", "kernels")
    ]
    assert [run.stderr.split()[-1] for run in runs] == ["False", "True"]
    assert runs[0].stdout == runs[1].stdout
