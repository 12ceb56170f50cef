#!/usr/bin/env python3
"""Writes split_q.svg: the same tile shared by four warps in two ways, by keys and by queries."""
from svg import Figure

LOOKS = ("blue", "amber", "green", "")  # one per warp
SIDE, QUARTER, PITCH = 56, 14, 76


def matrix(figure, x, y, name, owned):
    """Draws a square matrix: by "rows" or "columns" of the warps, "all" of one piece for every warp, or four "parts" to
    be added up."""
    figure.text(x + SIDE / 2, y - 8, name, "small", "middle")
    if owned == "all":
        figure.box(x, y, SIDE, SIDE, "", "all", "small soft")
    for warp, look in enumerate(LOOKS):
        if owned == "rows":
            figure.box(x, y + QUARTER * warp, SIDE, QUARTER, look)
        elif owned == "columns":
            figure.box(x + QUARTER * warp, y, QUARTER, SIDE, look)
    if owned == "parts":
        for warp in reversed(range(4)):
            figure.box(x + 6 * warp, y + 6 * warp, SIDE - 18, SIDE - 18, LOOKS[warp])


def product(figure, x, y, left, right, result):
    for i, (name, owned) in enumerate((left, right, result)):
        matrix(figure, x + PITCH * i, y, name, owned)
    figure.text(x + (SIDE + PITCH) / 2, y + SIDE / 2 + 5, "×", "bold", "middle")
    figure.text(x + PITCH + (SIDE + PITCH) / 2, y + SIDE / 2 + 5, "=", "bold", "middle")


def way(figure, x, title, first, second, lines):
    figure.text(x, 28, title, "bold")
    product(figure, x, 66, *first)
    product(figure, x, 166, *second)
    figure.text(x, 256, "through shared memory:", "small soft")
    for i, line in enumerate(lines):
        figure.text(x, 278 + 20 * i, line, "small")


figure = Figure(478, 402, "By keys, every warp has columns of the scores and a part of all of O, and rows pass through shared memory. "
                          "By queries, every warp has rows of the scores and of O, and only Q, K and V are in shared memory.")
way(figure, 16, "split-K", (("Q", "all"), ("Kᵀ", "columns"), ("scores", "columns")),
    (("weights", "columns"), ("V", "rows"), ("O", "parts")),
    ("Q, K, V", "scores, to find a row's maximum", "weights, to be multiplied", "O, to be added up in turn",
     "a barrier after each of them"))
way(figure, 254, "split-Q", (("Q", "rows"), ("Kᵀ", "all"), ("scores", "rows")),
    (("weights", "rows"), ("V", "all"), ("O", "rows")),
    ("Q, K, V", "nothing else: rows stay", "with their warp", "a barrier for the next tile"))
figure.line([(240, 16), (240, 366)])
x = 118
for warp, look in enumerate(LOOKS):
    figure.box(x, 376, 16, 14, look)
    figure.text(x + 22, 388, f"warp {warp}", "small soft")
    x += 84
figure.write(__file__)
