#!/usr/bin/env python3
"""Writes wgmma_fragments.svg: which thread of a warpgroup holds which scores, and which elements of the next product's
left operand.

hopper_layouts.json has the layout of common/ptx/wgmma_layout.h (docs/figures/recorded/hopper_figures.py)."""
import json
from pathlib import Path

from svg import Figure

LAYOUTS = Path(__file__).with_name("hopper_layouts.json")
ELEMENTS = 8                # elements per thread in 16 columns
WIDTH, HEIGHT = 22, 18      # size of an element
WARP, LANE = 1, 6           # the warp that is drawn, the lane that is marked
LOOKS = ("blue", "amber", "green", "")  # one per warp


def held(places):
    """Returns {(row, column): (thread, element)} of 16 columns."""
    return {(places[2 * i], places[2 * i + 1]): (i // ELEMENTS, i % ELEMENTS) for i in range(len(places) // 2)}


layouts = json.loads(LAYOUTS.read_text(encoding="utf-8"))
scores, operand = held(layouts["d"]), held(layouts["a"])
figure = Figure(478, 430, "A warp of the warpgroup has 16 of 64 rows. Four neighbouring lanes hold a row, and a thread's scores, rounded in pairs, "
                          "are its registers of the left operand of the next product.")
x, y, scale = 20, 66, 4
figure.text(x, 28, "64 rows", "bold")
figure.text(x, 50, "of scores", "small soft")
for row in range(0, 64, 16):
    warp = scores[row, 0][0] // 32
    figure.box(x, y + row * scale * 1.125, 66, 16 * scale * 1.125, LOOKS[warp], f"warp {warp}")
x = 110
figure.text(x, 28, f"warp {WARP}: rows {16 * WARP} to {16 * WARP + 15}, columns 0 to 15", "bold")
figure.text(x, 50, "boxes: pairs of neighbours; numbers: lanes", "small soft")
marked = []
for row in range(16 * WARP, 16 * WARP + 16):
    for column in range(0, 16, 2):
        thread, element = scores[row, column]
        lane = thread % 32
        left, top = x + column * WIDTH, y + (row - 16 * WARP) * HEIGHT
        figure.box(left, top, 2 * WIDTH, HEIGHT, "green" if lane == LANE else "blue" if lane < 4 else "")
        words = str(lane)
        if lane == LANE:
            words = f"s{element}{element + 1}"
            marked.append((element, operand[row, column]))
        figure.text(left + WIDTH, top + HEIGHT / 2 + 5, words, "small", "middle")
y += 16 * HEIGHT + 26
same = all(thread == 32 * WARP + LANE for _, (thread, _) in marked)
pairs = ", ".join(f"s{element}{element + 1} → a{of // 2}" for element, (_, of) in sorted(marked))
figure.text(20, y, f"Lane {LANE} (green) holds floats s01 to s67 of these columns.", "small soft")
figure.text(20, y + 20, f"Of P it must hold {pairs}" + ("." if same else " of another lane."), "small soft")
figure.text(20, y + 40, "Blue: lanes 0 to 3, a quad, which has two rows.", "small soft")
figure.write(__file__)
