"""`make site`: its generator is strict, its pages are complete, and its docstrings become Markdown."""

import importlib.util
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from gluonjit.language.mxnet_names import place_of
from gluonjit.operators import registry
from gluonjit.passes import all_passes
from gluonjit.tools.cli import make_parser

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "site"
INSTALLED = {found.name.lower() for found in metadata.distributions()}

needs_sphinx = pytest.mark.skipif(
    not {"sphinx", "myst-parser", "furo"} <= INSTALLED, reason="the extra docs is not installed"
)


def loaded(name):
    spec = importlib.util.spec_from_file_location(f"site_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*words):
    return subprocess.run([sys.executable, *words], cwd=FOLDER, capture_output=True, text=True)


def rendered(folder, *pages):
    """Sphinx's exit statuses for sites of one page each, and all its messages; the k-th site is in `folder`/k."""
    for k, text in enumerate(pages):
        (folder / f"pages{k}").mkdir()
        (folder / f"pages{k}" / "index.md").write_text(text)
    program = (
        "import build, pathlib, sys; at = pathlib.Path(sys.argv[1]);"
        f"print(*[build.render(at / f'pages{{k}}', at / str(k)) for k in range({len(pages)})])"
    )
    done = run("-c", program, str(folder))
    return [int(word) for word in done.stdout.split()], done.stderr


def test_every_document_is_in_the_navigation():
    listed = [page for pages in loaded("build").NAVIGATION.values() for page in pages]
    assert sorted(page for page in listed if page.startswith("docs/")) == sorted(
        f"docs/{path.stem}" for path in FOLDER.parent.glob("*.md")
    )


def path_of(operator):
    place, name = place_of(operator)
    return name if place == "op" else f"{place}.{name}"


@pytest.mark.slow
@needs_sphinx
def test_all_pages_without_a_warning(tmp_path):
    done = run("build.py", "--check", "--sources", str(tmp_path / "sources"), "--output", str(tmp_path / "site"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    reference = tmp_path / "sources" / "reference"
    operators = "\n".join(path.read_text() for path in (reference / "operators").iterdir())
    names = (reference / "operators.md").read_text()
    for name, op in registry.OPERATORS.items():
        assert f"| {{py:obj}}`{path_of(name)} <mx.nd.{path_of(op.name)}>` |" in names
        assert f"{{py:function}} mx.nd.{path_of(op.name)}(" in operators
    ours = [name for name, item in all_passes().items() if item.run.__module__.startswith("gluonjit.")]  # no test's own
    for name in ours:
        text = (reference / "passes" / f"{name}.md").read_text()
        assert "Before:\n\n```ir\n" in text and "After:\n\n```ir\n" in text
    commands = (reference / "commands.md").read_text()
    for action in make_parser()._actions:
        for command in action.choices or ():
            assert f"\n## gluonjit {command}\n\n```\nusage: gluonjit {command}" in commands
    primitives = (reference / "primitives.md").read_text()
    assert "\n## reduce_window\n" in primitives and "f32[2] [ 6., 15.]" in primitives  # a result of `reduce`
    assert "{py:class} mx.gluon.nn.Dense(units" in (reference / "api" / "mx.gluon.nn.md").read_text()


def test_files_that_are_no_pages_are_offered(root):
    pages = {"docs/a.md": b"[a](../LICENSE) [b](b.md#c) [c](no.md) [d](../../x) [e](../README.md)", "docs/b.md": b""}
    found = loaded("build").linked(pages)
    assert found["LICENSE"] == (root / "LICENSE").read_bytes()
    assert found["README.md"].startswith(b"---\norphan: true\n---\n\n# gluonjit\n")
    assert "docs/training.md" in found and "docs/b.md" not in found and "docs/no.md" not in found


@needs_sphinx
def test_a_link_that_leads_nowhere_is_an_error_and_pages_need_no_network(tmp_path):
    text = "# A\n\n```ir\ngraph @g(%x: f32[4]) { return %x }\n```\n"
    (right, wrong), said = rendered(tmp_path, text, "# A\n\n[b](b.md)\n")
    assert right == 0 and wrong != 0
    assert all("b.md" in line for line in said.splitlines() if "WARNING" in line) and "b.md" in said
    html = (tmp_path / "0" / "index.html").read_text()
    loads = re.findall(r"<(?:link|script|img)\b[^>]*?\b(?:href|src)=\"([^\"]+)\"", html)
    assert any(path.endswith("filter.js") or "filter.js?" in path for path in loads)
    assert [path for path in loads if re.match(r"\w+:|//", path)] == []
    styles = "".join(path.read_text() for path in (tmp_path / "0").rglob("*.css"))
    assert re.findall(r"@import|url\((?!['\"]?(?:data:|#))[^)]*//[^)]*\)", styles) == []


def test_the_table_of_operators_is_searched(tmp_path):
    playwright = pytest.importorskip("playwright.sync_api", reason="the extra [browser] is not installed")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    rows = "".join(f"<tr><td>{name}</td></tr>" for name in ("Convolution of images", "dot", "Deconvolution"))
    script = (FOLDER / "static" / "filter.js").read_text()
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_content(f"<div class=filtered><table><tbody>{rows}</tbody></table></div><script>{script}</script>")
        page.get_by_label("Filter the table").fill("IMAGES conv")
        assert page.locator("tr:visible").all_inner_texts() == ["Convolution of images"]
        page.get_by_label("Filter the table").fill("")
        assert page.locator("tr:visible").count() == 3
        browser.close()


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        (None, ""),
        ("a * b * c of x[0] <y>, `a * b` stays", r"a \* b \* c of x\[0\] \<y>, `a * b` stays"),
        ("A\n===\n% b\n(c)=\n{d}`e`", "A\n\\===\n\\% b\n\\(c)=\n\\{d}`e`"),
        ("Things:\n* one,\n  more\n* `two`", "Things:\n\n* one,\n  more\n* `two`"),
        ("A.\n\n    x = y * 2\n    z[0]\n\nB*", "A.\n\n    x = y * 2\n    z[0]\n\nB\\*"),
        ("A.\n\n>>> f(x)\n[1, 2]\n\nB.", "A.\n\n\n```pycon\n>>> f(x)\n[1, 2]\n```\n\n\nB."),
        (
            "A.\n\nParameters\n----------\ndata, *more : inputs\naxis : int, optional\n    along which\nk : int",
            "A.\n\n\n**Parameters**\n\n* **data, \\*more** : inputs\n"
            "* **axis** : int, optional  \n  along which\n* **k** : int",
        ),
    ],
)
def test_docstrings_become_markdown(docstring, expected):
    assert loaded("docstrings").markdown(docstring) == expected
