"""Which schedule a planner takes where several give the right result: declared values, defaults, and what was tuned.

    chosen = choose(request, "pointwise", {"numel": numel}, dtype)        # chosen["parts"], chosen["lanes"], …

A *space* is what may be chosen for one kind of op on one style of device (`codegen/schedules.yaml`, handed over by the
generated modules). In order of preference a choice is the one that is being tried while a call is tuned, the user's (a
file in the cache, see `tuning.store`), the one shipped for the class of device, the fallback. Planners ask at a plan
miss; a plan that was found is not looked at again, so when a better choice is known, plans are forgotten.

A choice is kept for a device (class, name, driver version, cores), an op, a dtype, what the planner says of layouts,
and sizes up to powers of two. `WEFTGRAD_TUNE=off` leaves what the user tuned aside.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from . import dtypes

if TYPE_CHECKING:
    from .backends.protocol import Capabilities
    from .kinds import Request

__all__ = [
    "Choice", "Question", "Space", "choose", "declare", "device_class", "device_key", "forget", "frozen", "is_frozen",
    "keep", "known", "planning", "spaces",
    "tunes_misses",
]  # fmt: skip

Choice = Mapping[str, Any]
_STYLES = {"cpu": "opencl-cpu", "gpu": "opencl-gpu", "triton": "triton"}
_BUILTINS = {"__builtins__": {}, "min": min, "max": max, "len": len}


@dataclass(frozen=True, slots=True)
class Space:
    """What may be chosen for one kind of op on one style of device; see `codegen.schedules`.

    parameters: by name, what it is and the values it may have (None: the planner's own rule). defaults: by class of
    device, conditions and what differs from `fallback` where they hold.
    """

    name: str
    about: str
    sizes: tuple[str, ...]
    parameters: Mapping[str, tuple[str, tuple[Any, ...]]]
    fallback: Choice
    constraints: tuple[Any, ...]
    defaults: Mapping[str, tuple[tuple[Any, Choice], ...]]

    def shipped(self, which: str, names: Mapping[str, Any]) -> Choice:
        """The default for a class of device. names: sizes and properties of the device."""
        for when, changes in self.defaults.get(which, ()):
            if when is None or eval(when, _BUILTINS, dict(names)):
                return {**self.fallback, **changes}
        return self.fallback

    def allows(self, choice: Choice, names: Mapping[str, Any]) -> bool:
        """Whether a choice has declared values for exactly the parameters there are, and meets the constraints."""
        if set(choice) != set(self.parameters):
            return False
        if any(choice[name] not in values for name, (_, values) in self.parameters.items()):
            return False
        every = {**names, **choice}
        return all(eval(each, _BUILTINS, dict(every)) for each in self.constraints)


spaces: dict[str, Space] = {}


def declare(
    name: str, *, about: str, sizes: tuple[str, ...], parameters: Mapping[str, tuple[str, tuple[Any, ...]]],
    constraints: tuple[str, ...], fallback: Choice, defaults: Mapping[str, tuple[tuple[str, Choice], ...]],
) -> None:  # fmt: skip
    """Take over a space. The expressions were checked by the generator."""

    def compiled(text: str) -> Any:
        return compile(text, f"<{name}>", "eval")

    rules = {k: tuple((compiled(w) if w else None, c) for w, c in found) for k, found in defaults.items()}
    spaces[name] = Space(name, about, sizes, parameters, fallback, tuple(map(compiled, constraints)), rules)


class Question(NamedTuple):
    """What a planner asked, and what it was told. names: sizes and properties of the device. key: under which the
    answer is kept."""

    space: Space
    key: str
    names: Mapping[str, Any]
    answer: Choice


@dataclass(slots=True)
class _Session:
    forced: Mapping[str, Choice]
    tuned: bool
    asked: list[Question] = field(default_factory=list)


class _Local(threading.local):
    session: _Session | None = None
    frozen = 0


_local = _Local()
_lock = threading.Lock()
_kept: dict[str, Mapping[str, Choice | None]] = {}  # by device, what the user tuned
_keys: dict[tuple[Any, ...], tuple[str, str]] = {}
# Called with every new plan (plan, request, operands) where plans are tuned when they are made, or recorded.
on_plan: Callable[[Any, Any, Any], None] | None = None


def choose(request: Request, kind: str, sizes: Mapping[str, int], dtype: str, op: str = "", layout: str = "") -> Choice:
    """The schedule of one call: a value for every parameter of the space of `kind` on the request's device.

    sizes: what the space says it depends on. dtype: of the elements. op: under whose name it is kept (default: the
    request's). layout: what else the best choice depends on, in a word.
    """
    driver: Any = request.device.driver
    able = driver.capabilities
    space = spaces[f"{_STYLES[able.style]}/{kind}"]
    session = _local.session
    which, device = _device(driver, able)
    if session is not None:
        names = properties(able, dtype, sizes)
        key = _key(space, op or request.record.name, dtype, sizes, layout)
        found = session.forced.get(space.name) or (_tuned(device).get(key) if session.tuned else None)
        answer = found if found is not None and space.allows(found, names) else space.shipped(which, names)
        session.asked.append(Question(space, key, names, answer))
        return answer
    tuned = _tuned(device)
    if tuned:
        found = tuned.get(_key(space, op or request.record.name, dtype, sizes, layout))
        if found is not None and space.allows(found, properties(able, dtype, sizes)):
            return found
    if which not in space.defaults:
        return space.fallback
    return space.shipped(which, properties(able, dtype, sizes))


def properties(able: Capabilities, dtype: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """The names that conditions may use."""
    return {
        **sizes, "cores": able.cores, "lanes": able.lanes, "max_group": able.max_group, "sm": able.sm,
        "registers": able.registers, "local_memory": able.local_memory, "itemsize": dtypes.BY_NAME[dtype].itemsize,
    }  # fmt: skip


def _key(space: Space, op: str, dtype: str, sizes: Mapping[str, int], layout: str) -> str:
    shape = "x".join(str(1 << max(sizes[name] - 1, 0).bit_length()) for name in space.sizes)
    return f"{space.name} {op} {dtype} {shape}{' ' if layout else ''}{layout}"


# devices


def device_class(driver: Any) -> str:
    """Which of the shipped defaults a device takes; `fallback` where none is meant for it."""
    able = driver.capabilities
    if able.style == "triton":
        return "sm_90" if able.sm >= 90 else "sm_80" if able.sm >= 80 else "fallback"
    if able.style == "gpu":
        return "opencl_gpu"
    identity = getattr(driver, "identity", "")
    by_prefix = {"clang": "clang", "Portable": "pocl", "Intel": "intel_cpu"}
    return next((name for prefix, name in by_prefix.items() if identity.startswith(prefix)), "fallback")


def _type(driver: Any) -> str:
    return getattr(getattr(driver, "device", None), "type", "")


def device_key(driver: Any) -> str:
    """Under what a device's choices are kept: class, platform, name, driver version, cores."""
    return _device(driver, driver.capabilities)[1]


def _device(driver: Any, able: Capabilities) -> tuple[str, str]:
    # A device that kernels are only compiled for has no more than its capabilities.
    identity = getattr(driver, "identity", "") or getattr(driver, "name", "")
    known = identity, _type(driver), able
    found = _keys.get(known)
    if found is None:
        which = device_class(driver)
        found = _keys[known] = which, f"{which}; {identity}; {able.cores} cores"
    return found


# what the user tuned


def _tuned(device: str) -> Mapping[str, Choice | None]:
    found = _kept.get(device)
    if found is None:
        if os.environ.get("WEFTGRAD_TUNE") == "off":
            return {}
        from .tuning import store

        with _lock:
            found = _kept[device] = store.choices(device)
    return found


def known(device: str) -> Mapping[str, Choice | None]:
    """What is kept for a device, by key: the choice, or None where the shipped one was found to be best."""
    return _tuned(device)


def keep(device: str, found: Mapping[str, Choice | None]) -> None:
    """Take note of choices (None: the shipped one is best), and have everything planned anew."""
    from .context import forget_plans

    with _lock:
        _kept[device] = {**_kept.get(device, {}), **found}
    forget_plans()


def forget() -> None:
    """Have tuned choices read anew from the user's file, and everything planned anew."""
    from .context import forget_plans

    with _lock:
        _kept.clear()
    forget_plans()


# tuning


@contextmanager
def planning(forced: Mapping[str, Choice] | None = None, *, tuned: bool = False) -> Iterator[list[Question]]:
    """While it lasts, this thread's planners are told what `forced` has, by the space's name; of others, the shipped
    choice, or with `tuned`, the user's. Gives the list of what they ask."""
    before, _local.session = _local.session, _Session(forced or {}, tuned)
    try:
        yield _local.session.asked
    finally:
        _local.session = before


@contextmanager
def frozen() -> Iterator[None]:
    """While it lasts, this thread tunes nothing: what runs is being timed, traced or captured."""
    _local.frozen += 1
    try:
        yield
    finally:
        _local.frozen -= 1


def is_frozen() -> bool:
    """Whether this thread is within `frozen`."""
    return _local.frozen > 0


def _tune_first(plan: Any, request: Any, operands: Any) -> None:
    from .tuning.missed import tune

    tune(plan, request, operands)


def tunes_misses() -> bool:
    """Whether calls are tuned when they are first planned."""
    return on_plan is _tune_first


if os.environ.get("WEFTGRAD_TUNE") == "1":
    on_plan = _tune_first
