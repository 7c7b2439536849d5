"""Choose the schedule of a call: its tuning parameters, such as tile sizes and the number of work-items.

    schedule = choose(request, "pointwise", {"numel": numel}, dtype)        # schedule["parts"], schedule["lanes"], …

All schedules of a call give the same result. A *space* declares the parameters of one kind of op on one style of
device, and their values (`codegen/schedules.yaml`; the generated modules call `declare`). The choice is, in this order:
the candidate that the tuner is trying, the user's tuned choice (a file in the cache, see `tuning.store`), the shipped
default for the class of device, the fallback. Planners ask when a call has no plan yet. Cached plans keep their
schedules, so a new tuned choice makes all threads drop their plans.

A tuned choice is valid for a device (class, name, driver version, core count), an op, a dtype, the planner's layout
label, and sizes rounded up to powers of two. `WEFTGRAD_TUNE=off` ignores the user's tuned choices.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from . import dtypes
from .context import forget_plans

if TYPE_CHECKING:
    from .backends.protocol import Capabilities, Driver
    from .dispatch import Plan
    from .kinds import Request

__all__ = [
    "Choice", "Question", "Space", "add_tuned_choices", "choose", "declare", "device_class", "device_key", "forget",
    "frozen", "is_frozen", "planning", "spaces", "tuned_choices",
]  # fmt: skip

Choice: TypeAlias = Mapping[str, Any]
"""The values of a space's parameters: integers, pairs of integers, or None, as `codegen/schedules.yaml` declares."""

_BUILTINS = {"__builtins__": {}, "min": min, "max": max, "len": len}


@dataclass(frozen=True, slots=True)
class Space:
    """The parameters of one kind of op on one style of device; see `codegen.schedules`.

    Attributes:
        sizes: Names of the sizes on which the choice depends.
        parameters: By name, a description and the allowed values (None: the planner's own rule).
        fallback: The choice for devices without defaults.
        constraints: Compiled expressions that a choice must satisfy.
        defaults: By class of device, pairs of a compiled condition and the parameters that differ from `fallback`.
    """

    name: str
    about: str
    sizes: tuple[str, ...]
    parameters: Mapping[str, tuple[str, tuple[object, ...]]]
    fallback: Choice
    constraints: tuple[CodeType, ...]
    defaults: Mapping[str, tuple[tuple[CodeType | None, Choice], ...]]

    def shipped(self, class_name: str, names: Mapping[str, object]) -> Choice:
        """Return the default of a class of device. names: sizes and device properties, for the conditions."""
        for condition, changes in self.defaults.get(class_name, ()):
            if condition is None or eval(condition, _BUILTINS, dict(names)):
                return {**self.fallback, **changes}
        return self.fallback

    def allows(self, choice: Choice, names: Mapping[str, object]) -> bool:
        """Return True if `choice` has an allowed value for each parameter, no others, and meets the constraints."""
        if set(choice) != set(self.parameters):
            return False
        if any(choice[name] not in values for name, (_, values) in self.parameters.items()):
            return False
        scope = {**names, **choice}
        return all(eval(condition, _BUILTINS, dict(scope)) for condition in self.constraints)


spaces: dict[str, Space] = {}


def declare(
    name: str, *, about: str, sizes: tuple[str, ...], parameters: Mapping[str, tuple[str, tuple[object, ...]]],
    constraints: tuple[str, ...], fallback: Choice, defaults: Mapping[str, tuple[tuple[str, Choice], ...]],
) -> None:  # fmt: skip
    """Register a space. The generator has checked the expressions."""

    def compile_expression(text: str) -> CodeType:
        return compile(text, f"<{name}>", "eval")

    rules = {
        class_name: tuple(
            (compile_expression(condition) if condition else None, changes) for condition, changes in cases
        )
        for class_name, cases in defaults.items()
    }
    spaces[name] = Space(name, about, sizes, parameters, fallback, tuple(map(compile_expression, constraints)), rules)


class Question(NamedTuple):
    """A planner's request for a schedule, and the answer.

    names: sizes and device properties. key: identifies the call among the tuned choices.
    """

    space: Space
    key: str
    names: Mapping[str, object]
    answer: Choice


@dataclass(slots=True)
class _Session:
    """The tuner's view of the calls that a thread plans.

    Attributes:
        forced: The choice to use, by name of the space: the candidate that the tuner is trying.
        tuned: Whether the user's tuned choices count.
        questions: The requests for schedules so far.
    """

    forced: Mapping[str, Choice]
    tuned: bool
    questions: list[Question] = field(default_factory=list)


class _Local(threading.local):
    session: _Session | None = None
    frozen = 0


_local = _Local()
_lock = threading.Lock()
_tuned_choices: dict[str, Mapping[str, Choice | None]] = {}  # by device: the user's tuned choices, by key
_device_keys: dict[tuple[str, str, Capabilities], tuple[str, str]] = {}
# Called as on_plan(plan, request, operands) for every new plan while calls are recorded or tuned on their first plan.
on_plan: Callable[[Plan, Request, Sequence[object]], None] | None = None


