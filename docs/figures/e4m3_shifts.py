#!/usr/bin/env python3
"""Writes e4m3_shifts.svg: a scale and an offset move numbers along one axis, the powers of two that e4m3 holds."""
import math

from svg import Figure

LEFT, STEP, LEAST = 172, 18.5, -10
ELEMENTS = (40, 9, 1, 0.0004)  # of the chapter's page
# From the smallest thousandth of the probabilities of rows of 4096 keys to 1.
SMALLEST = -9.5


figure = Figure(540, 284, "e4m3 holds powers of two from -9 to 8.8, all bits from -6 on. With a scale of 40/448 the elements 40, 9, 1 and 0.0004 are at 8.8, 6.7, "
                          "3.5 and -7.8. With a scale of 9/448 the last three are at 8.8, 5.6 and -5.7. Probabilities range from -9.5 to 0, with an offset of 8 from "
                          "-1.5 to 8.")


def place(power):
    return LEFT + (power - LEAST) * STEP


figure.text(16, 26, "Where numbers fall in e4m3", "bold")
for power in range(-9, 9, 3):
    figure.text(place(power), 56, f"2^{power}", "small soft", "middle")
figure.box(place(-9), 64, 3 * STEP, 12, "")
figure.box(place(-6), 64, 14.8 * STEP, 12, "green")
figure.text(16, 75, "e4m3", "small")
for i, largest in enumerate((40, 9)):
    y = 92 + 34 * i
    figure.text(16, y + 18, f"elements times {448 / largest:.1f}", "small")
    for element in ELEMENTS:
        if element <= largest:
            x = place(math.log2(element * 448 / largest))
            figure.box(x - 3, y + 15, 6, 10, "blue")
            beside_line = 0 < x - place(-6) < 20  # the label must not cross it
            figure.text(x - 3 if beside_line else x, y + 11, str(element), "small", "start" if beside_line else "middle")
for i, offset in enumerate((0, 8)):
    y = 160 + 34 * i
    figure.text(16, y + 18, f"P, offset {offset}" if offset else "P, no offset", "small")
    figure.box(place(SMALLEST + offset), y, -SMALLEST * STEP, 26, "amber")
figure.line([(place(-6), 82), (place(-6), 222)], "green", dashed=True)
figure.lines(16, 248, ("Right of the green line: all bits.", "Amber: the P of a row of 4096 keys, without the smallest thousandth."), "small soft")
figure.write(__file__)
