"""Check learning-rate schedules: rates against their formulas, resuming, warnings and errors."""

import copy
import math

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn, optim
from weftgrad.optim import lr_scheduler


def rates(make, count, lr=0.8):
    optimizer = optim.SGD([nn.Parameter(wg.ones(1))], lr=lr)
    schedule = make(optimizer)
    history = []
    for _ in range(count):
        history.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return history


def test_schedules():
    def check(make, expected, lr=0.8):
        np.testing.assert_allclose(rates(make, len(expected), lr), expected, rtol=1e-12)

    check(lambda o: lr_scheduler.StepLR(o, 2, 0.5), [0.8, 0.8, 0.4, 0.4, 0.2])
    check(lambda o: lr_scheduler.MultiStepLR(o, [3, 1], 0.5), [0.8, 0.4, 0.4, 0.2])
    check(lambda o: lr_scheduler.ExponentialLR(o, 0.5), [0.8, 0.4, 0.2])
    check(lambda o: lr_scheduler.LambdaLR(o, lambda e: 1 / (1 + e)), [0.8, 0.4, 0.8 / 3])
    check(lambda o: lr_scheduler.LinearLR(o, 0.25, 1.0, 3), [0.2, 0.4, 0.6, 0.8, 0.8])
    check(lambda o: lr_scheduler.ConstantLR(o, 0.5, 2), [0.4, 0.4, 0.8])
    check(lambda o: lr_scheduler.PolynomialLR(o, 4, 2.0), [0.8 * (1 - k / 4) ** 2 for k in range(5)])
    check(
        lambda o: lr_scheduler.CosineAnnealingLR(o, 4, 0.1),
        [0.1 + 0.7 * (1 + math.cos(math.pi * k / 4)) / 2 for k in range(5)],
    )
    # PyTorch 2.13: OneCycleLR(SGD(momentum=0.9), max_lr=1, total_steps=10, cycle_momentum=False)
    check(
        lambda o: lr_scheduler.OneCycleLR(o, 1.0, total_steps=10, cycle_momentum=False),
        [0.04, 0.52, 1.0, 0.9504846320134737, 0.8117456539497631, 0.6112620219362893, 0.38874197806371076,
         0.18825834605023698, 0.04951936798652636, 4e-06],
    )  # fmt: skip


def options_of(optimizer):
    return [v for group in optimizer.param_groups for k, v in sorted(group.items()) if k != "params"]


class Halving:
    """A callable object; a schedule saves its attributes."""

    def __init__(self, rate):
        self.rate = rate

    def __call__(self, epoch):
        return self.rate**epoch


def sequence(optimizer):
    first = lr_scheduler.LinearLR(optimizer, 0.25, 1.0, 3)
    return lr_scheduler.SequentialLR(optimizer, [first, lr_scheduler.ExponentialLR(optimizer, 0.5)], [4])


