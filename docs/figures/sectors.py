#!/usr/bin/env python3
"""Writes sectors.svg: the sectors that one load of a warp moves, and how much of them it uses, for three patterns of addresses."""
from svg import Figure

SECTOR, COLUMNS = 25, 16  # width of a sector's box; sectors per row
LEFT = 20


def pattern(figure, y, title, text, sectors, used):
    """Draws a load that moves `sectors` and uses `used` of the 32 bytes of each. Returns where the drawing ends."""
    figure.text(LEFT, y, title, "bold")
    figure.text(LEFT, y + 20, text, "small soft")
    for i in range(32):
        x, top = LEFT + i % COLUMNS * (SECTOR + 2), y + 32 + i // COLUMNS * 30
        figure.box(x, top, SECTOR, 24, "amber" if i < sectors else "")
        if i < sectors:
            figure.box(x, top, max(3, SECTOR * used / 32), 24, "green")
    figure.text(LEFT, y + 112, f"{sectors} sectors: {32 * sectors} bytes moved, {used * sectors} used", "")
    return y + 144


figure = Figure(470, 488, "A warp that reads 32 neighbouring floats moves 4 sectors and uses all of them; lanes 32 bytes apart move 32 sectors and use an "
                          "eighth; chapter 1's first kernel moves 16 sectors and uses a sixteenth.")
figure.box(LEFT, 16, 14, 14, "green")
figure.text(LEFT + 20, 28, "used", "small")
figure.box(LEFT + 70, 16, 14, 14, "amber")
figure.text(LEFT + 90, 28, "moved, not used", "small")
figure.box(LEFT + 226, 16, 14, 14, "")
figure.text(LEFT + 246, 28, "a sector of 32 bytes", "small")
y = pattern(figure, 62, "Coalesced: lane i reads float i", "p[lane]", 4, 32)
y = pattern(figure, y, "Strided: lane i reads float 8 i", "p[8 * lane]", 32, 4)
pattern(figure, y, "Chapter 1, step 1: 16 rows of K", "k[lane % 16 * head_dim], 2 bytes each", 16, 2)
figure.write(__file__)
