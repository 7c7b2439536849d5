"""Pages of public functions that are written in Python and call ops, such as `gelu`, `matmul` and `conv2d`."""

import inspect
from collections.abc import Callable, Collection

from weftgrad.cli.docstring_markdown import to_markdown
from weftgrad.cli.op_markdown import wrap_signature
from weftgrad.cli.python_functions import called_ops, signature_text


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
