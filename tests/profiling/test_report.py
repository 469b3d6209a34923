"""`gluonjit report`: one HTML file that shows a model, without anything from elsewhere."""

import json
import re
import shutil

import pytest

import gluonjit as mx
from gluonjit.ir.text import parse_graph
from gluonjit.tools.cli import main
from gluonjit.tools.reporting.drawings import clusters
from gluonjit.tools.reporting.page import earlier, fitted

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
    assert re.match(r"report.html: \d+(\.\d+)? [KM]iB\n", said)
    (program,) = (p for p in data["profile"]["programs"] if p["part"] == "call")
    assert {layer["path"].split("/")[0] for layer in program["layers"]} == {"net"}
    for kernel in program["kernels"]:
        assert kernel["op"][0].startswith("graph @net")
        llvm, assembly = data["functions"][kernel["function"]]
        assert llvm[0].startswith("define void @k")
        assert any("ret" in line or line.startswith("… ") for line in assembly)
        assert kernel["source"] and kernel["file"].endswith("model.py")
    (pipeline,) = data["pipelines"]
    passes = pipeline["passes"]
    assert [p["name"] for p in passes][:4] == ["outline", "expand", "legalize-broadcast", "simplify"]
    assert any(line.startswith("+ ") for p in passes for line in p["diff"])
    assert any(p["rules"] for p in passes if p["name"] == "simplify")
    assert data["compiling"] and program["memory"]["tensors"]
    assert all(layer["advice"].endswith(".") for layer in program["layers"])
    assert data["made"].startswith("gluonjit ") and "numpy" in data["made"]


def test_graphs(written):
    """Operators and kernels, each operator with the kernels that compute it."""
    _, _, data = written()
    operators, kernels = data["stages"]
    assert [n["label"] for n in operators["nodes"]] == "data Convolution Activation Flatten FullyConnected".split()
    assert operators["edges"] == [[0, 1], [1, 2], [2, 3], [3, 4]]
    convolution, activation = operators["nodes"][1:3]
    assert convolution["source"].startswith("net.add(nn.Conv2D") and "mx.Convolution(%data" in convolution["text"][0]
    (program, number), *_ = convolution["main"]
    assert data["profile"]["programs"][program]["kernels"][number]["layer"] == convolution["layer"]
    assert activation["main"] == [] and activation["within"] == convolution["main"][-1:]
    measured = data["profile"]["programs"][0]["kernels"]
    assert [n["kind"] for n in kernels["nodes"]] == ["input", *(k["kind"] for k in measured)]
    assert kernels["edges"][0] == [0, 1]


def test_groups_of_ops_make_no_cycle():
    """An op joins the group of its line unless it depends on that group through another one."""
    graph = parse_graph("""
        graph @g(%x: f32[4]) {
          %a: f32[4] = neg(%x) loc("f.py":1)
          %b: f32[4] = exp(%a) loc("f.py":1)
          %c: f32[4] = abs(%b) loc("f.py":2)
          %d: f32[4] = neg(%c) loc("f.py":1)
          %e: f32[4] = neg(%x) loc("f.py":2)
          %f: f32[4] = add(%e, %d) loc("f.py":2)
          return %f
        }""")
    assert [[op.result.name for op in group] for group in clusters(graph.ops)] == [["a", "b"], ["c", "e"], ["d"], ["f"]]


def test_nothing_from_elsewhere_and_nothing_that_names_could_do(written):
    _, text, data = written()
    assert "default-src 'none'" in text
    assert not re.search(r"""(?:src|href)\s*=|https?://(?!www\.w3\.org/2000/svg)""", text)
    assert "</script><b>" not in text
    assert any("</script><b>" in layer["path"] for layer in data["profile"]["programs"][0]["layers"])


