"""Lay out expanded kernel source for readers: short blocks on one line, no parentheses that only macros need.

`preprocessor` leaves parentheses around macro arguments, loops that macros made empty and helper functions that only
other schedules call. Each rule here keeps the meaning; `tests/test_show_kernels.py` compares the compiled code.
"""

from __future__ import annotations

import re

__all__ = ["tidy"]

_WIDTH = 120
# `(a)`, `(a.lo)` or `(a[0])` between operators. A cast has an operand after it, a call a name before it.
_OPERAND = r"[A-Za-z_]\w*(?:\.\w+|\[\w+\])*"
_WRAPPED_OPERAND = re.compile(rf"(?<=[(,=<>|?:+\-*/%!] )\(({_OPERAND})\)(?=\s*(?:[),;?:|<>\]]|[=!]=|[-+*/%] ))")
_WRAPPED_ARGUMENT = re.compile(rf"(?<=\()(?<!__attribute__\()\(({_OPERAND})\)(?=\s*(?:[),;?:|<>\]]|[=!]=|[-+*/%] ))")
# `(*(global const float8_u *)(x0 + i))` as a whole argument or right-hand side.
_WRAPPED_LOAD = re.compile(
    r"(?<=[(,=] )\((\*\([\w ]+ \*\)\((?:[^()]|\([^()]*\))*\))\)(?=[,);])|"
    r"(?<=\w\()\((\*\([\w ]+ \*\)\((?:[^()]|\([^()]*\))*\))\)(?=[,);])"
)
_WRAPPED_RESULT = re.compile(r"^((?:const )?\w+ \w+ = |return )(?=\()")
_UNUSED_LOCAL = re.compile(r"^ +const \w+ (\w+) = [\w.()]*;\n", re.MULTILINE)  # a copy of a parameter
_EMPTY_LOOP = re.compile(r"^\s*(?:WG_UNROLL )?for \(int (\w+) = (\d+); \1 < (\d+); \1\+\+\) [^{}]*;$")
_DECLARATION = re.compile(r"^(\s*)(?:[a-z]\w*) (\w+)(\[\w+\])?;$")
_HEAD = r"^static inline [^;{]*?\b(\w+)\([^;{]*\) \{"
_FUNCTION = re.compile(rf"{_HEAD}\n(?:(?!\}}).*\n)*\}}\n|{_HEAD}.*\}}\n", re.MULTILINE)


def tidy(text: str) -> str:
    """Return expanded source in a compact layout of the same meaning."""
    lines = []
    for line in text.split("\n"):
        if line.lstrip().startswith(("#", "//")):
            lines.append(line)
        elif not _is_empty_loop(line):
            lines.append(_tidy_line(line))
    text = "\n".join(_join_blocks(_join_declarations(lines)))
    text = _drop_unused_functions(_UNUSED_LOCAL.sub(lambda m: m[0] if _count(m[1], text) > 1 else "", text))
    return re.sub(r"(\}\n)\n+(?=static inline .*\}\n)", r"\1", re.sub(r"\n{3,}", "\n\n", text))


def _is_empty_loop(line: str) -> bool:
    loop = _EMPTY_LOOP.match(line)
    return loop is not None and int(loop[2]) >= int(loop[3])


def _tidy_line(line: str) -> str:
    code, comment_mark, comment = line.partition("//")
    body = code.lstrip()
    indent = " " * ((len(code) - len(body)) // 4 * 4)
    body = re.sub(r"(?<=\S) {2,}", " ", body)
    previous = ""
    while previous != body:
        previous = body
        body = _WRAPPED_ARGUMENT.sub(r"\1", _WRAPPED_OPERAND.sub(r"\1", body))
    body = _WRAPPED_LOAD.sub(lambda match: match[1] or match[2], body)
    body = "".join(_unwrap(statement) for statement in re.split(r"(?<=[;{}] )", body))
    return indent + body + comment_mark + comment if body or comment_mark else ""


def _unwrap(statement: str) -> str:
    """Return a statement `(…);` without its outer parentheses."""
    head = _WRAPPED_RESULT.match(statement)
    if head is not None:
        return head[0] + _unwrap(statement[head.end() :])
    stripped = statement.rstrip()
    if not (stripped.startswith("(") and stripped.endswith(");")):
        return statement
    depth = 0
    for i, character in enumerate(stripped):
        depth += (character == "(") - (character == ")")
        if not depth:
            return f"{stripped[1:i]};{statement[len(stripped) :]}" if i == len(stripped) - 2 else statement
    return statement


def _join_declarations(lines: list[str]) -> list[str]:
    """Put a declaration on the line of the call, loop or block that sets the variable."""
    joined: list[str] = []
    for line in lines:
        declaration = _DECLARATION.match(joined[-1]) if joined else None
        if declaration and _sets(line.strip(), declaration[2], bool(declaration[3])):
            together = f"{joined[-1]} {line.strip()}"
            if len(together) <= _WIDTH:
                joined[-1] = together
                continue
        joined.append(line)
    return joined


def _sets(statement: str, name: str, is_array: bool) -> bool:
    if is_array:
        return re.fullmatch(rf"WG_UNROLL for \([^()]*\) {name}\[\w+\] = .*;", statement) is not None
    return statement == "{" or (f"&{name})" in statement and statement.count("{") == statement.count("}"))


def _join_blocks(lines: list[str]) -> list[str]:
    """Put blocks of plain statements on one line where they fit."""
    joined: list[str] = []
    for line in lines:
        joined.append(line)
        if not re.fullmatch(r"\s*\}[^{}]*", line):
            continue
        start = len(joined) - 2
        while start >= 0 and _is_plain(joined[start]):
            start -= 1
        if start < 0 or not joined[start].endswith("{") or "//" in joined[start]:
            continue
        together = " ".join([joined[start], *(part.strip() for part in joined[start + 1 :])])
        is_loop = re.match(r"\s*(?:WG_UNROLL )?(?:for|while|else|\})", joined[start])
        if len(together) <= _WIDTH and (not is_loop or len(joined) - start <= 3):
            joined[start:] = [together]
        elif joined[start].startswith("static inline"):
            joined[start + 1 : -1] = _fill(joined[start + 1 : -1])
    return joined


def _fill(lines: list[str]) -> list[str]:
    """Put as many of a function's statements on each line as fit."""
    filled = lines[:1]
    for line in lines[1:]:
        if len(filled[-1]) + 1 + len(line.strip()) <= _WIDTH:
            filled[-1] += f" {line.strip()}"
        else:
            filled.append(line)
    return filled


def _is_plain(line: str) -> bool:
    return bool(line.strip()) and line.endswith(";") and not re.search(r"[{}#]|//|\b(?:for|if|else|while)\b", line)


def _drop_unused_functions(text: str) -> str:
    """Remove static functions that nothing calls."""
    while True:
        functions = {match[1] or match[2]: match for match in _FUNCTION.finditer(text)}
        unused = [m for name, m in functions.items() if _count(name, text) == 1]
        if not unused:
            return text
        text = text[: unused[0].start()] + text[unused[0].end() :]


def _count(name: str, text: str) -> int:
    return len(re.findall(rf"\b{re.escape(name)}\b", text))
