"""Docstrings as Markdown for the pages. They nearly are Markdown; what differs is changed here.

* Punctuation that Markdown would take for markup (`a * b * c`, `x[i]`, `<name>`) is escaped, outside of code.
* `>>>` begins an example, which ends with the next blank line.
* A line above dashes is the title of a section, as NumPy writes them. In `Parameters`, `name : type` begins an entry,
  and the indented lines below it describe it.
"""

from __future__ import annotations

import inspect
import re

CODE = re.compile(r"(`+)(?!`)(.*?)(?<!`)\1(?!`)")
"""A span of code, as CommonMark has it, on one line."""

ENTRY = re.compile(r"(\*{0,2}[\w.]+(?:, *\*{0,2}[\w.]+)*) *: *(.*)")
"""`name : type` or `name, name : type`."""

ITEM = re.compile(r"( *)([*-]|\d+[.)]) +(.*)")


def markdown(text: str | None) -> str:
    """The docstring `text` as Markdown; "" for None."""
    lines = inspect.cleandoc(text or "").splitlines()
    out: list[str] = []
    section = ""
    k = 0
    while k < len(lines):
        line = lines[k]
        if k + 1 < len(lines) and line.strip() and re.fullmatch(r"-{3,}", lines[k + 1].strip()):
            section = line.strip()
            out += ["", f"**{escaped(section)}**", ""]
            k += 2
        elif line.lstrip().startswith(">>> "):
            end = next((i for i in range(k, len(lines)) if not lines[i].strip()), len(lines))
            indent = len(line) - len(line.lstrip())
            out += ["", "```pycon", *(shown[indent:] for shown in lines[k:end]), "```", ""]
            k = end
        elif section == "Parameters" and (entry := ENTRY.fullmatch(line)):
            kind = f" : {escaped(entry[2])}" if entry[2] else ""
            out.append(f"* **{escaped(entry[1])}**{kind}")
            k += 1
            if k < len(lines) and lines[k].startswith("    "):
                out[-1] += "  "  # a line break
            while k < len(lines) and lines[k].startswith("    "):
                out.append(f"  {escaped(lines[k].strip())}")
                k += 1
        elif item := ITEM.fullmatch(line):
            if out and out[-1] and not ITEM.fullmatch(out[-1]) and not item[1]:
                inside = out[-1].startswith("  ")
                out += [] if inside else [""]
            out.append(f"{item[1]}{item[2]} {escaped(item[3])}")
            k += 1
        else:
            blank_before = not out or not out[-1]
            code = line.startswith("    ") and (blank_before or out[-1].startswith("    "))
            out.append(line if code else escaped(line))
            k += 1
    return "\n".join(out).strip("\n")


def escaped(line: str) -> str:
    """`line` with what Markdown would take for markup escaped, outside of spans of code and rows of tables."""
    out, at = [], 0
    for span in CODE.finditer(line):
        out += [_escaped(line[at : span.start()]), span[0]]
        at = span.end()
    return "".join([*out, _escaped(line[at:])])


def _escaped(text: str) -> str:
    text = re.sub(r"([\\*_\[\]{<&`$~])", r"\\\1", text)
    # At the beginning of a line: headings, quotations, comments, labels, directives, lines below headings.
    return re.sub(r"^(\s*)([#>+%(:]|=+$|-+$)", r"\1\\\2", text)
