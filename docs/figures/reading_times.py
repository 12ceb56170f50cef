#!/usr/bin/env python3
"""Writes reading_times.svg: when a multiprocessor has bytes in flight in steps 1 to 4 of chapter 8. It is schematic,
not measured."""
from svg import Figure

WIDTH, LEFT, ROW, UNIT = 420, 16, 24, 24
TRAVEL, COMPUTE = 3, 2  # units of time


def alternating(figure, y, shift, rounds):
    """Draws a block that requests a tile, waits, and works on it."""
    for i in range(rounds):
        x = LEFT + (shift + i * (TRAVEL + COMPUTE)) * UNIT
        figure.box(x, y, TRAVEL * UNIT - 2, ROW - 6, "amber")
        figure.box(x + TRAVEL * UNIT, y, COMPUTE * UNIT - 2, ROW - 6, "blue")


figure = Figure(WIDTH, 372, "Steps 1 and 2: tiles travel and are computed one after the other. Step 3: two blocks fill part of each other's gaps. "
                            "Step 4: copies follow one another without a gap.")
figure.text(LEFT, 28, "Steps 1 and 2: one block", "bold")
alternating(figure, 42, 0, 3)
figure.text(LEFT, 88, "While it computes, nothing travels.", "small soft")

figure.text(LEFT, 126, "Step 3: two blocks", "bold")
alternating(figure, 140, 0, 3)
alternating(figure, 140 + ROW, 2.5, 2)
figure.text(LEFT, 210, "Each fills a part of the other's gaps.", "small soft")

figure.text(LEFT, 248, "Step 4: one block, three stages", "bold")
for i in range(15):
    figure.box(LEFT + i * UNIT, 262, UNIT - 2, ROW - 6, "amber")
    if i >= TRAVEL:
        figure.box(LEFT + i * UNIT, 262 + ROW, UNIT * 0.6, ROW - 6, "blue")
figure.text(LEFT, 332, "The next stages are requested before these land.", "small soft")
figure.box(LEFT, 346, 20, 14, "amber")
figure.text(LEFT + 28, 358, "on its way", "small")
figure.box(LEFT + 128, 346, 20, 14, "blue")
figure.text(LEFT + 156, 358, "computed", "small")
figure.write(__file__)