def test_an_earlier_report_is_compared_with(written, capsys):
    written(name="old.html")
    _, _, data = written("--against", "old.html")
    (old,) = (p for p in data["old"]["programs"] if p["part"] == "call")
    (now,) = (p for p in data["profile"]["programs"] if p["part"] == "call")
    assert [k["what"] for k in old["kernels"]] == [k["what"] for k in now["kernels"]]
    assert {k["path"] for k in old["layers"]} == {k["path"] for k in now["layers"]}
    assert old["seconds"] > 0 and old["memory"]["arena"] == now["memory"]["arena"] and data["old"]["compiling"]
    assert main(["report", "model.py:net", "--input", "2x3x12x12", "--against", "model.py"]) == 1
    assert "model.py is not a report" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change", ['"seconds":NaN', '"seconds":"x"', '"seconds":null', '"seconds":1e999', '"seconds":[]']
)
def test_an_earlier_report_with_numbers_that_are_none(written, tmp_path, change):
    _, text, _ = written()
    (tmp_path / "bad.html").write_text(re.sub(r'"seconds":[\d.e-]+', change, text))
    with pytest.raises(mx.MXNetError, match="bad.html is not a report"):
        earlier(str(tmp_path / "bad.html"))


def test_what_passes_left_undone(written):
    """Which rules found nothing to do, and why ops are not part of their readers' kernels."""
    _, _, data = written()
    passes = {p["name"]: p for p in data["pipelines"][0]["passes"]}
    idle = passes["simplify"]["idle"]
    assert idle and all(name not in [rule for rule, *_ in passes["simplify"]["rules"]] and n > 0 for name, n, _ in idle)
    missed = passes["fuse"]["missed"]
    assert any("from memory" in m["why"] and m["layer"].startswith("net/") for m in missed)
    assert not passes["cse"]["idle"] and not passes["cse"]["missed"]


def test_what_a_kernel_was_chosen_among(written):
    _, _, data = written()
    (program,) = (p for p in data["profile"]["programs"] if p["part"] == "call")
    lists = {k["kind"]: k["alternatives"] for k in program["kernels"]}
    (conv,) = (found for kind, found in lists.items() if kind in ("conv", "winograd"))
    algorithms = [what for kind, what, _, _ in conv if kind == "algorithm"]
    assert algorithms[0] == "directly" and "F(2×2)" in algorithms
    for found in lists.values():
        for kind in {kind for kind, *_ in found}:
            assert sum(chosen for k, _, _, chosen in found if k == kind) == 1
            assert all(microseconds > 0 for *_, microseconds, _ in found)


def test_training(written):
    """The stages of a recorded call, each with the kernels of its own half."""
    _, _, data = written("--train")
    parts = [p["part"] for p in data["profile"]["programs"]]
    assert {"forward", "backward"} <= set(parts)
    assert [p["title"] for p in data["pipelines"]] == ["gradient", "forward", "backward"]
    assert "differentiate" in [p["name"] for p in data["pipelines"][0]["passes"]]
    assert all("plan-memory" in [p["name"] for p in pipeline["passes"]] for pipeline in data["pipelines"][1:])
    stages = {stage["title"]: stage for stage in data["stages"]}
    titles = ["operators", "joint", "forward", "kernels, forward", "backward", "kernels, backward"]
    assert list(stages) == titles

    def programs(title):
        return {parts[p] for node in stages[title]["nodes"] for p, _ in node["main"]}

    assert programs("operators") == programs("joint") == {"forward", "backward"}
    assert programs("forward") == programs("kernels, forward") == {"forward"}
    assert programs("backward") == programs("kernels, backward") == {"backward"}
    labels = [[node["label"] for node in stages[title]["nodes"]] for title in ("forward", "backward")]
    assert ["conv" in of for of in labels] == [True, True] and "scatter_add" not in labels[0]
    for program in data["profile"]["programs"]:
        for kernel in program["kernels"] if program["part"] != "packing" else ():
            assert data["functions"][kernel["function"]][0][0].startswith("define void @k")


