"""Check pointwise ops whose rows are short and repeat: schedules merge such rows, or iterate down the columns."""

import itertools

import numpy as np
import pytest

import weftgrad as wg


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
@pytest.mark.parametrize("rows", [1, 3, 31, 32, 33, 100])
def test_rows_that_repeat(rows: int, dtype: str) -> None:
    """Repeat rows of `size` elements `count` times. Both are shorter than a vector, or a little longer."""
    for count, size in itertools.product((2, 3, 4, 5, 8, 17), (1, 2, 3, 4, 8, 17)):
        array = np.arange(rows * size, dtype=dtype).reshape(rows, size)
        expected = np.broadcast_to(array[:, None], (rows, count, size))
        view = wg.tensor(array, device="cpu").unsqueeze(1).expand(rows, count, size)
        where = f"{dtype} {(rows, count, size)}"
        np.testing.assert_array_equal(view.contiguous().numpy(), expected, err_msg=f"copy, {where}")
        np.testing.assert_array_equal((view + 1).numpy(), expected + 1, err_msg=f"add, {where}")
        other = wg.ones(rows, count, size, dtype=getattr(wg, dtype), device="cpu")
        np.testing.assert_array_equal((view + other).numpy(), expected + 1, err_msg=f"add of tensors, {where}")


def test_repeat_interleave_of_short_rows() -> None:
    array = np.arange(64, dtype=np.float32).reshape(32, 2)
    result = wg.tensor(array).repeat_interleave(4, 0)
    np.testing.assert_array_equal(result.numpy(), array.repeat(4, 0))
