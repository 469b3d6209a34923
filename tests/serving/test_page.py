"""The page of `gluonjit serve` in a browser: Debian's Chromium, driven by Playwright."""

import io
import re
import shutil

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(scope="module")
def served(starting, files):
    sources = [
        {"name": "net", "files": files},
        {"name": "net", "version": 7, "files": files},
        {"name": "alone", "files": files, "batching": False},
    ]
    with starting(sources) as running:
        yield running


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="the extra [browser] is not installed")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as p:
        # Chromium's sandbox does not start for root, nor in most containers; the page is our own.
        browser = p.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, served):
    """Opens the page, and fails where it complains to the console."""
    complaints, contexts = [], []

    def opening(**options):
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"http://127.0.0.1:{served.port}/")
        page.wait_for_selector("textarea")
        return page

    yield opening
    for context in contexts:
        context.close()
    assert complaints == []


def cells(page, row):
    return page.locator("#models tr").nth(row).locator("td").all_inner_texts()


def test_models_and_their_load_are_shown(opened, served, rows):
    page = opened()
    headers = page.locator("thead th").all_inner_texts()
    before = dict(zip(headers, cells(page, 2)))
    assert (before["model"], before["version"]) == ("net", "7")
    assert page.locator("#models tr").count() == 3
    assert cells(page, 0)[-1] == "one by one: as configured" and cells(page, 2)[-1] == "together"
    assert page.inner_text("#state") == "ready"
    for _ in range(3):
        assert served.infer(rows(2))[0] == 200
    count = str(int(before["requests"]) + 3)
    page.wait_for_selector(f"#models tr:nth-child(3) td:nth-child(3):text-is('{count}')")  # the next look has it
    after = dict(zip(headers, cells(page, 2)))
    assert after["errors"] == before["errors"] and float(after["per second"]) > 0
    assert after["busy"].endswith("%") and float(after["ms per call"]) > 0


def test_an_input_is_tried(opened, served, wanted):
    page = opened()
    page.select_option("#model", label="net, version 7")
    page.wait_for_selector("textarea")
    page.fill(".shape", "2x4")
    page.fill("textarea", "[1, 2, 3, 4, -1, 0, 0.5, 2]")
    page.click("#run")
    page.wait_for_selector("#seconds:not(:empty)")
    first, *numbers = page.inner_text("#answer").splitlines()
    assert re.fullmatch(r"\S+: FP32 \[2, 3\]", first)
    x = np.array([[1, 2, 3, 4], [-1, 0, 0.5, 2]], np.float32)
    found = np.array(" ".join(numbers).split(), np.float32)
    assert np.allclose(found, wanted(x).ravel(), rtol=1e-5, atol=1e-6)


def test_random_numbers_follow_the_shape(opened):
    page = opened()
    page.fill(".shape", "5x4")
    page.click("#run")
    page.wait_for_selector("#seconds:not(:empty)")
    assert "FP32 [5, 3]" in page.inner_text("#answer")


@pytest.mark.parametrize(
    "shape, data, message",
    [
        ("1x4", "[1, 2", "data: its elements are a list in JSON"),
        ("1xfour", "[1]", "data: write its shape as"),
    ],
)
def test_what_is_wrong_is_said(opened, shape, data, message):
    page = opened()
    page.click("#run")
    page.wait_for_selector("#seconds:not(:empty)")
    page.fill(".shape", shape)
    page.fill("textarea", data)
    page.click("#run")
    page.wait_for_selector("#answer.wrong")
    assert page.inner_text("#answer").startswith(message)
    assert page.inner_text("#seconds") == ""  # not the time of the answer before


def test_the_keyboard_is_enough(opened):
    page = opened()
    reached = []
    for _ in range(9):
        page.keyboard.press("Tab")
        focus = page.locator(":focus")
        reached.append(focus.get_attribute("id") or focus.get_attribute("class") or focus.evaluate("x => x.tagName"))
        if reached[-1] == "run":
            break
    assert reached == ["wide", "model", "shape", "BUTTON", "TEXTAREA", "run"]
    page.keyboard.press("Enter")
    page.wait_for_selector("#seconds:not(:empty)")
    assert page.locator("#run:focus").count() == 1  # and again
    page.focus(".shape")
    page.keyboard.press("Control+A")
    page.keyboard.type("3x4")
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#answer:has-text('[3, 3]')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read(opened, scheme):
    """The contrast of texts is at least 4.5, as WCAG 2 asks."""
    page = opened(color_scheme=scheme)
    page.fill("textarea", "[")
    page.click("#run")
    page.wait_for_selector("#answer.wrong")
    corner = luminance(page.screenshot())[0, 0]
    assert corner > 0.9 if scheme == "light" else corner < 0.1
    for text in ("h1", "#state", "td", "textarea", "#run", "#answer.wrong", "a"):
        found = luminance(page.locator(text).first.screenshot())
        assert (found.max() + 0.05) / (found.min() + 0.05) >= 4.5, text


def luminance(png):
    """WCAG's relative luminance of each pixel."""
    with Image.open(io.BytesIO(png)) as image:
        c = np.asarray(image.convert("RGB")) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722)


def test_a_narrow_screen_scrolls_the_table_alone(opened):
    page = opened(viewport={"width": 360, "height": 640})
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
    assert page.locator(".wide").evaluate("x => x.scrollWidth > x.clientWidth")


def test_a_server_that_ends_is_noticed(opened):
    page = opened()
    page.route("**/v2/load", lambda route: route.fulfill(status=200, body="<html>"))
    page.wait_for_selector("#state.wrong")
    assert page.inner_text("#state").startswith("not reachable")