def test_a_page_is_not_too_large(written):
    """The code of the fastest kernels is left out, and the text of graphs before."""
    _, _, data = written()
    whole = len(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
    texts = sum(len(json.dumps(stage.get("text", ""))) for stage in data["stages"])
    assert fitted(data, whole) == data
    less = fitted(data, whole - texts - 1000)
    assert not any("text" in stage for stage in less["stages"]) and less["functions"].keys() < data["functions"].keys()
    slowest = max(data["profile"]["programs"][0]["kernels"], key=lambda kernel: kernel["share"])
    assert slowest["function"] in less["functions"]
    assert less["omitted"] == ["texts of graphs", "code of the fastest kernels"]
    least = fitted(data, 1)
    assert not least["functions"] and not any("op" in k for p in least["profile"]["programs"] for k in p["kernels"])
    assert len(least["stages"]) == 1 and "ops of the fastest kernels" in least["omitted"]
    assert "omitted" not in data and "op" in slowest  # what was given is as it was


@pytest.fixture
def browser():
    driver = pytest.importorskip("playwright.sync_api", reason="the extra [browser] is not installed")
    chromium = shutil.which("chromium")
    if not chromium:
        pytest.skip("needs Chromium")
    with driver.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens `report.html` in the browser; at the end, nothing may have been written to the console."""
    said = []

    def opened(scheme="light"):
        page = browser.new_page(color_scheme=scheme)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto((tmp_path / "report.html").as_uri())
        return page

    yield opened
    assert said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser(written, opened, scheme):
    written(name="old.html")
    written("--against", "old.html")
    page = opened(scheme)
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
    assert "Roofline" in shown or "loops" in shown
    assert "LLVM IR" in shown and "Assembly" in shown and "define void @k" in shown
    page.fill("#view input", "dense")
    assert page.locator("tr.pick").count() == 1
    page.focus("nav button[data-view=Kernels]")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("nav button[data-view=Passes]", "aria-selected") == "true"


def middle(page, selector):
    box = page.locator(selector).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_the_graph_in_a_browser(written, opened):
    written()
    page = opened()
    page.click("nav button[data-view=Graph]")
    assert page.locator(".node").count() == 5
    page.locator(".node", has_text="Activation").click()
    shown = page.locator("#node").inner_text()
    assert "mx.Activation(" in shown and "net.add(nn.Conv2D" in shown and "kernels of others" in shown

    page.fill(".tools input", "fullyconnected")  # marked and brought to the middle
    assert page.locator(".node.hit").count() == 1 and "1 of 1" in page.locator(".tools").inner_text()
    assert middle(page, ".node.hit rect") == pytest.approx(middle(page, ".canvas"), abs=2)
    page.fill(".tools input", "no such node")
    assert page.locator(".node.hit").count() == 0 and "none" in page.locator(".tools").inner_text()
    page.fill(".tools input", "")

    page.focus(".canvas")  # by keyboard alone
    page.keyboard.press("ArrowUp")
    assert page.locator(".node.chosen").get_attribute("aria-label").startswith("Flatten")
    wide = page.locator(".node.chosen rect").bounding_box()["width"]
    page.keyboard.press("+")
    assert page.locator(".node.chosen rect").bounding_box()["width"] > wide
    page.mouse.move(*middle(page, ".canvas"))
    page.mouse.wheel(0, 600)
    page.wait_for_function(f"document.querySelector('.node.chosen rect').getBoundingClientRect().width < {wide}")
    left = middle(page, ".node.chosen rect")[0]
    page.mouse.down()
    page.mouse.move(middle(page, ".canvas")[0] + 50, middle(page, ".canvas")[1])
    page.mouse.up()
    assert middle(page, ".node.chosen rect")[0] == pytest.approx(left + 50, abs=1)

    page.click("button[data-stage='1']")
    assert page.locator(".node.input").count() == 1
    page.click("text=slowest")
    label = page.locator("#node h2").inner_text()
    page.locator("#node button").first.click()
    assert page.get_attribute("nav button[data-view=Kernels]", "aria-selected") == "true"
    assert label in page.locator("#kernel h2").first.inner_text()
    page.click("text=show in the graph")
    assert page.locator("#node h2").inner_text() == label


def test_training_in_a_browser(written, opened):
    written("--train")
    page = opened()
    page.click("nav button[data-view=Graph]")
    for k, first in enumerate(["operators", "joint", "forward", "kernels, forward", "backward", "kernels, backward"]):
        page.click(f"button[data-stage='{k}']")
        assert page.locator("button[aria-pressed=true]").inner_text() == first
        assert page.locator(".node").count() > 3
    page.click("text=slowest")
    page.locator("#node button").first.click()
    assert page.locator("nav select").evaluate("s => s.selectedOptions[0].textContent").endswith("backward")
    page.click("nav button[data-view=Passes]")
    page.click("text=gradient")
    assert page.locator("summary", has_text="differentiate").count() == 1
    page.click("button[data-pipeline='2']")
    assert page.locator("summary", has_text="differentiate").count() == 0
