"""Draws what a terminal shows as an SVG: `make demo | python docs/picture.py 'make demo' > docs/demo.svg`.

`...` on a line of its own stands for the lines that do not fit: pipe through `sed` to choose.
"""

import html
import sys

SIZE, LINE, PAD = 13, 18, 16
WIDTH = 118
"""Characters."""


def draw(command: str, lines: list[str]) -> str:
    shown = [f"$ {command}", *(line.rstrip()[:WIDTH] for line in lines)]
    width = int(WIDTH * SIZE * 0.602) + 2 * PAD
    height = len(shown) * LINE + 2 * PAD
    rows = [
        f'<text x="{PAD}" y="{PAD + (k + 1) * LINE - 5}" fill="{"#8bd5ca" if k == 0 else "#d8dee9"}" '
        f'xml:space="preserve">{html.escape(line)}</text>'
        for k, line in enumerate(shown)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'font-family="monospace" font-size="{SIZE}">',
            f'<rect width="{width}" height="{height}" rx="8" fill="#20242c"/>',
            *rows,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    sys.stdout.write(draw(sys.argv[1], sys.stdin.read().splitlines()))
