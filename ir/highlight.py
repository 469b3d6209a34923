"""Colours of the texts that the compiler prints, by Pygments: `GraphLexer` for graphs; LLVM IR and assembly have lexers
of Pygments' own.

Programs that colour by Pygments (Sphinx, MkDocs, Jupyter) find the lexer under the name `gluonjit`.
"""

from __future__ import annotations

from pygments import highlight
from pygments.formatters import HtmlFormatter, TerminalFormatter
from pygments.lexer import RegexLexer, bygroups
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, Text, Whitespace

KINDS = ("gluonjit", "llvm", "gas")
"""What texts may be: a graph, LLVM IR, assembly."""


class GraphLexer(RegexLexer):
    """Tokens of a graph's text (syntax: `gluonjit.ir.text`)."""

    name = "gluonjit IR"
    aliases = ["gluonjit"]
    filenames = ["*.ir"]
    mimetypes: list[str] = []

    tokens = {
        "root": [
            (r"\s+", Whitespace),
            (r"//[^\n]*", Comment.Single),
            (r"\bloc\([^\n]*\)", Comment.Special),
            (r"\b(graph|level|return|update|prepare(?= \{))\b", Keyword),
            (r'%(?:[\w.$-]+|"(?:[^"\\\n]|\\.)*")', Name.Variable),
            (r'@(?:[\w.$-]+|"(?:[^"\\\n]|\\.)*")', Name.Label),
            (r"([\w.]+)(\()", bygroups(Name.Function, Punctuation)),
            (r"\b(?:bool|bf16|[a-z]+\d+)\[[\w\s,*+-]*\]", Keyword.Type),
            (r"(\.?[A-Za-z_][\w.$]*)(\s*)(=)", bygroups(Name.Attribute, Whitespace, Operator)),
            (r'"(?:[^"\\\n]|\\.)*"', Text),
            (r"-?(?:0x[0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)", Number),
            (r"\b(?:True|False|None|nan|inf)\b", Keyword.Constant),
            (r"[\w.]+", Text),
            (r"[(){}\[\],:=]", Punctuation),
            (r".", Text),
        ]
    }


def for_terminal(text: str, kind: str) -> str:
    """`text`, which is of a kind in KINDS, with ANSI colours."""
    return str(highlight(text, _lexer(kind), TerminalFormatter()))


def as_html(text: str, kind: str) -> str:
    """`text` as a `<pre>` whose colours are in its own `style` attributes."""
    return str(highlight(text, _lexer(kind), HtmlFormatter(noclasses=True, nobackground=True)))


def _lexer(kind: str) -> RegexLexer:
    options = {"stripnl": False, "ensurenl": False}
    return GraphLexer(**options) if kind == "gluonjit" else get_lexer_by_name(kind, **options)
