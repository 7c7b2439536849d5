"""Pages of public functions that are written in Python and call ops, such as `gelu`, `matmul` and `conv2d`."""

import inspect
import textwrap
from collections.abc import Callable, Collection

from docstring_markdown import to_markdown

from weftgrad.cli.python_functions import called_ops, signature_text

WIDTH = 88  # columns of a block in Furo's middle column


def wrap_signature(signature: str) -> list[str]:
    """Return a signature in lines that fit the page without a scroll bar."""
    return textwrap.wrap(signature, WIDTH, subsequent_indent="    ", break_long_words=False)


def function_page(name: str, function: Callable[..., object], op_pages: Collection[str]) -> str:
    """Return a function's page in Markdown: signature, docstring, source, and links to the ops that it calls."""
    source = inspect.unwrap(function)
    summary, _, details = (inspect.getdoc(function) or "").partition("\n")
    signature = wrap_signature(signature_text(name, function))
    path = source.__module__.removeprefix("weftgrad.").replace(".", "/")
    lines = [f"# {name}", "", summary, "", "```python", *signature, "```", "", *to_markdown(details.strip())]
    links = [f"[{op}]({op}.md)" if op in op_pages else f"`{op}`" for op in called_ops(function)]
    lines += ["## Ops", "", f"A function in Python (`api/{path}`). It calls {', '.join(links)}.", ""]
    return "\n".join(lines)
