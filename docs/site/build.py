"""`make site`: the documentation as a web site, in build/site, from docs/*.md and from what the code says of itself.

The pages are collected in build/site-sources: the documents as they are, the start page (README.md) with the
navigation, and in `reference` those that `pages` and `api` make. Sphinx turns them into HTML; every warning is an
error, so links lead somewhere and every page can be reached. `--check` stops before the HTML is written.
"""

from __future__ import annotations

import argparse
import gc
import os
import posixpath
import re
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent

NAVIGATION = {
    "Start": ["docs/tutorial", "docs/migration", "docs/performance"],
    "Guides": [
        "docs/tracing",
        "docs/shapes",
        "docs/training",
        "docs/distributed",
        "docs/checking",
        "docs/profiling",
        "docs/report",
        "docs/inspecting",
        "docs/files",
        "docs/onnx",
        "docs/serving",
        "docs/batch-scoring",
        "docs/c-library",
        "docs/dropin",
        "docs/differences",
    ],
    "The compiler": [
        "docs/architecture",
        "docs/ir",
        "docs/passes",
        "docs/gradients",
        "docs/kernels",
        "docs/loops",
        "docs/cookbook",
        "docs/development",
        "benchmarks/README",
        "benchmarks/results/results",
        "benchmarks/results/training",
    ],
    "Reference": [
        "reference/api",
        "reference/operators",
        "reference/passes",
        "reference/primitives",
        "reference/commands",
    ],
}
"""All pages but those below one of `reference`, in the order in which they are listed."""

COPIED = ("docs/*.md", "docs/*.svg", "benchmarks/README.md", "benchmarks/results/*.md", "benchmarks/results/*.png")

TITLES = {
    "benchmarks/results/results.md": "Inference, measured",
    "benchmarks/results/training.md": "Steps of training, measured",
}
"""Of files that programs write without one."""


def documents() -> dict[str, bytes]:
    """The source of every page: contents by path."""
    import api
    import pages

    out = {}
    for pattern in COPIED:
        out |= {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in sorted(ROOT.glob(pattern))}
    for name in out:
        if name.startswith("docs/"):
            out[name] = out[name].replace(b"](../README.md", b"](../index.md")  # which is the start page
    for name, title in TITLES.items():
        out[name] = f"# {title}\n\n".encode() + out[name]
    for made in (api.modules(), pages.operators(), pages.passes(), pages.primitives(), pages.commands()):
        out |= {f"reference/{name}": text.encode() for name, text in made.items()}
    out["index.md"] = start_page().encode()
    return out


def linked(pages: dict[str, bytes]) -> dict[str, bytes]:
    """The files of the project that pages link to, and that are no pages: the site offers them for download.

    Documents among them become pages outside of the navigation.
    """
    out: dict[str, bytes] = {}
    waiting = list(pages.items())
    for name, content in waiting:
        for link in re.findall(r"\]\(([^()\s#:]+)\)", content.decode(errors="replace")):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
            if target not in pages | out and not target.startswith("..") and (ROOT / target).is_file():
                out[target] = (ROOT / target).read_bytes()
                if target.endswith(".md"):
                    out[target] = b"---\norphan: true\n---\n\n" + out[target]
                    waiting.append((target, out[target]))
    return out


def start_page() -> str:
    """README.md with the navigation."""
    trees = [
        f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names) + "\n```\n"
        for caption, names in NAVIGATION.items()
    ]
    return "\n".join([(ROOT / "README.md").read_text(encoding="utf-8"), *trees])


def write(folder: Path, contents: dict[str, bytes]) -> None:
    """Makes `folder` hold exactly these files. Those that are so already stay, and are not built again."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.relative_to(folder).as_posix() not in contents:
            path.unlink()
    for name, content in contents.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def render(sources: Path, output: Path, builder: str = "html") -> int:
    """Runs Sphinx; the exit status is not 0 if there was a warning."""
    from sphinx.cmd.build import main as sphinx

    gc.disable()  # pages live until the end, and there is no garbage among their many nodes
    jobs = 1 if builder == "dummy" else os.cpu_count() or 1  # --check is for tests, which use all cores already
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--jobs", str(jobs), "-c", str(HERE)]
    return sphinx(["-b", builder, *options, str(sources), str(output)])


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds the documentation's site.")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site", help="the folder of the HTML files")
    parser.add_argument("--sources", type=Path, default=ROOT / "build" / "site-sources", help="the folder of pages")
    parser.add_argument("--check", action="store_true", help="only look for warnings, and write no HTML")
    arguments = parser.parse_args()
    if not {"sphinx", "myst-parser", "furo"} <= {(found.name or "").lower() for found in metadata.distributions()}:
        print("error: the generator of the site is not installed: pip install -e '.[docs]'", file=sys.stderr)
        return 2
    pages = documents()
    write(arguments.sources, pages | linked(pages))
    status = render(arguments.sources, arguments.output, "dummy" if arguments.check else "html")
    if status == 0 and not arguments.check:
        print(f"the documentation's first page: {arguments.output / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
