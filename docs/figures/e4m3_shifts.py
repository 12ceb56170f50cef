#!/usr/bin/env python3
"""Writes e4m3_shifts.svg: a scale and an offset move numbers along one axis, the powers of two that e4m3 holds."""
from svg import Figure

LEFT, STEP, LEAST = 190, 17.5, -10
# From the smallest thousandth of the numbers to the largest: N(0, 1) reaches from 2^-9.6 to 4; rows of 4096 probabilities to 2^-9.5.
ROWS = (("one scale, largest 40", -6.2, 5.5, "blue"), ("a tile's scale, largest 4", -2.8, 8.8, "blue"),
        ("P, no offset", -9.5, 0, "amber"), ("P, offset 8", -1.5, 8, "amber"))


figure = Figure(540, 262, "e4m3 holds powers of two from -9 to 8.8, all bits from -6 on. One scale for a tensor whose largest element is 40 puts N(0, 1) at "
                          "-6.2 to 5.5, a tile's own scale at -2.8 to 8.8. Probabilities without an offset range from -9.5 to 0, with an offset of 8 from -1.5 to 8.")

def place(power):
    return LEFT + (power - LEAST) * STEP

figure.text(16, 26, "Where 999 of 1000 numbers fall in e4m3", "bold")
for power in range(-9, 9, 3):
    figure.text(place(power), 56, f"2^{power}", "small soft", "middle")
figure.box(place(-9), 64, 3 * STEP, 12, "")
figure.box(place(-6), 64, 14.8 * STEP, 12, "green")
figure.text(16, 75, "e4m3", "small")
for i, (words, low, high, look) in enumerate(ROWS):
    y = 92 + 34 * i
    figure.text(16, y + 18, words, "small")
    figure.box(place(low), y, (high - low) * STEP, 26, look)
figure.line([(place(-6), 82), (place(-6), 222)], "green", dashed=True)
figure.text(16, 248, "Right of the green line a number has all its bits. Blue: elements of N(0, 1).", "small soft")
figure.write(__file__)
