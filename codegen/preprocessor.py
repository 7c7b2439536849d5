"""Resolve the conditionals and macros of kernel source: a C preprocessor that leaves the header's macros alone.

`weftgrad show --kernel` prints its output. A C compiler's own preprocessor (`cc -E`) would expand the header's
macros as well, such as vector types, loop pragmas and built-ins, and drop every comment.

    text = Preprocessor(macros_of(header)).run(source)

Macros that the source defines are expanded, with arguments, `##` and rescanning as in C11 6.10.3. Macros of the header
stay. A condition that depends on the compiler (`__AVX512F__`) stays too, with both of its branches.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Macro", "Preprocessor", "macros_of"]

_TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|[\w.])*|##|\s+|.", re.DOTALL
)
_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(\w+)((?:\\\n|[^\n])*)")
_DEFINITION = re.compile(r"\s*(\w+)(\(([^)]*)\))?(.*)", re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMPARED_TERM = re.compile(r"\b__\w+\s*(?:[<>]=?|[=!]=)\s*\d+[uUlL]*")
_COMPILER_TERM = re.compile(rf"__has_\w+\s*\([^)]*\)|{_COMPARED_TERM.pattern}|__\w+")
_UNCLEAR = re.compile(r"!\s*\w+\s*(?:[<>]|[=!]=)")
_COMMENT_LINES = re.compile(r"(?:^[ \t]*//[^\n]*\n)+\Z", re.MULTILINE)
_MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Macro:
    """A macro: its parameters (None without parentheses) and the tokens of its body."""

    parameters: tuple[str, ...] | None
    body: tuple[str, ...]


@dataclass(slots=True)
class _Branch:
    """An open conditional.

    Attributes:
        active: This branch is in the output.
        finished: Skip the remaining branches: one was taken, or the conditional is inside a branch that is not.
        printed: The directives stay in the output.
        start: Length of the output where the conditional begins.
        comment_start: Length of the output before the comment lines directly above it.
    """

    active: bool
    finished: bool
    printed: bool = False
    start: int = 0
    comment_start: int = 0


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


def _is_name(token: str) -> bool:
    return token[0].isalpha() or token[0] == "_"


def _is_blank(token: str) -> bool:
    return token.isspace() or token.startswith(("//", "/*"))


def _definition(text: str) -> tuple[str, Macro]:
    definition = _DEFINITION.match(_COMMENT.sub(" ", text))
    if definition is None:
        raise ValueError(f"#define{text}: a macro needs a name")
    name, parentheses, parameters, body = definition.groups()
    names = tuple(p.strip() for p in parameters.split(",")) if parentheses and parameters.strip() else ()
    return name, Macro(names if parentheses else None, tuple(_tokens(body.replace("\\\n", "\n").strip())))


def macros_of(text: str) -> dict[str, list[Macro]]:
    """Return every definition of each macro in a text, whatever conditionals surround it."""
    definitions: dict[str, list[Macro]] = {}
    for line in re.finditer(r"^[ \t]*#[ \t]*define\b((?:\\\n|[^\n])*)", text, re.MULTILINE):
        name, macro = _definition(line[1])
        definitions.setdefault(name, []).append(macro)
    return definitions


class Preprocessor:
    """Expands the macros of source text; macros persist from one `run` to the next.

    Args:
        header_macros: Macros that stay in the text, with their definitions (`macros_of` of the header).
        defines: Build options: values by name, or by name and parameters (`F(x)`).

    Attributes:
        required: The macros of the source that the expansion of a kept macro in the output reads: bodies by name, or by
            name and parameters (`F(x)`). Define them before compiling the output with the header.
    """

    def __init__(self, header_macros: Mapping[str, Sequence[Macro]], defines: Mapping[str, str] | None = None):
        self._header_macros = dict(header_macros)
        self._macros = dict(_definition(f"{name} {value}") for name, value in (defines or {}).items())
        self.required: dict[str, str] = {}
        self._output = ""
        self._branches: list[_Branch] = []

    def run(self, source: str) -> str:
        """Return `source` without the conditionals that are decided, and with its macros expanded."""
        self._output, self._branches = "", []
        chunk, comment = "", ""
        for line in re.findall(r"(?:[^\n]*\\\n)*[^\n]*\n?", source):
            directive = _DIRECTIVE.fullmatch(line.rstrip("\n")) if "#" in line else None
            if directive is None:
                if self._is_active():
                    indent = line[: len(line) - len(line.lstrip())]
                    chunk += f"{indent}{comment}\n{line}" if comment else line
                    comment = ""
                continue
            self._flush(chunk)
            chunk, comment = "", ""
            name, rest = directive.groups()
            if name in ("if", "ifdef", "ifndef"):
                self._open(name, rest)
            elif name in ("elif", "else"):
                self._next(name, rest)
            elif name == "endif":
                self._close()
            elif self._is_active():
                self._define(name, rest, line)
            starts_branch = name in ("if", "ifdef", "ifndef", "elif", "else")
            if starts_branch and self._is_active() and not self._branches[-1].printed:
                directive_comment = _COMMENT.search(rest)
                comment = directive_comment[0] if directive_comment is not None else ""
        self._flush(chunk)
        return re.sub(r"\n{3,}", "\n\n", self._output).strip("\n") + "\n"

    def _is_active(self) -> bool:
        return all(branch.active for branch in self._branches)

    # conditionals

    def _open(self, name: str, rest: str) -> None:
        if not self._is_active():
            self._branches.append(_Branch(False, True))
            return
        value, text = self._condition(name, rest)
        if value is None:
            self._output += f"#if {text}\n" if name == "if" else f"#{name}{rest.rstrip()}\n"
            self._branches.append(_Branch(True, False, printed=True))
            return
        start = len(self._output)
        outer = max((branch.start for branch in self._branches), default=0)
        comment = _COMMENT_LINES.search(self._output, outer)
        self._branches.append(_Branch(value, value, start=start, comment_start=comment.start() if comment else start))

    def _next(self, name: str, rest: str) -> None:
        branch = self._branches[-1]
        if branch.printed:
            self._output += f"#elif {self._condition('if', rest)[1]}\n" if name == "elif" else f"#else{rest.rstrip()}\n"
        elif branch.finished:
            branch.active = False
        else:
            value, text = (True, "") if name == "else" else self._condition("if", rest)
            if value is None:
                self._output += f"#if {text}\n"
                branch.printed = True
            branch.active = branch.finished = value is not False

    def _close(self) -> None:
        branch = self._branches.pop()
        if branch.printed:
            self._output += "#endif\n"
        elif not self._output[branch.start :].strip():
            self._output = self._output[: branch.comment_start]  # the comment describes text that is not there

    def _condition(self, name: str, rest: str) -> tuple[bool | None, str]:
        """Return a condition's value, None if it depends on the compiler, and its text with macros expanded.

        A comparison of a compiler's macro with a number (`__clang_major__ >= 15`) is one unknown truth value.
        """
        text = _COMMENT.sub(" ", rest.replace("\\\n", " "))
        if name != "if":
            text = f"{'!' if name == 'ifndef' else ''}defined({text.strip()})"
        text = re.sub(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))", lambda m: self._defined(m[1] or m[2]), text)
        text = "".join(self._expand(_tokens(text), frozenset()))
        terms = sorted(set(_COMPILER_TERM.findall(text)), key=len, reverse=True)
        choices = itertools.product((0, 1), repeat=len(terms))
        values = {_evaluate(text, dict(zip(terms, bits, strict=True))) for bits in choices}
        printed_text = re.sub(r"\b__defined_(\w+)", r"defined(\1)", text).strip()
        return (values.pop() if len(values) == 1 else None), printed_text

    def _defined(self, name: str) -> str:
        if name in self._macros or name in self._header_macros:
            return "1"
        return f"__defined_{name}" if name.startswith("__") else "0"

    def _define(self, name: str, rest: str, line: str) -> None:
        is_printed = any(branch.printed for branch in self._branches)
        macro_name, macro = _definition(rest) if name in ("define", "undef") else ("", None)
        if macro_name and not is_printed:
            self._macros.pop(macro_name, None)
            if name == "define" and macro is not None:
                self._macros[macro_name] = macro
            return
        if macro_name:  # the compiler decides which definition holds
            self._macros.pop(macro_name, None)
            definitions = self._header_macros.get(macro_name, ())
            self._header_macros[macro_name] = (*definitions, *([macro] if macro is not None else []))
        self._output += line.rstrip("\n") + "\n"

    # expansion

    def _flush(self, source: str) -> None:
        """Append the expanded text to the output, without lines that only had macros that expand to nothing."""
        expanded = "".join(self._expand(_tokens(source), frozenset()))
        lines, source_lines = expanded.split("\n"), source.split("\n")
        if expanded != source and len(lines) == len(source_lines):
            pairs = zip(lines[:-1], source_lines, strict=False)
            lines = [*[line for line, original in pairs if line.strip() or not original.strip()], lines[-1]]
        self._output += "\n".join(line.rstrip() for line in lines)

    def _expand(self, tokens: Sequence[str], hidden: frozenset[str]) -> list[str]:
        """Return tokens with macros expanded. hidden: macros that are being expanded, which stay (C11 6.10.3.4)."""
        if len(hidden) > _MAX_DEPTH:
            raise ValueError(f"macros nest deeper than {_MAX_DEPTH}")
        output: list[str] = []
        i = 0
        while i < len(tokens):
            token = tokens[i]
            i += 1
            macro = self._macros.get(token) if token not in hidden and _is_name(token) else None
            if macro is None:
                if token in self._header_macros:
                    self._require(token)
                output.append(token)
                continue
            arguments: list[list[str]] = []
            if macro.parameters is not None:
                end = _skip_blanks(tokens, i)
                if end == len(tokens) or tokens[end] != "(":
                    output.append(token)
                    continue
                arguments, i = _arguments(tokens, end)
            body = self._substitute(macro, arguments, hidden)
            expanded = self._expand(body, hidden | {token})
            # The result may end with the name of a function-like macro whose arguments follow: NAME(f)(x).
            last = next((t for t in reversed(expanded) if not _is_blank(t)), "")
            following = self._macros.get(last)
            if following is not None and following.parameters is not None and last not in hidden:
                position = len(expanded) - 1 - expanded[::-1].index(last)
                tokens, i = [*expanded[position:], *tokens[i:]], 0
                output += expanded[:position]
            else:
                output += expanded
        return output

    def _substitute(self, macro: Macro, arguments: list[list[str]], hidden: frozenset[str]) -> list[str]:
        """Return the body with parameters replaced: expanded arguments, or plain ones next to `##`."""
        by_name = dict(zip(macro.parameters or (), arguments, strict=False))
        body = macro.body
        output: list[str] = []
        i = 0
        while i < len(body):
            token = body[i]
            after = _skip_blanks(body, i + 1)
            pastes_next = after < len(body) and body[after] == "##"
            if token == "##":
                while output and _is_blank(output[-1]):
                    output.pop()
                i = _skip_blanks(body, i + 1)
                right = by_name.get(body[i], [body[i]])
                left = output.pop() if output else ""
                output += [*_tokens(left + (right[0] if right else "")), *right[1:]]
            elif token in by_name:
                output += by_name[token] if pastes_next else self._expand(by_name[token], hidden)
            else:
                output.append(token)
            i += 1
        return output

    def _require(self, name: str) -> None:
        """Add the macros of the source that the kept macro `name` reads to `required`."""
        pending, visited = [name], {name}
        while pending:
            for macro in self._header_macros[pending.pop()]:
                for token in macro.body:
                    if token in visited or not _is_name(token):
                        continue
                    visited.add(token)
                    if token in self._macros and token not in (macro.parameters or ()):
                        signature, value = self._resolved(token)
                        self.required[signature] = value
                    elif token in self._header_macros:
                        pending.append(token)

    def _resolved(self, name: str) -> tuple[str, str]:
        """Return a source macro's name, with its parameters if it has any, and its body with other macros expanded."""
        macro = self._macros[name]
        if macro.parameters is None:
            return name, "".join(self._expand([name], frozenset()))
        pasted = {macro.body[j] for i, token in enumerate(macro.body) if token == "##" for j in (i - 1, i + 1)}
        body = self._expand(macro.body, frozenset({name, *macro.parameters, *pasted}))
        return f"{name}({', '.join(macro.parameters)})", "".join(body)


