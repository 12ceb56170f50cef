#!/usr/bin/env python3
"""Writes decode_rows.svg: who computes the scores of 64 rows and a tile of 128 keys in chapter 8's steps 9 and 10, and how often the keys are read."""
from svg import Figure

WIDTH, STRIP, ROWS = 192, 34, 4  # width of a tile of keys; height of 16 rows; strips of 16 rows
KEYS, TOP = 66, 124              # y of the tile of keys, and of the scores

figure = Figure(480, 318, "The scores of 64 rows and 128 keys. Step 9: eight warps compute 16 rows by 64 keys each, and load each key four times. Step 10: eight "
                          "wgmma instructions, one per 16 columns of the keys, compute them all and read each key once.")


def panel(x: int, title: str, parts: int, read: str) -> None:
    """Draws a tile of keys in `parts`, and the scores below it."""
    figure.text(x, 28, title, "bold")
    figure.text(x, 56, "a tile of keys in shared memory", "small soft")
    width = WIDTH // parts
    for i in range(parts):
        figure.box(x + i * width, KEYS, width - 4, 26, "amber", f"{128 // parts} keys")
    figure.text(x, TOP + ROWS * STRIP + 24, read, "small amber")


panel(16, "Step 9: eight warps", 2, "each key is loaded four times")
for half in range(2):
    left = 16 + half * WIDTH // 2
    for strip in range(ROWS):
        y = TOP + strip * STRIP
        figure.box(left, y, WIDTH // 2 - 4, STRIP - 4, "blue")
        figure.text(left + WIDTH // 2 - 12, y + 20, "warp", "small", "end")
        x = left + 8 + 12 * strip  # an arrow per load, which ends at its strip
        figure.arrow(x, KEYS + 28, x, y - 2, "amber")
panel(264, "Step 10: a warpgroup", 1, "each key is read once")
figure.box(264, TOP, WIDTH - 4, ROWS * STRIP - 4, "blue")
figure.lines(264 + WIDTH / 2 - 2, TOP + 62, ("8 wgmma, each of", "16 columns of the keys"), "small", "middle")
figure.arrow(264 + WIDTH / 2, KEYS + 28, 264 + WIDTH / 2, TOP - 2, "amber")
figure.text(16, 306, "Blue: the scores of 64 rows (step 9: 16 per warp).", "small soft")
figure.write(__file__)
