"""Tables in the documents say what the declarations say."""

import importlib.util

import pytest


def test_tables_are_up_to_date(root):
    spec = importlib.util.spec_from_file_location("tables", root / "docs" / "site" / "tables.py")
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    seen = set()
    for path in sorted((root / "docs").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        seen |= {m[2] for m in tables._TABLE.finditer(text)}
        if tables.written(text) != text:
            pytest.fail(f"{path.name} is out of date: run python docs/site/tables.py")
    assert seen == set(tables.TABLES)
