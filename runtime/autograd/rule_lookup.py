"""Find the gradient rules of an op: those of its record, functions of the runtime, or rules derived from its spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..derive import derive_rules
from ..lazy_modules import import_lazily
from ..records import OpRecord, Rule, registry

__all__ = ["gradient_rules"]

# Kinds whose gradient rules are functions of the runtime: the module, and its function of a record.
_MODULES_OF_KINDS = {"view": ("view_rules", "view_rules"), "index": ("index_rules", "index_rules"),
                     "window": ("window_rules", "window_rules"), "scan": ("scan_rules", "scan_rules")}  # fmt: skip

# Ops of the package whose derived gradient is replaced by a function of the runtime, `rules` of a module.
_MODULES_OF_OPS = {"prod": "product_rules"}

_derived_rules: dict[OpRecord, Mapping[str, Rule]] = {}


def gradient_rules(record: OpRecord) -> Mapping[str, Rule]:
    """Return the gradient rules of `record` by the names of its operands; derive them if it was generated without."""
    if record.kind in _MODULES_OF_KINDS:
        return _rule_function(*_MODULES_OF_KINDS[record.kind])(record)
    if "rules" in record.detail:
        return _rule_function(record.detail["rules"])(record)
    if record.gradients is not None:
        if record.name in _MODULES_OF_OPS and not registry.owner(record.name):
            return _rule_function(_MODULES_OF_OPS[record.name])(record)
        return record.gradients
    rules = _derived_rules.get(record)
    if rules is None:
        rules = _derived_rules[record] = derive_rules(record)
    return rules


def _rule_function(module: str, name: str = "rules") -> Callable[[OpRecord], Mapping[str, Rule]]:
    """Return a function of a module beside this one, which is imported when an op first needs it."""
    function = getattr(import_lazily(f".{module}", __package__), name)
    return function
