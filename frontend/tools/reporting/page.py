"""The HTML file of a report: one page, without anything from elsewhere."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from gluonjit.base import MXNetError

_FOLDER = Path(__file__).parent


_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.S)


def earlier(path: str) -> dict[str, Any]:
    """What a later report shows of an earlier one: `file`, `compiling`, `programs`. MXNetError for a file that `page`
    has not made."""
    found = _DATA.search(Path(path).read_text(encoding="utf-8", errors="replace"))
    try:
        old = json.loads(found[1]) if found else {}
        programs = [_program(p) for p in old["profile"]["programs"] if p["part"] != "packing"]
        if not programs:
            raise ValueError("nothing was measured")
        made, busy = str(old.get("made", "")), bool(old["profile"].get("busy"))
        return {"file": path, "made": made, "busy": busy, "programs": programs, "compiling": _numbers(old["compiling"])}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise MXNetError(f"{path} is not a report of `gluonjit report`") from None


def _program(p: dict[str, Any]) -> dict[str, Any]:
    return {
        "part": str(p["part"]),
        "seconds": _number(p["seconds"]),
        "layers": [{"path": str(layer["path"]), "share": _number(layer["share"])} for layer in p["layers"]],
        "kernels": [
            {**{name: str(k[name]) for name in ("layer", "kind", "what")}, "share": _number(k["share"])}
            for k in p["kernels"]
        ],
        "memory": _numbers({name: n for name, n in p["memory"].items() if name != "tensors"}),
    }


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    return {str(name): _number(n) for name, n in values.items()}


def _number(value: Any) -> float:
    """Finite, as JSON has no other numbers. ValueError."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is not a measured number")
    return number


MOST = 4_500_000
"""Bytes of a page's data, about: what is less asked for is left out."""


def fitted(data: dict[str, Any], most: int = MOST) -> dict[str, Any]:
    """The data, no larger than `most` if that takes no more than to leave out the text of graphs, the code and then the
    ops of kernels, the fastest first, and drawn graphs, the largest first. `omitted` names what is left out."""
    size, omitted = _size(data), []
    if size <= most:
        return data
    programs = [{**p, "kernels": [dict(k) for k in p["kernels"]]} for p in data["profile"]["programs"]]
    kernels = sorted((k for p in programs for k in p["kernels"]), key=lambda k: k["share"])
    stages, functions = [dict(stage) for stage in data["stages"]], dict(data["functions"])
    times = dict.fromkeys(functions, 0.0)
    for k in kernels:
        if k.get("function") in times:
            times[k["function"]] += k["share"]
    # (what it is, where it is, its key there)
    parts: list[tuple[str, Any, Any]] = [("texts of graphs", stage, "text") for stage in stages if "text" in stage]
    parts += [("code of the fastest kernels", functions, name) for name in sorted(times, key=lambda name: times[name])]
    parts += [("ops of the fastest kernels", k, "op") for k in kernels if "op" in k]
    *large, _ = sorted(stages, key=_size, reverse=True)  # one is kept
    parts += [(f"the drawn graph {stage['title']}", stage, "nodes") for stage in large]
    for what, place, key in parts:
        if size <= most:
            break
        size -= _size(place.pop(key))
        omitted.append(what)
    left = [stage for stage in stages if "nodes" in stage]
    profile = {**data["profile"], "programs": programs}
    return {**data, "profile": profile, "stages": left, "functions": functions, "omitted": list(dict.fromkeys(omitted))}


def _size(data: Any) -> int:
    return len(json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def page(data: dict[str, Any]) -> str:
    """The page that shows this data (`gathered`)."""
    data = fitted(data)
    # Within a script element, only "<" could end the data.
    words = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    dagre = _text("third_party/dagre.min.js").partition("//# sourceMappingURL")[0]
    scripts = "".join(f"<script>\n{_text(name)}</script>\n" for name in ("graph.js", "charts.js", "page.js"))
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'\">\n"
        f"<title>gluonjit report</title>\n<style>\n{_text('page.css')}</style>\n"
        '<header><h1 id="model"></h1><p id="machine"></p></header>\n<nav role="tablist"></nav>\n'
        f'<main id="view"></main>\n<script type="application/json" id="data">{words}</script>\n'
        f"<script>\n/*\n{_text('third_party/dagre.LICENSE')}*/\n{dagre}</script>\n"
        f"{scripts}</html>\n"
    )


def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
