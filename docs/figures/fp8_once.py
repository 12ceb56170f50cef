#!/usr/bin/env python3
"""Writes fp8_once.svg: how the blocks of chapter 6's step 7 share the work of transposing V."""
from svg import Figure

figure = Figure(540, 350, "The transposers of two blocks take pieces of V from a list and write them, transposed, to the workspace. They count what is done by head. "
                          "The loaders of both blocks wait for the counter of their head and then read transposed pieces from the workspace.")
figure.text(16, 26, "V, in pieces", "bold")
figure.text(16, 44, "a free one takes the next", "small soft")
takers = ("0", "0", "1", "0", "1", "")  # the second and the fifth are above the boxes of their blocks
for i, taker in enumerate(takers):
    figure.box(16 + 85 * i, 54, 78, 34, "amber" if taker else "", f"block {taker}" if taker else "not yet")
for x, block in ((16, 0), (286, 1)):
    figure.box(x, 122, 238, 84, "blue")
    figure.text(x + 119, 144, f"transposers of block {block}", "bold blue", "middle")
    figure.lines(x + 119, 166, ("take, transpose, store by TMA,", "then add 1 to done[head]: release"), "small", "middle")
    figure.arrow(x + 119, 90, x + 119, 120)
    figure.arrow(x + 119, 208, x + 119, 230)
figure.text(16, 257, "Workspace", "bold")
figure.box(110, 232, 368, 40)
for i, taker in enumerate(takers):
    figure.box(116 + 60 * i, 238, 56, 28, "green" if i < 4 else "")
figure.text(485, 257, "done: 4", "small", "start")
for x, block in ((16, 0), (286, 1)):
    figure.box(x, 296, 238, 40, "green", f"loader of block {block}: acquire, TMA")
    figure.arrow(x + 119, 274, x + 119, 294)
figure.write(__file__)
