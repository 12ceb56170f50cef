#!/usr/bin/env python3
"""Writes three_kernels.svg: the kernels of chapter 1 and the matrices that pass between them through device memory."""
from svg import Figure

MEMORY, CHIP, SIDE = 62, 196, 76  # y of the two rows; N, to scale with d
KERNELS = (("S = Q Kᵀ", 95, 150), ("softmax", 270, 180), ("O = P V", 445, 150))  # formula, middle, width
# name, middle, width, colour, written, read
MATRICES = (
    ("Q", 50, 18, "blue", False, True),
    ("K", 90, 18, "blue", False, True),
    ("S", 175, SIDE, "amber", True, True),
    ("P", 365, SIDE, "amber", True, True),
    ("V", 430, 18, "blue", False, True),
    ("O", 490, 18, "green", True, False),
)


figure = Figure(540, 270, "Three kernels: the first writes S, the softmax reads S and writes P, the last reads P. S and P are N by N, everything else is N by d.")
figure.text(16, 26, "device memory", "small soft")
figure.text(16, 256, "on the chip", "small soft")
for name, x, width in KERNELS:
    figure.box(x - width / 2, CHIP, width, 36, "", name, "bold")
for name, x, width, look, written, read in MATRICES:
    figure.box(x - width / 2, MEMORY, width, SIDE, look)
    figure.text(x, MEMORY - 9, name, "", "middle")
    if width == SIDE:
        figure.text(x, MEMORY + SIDE / 2 + 5, "4 N² bytes" if name == "S" else "2 N² bytes", "small", "middle")
    aside = SIDE / 4 if width == SIDE else 0  # a matrix that is written and read has two arrows
    if written:
        figure.arrow(x - aside, CHIP - 4, x - aside, MEMORY + SIDE + 6, look)
    if read:
        figure.arrow(x + aside, MEMORY + SIDE + 6, x + aside, CHIP - 4, look)
figure.write(__file__)
