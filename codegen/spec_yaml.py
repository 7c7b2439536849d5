"""Read the YAML of a spec file into mappings that know their lines, without constructing anything.

A spec file is untrusted data: no tags, anchors or duplicate keys, limited size and depth. `loader` checks what the
mappings contain.
"""

from __future__ import annotations

import yaml

from .model import SpecError

__all__ = ["MAX_BYTES", "Located", "read_entries"]

MAX_BYTES = 1 << 20
_MAX_DEPTH = 20
_MAX_OPS = 2000
_OPENING_TOKENS = (
    yaml.BlockSequenceStartToken, yaml.BlockMappingStartToken, yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken,
)  # fmt: skip
_CLOSING_TOKENS = (yaml.BlockEndToken, yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken)


class Located(dict[str, object]):
    """A mapping with the line number of each key.

    Attributes:
        lines: Key -> line in the file.
        line: The line where the mapping begins.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}
        self.line = 0

    def line_of(self, path: str) -> int:
        """Return the line of the innermost key that exists on a path such as `reduce.map`; 0 if there is none."""
        node: object = self
        line = 0
        for part in path.split("."):
            if not isinstance(node, Located) or part not in node.lines:
                break
            line = node.lines[part]
            node = node[part]
        return line


def read_entries(text: str, file: str) -> tuple[list[Located], list[SpecError]]:
    """Return the entries of a YAML text, a list of mappings, and the errors in it. `file` is the name in errors."""
    errors: list[SpecError] = []
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:  # YAML rejects lone surrogates below
        return [], [SpecError(f"a spec is at most {MAX_BYTES >> 20} MiB", file=file, line=1)]
    try:
        depth = 0
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            depth += isinstance(token, _OPENING_TOKENS) - isinstance(token, _CLOSING_TOKENS)
            if depth > _MAX_DEPTH:  # before the parser runs, which is quadratic in depth
                line = token.start_mark.line + 1
                return [], [SpecError(f"nested deeper than {_MAX_DEPTH}", file=file, line=line)]
            if isinstance(token, (yaml.AnchorToken, yaml.AliasToken, yaml.TagToken)):
                line = token.start_mark.line + 1
                return [], [
                    SpecError("anchors, aliases and tags are not part of the spec language", file=file, line=line)
                ]
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = f"not YAML: {error.problem}"
        hint = "quote a value that has ': ' or '#' in it, or begins with one of [{&*!|>%@`" if mark else None
        if "'\\t'" in message:
            hint = "indent by spaces"
        return [], [SpecError(message, file=file, line=mark.line + 1 if mark else 1, suggestion=hint)]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        return [], [SpecError(f"not YAML: {type(error).__name__}: {str(error)[:200]}", file=file, line=1)]
    if len(documents) != 1 or not isinstance(documents[0], yaml.SequenceNode):
        return [], [SpecError("a spec file is one list of ops: lines that begin with '- op:'", file=file, line=1)]
    entries = []
    if len(documents[0].value) > _MAX_OPS:
        return [], [SpecError(f"a spec file has at most {_MAX_OPS} ops", file=file, line=1)]
    for node in documents[0].value:
        value = _node_value(node, file, errors, 0)
        if isinstance(value, Located):
            entries.append(value)
        else:
            errors.append(
                SpecError("an op is a mapping that begins with 'op:'", file=file, line=node.start_mark.line + 1)
            )
    return entries, errors


def _node_value(node: yaml.Node, file: str, errors: list[SpecError], depth: int) -> object:
    """Convert a node to a `Located`, a list, a string, a number, a bool or None. Append problems to `errors`."""
    line = node.start_mark.line + 1
    if depth > _MAX_DEPTH:
        errors.append(SpecError(f"nested deeper than {_MAX_DEPTH}", file=file, line=line))
        return None
    if isinstance(node, yaml.MappingNode):
        mapping = Located()
        mapping.line = line
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else repr(key_node.tag)
            key_line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                errors.append(SpecError("a key must be a plain word", file=file, line=key_line))
                continue
            if key in mapping:
                errors.append(SpecError(f"{key!r} is given twice", file=file, line=key_line, field=key))
            value = mapping[key] = _node_value(value_node, file, errors, depth + 1)
            mapping.lines[key] = key_line
            text = value if isinstance(value, str) else ""
            if node.flow_style and (")" in key or (text.count("(") != text.count(")"))):
                errors.append(
                    SpecError(
                        "a comma ends a value inside {...}", file=file, line=key_line, field=key, suggestion="quote it"
                    )
                )
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [_node_value(child, file, errors, depth + 1) for child in node.value]
    return _scalar_value(node.tag, node.value)


def _scalar_value(tag: str, text: str) -> object:
    """Convert a scalar by the tag that YAML resolved for it; the text itself where that is no number, bool or null."""
    kind = tag.rpartition(":")[2]
    try:
        if kind == "int":
            integer = int(text.replace("_", ""), 0) if len(text) < 40 else None
            return text if integer is None or abs(integer) >= 2**64 else integer
        if kind == "float":
            return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        return text
    if kind == "bool":  # YAML's yes, no, on and off may be names of parameters
        return text.lower() == "true" if text.lower() in ("true", "false") else text
    return None if kind == "null" else text
