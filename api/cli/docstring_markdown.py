"""Turn a docstring in Google's style into Markdown: prose, lists of arguments, blocks of examples."""

import re
import textwrap

SECTION = re.compile(r"^(Args|Returns|Raises|Example|Examples|Note|Shape):$", re.MULTILINE)
ENTRY = re.compile(r"^(\*{0,2}\w[\w, .]*?): ", re.MULTILINE)
SPECIAL = re.compile(r"([\\*_{}<>|$#\[\]])")


def to_markdown(docstring: str) -> list[str]:
    """Return the lines of Markdown of a docstring without its first line."""
    parts = SECTION.split(docstring.strip("\n").rstrip())  # a formula may be the first, indented
    lines = prose(parts[0])
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        text = textwrap.dedent(body.strip("\n"))
        lines += ["", f"**{title}**", ""]
        if title.startswith("Example"):
            lines += ["```pycon", text.rstrip(), "```"]
        else:
            lines += entries(text) if title in ("Args", "Raises") else prose(text)
    return [*lines, ""]


def entries(text: str) -> list[str]:
    """Return a list of `name: text` rows, whose continuation lines are indented."""
    rows: list[str] = []
    for line in text.splitlines():
        if line.startswith(" ") and rows:
            rows[-1] += f" {line.strip()}"
        elif line.strip():
            rows.append(line)
    result = []
    for row in rows:
        match = ENTRY.match(row)
        result.append(f"- `{match[1]}`: {escape(row[match.end() :])}" if match else f"- {escape(row)}")
    return result


def prose(text: str) -> list[str]:
    """Return paragraphs; indented ones, such as formulas, become blocks."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if not paragraph.strip():
            continue
        is_block = all(line.startswith("    ") for line in paragraph.splitlines())
        lines += ["```text", textwrap.dedent(paragraph), "```", ""] if is_block else [escape(paragraph), ""]
    return lines[:-1]


def escape(text: str) -> str:
    """Escape what Markdown would interpret, outside of code."""
    parts = text.split("`")
    return "`".join(part if index % 2 else SPECIAL.sub(r"\\\1", part) for index, part in enumerate(parts))
