#!/usr/bin/env python3
"""Writes loop_orders.svg: what a block keeps and what it streams, with keys in the outer loop (step 1 of chapter 3) and
with queries in the outer loop (step 2)."""
from svg import Figure


def order(figure, x, title, stays, passes, back, blocks):
    figure.text(x, 28, title, "bold")
    figure.text(x, 56, "stays in the block", "small soft")
    for i, (name, look) in enumerate(stays):
        figure.box(x + 54 * i, 66, 48, 36, look, name)
    figure.text(x, 134, "passes by, tile after tile", "small soft")
    for tile in range(4):
        for i, (name, look) in enumerate(passes):
            figure.box(x + 54 * tile, 144 + 40 * i, 48, 34, look, f"{name}{'₀₁₂₃'[tile]}")
    y = 144 + 40 * len(passes)
    for i, words in enumerate(back):
        figure.text(x, y + 22 + 19 * i, words, "small red" if i == 0 else "small soft")
    figure.text(x, 322, blocks, "small")


figure = Figure(500, 342, "Keys outside: K and V stay, and Q and the unfinished O pass by for each tile of keys. Queries outside: Q and O stay, and K "
                          "and V pass by.")
order(figure, 16, "Step 1: keys outside", (("K", "blue"), ("V", "blue")), (("Q", "amber"), ("O", "green")),
      ("O, m, l: loaded and stored", "once for each tile of keys"), "one block per head")
order(figure, 262, "Step 2: queries outside", (("Q", "amber"), ("O", "green"), ("m, l", "green")), (("K", "blue"), ("V", "blue")),
      ("nothing comes back", "O is written once, at the end"), "one block per query tile")
figure.line([(248, 16), (248, 326)])
figure.write(__file__)
