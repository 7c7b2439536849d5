"""Resolve the conditionals and macros of kernel source: a C preprocessor that leaves the header's macros alone.

`weftgrad show --kernel` prints its output. A C compiler's own preprocessor (`cc -E`) would expand the header's
macros as well, such as vector types, loop pragmas and built-ins, and drop every comment.

    text = Preprocessor(macros_of(header)).run(source)

Macros that the source or the build options define ("source macros") are expanded, with arguments, `##` and rescanning
as in C11 6.10.3. Macros of the header ("header macros") stay as they are. A condition that depends on the compiler
(`__AVX512F__`) stays too, with all of its branches. A macro that is defined inside such a branch counts as a header
macro from there on.
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
# What only the compiler knows: `__has_builtin(f)`, `__clang_major__ >= 15`, `__AVX512F__`.
_COMPARISON = re.compile(r"\b__\w+\s*(?:[<>]=?|[=!]=)\s*\d+[uUlL]*")
_COMPILER_TERM = re.compile(rf"__has_\w+\s*\([^)]*\)|{_COMPARISON.pattern}|__\w+")
_NEGATED_COMPARISON = re.compile(r"!\s*\w+\s*(?:[<>]|[=!]=)")  # `!a == b` is (!a) == b in C, but not (a == b) in Python
_COMMENT_LINES = re.compile(r"(?:^[ \t]*//[^\n]*\n)+\Z", re.MULTILINE)
_MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Macro:
    """A macro: its parameters (None without parentheses) and the tokens of its body."""

    parameters: tuple[str, ...] | None
    body: tuple[str, ...]


@dataclass(slots=True)
class _Conditional:
    """A conditional between its `#if` and its `#endif`.

    Attributes:
        is_active: The text of the current branch is in the output, if all enclosing conditionals are active.
        is_finished: The remaining branches are skipped: one was selected, or an enclosing conditional is not active.
        keeps_directives: `#if`, `#else` and `#endif` stay in the output, because the compiler decides.
        has_else: Its `#else` was read, so that only `#endif` may follow.
        start: Length of the output where the conditional begins.
        comment_start: Length of the output before the comment lines directly above it.
    """

    is_active: bool
    is_finished: bool
    keeps_directives: bool = False
    has_else: bool = False
    start: int = 0
    comment_start: int = 0


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


def _is_name(token: str) -> bool:
    return token[0].isalpha() or token[0] == "_"


def _is_blank(token: str) -> bool:
    return token.isspace() or token.startswith(("//", "/*"))


def _parse_definition(text: str) -> tuple[str, Macro]:
    """Return the name and the macro of a `#define`. text: what follows the word `define`."""
    definition = _DEFINITION.match(_COMMENT.sub(" ", text))
    if definition is None:
        raise ValueError(f"#define{text}: a macro needs a name")
    name, parentheses, parameters, body = definition.groups()
    names = tuple(p.strip() for p in parameters.split(",")) if parentheses and parameters.strip() else ()
    return name, Macro(names if parentheses else None, tuple(_tokens(body.replace("\\\n", "\n").strip())))


def macros_of(text: str) -> dict[str, list[Macro]]:
    """Return the definitions of each macro in a text: a list, because each branch of a conditional may have one."""
    definitions: dict[str, list[Macro]] = {}
    for line in re.finditer(r"^[ \t]*#[ \t]*define\b((?:\\\n|[^\n])*)", text, re.MULTILINE):
        name, macro = _parse_definition(line[1])
        definitions.setdefault(name, []).append(macro)
    return definitions


class Preprocessor:
    """Expands the source macros of texts. Macros that one `run` defines are still defined in the next.

    Args:
        header_macros: Macros that stay in the text, with their definitions (`macros_of` of the header).
        defines: Build options (`-D`): values by name, or by name and parameters (`F(x)`).

    Attributes:
        required: Source macros in the bodies of header macros that the output uses: bodies by name, or by name and
            parameters (`F(x)`). The output does not define them: do so before compiling it with the header.
    """

    def __init__(self, header_macros: Mapping[str, Sequence[Macro]], defines: Mapping[str, str] | None = None):
        self._header_macros = dict(header_macros)
        self._macros = dict(_parse_definition(f"{name} {value}") for name, value in (defines or {}).items())
        self.required: dict[str, str] = {}
        self._output = ""
        self._conditionals: list[_Conditional] = []  # the open ones, the outermost first

    def run(self, source: str) -> str:
        """Return `source` with its macros expanded, and without the conditionals whose conditions have a known value.

        The comment of a directive that is removed, such as `#if A // why`, becomes a line above the text of its branch.

        Raises:
            ValueError: A condition cannot be evaluated, `#if` and `#endif` do not match, a macro has no name or its
                arguments no end, or macros nest too deep.
        """
        self._output, self._conditionals = "", []
        chunk, comment = "", ""  # text since the last directive; comment of that directive
        for line in re.findall(r"(?:[^\n]*\\\n)*[^\n]*\n?", source):
            directive = _DIRECTIVE.fullmatch(line.rstrip("\n")) if "#" in line else None
            if directive is None:
                if self._is_active():
                    indent = line[: len(line) - len(line.lstrip())]
                    chunk += f"{indent}{comment}\n{line}" if comment else line
                    comment = ""
                continue
            self._append_expanded(chunk)
            chunk, comment = "", ""
            name, rest = directive.groups()
            if name in ("elif", "else", "endif") and not self._conditionals:
                raise ValueError(f"{line.strip()}: no #if before it is open: add one, or remove this line")
            if name in ("if", "ifdef", "ifndef"):
                self._open_conditional(name, rest)
            elif name in ("elif", "else"):
                self._next_branch(name, rest)
            elif name == "endif":
                self._close_conditional()
            elif self._is_active():
                self._apply_other_directive(name, rest, line)
            starts_branch = name in ("if", "ifdef", "ifndef", "elif", "else")
            if starts_branch and self._is_active() and not self._conditionals[-1].keeps_directives:
                directive_comment = _COMMENT.search(rest)
                comment = directive_comment[0] if directive_comment is not None else ""
        self._append_expanded(chunk)
        if self._conditionals:
            raise ValueError(f"#endif: {len(self._conditionals)} fewer than #if, #ifdef and #ifndef: add them")
        return re.sub(r"\n{3,}", "\n\n", self._output).strip("\n") + "\n"

    def _is_active(self) -> bool:
        return all(conditional.is_active for conditional in self._conditionals)

    # conditionals

    def _open_conditional(self, name: str, rest: str) -> None:
        if not self._is_active():
            self._conditionals.append(_Conditional(is_active=False, is_finished=True))
            return
        value, text = self._evaluate_condition(name, rest)
        if value is None:
            self._output += f"#if {text}\n" if name == "if" else f"#{name}{rest.rstrip()}\n"
            self._conditionals.append(_Conditional(is_active=True, is_finished=False, keeps_directives=True))
            return
        start = len(self._output)
        outer_start = max((conditional.start for conditional in self._conditionals), default=0)
        comment = _COMMENT_LINES.search(self._output, outer_start)
        comment_start = comment.start() if comment else start
        self._conditionals.append(_Conditional(value, value, start=start, comment_start=comment_start))

    def _next_branch(self, name: str, rest: str) -> None:
        conditional = self._conditionals[-1]
        if conditional.has_else:
            raise ValueError(f"#{name}{rest.rstrip()}: it follows the #else of the same #if: move it before that #else")
        conditional.has_else = name == "else"
        if conditional.keeps_directives:
            text = f"#elif {self._evaluate_condition('if', rest)[1]}" if name == "elif" else f"#else{rest.rstrip()}"
            self._output += f"{text}\n"
        elif conditional.is_finished:
            conditional.is_active = False
        else:
            value, text = (True, "") if name == "else" else self._evaluate_condition("if", rest)
            if value is None:  # all branches before were removed, so this `#elif` becomes the `#if`
                self._output += f"#if {text}\n"
                conditional.keeps_directives = True
            conditional.is_active = conditional.is_finished = value is not False

    def _close_conditional(self) -> None:
        conditional = self._conditionals.pop()
        if conditional.keeps_directives:
            self._output += "#endif\n"
        elif not self._output[conditional.start :].strip():
            self._output = self._output[: conditional.comment_start]  # the comment describes text that was removed

    def _evaluate_condition(self, name: str, rest: str) -> tuple[bool | None, str]:
        """Return a condition's value, None if it depends on the compiler, and its text with macros expanded.

        Each term that only the compiler knows may be 0 or 1; a comparison such as `__clang_major__ >= 15` is one term.
        If the condition has the same value for all combinations, it does not depend on the compiler.
        """
        text = _COMMENT.sub(" ", rest.replace("\\\n", " "))
        if name != "if":
            text = f"{'!' if name == 'ifndef' else ''}defined({text.strip()})"
        text = re.sub(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))", lambda m: self._expand_defined(m[1] or m[2]), text)
        text = "".join(self._expand(_tokens(text), frozenset()))
        # Longest first: `_evaluate` replaces terms in this order, and one may be part of another.
        terms = sorted(set(_COMPILER_TERM.findall(text)), key=len, reverse=True)
        combinations = itertools.product((0, 1), repeat=len(terms))
        values = {_evaluate(text, dict(zip(terms, bits, strict=True))) for bits in combinations}
        printed_text = re.sub(r"\b__defined_(\w+)", r"defined(\1)", text).strip()
        return (values.pop() if len(values) == 1 else None), printed_text

    def _expand_defined(self, name: str) -> str:
        """Return the value of `defined(name)`; for names that a compiler may define, a term that stands for it."""
        if name in self._macros or name in self._header_macros:
            return "1"
        return f"__defined_{name}" if name.startswith("__") else "0"

    def _apply_other_directive(self, name: str, rest: str, line: str) -> None:
        """Define or remove a macro. Print the line if the compiler decides whether it holds, or for `#pragma` etc."""
        is_undecided = any(conditional.keeps_directives for conditional in self._conditionals)
        macro_name, macro = _parse_definition(rest) if name in ("define", "undef") else ("", None)
        if macro_name and not is_undecided:
            self._macros.pop(macro_name, None)
            if name == "define" and macro is not None:
                self._macros[macro_name] = macro
            return
        if macro_name:  # uses of the name stay in the output, like those of a header macro
            self._macros.pop(macro_name, None)
            definitions = self._header_macros.get(macro_name, ())
            self._header_macros[macro_name] = (*definitions, *([macro] if macro is not None else []))
        self._output += line.rstrip("\n") + "\n"

    # expansion

    def _append_expanded(self, source: str) -> None:
        """Append the expanded text to the output, without lines whose macros all expanded to nothing."""
        expanded = "".join(self._expand(_tokens(source), frozenset()))
        lines, source_lines = expanded.split("\n"), source.split("\n")
        if expanded != source and len(lines) == len(source_lines):  # otherwise the lines cannot be matched
            pairs = zip(lines[:-1], source_lines, strict=False)
            lines = [*[line for line, original in pairs if line.strip() or not original.strip()], lines[-1]]
        self._output += "\n".join(line.rstrip() for line in lines)

    def _expand(self, tokens: Sequence[str], hidden: frozenset[str]) -> list[str]:
        """Return tokens with macros expanded, except those in `hidden`, which are being expanded (C11 6.10.3.4)."""
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
                    self._add_required(token)
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

    def _add_required(self, name: str) -> None:
        """Add to `required` the source macros in the body of the header macro `name`, directly or through others."""
        pending, visited = [name], {name}
        while pending:
            for macro in self._header_macros[pending.pop()]:
                for token in macro.body:
                    if token in visited or not _is_name(token):
                        continue
                    visited.add(token)
                    if token in self._macros and token not in (macro.parameters or ()):
                        signature, value = self._expanded_definition(token)
                        self.required[signature] = value
                    elif token in self._header_macros:
                        pending.append(token)

    def _expanded_definition(self, name: str) -> tuple[str, str]:
        """Return a source macro's name, with its parameters if it has any, and its body with other macros expanded."""
        macro = self._macros[name]
        if macro.parameters is None:
            return name, "".join(self._expand([name], frozenset()))
        # Operands of `##` are not expanded, as in C.
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
        ValueError: The text is no such expression, or Python would group its operators differently from C.
    """
    condition = text
    if _NEGATED_COMPARISON.search(text):
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
