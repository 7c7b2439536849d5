"""Draw autograd graphs: `make_dot` returns one as text for Graphviz, under torchviz's name.

The package `graphviz` is not needed. The program `dot` of Graphviz is, to turn the text into a picture.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ..runtime.autograd.node import Node, Saved
from ..runtime.dispatch import refresh_views
from ..runtime.errors import ArgumentError, DriverNotFound
from ..runtime.tensor import Tensor

__all__ = ["DotGraph", "make_dot"]

_LEAF, _CALL, _RESULT, _SAVED = "lightblue", "lightgrey", "darkolivegreen1", "orange"


class DotGraph:
    """A graph in Graphviz's language. Notebooks show it as a picture if the program `dot` is installed.

    Args:
        source: The text.

    Attributes:
        source: The text.

    Example:
        >>> from weftgrad.utils.graphviz import DotGraph
        >>> print(DotGraph('digraph { a -> b }'))
        digraph { a -> b }
    """

    def __init__(self, source: str):
        self.source = source

    def __str__(self) -> str:
        return self.source

    def save(self, filename: str | os.PathLike[str]) -> str:
        """Write the text to a file.

        Args:
            filename: Path of the file.

        Returns:
            The path.

        Example:
            >>> from weftgrad.utils.graphviz import make_dot
            >>> make_dot(wg.ones(2, requires_grad=True).sum()).save('graph.gv')
            'graph.gv'
        """
        path = os.fspath(filename)
        Path(path).write_text(self.source + "\n", encoding="utf-8")
        return path

    def pipe(self, format: str = "svg") -> bytes:
        """Return a picture, which Graphviz draws.

        Args:
            format: Format of the picture, such as `svg`, `png` or `pdf`.

        Returns:
            The picture's bytes.

        Raises:
            DriverNotFound: The program `dot` is not installed.
            ArgumentError: Graphviz does not know the format.

        Example:
            >>> from weftgrad.utils.graphviz import make_dot
            >>> make_dot(wg.ones(2, requires_grad=True).sum()).pipe('png')[1:4]  # doctest: +SKIP
            b'PNG'
        """
        program = shutil.which("dot")
        if program is None:
            raise DriverNotFound("make_dot: the program dot of Graphviz is not installed; save the text with save()")
        process = subprocess.run([program, f"-T{format}"], input=self.source.encode(), capture_output=True)
        if process.returncode:
            raise ArgumentError(f"make_dot: Graphviz: {process.stderr.decode().strip()}")
        return process.stdout

    def render(self, filename: str | os.PathLike[str], format: str = "pdf") -> str:
        """Draw a picture into the file `filename.format`.

        Args:
            filename: Path without the format.
            format: Format of the picture.

        Returns:
            The path of the picture.

        Raises:
            DriverNotFound: The program `dot` is not installed.

        Example:
            >>> from weftgrad.utils.graphviz import make_dot
            >>> make_dot(wg.ones(2, requires_grad=True).sum()).render('graph', 'svg')  # doctest: +SKIP
            'graph.svg'
        """
        path = f"{os.fspath(filename)}.{format}"
        Path(path).write_bytes(self.pipe(format))
        return path

    def _repr_svg_(self) -> str | None:
        return self.pipe("svg").decode() if shutil.which("dot") else None


def make_dot(
    var: Tensor | Iterable[Tensor],
    params: Mapping[str, Tensor] | None = None,
    show_attrs: bool = False,
    show_saved: bool = False,
    max_attr_chars: int = 50,
) -> DotGraph:
    """Draw the autograd graph of tensors, from leaves to results.

    Calls are grey, leaves blue, results green, and tensors that calls have saved for backward orange.

    Args:
        var: The result, or several.
        params: Names of leaves, such as `dict(model.named_parameters())`.
        show_attrs: Whether to show the arguments of calls, such as `dim=1`.
        show_saved: Whether to show the tensors that calls have saved.
        max_attr_chars: Characters of an argument that are shown.

    Returns:
        `DotGraph`.

    Raises:
        ArgumentError: A result is no tensor, or none of the results has a graph.

    Example:
        >>> from weftgrad.utils.graphviz import make_dot
        >>> x = wg.ones(2, requires_grad=True)
        >>> graph = make_dot((x * 3).sum(), params={'x': x})
        >>> [line.strip() for line in str(graph).splitlines() if '->' in line]
        ['n1 -> n0', 'n2 -> n1', 'n3 -> n2']
    """
    results = [var] if isinstance(var, Tensor) else list(var)
    if not results or not all(isinstance(result, Tensor) for result in results):
        raise ArgumentError("make_dot: takes a tensor, or several")
    refresh_views(*results)
    if all(result.node is None for result in results):
        raise ArgumentError("make_dot: the tensor has no graph: no operand of its computation requires a gradient")
    names = {_memory_key(tensor): name for name, tensor in (params or {}).items()}
    drawing = _Drawing(names, show_attrs, show_saved, max_attr_chars)
    for result in results:
        drawing.add_result(result)
    return DotGraph(drawing.text())


def _memory_key(tensor: Tensor) -> tuple[int, int]:
    return id(tensor.storage), tensor.start


class _Drawing:
    """Lines of a graph in Graphviz's language."""

    def __init__(self, names: Mapping[tuple[int, int], str], show_attrs: bool, show_saved: bool, max_chars: int):
        self._names, self._show_attrs, self._show_saved, self._max_chars = names, show_attrs, show_saved, max_chars
        self._lines: list[str] = []
        self._ids: dict[object, str] = {}
        self._alive: list[object] = []  # so that ids stay unique

    def text(self) -> str:
        size = max(12, len(self._ids) * 0.15)
        head = [
            "digraph {",
            f'    graph [size="{size:g},{size:g}"]',
            "    node [align=left fontname=monospace fontsize=10 height=0.2 ranksep=0.1 shape=box style=filled]",
        ]
        return "\n".join([*head, *(f"    {line}" for line in self._lines), "}"])

    def add_result(self, result: Tensor) -> None:
        """Add a result and everything that it was computed from."""
        result_id = self._node(("result", id(result)), f"result\n{_shape_text(result)}", _RESULT)
        self._alive.append(result)
        if result.node is None:
            return
        pending: list[Node] = [result.node]
        self._lines.append(f"{self._call(result.node)} -> {result_id}")
        visited = {id(result.node)}
        while pending:
            node = pending.pop()
            for source, source_id in self._sources(node):
                self._lines.append(f"{source_id} -> {self._call(node)}")
                if isinstance(source, Node) and id(source) not in visited:
                    visited.add(id(source))
                    pending.append(source)

    def _sources(self, node: Node) -> Iterator[tuple[object, str]]:
        """Yield what a call's operands come from, with the id of each in the drawing."""
        for source, _ in node.edges:
            yield source, self._call(source) if isinstance(source, Node) else self._leaf(source)
        for saved in (*node.saved, *node.saved_out) if self._show_saved else ():
            if isinstance(saved, Saved) and saved.leaf is None:
                label = f"saved\n({', '.join(map(str, saved.meta.shape))})"
                yield saved, self._node(("saved", id(saved)), label, _SAVED)

    def _call(self, node: Node) -> str:
        label = node.name
        if self._show_attrs and node.recipe.record.statics and node.function is None:
            pairs = zip(node.recipe.record.statics, node.statics, strict=False)
            label += "".join(f"\n{name}={self._shorten(value)}" for name, value in pairs)
        self._alive.append(node)
        return self._node(("call", id(node)), label, _CALL)

    def _leaf(self, tensor: Tensor) -> str:
        self._alive.append(tensor)
        name = self._names.get(_memory_key(tensor))
        return self._node(("leaf", id(tensor)), "\n".join(filter(None, [name, _shape_text(tensor)])), _LEAF)

    def _node(self, key: object, label: str, color: str) -> str:
        if key not in self._ids:
            self._ids[key] = f"n{len(self._ids)}"
            escaped = label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            self._lines.append(f'{self._ids[key]} [label="{escaped}" fillcolor={color}]')
        return self._ids[key]

    def _shorten(self, value: object) -> str:
        text = repr(value)
        return text if len(text) <= self._max_chars else f"{text[: self._max_chars]}…"


def _shape_text(tensor: Tensor) -> str:
    return f"({', '.join(map(str, tensor.meta.shape))})"
