#!/usr/bin/env python3
"""Writes fp8_once.svg: how the blocks of chapter 6's step 7 share the work of transposing V."""
from svg import Figure

figure = Figure(540, 350, "The transposers of blocks 3 and 7, and of others, take pieces of head 0's V and write them, transposed, to the workspace. "
                          "A counter says how many of the 43 pieces are there. The loaders of all blocks wait until it is 43, then read the transposed pieces.")
figure.text(16, 26, "V of head 0, in 43 pieces", "bold")
figure.text(16, 44, "idle transposers take the next piece", "small soft")
takers = ("5", "3", "0", "6", "7", "")  # the second and the fifth are above the boxes of their blocks
stored = ("5", "0", "6")
for i, taker in enumerate(takers):
    figure.box(16 + 85 * i, 54, 78, 34, "amber" if taker else "", f"{8 + i}: block {taker}" if taker else f"{8 + i}: free")
for x, block in ((16, 3), (286, 7)):
    figure.box(x, 122, 238, 84, "blue")
    figure.text(x + 119, 144, f"transposers of block {block}", "bold blue", "middle")
    figure.lines(x + 119, 166, ("transpose, store by TMA,", "then add 1 to the counter: release"), "small", "middle")
    figure.arrow(x + 119, 90, x + 119, 120)
    figure.arrow(x + 119, 208, x + 119, 230)
figure.text(16, 257, "Workspace", "bold")
figure.box(104, 232, 304, 40)
for i, taker in enumerate(takers):
    figure.box(109 + 49 * i, 238, 46, 28, "green" if taker in stored else "", str(8 + i))
figure.text(418, 257, "counter: 11 of 43", "small", "start")
for x, block in ((16, 3), (286, 7)):
    figure.box(x, 296, 238, 40, "green", f"loader of block {block}: acquire, TMA")
    figure.arrow(x + 119, 274, x + 119, 294)
figure.write(__file__)
