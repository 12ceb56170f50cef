#!/usr/bin/env python3
"""Writes tile_on_a_core.svg: what a core keeps in step 4 of chapter 2, and how it processes a tile of keys."""
from svg import Figure

SIDE = 78  # 64 rows or 64 columns
Q, S, O, STATE = 24, 150, 282, 372  # x of each part
TOP, BOTTOM = 128, 244              # y of the two rows


def tile(figure, x, y, name, look):
    figure.box(x, y, SIDE, SIDE, look, name, "")


figure = Figure(450, 430, "A core keeps a tile of Q, its rows of O and their m and l. Tiles of K and V pass by; their scores become "
                          "weights in place and are then forgotten.")
figure.text(20, 28, "K and V, 64 keys at a time", "small soft")
for j in range(9):
    figure.box(20 + 46 * j, 38, 40, 20, "green" if j == 4 else "")
figure.line([(224, 62), (224, 82), (S + SIDE / 2, 82)], "green")
figure.arrow(S + SIDE / 2, 82, S + SIDE / 2, TOP - 4, "green")
figure.line([(224, 82), (O + SIDE / 2, 82)], "green")
figure.arrow(O + SIDE / 2, 82, O + SIDE / 2, TOP - 4, "green")

tile(figure, S, TOP, "Kᵀ tile", "green")
tile(figure, O, TOP, "V tile", "green")
tile(figure, Q, BOTTOM, "Q tile", "blue")
tile(figure, S, BOTTOM, "scores", "amber")
tile(figure, O, BOTTOM, "O", "blue")
for x, name in ((STATE, "m"), (STATE + 28, "ℓ")):
    figure.box(x, BOTTOM, 20, SIDE, "blue", name, "")

middle = BOTTOM + SIDE / 2
figure.arrow(Q + SIDE + 6, middle, S - 6, middle)
figure.arrow(S + SIDE / 2, TOP + SIDE + 6, S + SIDE / 2, BOTTOM - 6)
figure.arrow(S + SIDE + 6, middle, O - 6, middle)
figure.arrow(O + SIDE / 2, TOP + SIDE + 6, O + SIDE / 2, BOTTOM - 6)
figure.text((Q + SIDE + S) / 2, middle - 12, "1", "bold", "middle")
figure.text(S + SIDE / 2, BOTTOM + SIDE + 18, "2", "bold", "middle")
figure.text((S + SIDE + O) / 2, middle - 12, "3", "bold", "middle")

y = BOTTOM + SIDE + 44
for number, words in (("1", "scores = Q Kᵀ"), ("2", "scores become weights; m, ℓ and O are corrected"), ("3", "O += weights V")):
    figure.text(24, y, number, "bold")
    figure.text(42, y, words, "small")
    y += 21
figure.write(__file__)
