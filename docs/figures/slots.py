"""Draw ``slots.svg``: the tree of a step's additions, and the blocks of the ranks.

python docs/figures/slots.py
"""

from __future__ import annotations

from pathlib import Path

SLOTS, RANKS = 8, 3
COLUMN, ROW, LEFT, TOP = 78, 52, 120, 24
COLOURS = ("#26734d", "#7a4fa3", "#b35c00")


def text(x: float, y: float, content: str, anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{content}</text>'


def draw() -> str:
    """Return the picture."""
    depth = SLOTS.bit_length() - 1
    bottom = TOP + depth * ROW
    lines, marks = [], []
    places = [(LEFT + slot * COLUMN, bottom) for slot in range(SLOTS)]
    for slot, (x, y) in enumerate(places):
        marks.append(f'<rect x="{x - 22}" y="{y - 14}" width="44" height="28" rx="4"/>')
        marks.append(text(x, y + 5, f"g{slot}"))
    for _ in range(depth):
        above = []
        for (x1, y1), (x2, y2) in zip(places[::2], places[1::2], strict=True):
            x, y = (x1 + x2) / 2, y1 - ROW
            lines += [
                f'<path d="M{a:g} {b - 14:g} L{x:g} {y + 12:g}"/>' for a, b in ((x1, y1), (x2, y2))
            ]
            marks += [f'<circle cx="{x:g}" cy="{y:g}" r="12"/>', text(x, y + 5, "+")]
            above.append((x, y))
        places = above
    marks.append(text(places[0][0] + 20, places[0][1] + 5, "divided once by 8", "start"))
    for rank in range(RANKS):
        y = bottom + 40 + 26 * rank
        marks.append(text(20, y + 5, f"rank {rank}", "start"))
        block = range(rank * SLOTS // RANKS, (rank + 1) * SLOTS // RANKS)
        for turn, slot in enumerate(block):
            x = LEFT + slot * COLUMN
            marks.append(
                f'<rect x="{x - 22}" y="{y - 10}" width="44" height="20" rx="4" '
                f'style="fill:{COLOURS[rank]}"/>'
            )
            marks.append(f'<g style="fill:#fff">{text(x, y + 5, f"pass {turn}")}</g>')
    width, height = LEFT + SLOTS * COLUMN, bottom + 40 + 26 * RANKS
    style = (
        "text{font:13px sans-serif}rect,circle{fill:#e8eef7;stroke:#445}path{stroke:#889;fill:none}"
    )
    paper = f'<rect width="{width}" height="{height}" style="fill:#fff;stroke:none"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">'
        f"<style>{style}</style>{paper}" + "".join(lines + marks) + "</svg>\n"
    )


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw())
