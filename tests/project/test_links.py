"""Links in README.md and docs/*.md lead somewhere, and every page can be reached."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)|!\[[^\]]*\]\(([^()\s]+)\)")


def text_of(page: Path) -> str:
    """Without code, in which brackets mean other things."""
    return re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def links(page: Path) -> list[str]:
    return [a or b for a, b in LINK.findall(text_of(page))]


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to headings: lower case, without punctuation, spaces as hyphens."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?) *$", prose, re.M):
        name = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
        again = name
        for k in range(1, 100):
            if again not in found:
                break
            again = f"{name}-{k}"
        found.add(again)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path):
    wrong = []
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or anchor and target.suffix == ".md" and anchor not in anchors(target):
            wrong.append(link)
    assert not wrong


def test_every_page_can_be_reached():
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            names = (link.partition("#")[0] for link in links(page) if not re.match(r"[a-z]+:", link))
            waiting += [p for n in names if n.endswith(".md") and (p := (page.parent / n).resolve()).is_file()]
    assert set(PAGES) <= reached
