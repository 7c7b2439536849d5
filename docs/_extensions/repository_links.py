"""Turn links from a page to files of the repository outside docs/ into text, since the site does not contain them.

The pages are read on the site and in a checkout. There, a link such as `../ARCHITECTURE.md` leads to the file. On the
site the link's text remains, with the file's path. Pictures stay: Sphinx copies them from anywhere.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)\s]+)\)")


def replace_links(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace links that leave docs/. A link to a file that does not exist is an error."""

    def as_text(match: re.Match[str]) -> str:
        text, target = match.groups()
        if not (Path(app.srcdir) / page).parent.joinpath(target.partition("#")[0]).exists():
            raise FileNotFoundError(f"docs/{page}.md links to {target}, which does not exist")
        path = target.removeprefix("../")
        return f"`{path}`" if text.strip("`") == path else f"{text} (`{path}`)"

    source[0] = _LINK.sub(as_text, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("source-read", replace_links)
    return {"parallel_read_safe": True}
