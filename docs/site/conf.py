"""Settings of Sphinx, for `build.py`."""

from __future__ import annotations

import functools
from typing import Any

from pygments import token
from pygments.lexer import RegexLexer
from sphinx.domains.python import PythonDomain

project = "gluonjit"
author = "The gluonjit developers"
copyright = "The gluonjit developers, Apache License 2.0"

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 6
highlight_language = "text"
smartquotes = False  # quotes in docstrings are those of programs
add_module_names = False
python_display_short_literal_types = True
suppress_warnings = ["ref.python"]  # names in annotations, which may mean one of several classes
toc_object_entries = False

html_theme = "furo"
html_title = "gluonjit"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["filter.js"]
html_copy_source = False
html_show_sphinx = False


class IRLexer(RegexLexer):
    """The text of the compiler's graphs (docs/ir.md)."""

    name = "gluonjit IR"
    aliases = ["ir"]
    tokens = {
        "root": [
            (r"//.*$", token.Comment.Single),
            (r"\b(graph|return|level|yield)\b", token.Keyword),
            (r"%[\w.]+", token.Name.Variable),
            (r"@[\w.]+|@\"[^\"]*\"", token.Name.Function),
            (r"\b(?:f|i|u|bf)\d+\[[^\]]*\]|\bbool\[[^\]]*\]", token.Keyword.Type),
            (r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'", token.String),
            (r"-?\b\d+(?:\.\d+)?(?:e[+-]?\d+)?\b", token.Number),
            (r"\b(True|False|None)\b", token.Keyword.Constant),
            (r"[\w.]+(?=\()", token.Name.Builtin),
            (r"[\w.-]+", token.Name),
            (r"\s+", token.Whitespace),
            (r".", token.Punctuation),
        ]
    }


class Python(PythonDomain):
    """Looks up each name once: Sphinx would go through all objects for every `int` in a signature."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.find_obj = functools.cache(super().find_obj)


def setup(app: Any) -> None:
    app.add_domain(Python, override=True)
    app.add_lexer("ir", IRLexer)
