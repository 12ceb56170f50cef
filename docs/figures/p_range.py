#!/usr/bin/env python3
"""Writes p_range.svg: which powers of two e4m3 holds, and where probabilities fall without an offset and with one."""
from svg import Figure

LEFT, STEP, LEAST = 128, 21.5, -9
ROWS = ((0, 0, "offset 0"), (6, 2, "6, lazy by 2"), (8, 0, "offset 8"))


figure = Figure(540, 232, "e4m3 holds powers of two from -9 to 8, all bits from -6 on. Probabilities are at most 1: without an offset the upper half is "
                          "unused, with an offset of 8 it is used, with 6 two powers are left for lazy rescaling.")

def place(power):
    return LEFT + (power - LEAST) * STEP

figure.text(16, 26, "Where P falls in e4m3", "bold")
for power in range(-9, 9, 3):
    figure.text(place(power), 58, f"2^{power}", "small soft", "middle")
figure.line([(place(-9), 66), (place(8.8), 66)])
figure.text(16, 71, "e4m3", "small")
for i, (offset, lazy, words) in enumerate(ROWS):
    y = 82 + 34 * i
    figure.text(16, y + 18, words, "small")
    figure.box(place(-9), y, 3 * STEP, 26, "amber")
    figure.box(place(-6), y, (offset + 6) * STEP, 26, "green")
    if lazy:
        figure.box(place(offset), y, lazy * STEP, 26, "blue")
for x, look, words in ((16, "amber", "fewer bits"), (130, "green", "all bits, up to p = 1"), (318, "blue", "above 1: an old maximum")):
    figure.box(x, 196, 16, 14, look)
    figure.text(x + 22, 208, words, "small")
figure.write(__file__)