def choose(request: Request, kind: str, sizes: Mapping[str, int], dtype: str, op: str = "", layout: str = "") -> Choice:
    """Return the schedule of a call: a value for every parameter of the space of `kind` on the request's device.

    Args:
        request: The call.
        kind: Name of the space, without the style of device.
        sizes: The sizes that the space declares.
        dtype: Name of the element type.
        op: Name under which the choice is tuned; default: the name of the request's op.
        layout: A label for layouts that need different schedules.
    """
    driver = request.device.driver
    caps = driver.capabilities
    space = spaces[f"{caps.kernel_style.spaces}/{kind}"]
    session = _local.session
    class_name, device = _device(driver, caps)
    if session is not None:
        names = properties(caps, dtype, sizes)
        key = _key(space, op or request.record.name, dtype, sizes, layout)
        choice = session.forced.get(space.name) or (_load_tuned(device).get(key) if session.tuned else None)
        answer = choice if choice is not None and space.allows(choice, names) else space.shipped(class_name, names)
        session.questions.append(Question(space, key, names, answer))
        return answer
    tuned = _load_tuned(device)
    if tuned:
        choice = tuned.get(_key(space, op or request.record.name, dtype, sizes, layout))
        if choice is not None and space.allows(choice, properties(caps, dtype, sizes)):
            return choice
    if class_name not in space.defaults:
        return space.fallback
    return space.shipped(class_name, properties(caps, dtype, sizes))


def has_settled() -> bool:
    """Return True if this thread's schedules are the ones of all calls: nothing is tuned or recorded."""
    return on_plan is None and _local.session is None


def properties(caps: Capabilities, dtype: str, sizes: Mapping[str, int]) -> dict[str, object]:
    """Return the names that conditions and constraints may use, with their values."""
    return {
        **sizes, "cores": caps.cores, "lanes": caps.lanes, "max_group": caps.max_group, "sm": caps.sm,
        "registers": caps.registers, "local_memory": caps.local_memory, "itemsize": dtypes.BY_NAME[dtype].itemsize,
    }  # fmt: skip


def _key(space: Space, op: str, dtype: str, sizes: Mapping[str, int], layout: str) -> str:
    """Return the key of a call's tuned choice; sizes are rounded up to powers of two."""
    shape = "x".join(str(1 << max(sizes[name] - 1, 0).bit_length()) for name in space.sizes)
    return f"{space.name} {op} {dtype} {shape}{' ' if layout else ''}{layout}"


# devices


def device_class(driver: Driver) -> str:
    """Return the class of device whose shipped defaults apply, or `fallback` if there are none."""
    return driver.capabilities.kernel_style.device_class(driver)


def _device_type(driver: Driver) -> str:
    return getattr(getattr(driver, "device", None), "type", "")


def device_key(driver: Driver) -> str:
    """Return the key of a device's tuned choices: its class, platform, name, driver version and core count."""
    return _device(driver, driver.capabilities)[1]


def _device(driver: Driver, caps: Capabilities) -> tuple[str, str]:
    """Return the class of a device, and its key among the tuned choices."""
    # A device for which kernels are only compiled has capabilities, but no identity.
    identity = getattr(driver, "identity", "") or getattr(driver, "name", "")
    cache_key = identity, _device_type(driver), caps
    names = _device_keys.get(cache_key)
    if names is None:
        class_name = device_class(driver)
        names = _device_keys[cache_key] = class_name, f"{class_name}; {identity}; {caps.cores} cores"
    return names


# the user's tuned choices


def _load_tuned(device: str) -> Mapping[str, Choice | None]:
    """Return a device's tuned choices, which are read from the user's file once."""
    choices = _tuned_choices.get(device)
    if choices is None:
        if os.environ.get("WEFTGRAD_TUNE") == "off":
            return {}
        from .tuning import store  # lazy: start-up

        with _lock:
            choices = _tuned_choices[device] = store.choices(device)
    return choices


def tuned_choices(device: str) -> Mapping[str, Choice | None]:
    """Return a device's tuned choices, by key; None means that the shipped one is best."""
    return _load_tuned(device)


def add_tuned_choices(device: str, choices: Mapping[str, Choice | None]) -> None:
    """Add tuned choices of a device (None: the shipped one is best), and drop all plans."""
    with _lock:
        _tuned_choices[device] = {**_tuned_choices.get(device, {}), **choices}
    forget_plans()


def forget() -> None:
    """Drop the tuned choices that were read, so that the user's file is read again, and drop all plans."""
    with _lock:
        _tuned_choices.clear()
    forget_plans()


# tuning


@contextmanager
def planning(forced: Mapping[str, Choice] | None = None, *, tuned: bool = False) -> Iterator[list[Question]]:
    """Give this thread's planners the `forced` schedules, and yield the list of the questions they ask.

    Args:
        forced: Schedules by the name of their space.
        tuned: For other spaces, use the user's tuned choice instead of the shipped one.
    """
    outer_session, _local.session = _local.session, _Session(forced or {}, tuned)
    try:
        yield _local.session.questions
    finally:
        _local.session = outer_session


@contextmanager
def frozen() -> Iterator[None]:
    """Disable tuning in this thread, while its work is timed, traced or captured."""
    _local.frozen += 1
    try:
        yield
    finally:
        _local.frozen -= 1


def is_frozen() -> bool:
    """Return True if this thread is inside `frozen`."""
    return _local.frozen > 0
