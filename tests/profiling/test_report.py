"""`gluonjit report`: one HTML file that shows a model, without anything from elsewhere."""

import json
import re
import shutil

import pytest

from gluonjit.tools.cli import main

MODEL = """
import gluonjit as mx
from gluonjit.gluon import nn

net = nn.HybridSequential(prefix="net_")
with net.name_scope():
    net.add(nn.Conv2D(8, 3, activation="relu", prefix="</script><b>_"), nn.Flatten(), nn.Dense(4))
net.initialize()
"""


@pytest.fixture
def written(tmp_path, monkeypatch, capsys):
    """Writes a report of the model above; gives (what was printed, the page, its data)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)

    def written(*arguments, name="report.html"):
        command = ["report", "model.py:net", "--input", "2x3x12x12", "--calls", "5", "--threads", "1", "-o", name]
        assert main([*command, *arguments]) == 0, capsys.readouterr().err
        text = (tmp_path / name).read_text()
        (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
        return capsys.readouterr().out, text, json.loads(data)

    return written


def test_what_is_in_it(written):
    said, text, data = written()
    assert said.startswith("report.html: 0.")
    (program,) = (p for p in data["profile"]["programs"] if p["part"] == "call")
    assert {layer["path"].split("/")[0] for layer in program["layers"]} == {"net"}
    for kernel in program["kernels"]:
        assert kernel["op"][0].startswith("graph @net")
        llvm, assembly = data["functions"][kernel["function"]]
        assert llvm[0].startswith("define void @k")
        assert any("ret" in line for line in assembly)
        assert kernel["source"] and kernel["file"].endswith("model.py")
    assert [p["name"] for p in data["passes"]][:3] == ["expand", "legalize-broadcast", "simplify"]
    assert any(line.startswith("+ ") for p in data["passes"] for line in p["diff"])
    assert any(p["rules"] for p in data["passes"] if p["name"] == "simplify")
    assert data["compiling"] and program["memory"]["tensors"]


def test_nothing_from_elsewhere_and_nothing_that_names_could_do(written):
    _, text, data = written()
    assert "default-src 'none'" in text
    assert not re.search(r"""(?:src|href)\s*=|https?://(?!www\.w3\.org/2000/svg)""", text)
    assert "</script><b>" not in text
    assert any("</script><b>" in layer["path"] for layer in data["profile"]["programs"][0]["layers"])


def test_an_earlier_report_is_compared_with(written, capsys):
    written(name="old.html")
    _, _, data = written("--against", "old.html")
    assert data["old"]["seconds"] > 0 and data["old"]["layers"]
    assert main(["report", "model.py:net", "--input", "2x3x12x12", "--against", "model.py"]) == 1
    assert "model.py is no report" in capsys.readouterr().err


def test_training(written):
    _, _, data = written("--train")
    assert {"forward", "backward"} <= {p["part"] for p in data["profile"]["programs"]}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser(written, tmp_path, scheme):
    driver = pytest.importorskip("playwright.sync_api", reason="drives the page with playwright")
    chromium = shutil.which("chromium")
    if not chromium:
        pytest.skip("needs Chromium")
    written(name="old.html")
    written("--against", "old.html")
    said = []
    with driver.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(color_scheme=scheme)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto((tmp_path / "report.html").as_uri())
        assert page.title() == "model.py:net — gluonjit report"
        for view in ("Layers", "Kernels", "Passes", "Timeline", "Memory", "Compare", "Graph"):
            page.click(f"nav button[data-view={view}]")
            assert page.locator("#view > *").count()
        page.click("nav button[data-view=Passes]")
        page.fill("#view input", "fuse")
        page.locator("summary", has_text="fuse").first.click()
        assert "fused(" in page.locator("details[open] pre").first.inner_text()
        page.click("nav button[data-view=Kernels]")
        page.locator("tr.pick").first.focus()
        page.keyboard.press("Enter")
        shown = page.locator("#kernel").inner_text()
        assert "LLVM IR" in shown and "Assembly" in shown and "define void @k" in shown
        page.fill("#view input", "dense")
        assert page.locator("tr.pick").count() == 1
        page.focus("nav button[data-view=Kernels]")
        page.keyboard.press("ArrowRight")
        assert page.get_attribute("nav button[data-view=Passes]", "aria-selected") == "true"
        browser.close()
    assert said == []
