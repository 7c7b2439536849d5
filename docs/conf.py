"""Configuration of the documentation site, built by Sphinx from the pages in this folder.

    pip install ".[docs]" && sphinx-build -W --keep-going docs site

Sphinx and Furo rather than MkDocs: one generator reads Markdown and docstrings, and reports broken references.
"""

import sys
from pathlib import Path

import weftgrad

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "weftgrad"
version = release = weftgrad.__version__
project_copyright = "the weftgrad authors"

extensions = [
    "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "op_pages", "coverage_pages", "repository_links",
]  # fmt: skip
myst_enable_extensions = ["colon_fence", "html_image"]
myst_heading_anchors = 3
exclude_patterns = ["_data", "_extensions", "third_party_programs"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signature of a generated function has them in its text
napoleon_use_rtype = False

html_theme = "furo"
html_title = "weftgrad"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"source_directory": "docs/"}
pygments_style = "default"
pygments_dark_style = "monokai"