SCHEDULES = {
    "lambda": (lambda o: lr_scheduler.LambdaLR(o, [lambda e: 0.9**e, Halving(0.5)]), lambda e: 0.8 * 0.9**e),
    "multiplicative": (lambda o: lr_scheduler.MultiplicativeLR(o, lambda e: 0.5), lambda e: 0.8 * 0.5**e),
    "restarts": (lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 2, 2, 0.1), lambda e: 0.1 + 0.35 * (
        1 + math.cos(math.pi * (e / 2 if e < 2 else (e - 2) / 4 if e < 6 else (e - 6) / 8))
    )),
    "cyclic": (lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.9, 4, 2, "triangular2"), lambda e: (
        0.1 + 0.8 * (e % 6 / 4 if e % 6 <= 4 else (6 - e % 6) / 2) / 2 ** (e // 6)
    )),
    "cosine": (lambda o: lr_scheduler.CosineAnnealingLR(o, 4), lambda e: 0.4 * (1 + math.cos(math.pi * e / 4))),
    "sequence": (sequence, lambda e: 0.2 * (e + 1) if e < 4 else 0.8 * 0.5 ** (e - 4)),
    "chain": (
        lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.ConstantLR(o, 0.5, 3), lr_scheduler.StepLR(o, 2, 0.5)]),
        lambda e: 0.8 * (0.5 if e < 3 else 1) * 0.5 ** (e // 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_follow_their_formulas_and_resume_from_saved_state(name):
    """The rate of the first group follows its formula, and a schedule resumed from a saved state continues alike."""
    make, formula = SCHEDULES[name]

    def build_pair():
        params = [nn.Parameter(wg.ones(1)) for _ in range(2)]
        optimizer = optim.SGD([{"params": params[:1]}, {"params": params[1:], "lr": 0.3}], lr=0.8, momentum=0.9)
        return optimizer, make(optimizer)

    optimizer, schedule = build_pair()
    resumed = resumed_schedule = None
    for epoch in range(14):
        np.testing.assert_allclose(optimizer.param_groups[0]["lr"], formula(epoch), rtol=1e-12)
        assert schedule.get_last_lr() == [g["lr"] for g in optimizer.param_groups]
        if epoch == 5:
            saved = copy.deepcopy((optimizer.state_dict(), schedule.state_dict()))
            resumed, resumed_schedule = build_pair()
            resumed.load_state_dict(saved[0])
            resumed_schedule.load_state_dict(saved[1])
        for current_optimizer, current_schedule in ((optimizer, schedule), (resumed, resumed_schedule)):
            if current_optimizer is not None:
                current_optimizer.step()
                current_schedule.step()
        assert resumed is None or options_of(resumed) == options_of(optimizer)


def test_schedules_resume_from_last_epoch():
    optimizer = optim.SGD([nn.Parameter(wg.ones(1))], lr=0.1)
    with pytest.raises(KeyError, match="initial_lr"):
        lr_scheduler.StepLR(optimizer, 2, last_epoch=3)
    optimizer.param_groups[0]["initial_lr"] = 0.8
    schedule = lr_scheduler.LambdaLR(optimizer, lambda e: 0.5**e, last_epoch=3)
    assert (schedule.last_epoch, optimizer.param_groups[0]["lr"]) == (4, 0.05)


def test_warnings():
    param = nn.Parameter(wg.ones(1))
    with pytest.warns(UserWarning, match=r"scheduler.step\(\) was called before optimizer"):
        lr_scheduler.StepLR(optim.SGD([param]), 2).step()
    optimizer = optim.SGD([param])
    schedule = lr_scheduler.StepLR(optimizer, 2)
    optimizer.step()
    schedule.step()
    with pytest.warns(UserWarning, match="deprecated"):
        schedule.step(4)
    assert schedule.last_epoch == 4
    with pytest.warns(UserWarning, match="get_last_lr"):
        schedule.get_lr()
    optimizer = optim.SGD([param])
    schedule = lr_scheduler.StepLR(optimizer, 2)
    optimizer.step = lambda: None
    with pytest.warns(UserWarning, match="replaced"):
        schedule.step()


def test_invalid_arguments_raise():
    optimizer = optim.SGD([nn.Parameter(wg.ones(1))], lr=0.1)
    plain = lr_scheduler.StepLR(optimizer, 2)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer)
    for make in (
        lambda: lr_scheduler.StepLR(0.1, 2), lambda: lr_scheduler.LambdaLR(optimizer, [abs, abs]),
        lambda: lr_scheduler.LinearLR(optimizer, 0), lambda: lr_scheduler.ConstantLR(optimizer, 2),
        lambda: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 0),
        lambda: lr_scheduler.SequentialLR(optimizer, [], []),
        lambda: lr_scheduler.SequentialLR(optimizer, [plain], [3]), lambda: lr_scheduler.ChainedScheduler([plateau]),
        lambda: lr_scheduler.SequentialLR(optim.SGD([nn.Parameter(wg.ones(1))]), [plain], []),
        lambda: lr_scheduler.ReduceLROnPlateau(optimizer, "low"), lambda: lr_scheduler.OneCycleLR(optimizer, 1.0),
        lambda: lr_scheduler.OneCycleLR(optimizer, 1.0, 10, anneal_strategy="sin"),
        lambda: lr_scheduler.CyclicLR(optim.Adagrad([nn.Parameter(wg.ones(1))]), 0.1, 1.0),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"\w"):
            make()


def test_reduce_on_plateau():
    optimizer = optim.SGD([nn.Parameter(wg.ones(1))], lr=1.0)
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    history = []
    for loss in (3.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0):
        schedule.step(loss)
        history.append(optimizer.param_groups[0]["lr"])
    assert history == [1, 1, 1, 0.5, 0.5, 0.25, 0.25]
