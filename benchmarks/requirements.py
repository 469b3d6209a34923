"""Prints the requirements of the extra `bench`, one per line, to install them one by one if some fail to install."""

from __future__ import annotations

import re
from importlib.metadata import requires


def requirements(lines: list[str]) -> list[str]:
    """From a package's metadata, `onnx>=1.16; extra == "bench"`, to what pip takes."""
    found = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        if re.search(r"extra\s*==\s*[\"']bench[\"']", marker):
            found.append(requirement.strip())
    return found


if __name__ == "__main__":
    print("\n".join(requirements(requires("gluonjit") or [])))
