"""What a step's work is: by what it costs, and not only by its size. Teams of threads are woken by it."""

from typing import Any

import pytest

import weftgrad as wg
from weftgrad.runtime import dispatch
from weftgrad.runtime.records import registry

SMALL = 48 * 1024  # elements of work, some 20 us of one core: about what waking a helper costs


def work(name: str, *operands: Any) -> int:
    (step,) = dispatch.plan_for(registry[name], operands).steps
    return step.work


def at_once(name: str, *operands: Any) -> bool:
    return work(name, *operands) <= SMALL


@pytest.mark.parametrize("name", ["neg", "exp", "tanh", "sin", "lgamma"])
def test_work_grows_with_elements(name: str) -> None:
    assert work(name, wg.empty(1000)) > 0
    assert work(name, wg.empty(4000)) == 4 * work(name, wg.empty(1000))


def test_dear_elements_count_for_more() -> None:
    found = [work(name, wg.empty(1 << 16)) for name in ("neg", "exp", "tanh", "sin", "lgamma")]
    assert found == sorted(set(found)), "an addition costs least, a gamma function most"
    assert at_once("neg", wg.empty(1 << 17))
    assert not at_once("neg", wg.empty(1 << 18))
    assert at_once("exp", wg.empty(1 << 16))
    assert not at_once("lgamma", wg.empty(1 << 13))
    assert work("neg", wg.empty(1 << 16, dtype=wg.float64)) == 2 * work("neg", wg.empty(1 << 16))


def test_elements_far_apart_count_for_more() -> None:
    x = wg.empty(256, 256)
    assert work("add", x, wg.empty(256)) == work("add", x, x) < work("add", x, x.t())


def test_a_sum_in_vectors_is_cheap() -> None:
    """A middling sum is one launch in the calling thread, not partial sums of workers."""

    def plan(x: wg.Tensor) -> Any:
        return dispatch.plan_for(registry["sum"], (x,), (None, False, None)).steps

    (step,) = plan(wg.empty(1 << 17))
    assert step.work <= SMALL
    assert plan(wg.empty(1 << 16))[0].work < plan(wg.empty(1 << 17)[::2])[0].work