def _skip_blanks(tokens: Sequence[str], i: int) -> int:
    while i < len(tokens) and _is_blank(tokens[i]):
        i += 1
    return i


def _arguments(tokens: Sequence[str], start: int) -> tuple[list[list[str]], int]:
    """Return the arguments of the call whose `(` is at `start`, and the position after its `)`."""
    arguments: list[list[str]] = [[]]
    depth = 0
    for i in range(start, len(tokens)):
        token = tokens[i]
        if token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
            if not depth:
                return [_strip(argument) for argument in arguments], i + 1
        elif token == "," and depth == 1:
            arguments.append([])
            continue
        if i > start:
            arguments[-1].append(token)
    raise ValueError(f"the arguments of a macro do not end: {''.join(tokens[start : start + 20])}")


def _strip(tokens: list[str]) -> list[str]:
    while tokens and tokens[0].isspace():
        tokens = tokens[1:]
    while tokens and tokens[-1].isspace():
        tokens = tokens[:-1]
    return tokens


def _evaluate(text: str, terms: Mapping[str, int]) -> bool:
    """Return the value of a condition: integers and operators, with 0 for any name that is not in `terms`.

    Raises:
        ValueError: It is no such expression, or Python's operators bind otherwise than C's in it.
    """
    condition = text
    if _UNCLEAR.search(text):
        raise ValueError(f"#if {condition}: put parentheses around the operand of `!`")
    for term, value in terms.items():
        text = text.replace(term, str(value))
    text = re.sub(r"\b[A-Za-z_]\w*", "0", re.sub(r"\b(\d+)[uUlL]+\b", r"\1", text))
    text = text.replace("&&", " and ").replace("||", " or ").replace("/", "//")
    text = re.sub(r"!(?!=)", " not ", text).strip()
    allowed = (ast.Expression, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Compare, ast.Constant, ast.operator, ast.boolop,
               ast.unaryop, ast.cmpop)  # fmt: skip
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        raise ValueError(f"#if {condition}: cannot be evaluated") from None
    nodes = list(ast.walk(tree))
    if not all(isinstance(node, allowed) for node in nodes):
        raise ValueError(f"#if {condition}: cannot be evaluated")
    compares = [node for node in nodes if isinstance(node, ast.Compare)]
    bitwise = [node for node in nodes if isinstance(node, ast.BitAnd | ast.BitOr | ast.BitXor)]
    if any(len(node.ops) > 1 for node in compares) or (compares and bitwise):
        raise ValueError(f"#if {condition}: comparisons in a chain, or beside & | ^, mean something else in C")
    return bool(eval(compile(tree, "<condition>", "eval"), {"__builtins__": {}}))
