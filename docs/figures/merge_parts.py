#!/usr/bin/env python3
"""Writes merge_parts.svg: a row's keys split over blocks, the partial results, and who merges them."""
from svg import Figure

PARTS = 4


figure = Figure(560, 386,
                "Four blocks read a quarter of the keys each and write a partial O and log-sum-exp. The "
                "last to arrive at the counter merges them.")
figure.text(16, 28, "Keys of one sequence", "bold")
for part in range(PARTS):
    x = 16 + part * 134
    figure.box(x, 40, 126, 28, "amber", f"part {part}")
    figure.arrow(x + 63, 68, x + 63, 92)
    figure.box(x, 94, 126, 34, "blue", f"block {part}", "")
    figure.arrow(x + 63, 128, x + 63, 152)
    figure.box(x, 154, 126, 42)
    figure.lines(x + 63, 172, ("O, in float32", "log-sum-exp"), "small", "middle", step=17)
figure.text(16, 224, "A warp of each block then adds 1 to a counter, in any order:", "small")
for i, (block, count) in enumerate(((2, 1), (0, 2), (3, 3), (1, 4))):
    x = 16 + i * 134
    figure.box(x, 236, 126, 28, "green" if count == PARTS else "", f"block {block} counts {count}")
figure.arrow(481, 264, 481, 288, "green")
figure.box(204, 290, 340, 42, "green")
figure.lines(374, 308, ("block 1 is the last: it reads all parts,", "weights them by e^(LSE of part - LSE), stores O"), "small", "middle", step=17)
figure.text(16, 352, "Parts are added in a fixed order, whichever block merges them,", "small soft")
figure.text(16, 371, "so the bits of O do not depend on who is last.", "small soft")
figure.write(__file__)
