"""Arguments that factories convert or refuse: fill values, strides, and the bounds of random integers.

Expected results and types of errors are PyTorch's.
"""

from __future__ import annotations

import numpy as np
import pytest

import weftgrad as wg


def test_fill_values_may_be_scalars_of_any_library() -> None:
    """A fill value is a number, a NumPy scalar, or a tensor of one element."""
    like = wg.zeros(2, dtype=wg.float64)
    for value in (3, 3.0, np.float32(3), wg.tensor(3), wg.tensor([3.0])):
        assert wg.full_like(like, value).tolist() == [3.0, 3.0]
        assert wg.full((2,), value).tolist() == [3.0, 3.0]
        assert wg.scalar_tensor(value).item() == 3.0


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("full", lambda value: wg.full((2,), value, dtype=wg.uint8)),
        ("full_like", lambda value: wg.full_like(wg.zeros(2, dtype=wg.uint8), value)),
        ("scalar_tensor", lambda value: wg.scalar_tensor(value, dtype=wg.uint8)),
    ],
)
def test_errors_of_fill_values_name_the_function_that_was_called(name, call) -> None:
    with pytest.raises(TypeError, match=f"^{name}: .*must be a number, not 'a'"):
        call("a")
    with pytest.raises(RuntimeError, match=f"^{name}: 300 does not fit uint8"):
        call(300)


def test_strides_of_a_new_tensor_are_checked() -> None:
    """There is one stride for each size, and none is negative: the first element is at the start of the memory."""
    with pytest.raises(RuntimeError, match=r"empty_strided: size \[2, 3\] and stride \[1\] differ in length"):
        wg.empty_strided((2, 3), (1,))
    with pytest.raises(RuntimeError, match=r"empty_strided: strides must not be negative, got \[-1, 1\]"):
        wg.empty_strided((2, 3), (-1, 1))
    assert wg.empty_strided((2, 3), (0, 1)).stride() == (0, 1)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("randint", lambda bound: wg.randint(bound, (2,))),
        ("randint", lambda bound: wg.randint(-9, bound, (2,))),
        ("randint", lambda bound: wg.randint(bound, 9, (2,))),
        ("randint_like", lambda bound: wg.randint_like(wg.zeros(2), bound)),
        ("random_", lambda bound: wg.zeros(2).random_(bound)),
    ],
)
def test_bounds_of_random_integers_are_integers(name, call) -> None:
    """A fraction is an error: it is not rounded."""
    for bound in (2.7, 3.0, wg.tensor(2.7), "3"):
        with pytest.raises(TypeError, match=f"^{name}: low and high are ints"):
            call(bound)
    for bound in (3, np.int64(3), wg.tensor(3)):
        values = call(bound)
        assert values.shape == (2,)
        assert ((values >= -9) & (values < 9)).all()
