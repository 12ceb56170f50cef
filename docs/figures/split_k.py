#!/usr/bin/env python3
"""Writes split_k.svg: how the four warps of step 3 of chapter 3 share a tile of keys, and how their parts of O are added up."""
from svg import Figure

LOOKS = ("blue", "amber", "green", "")  # one per warp
SIDE, QUARTER = 96, 24


def quarters(figure, x, y, upright, names=True):
    """Draws a square matrix whose columns (or rows, if not upright) belong to the four warps."""
    for warp, look in enumerate(LOOKS):
        left, top = (x + QUARTER * warp, y) if upright else (x, y + QUARTER * warp)
        width, height = (QUARTER, SIDE) if upright else (SIDE, QUARTER)
        figure.box(left, top, width, height, look)
        if names:
            figure.text(left + width / 2, top + height / 2 + 5, str(warp), "small", "middle")


figure = Figure(470, 504, "Each of four warps multiplies Q with its quarter of the keys, and its weights with its quarter of the values. "
                          "Each has a part of all of O; in four rounds they add their parts to four pieces of O in turn.")
top = 48
for x, name in ((24, "Q, all warps"), (180, "Kᵀ, by keys"), (340, "scores, by keys")):
    figure.text(x + SIDE / 2, top - 14, name, "small soft", "middle")
figure.box(24, top, SIDE, SIDE, "", "Q", "")
quarters(figure, 180, top, True)
quarters(figure, 340, top, True)
figure.text(150, top + SIDE / 2 + 5, "×", "bold", "middle")
figure.text(308, top + SIDE / 2 + 5, "=", "bold", "middle")

second = 196
for x, name in ((24, "weights, by keys"), (180, "V, by keys"), (340, "O: four parts")):
    figure.text(x + SIDE / 2, second - 14, name, "small soft", "middle")
quarters(figure, 24, second, True)
quarters(figure, 180, second, False)
figure.text(150, second + SIDE / 2 + 5, "×", "bold", "middle")
figure.text(308, second + SIDE / 2 + 5, "=", "bold", "middle")
for warp in reversed(range(4)):  # each warp's product is as large as O
    figure.box(340 + 9 * warp, second + 9 * warp, SIDE - 27, SIDE - 27, LOOKS[warp])
figure.text(340 + (SIDE - 27) / 2, second + (SIDE - 27) / 2 + 5, "0", "small", "middle")

third = 352
figure.text(24, third - 22, "Adding up: which warp has which piece of O", "small soft")
for piece in range(4):
    figure.text(150 + 66 * piece, third - 4, f"piece {piece}", "small", "middle")
for turn in range(4):
    y = third + 6 + 32 * turn
    figure.text(24, y + 19, f"round {turn}", "small")
    for warp, look in enumerate(LOOKS):
        piece = (warp + turn) % 4
        figure.box(122 + 66 * piece, y, 56, 26, look, f"warp {warp}")
    figure.text(400, y + 35, "barrier", "small red")
    figure.line([(122, y + 29), (392, y + 29)], "red", dashed=True)
figure.write(__file__)
