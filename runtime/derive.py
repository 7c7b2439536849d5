"""Derivatives that were not generated ahead: the third order, and gradients of ops made in the running process.

The record's spec goes through the same road as at build time. This is the one place from which the runtime imports
the generator, and only when such a derivative is asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from .records import OpRecord, Rule, Text, make_record, registry

__all__ = ["derive_rules", "register_generated"]

_lock = threading.RLock()


def derive_rules(record: OpRecord) -> Mapping[str, Rule]:
    """The gradient rules of `record`, whose ops are registered on the way."""
    if not record.spec:
        return {}
    with _lock:
        from ..codegen.loader import op_from_mapping
        from ..codegen.render import Generated

        made = Generated()
        name = made.add(op_from_mapping(record.spec), 1)
        own = made.records.pop(name)
        taken = register_generated(made, prefix_taken=True)
        rules = own.rules or {}
        return {k: Rule(taken.get(r.target, r.target) if r.target else None, r.operands) for k, r in rules.items()}


def register_generated(made: Any, *, prefix_taken: bool = False) -> dict[str, str]:
    """Register what the generator made; a name that is taken gets a number. Returns old name -> new name."""
    from ..codegen.render import record_literals

    renamed: dict[str, str] = {}
    for name, data in made.records.items():
        new, number = name, 2
        while prefix_taken and new in registry:
            new, number = f"{name}_v{number}", number + 1
        renamed[name] = new
        literals = record_literals(data)
        literals["name"] = new
        texts = {target: Text(s.text, s.functions) for target, s in data.rendered.sources.items()}
        registry.add(make_record(**literals, texts=texts))
    return renamed
