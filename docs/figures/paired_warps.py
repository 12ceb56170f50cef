#!/usr/bin/env python3
"""Writes paired_warps.svg: how two warps share 32 rows in step 6 of chapter 4 at d = 256: each takes half of the keys
for S, half of the dims for O."""
from svg import Figure

LOOKS = ("blue", "amber")  # one per warp of the pair


def matrix(figure, x, y, width, height, name, size, split=None):
    figure.text(x + width / 2, y - 8, name, "small", "middle")
    if split is None:
        figure.box(x, y, width, height)
    for side, look in enumerate(LOOKS):
        if split == "columns":
            figure.box(x + side * width / 2, y, width / 2, height, look)
        elif split == "rows":
            figure.box(x, y + side * height / 2, width, height / 2, look)
    figure.text(x + width / 2, y + height + 18, size, "small soft", "middle")


figure = Figure(500, 444, "For the scores each warp of a pair has half of the keys. For O each has half of the dims and needs all probabilities, so "
                          "each stores its own half for the other to read.")
figure.text(16, 28, "Scores: each warp has 32 of the 64 keys", "bold")
matrix(figure, 16, 68, 150, 40, "Q", "32 rows × 256")
figure.text(180, 93, "×", "bold", "middle")
matrix(figure, 196, 68, 90, 110, "Kᵀ", "256 × 64", "columns")
figure.text(304, 93, "=", "bold", "middle")
matrix(figure, 322, 68, 90, 40, "S, then P", "32 × 64", "columns")
figure.text(16, 232, "O: each warp has 128 of the 256 dims", "bold")
matrix(figure, 16, 272, 90, 40, "P", "32 × 64")
figure.text(61, 297, "both halves", "small", "middle")
figure.text(122, 297, "×", "bold", "middle")
matrix(figure, 140, 272, 150, 70, "V", "64 × 256", "columns")
figure.text(304, 297, "=", "bold", "middle")
matrix(figure, 322, 272, 150, 40, "O", "32 × 256", "columns")
for side, look in enumerate(LOOKS):
    figure.box(16 + 120 * side, 384, 16, 14, look)
    figure.text(38 + 120 * side, 396, f"side {side}'s warp", "small")
figure.text(16, 426, "Through shared memory, once a tile: the maxima and P.", "small red")
figure.write(__file__)
