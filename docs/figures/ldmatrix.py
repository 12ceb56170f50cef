#!/usr/bin/env python3
"""Writes ldmatrix.svg: which lane's address selects which row when ldmatrix_x4 loads chapter 4's K, and which lane gets
which elements of one matrix."""
from svg import Figure

WIDE, HIGH, SIDE = 100, 22, 25  # size of a matrix row; side of an element


def row_of(lane):
    """Returns the row and the 16-byte piece that a lane addresses: `lane % 8 + lane / 16 * 8` and `lane / 8 % 2` in
    multiply_keys."""
    return lane % 8 + lane // 16 * 8, lane // 8 % 2


def addresses(figure, x, y):
    figure.text(x, y - 26, "1. Each lane addresses one row of 8 elements", "bold")
    for piece in range(2):
        figure.text(x + 52 + piece * (WIDE + 8) + WIDE / 2, y - 6, f"dims {8 * piece} to {8 * piece + 7}", "small soft", "middle")
    for lane in range(32):
        row, piece = row_of(lane)
        top = y + row * HIGH + (10 if row >= 8 else 0)
        figure.box(x + 52 + piece * (WIDE + 8), top, WIDE, HIGH - 3, ("blue", "amber", "green", "")[lane // 8], f"lane {lane}")
        if piece == 0:
            figure.text(x + 44, top + 14, f"key {row}", "small soft", "end")


def shares(figure, x, y, title, lines, holder):
    figure.text(x, y - 26 - 18 * (len(lines) - 1), title, "bold")
    for i, line in enumerate(lines):
        figure.text(x, y - 6 - 18 * (len(lines) - 1 - i), line, "small soft")
    for row in range(8):
        for column in range(8):
            lane = holder(row, column)
            figure.box(x + column * SIDE, y + row * SIDE, SIDE, SIDE, "blue" if lane == 6 else "", str(lane), "small" if lane == 6 else "small soft")


figure = Figure(524, 720, "ldmatrix_x4: 32 lanes address 32 rows of 16 bytes, which form four matrices of 8 by 8. Lane l gets two neighbouring "
                          "elements of row l / 4 of every matrix; transposed, of column l / 4.")
addresses(figure, 20, 62)
for i, (look, words) in enumerate((("blue", "matrix 0 → b[0]"), ("amber", "matrix 1 → b[1]"), ("green", "matrix 2 → b[2]"), ("", "matrix 3 → b[3]"))):
    figure.box(320, 90 + 44 * i, 16, 14, look)
    figure.text(344, 102 + 44 * i, words, "small")
figure.lines(320, 290, ("b[0], b[1]: the right operand", "for keys 0 to 7; b[2], b[3]:", "for keys 8 to 15"), "small soft", step=18)
shares(figure, 20, 492, "2. Who gets what", ("lane of each element",), lambda row, column: row * 4 + column // 2)
shares(figure, 300, 492, "3. The same, with .trans", ("lane of each element",), lambda row, column: column * 4 + row // 2)
figure.text(20, 708, "Lane 6, blue: two neighbours of row 1, or two neighbours of column 1.", "small soft")
figure.write(__file__)
