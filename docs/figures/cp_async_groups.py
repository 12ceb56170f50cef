#!/usr/bin/env python3
"""Writes cp_async_groups.svg: a thread's copies, how it groups them, and what a wait for groups guarantees."""
from svg import Figure

COLUMNS = (96, 236, 376)  # x of each tile's group
WIDE = 104


figure = Figure(524, 372, "A thread issues copies and commits them as a group. cp_async_wait<1> returns when at most one group, the newest, is still "
                          "in flight; cp_async_wait<0> when none is.")
figure.text(16, 28, "One thread, from left to right", "bold")
for row, name in ((52, "issues"), (104, "commits")):
    figure.text(16, row + 20, name, "small soft")
for tile, x in enumerate(COLUMNS):
    for i in range(4):
        figure.box(x + 26 * i, 52, 24, 30, ("blue", "amber", "green")[tile])
    figure.text(x + WIDE / 2, 98, f"copies of tile {tile}", "small", "middle")
    figure.box(x, 108, WIDE, 24, ("blue", "amber", "green")[tile], f"group {tile}")
figure.text(16, 170, "Three groups are committed. What does a wait guarantee?", "bold")
for i, (call, landed) in enumerate((("wait<2>", 1), ("wait<1>", 2), ("wait<0>", 3))):
    y = 190 + 36 * i
    figure.text(16, y + 18, call, "code")
    for tile, x in enumerate(COLUMNS):
        figure.box(x, y, WIDE, 26, "green" if tile < landed else "")
        figure.text(x + WIDE / 2, y + 18, "has landed" if tile < landed else "perhaps not", "small" if tile < landed else "small soft", "middle")
for i, words in enumerate(("wait<N> lets the newest N groups stay in flight.",
                           "A wait covers only the thread's own copies. Other threads'",
                           "copies have landed after a barrier that follows their waits.")):
    figure.text(16, 318 + 19 * i, words, "small soft")
figure.write(__file__)
