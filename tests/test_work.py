"""Check the estimated work of a step, which decides whether a team of threads is woken for it.

The estimate depends on the cost of the function and on the strides, not only on the number of elements.
"""

from typing import Any

import pytest

import weftgrad as wg
from weftgrad.runtime import dispatch
from weftgrad.runtime.records import registry

MAX_WORK_IN_CALLING_THREAD = 48 * 1024  # in elements: about 20 us of one core, the cost of waking a thread


def work(name: str, *operands: Any) -> int:
    (step,) = dispatch.plan_for(registry[name], operands).steps
    return step.work


def runs_in_calling_thread(name: str, *operands: Any) -> bool:
    return work(name, *operands) <= MAX_WORK_IN_CALLING_THREAD


@pytest.mark.parametrize("name", ["neg", "exp", "tanh", "sin", "lgamma"])
def test_work_grows_with_elements(name: str) -> None:
    assert work(name, wg.empty(1000)) > 0
    assert work(name, wg.empty(4000)) == 4 * work(name, wg.empty(1000))


def test_expensive_functions_are_more_work() -> None:
    costs = [work(name, wg.empty(1 << 16)) for name in ("neg", "exp", "tanh", "sin", "lgamma")]
    assert costs == sorted(set(costs)), "a negation costs least, lgamma most"
    assert runs_in_calling_thread("neg", wg.empty(1 << 17))
    assert not runs_in_calling_thread("neg", wg.empty(1 << 18))
    assert runs_in_calling_thread("exp", wg.empty(1 << 16))
    assert not runs_in_calling_thread("lgamma", wg.empty(1 << 13))
    assert work("neg", wg.empty(1 << 16, dtype=wg.float64)) == 2 * work("neg", wg.empty(1 << 16))


def test_strided_elements_are_more_work() -> None:
    x = wg.empty(256, 256)
    assert work("add", x, wg.empty(256)) == work("add", x, x) < work("add", x, x.t())


def test_a_vectorized_sum_is_little_work() -> None:
    """A sum of 128K elements is one launch in the calling thread, without partial sums of other threads."""

    def plan(x: wg.Tensor) -> Any:
        return dispatch.plan_for(registry["sum"], (x,), (None, False, None)).steps

    (step,) = plan(wg.empty(1 << 17))
    assert step.work <= MAX_WORK_IN_CALLING_THREAD
    assert plan(wg.empty(1 << 16))[0].work < plan(wg.empty(1 << 17)[::2])[0].work
