#!/usr/bin/env python3
"""Writes landing.svg: when an asynchronous copy lands in each of the simulator's three modes."""
from svg import Figure

ISSUE, BETWEEN, WAIT, END = 130, 270, 410, 520


figure = Figure(540, 214, "Eager: the copy lands when it is issued. Random: somewhere in between. Lazy: in the wait that covers it. "
                          "Until it lands, its destination holds NaN.")
for at, name in ((ISSUE, "copy issued"), (WAIT, "wait returns")):
    figure.text(at, 28, name, "small", "middle")
    figure.line([(at, 38), (at, 176)], dashed=True)
for row, (mode, lands) in enumerate((("eager", ISSUE), ("random", BETWEEN), ("lazy", WAIT))):
    y = 52 + 42 * row
    figure.text(20, y + 19, mode, "bold")
    if lands > ISSUE:
        figure.box(ISSUE, y, lands - ISSUE, 28, "amber", "NaN", "small amber")
    figure.box(lands, y, END - lands, 28, "green")
    figure.text((WAIT + END) / 2, y + 19, "data", "small green", "middle")
figure.text(20, 198, "Lazy catches a kernel that reads too early, eager one that counts wrongly.", "small soft")
figure.write(__file__)
