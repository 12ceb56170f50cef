#!/usr/bin/env python3
"""Writes pack_gqa.svg: rows of a tile of queries, with one head per tile and with a group per tile."""
from svg import Figure

HEADS = 4


figure = Figure(560, 330,
                "Without packing four blocks read the same keys, each for one row of its tile. Packed, one block reads them for four rows.")
figure.text(16, 28, "Step 1: a tile per query head", "bold")
for head in range(HEADS):
    x = 16 + head * 66
    figure.box(x, 42, 58, 96)
    figure.box(x, 42, 58, 18, "blue", f"head {head}")
    figure.lines(x + 29, 92, ("63 rows", "unused"), "small soft", "middle", step=18)
    figure.arrow(x + 29, 190, x + 29, 144, "amber")
figure.box(16, 192, 252, 40, "amber", "K and V of the group's key head")
figure.text(16, 256, "requested 4 times", "amber")

x = 318
figure.text(x, 28, "Step 2: a group in one tile", "bold")
figure.box(x, 42, 140, 96)
for head in range(HEADS):
    figure.box(x, 42 + 18 * head, 140, 18, "blue", f"head {head}")
figure.text(x + 70, 131, "60 rows unused", "small soft", "middle")
figure.arrow(x + 70, 190, x + 70, 144, "amber")
figure.box(x, 192, 226, 40, "amber", "K and V of the group's key head")
figure.text(x, 256, "requested once", "amber")

figure.text(16, 292, "A product has 64 rows whether they are used or not, so packing is free.", "small")
figure.text(16, 312, "Several queries per head (speculative decoding) become rows, too.", "small")
figure.write(__file__)
