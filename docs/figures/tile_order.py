#!/usr/bin/env python3
"""Writes tile_order.svg: the order in which step 5 of chapter 5 processes the tiles of six causal heads, two per
section."""
from svg import Figure

HEADS, TILES, SECTION, SIZE = 6, 4, 2, 36


figure = Figure(540, 330, "Tiles of queries by head. Sections of two heads are taken one after the other; within a section the tiles of the last queries "
                          "of all its heads go first.")
figure.text(16, 26, "Six heads, two to a section, causal", "bold")
for head in range(HEADS):
    section, place = divmod(head, SECTION)
    x = 112 + head * (SIZE + 4) + section * 26
    figure.text(x + SIZE / 2, 58, str(head), "small soft", "middle")
    for tile in range(TILES):
        index = section * SECTION * TILES + (TILES - 1 - tile) * SECTION + place
        y = 68 + tile * (SIZE + 4)
        figure.box(x, y, SIZE, SIZE, ("blue", "amber", "green")[section], str(index), "bold")
figure.text(16, 58, "head", "small soft")
for tile in range(TILES):
    y = 68 + tile * (SIZE + 4)
    figure.text(16, y + 23, f"queries {tile}", "small soft")
figure.text(414, 91, "sees few keys", "small soft")
figure.text(414, 211, "sees all keys", "small soft")
figure.text(16, 262, "The number is the tile's index, in which order blocks take them.", "small")
figure.lines(16, 284, ("Longest first within a section; a section's keys and values", "fit the L2 cache while its heads are worked on."), "small")
figure.write(__file__)
