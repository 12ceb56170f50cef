#!/usr/bin/env python3
"""Writes tiles_ch01.svg: the tiles of chapter 1's steps 3, 4 and 5 at one scale: a block's results, what it loads per
chunk, and the share of a thread or a warp."""
from svg import Figure

SCALE = 0.85  # pixels per result


def panel(figure, x, title, side, chunk, words):
    """Returns a square of results with a chunk of K above it and of Q to its left; where the square begins."""
    figure.text(x, 58, title, "bold")
    left, top = x + (chunk + 8) * SCALE, 76 + 72 * SCALE
    figure.box(left, top - (chunk + 8) * SCALE, side * SCALE, chunk * SCALE, "amber")
    figure.box(x, top, chunk * SCALE, side * SCALE, "amber")
    figure.box(left, top, side * SCALE, side * SCALE)
    for i, line in enumerate(words):
        figure.text(x, 270 + 18 * i, line, "small")
    return left, top


figure = Figure(540, 340, "Step 3: a block of 1024 threads computes 32 by 32 results, a thread one. Step 4: 256 threads compute 128 by 128, a thread 8 by 8 in "
                          "registers. Step 5: 8 warps compute 128 by 128, a warp 64 by 32 in fragments of 16 by 16.")
figure.text(16, 28, "A block's results (white) and a chunk of Q and K (amber), at one scale", "small soft")
chunks = "chunks of {} columns"

left, top = panel(figure, 16, "Step 3", 32, 32, ("32 × 32 results", chunks.format(32), "a thread: 1 of them", "2 numbers for 1"))
figure.box(left + 20 * SCALE, top + 12 * SCALE, 4, 4, "blue")

left, top = panel(figure, 180, "Step 4", 128, 32, ("128 × 128 results", chunks.format(32), "a thread: 8 × 8", "16 numbers for 64"))
for j in range(8):
    figure.box(left + (5 + 16 * j) * SCALE, top + 24 * SCALE, 4, 8 * SCALE, "blue")

left, top = panel(figure, 354, "Step 5", 128, 64, ("128 × 128 results", chunks.format(64), "a warp: 64 × 32", "6 fragments for 8"))
for i in range(4):
    for j in range(2):
        figure.box(left + (32 + 16 * j) * SCALE, top + 16 * i * SCALE, 16 * SCALE, 16 * SCALE, "blue")
figure.write(__file__)
