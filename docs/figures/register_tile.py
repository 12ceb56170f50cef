#!/usr/bin/env python3
"""Writes register_tile.svg: the tile of 128 by 128 results in chapter 1's step 4, and the 8 by 8 of them that one thread keeps in registers."""
from svg import Figure

TILE, ROWS, CELL = 128, 8, 2.5  # kTile, kRowsPerThread
TY, TX = 3, 5


left, top, side = 110, 112, TILE * CELL
figure = Figure(500, 500, "Thread (3, 5) has rows 24 to 31 and columns 5, 21, 37, ... of the tile: 64 sums in registers. For each of the 32 columns of "
                          "a chunk it reads 8 numbers of each operand and does 64 multiply-adds.")
figure.text(16, 28, f"Thread ty = {TY}, tx = {TX}, in a tile of 128 × 128 results", "bold")
figure.box(left, 56, side, 34)
figure.text(left + side, 48, "32 × 128 of K", "small soft", "end")
figure.box(16, top, 60, side)
for i, words in enumerate(("128", "× 32", "of Q")):
    figure.text(46, top + 150 + 18 * i, words, "small soft", "middle")
figure.box(left, top, side, side)
figure.box(16, top + ROWS * TY * CELL, 60, ROWS * CELL, "amber")
for j in range(TILE // 16):
    x = left + (TX + 16 * j) * CELL
    figure.box(x, 56, CELL + 2, 34, "amber")
    figure.box(x, top + ROWS * TY * CELL, CELL + 2, ROWS * CELL, "blue")
figure.text(left + side - 6, top + ROWS * TY * CELL - 6, "rows 24 to 31", "small", "end")
y = top + side + 26
figure.box(16, y, 16, 14, "blue")
figure.text(40, y + 12, "64 sums, in registers", "small")
figure.box(220, y, 16, 14, "amber")
figure.text(244, y + 12, "16 numbers read for them", "small")
figure.write(__file__)
