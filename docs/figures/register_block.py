#!/usr/bin/env python3
"""Writes register_block.svg: what step 5 of chapter 2 keeps in registers."""
from svg import Figure

CELL, GAP = 62, 6


def grid(figure, x, y, columns, rows, look, label):
    for row in range(rows):
        for column in range(columns):
            left, top = x + column * (CELL + GAP), y + row * (30 + GAP)
            figure.box(left, top, CELL, 30, look, label(row, column))


figure = Figure(540, 330, "A block of 4 rows by 4 vectors of sums stays in registers. Each step of the inner loop loads a row of 4 "
                "vectors and 4 numbers, and multiplies each number with each vector.")
left, top = 226, 132
figure.text(left, 28, "one row of Q, transposed: 64 queries", "bold blue")
grid(figure, left, 42, 4, 1, "blue", lambda row, column: f"{16 * column}-{16 * column + 15}")
figure.text(left, 94, "4 loads per step", "small soft")
figure.arrow(left + 130, 78, left + 130, 124, "blue")
figure.text(20, 114, "one element each", "bold amber")
figure.text(20, top + 4 * 36 + 18, "4 loads per step", "small soft")
for row in range(4):
    y = top + row * 36
    figure.box(20, y, 120, 30, "amber", f"key {row}, d", "code")
    figure.arrow(144, y + 15, left - 6, y + 15, "amber")
grid(figure, left, top, 4, 4, "green", lambda row, column: "sum")
figure.text(left, top + 4 * 36 + 18, "16 registers, 16 multiply-adds per step", "bold green")
figure.text(20, 318, "d runs from 0 to head_dim - 1. Then the block goes to memory, once.", "small soft")
figure.write(__file__)
