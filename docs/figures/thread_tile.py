#!/usr/bin/env python3
"""Writes thread_tile.svg: which scores of a tile of 64 by 64 thread (ty, tx) computes in steps 1 and 2 of chapter 3, and which lanes share a row."""
from svg import Figure

SIDE, BLOCK, CELL = 16, 64, 5  # kSide, kBlock; height and width of a score
TY, TX = 5, 3                  # the thread that is marked


left, top = 60, 66
figure = Figure(500, 480, "Thread (5, 3) computes rows 5, 21, 37 and 53 at keys 3, 19, 35 and 51: sixteen scores. The sixteen threads with the same ty are "
                          "half a warp and share each of these rows.")
figure.text(16, 28, f"Thread ty = {TY}, tx = {TX} of 16 × 16, in a tile of 64 × 64 scores", "bold")
figure.text(left, 56, "keys 0 to 63 →", "small soft")
figure.box(left, top, BLOCK * CELL, BLOCK * CELL)
for row in range(TY, BLOCK, SIDE):
    figure.box(left, top + row * CELL - 2, BLOCK * CELL, CELL + 4, "amber")
    figure.text(left - 8, top + row * CELL + 7, str(row), "small", "end")
    for key in range(TX, BLOCK, SIDE):
        figure.box(left + key * CELL - 3, top + row * CELL - 3, CELL + 6, CELL + 6, "blue")
for line in range(SIDE, BLOCK, SIDE):
    figure.line([(left + line * CELL, top), (left + line * CELL, top + BLOCK * CELL)], dashed=True)
for y, look, words in ((406, "blue", "16 scores of this thread: rows ty + 16 i, keys tx + 16 j"),
                       (430, "amber", "its 4 rows, shared by 16 threads with the same ty: half a warp")):
    figure.box(16, y, 16, 14, look)
    figure.text(40, y + 12, words, "small")
figure.text(16, 466, "It reads 4 rows of Q and 4 of K, and uses each number 4 times.", "small soft")
figure.write(__file__)
