#!/usr/bin/env python3
"""Writes softmax_passes.svg: what each pass of steps 1 to 3 of chapter 2 reads and writes."""
from svg import Figure

COLUMNS = [("K", 208, 56, "green"), ("row of scores", 270, 96, "amber"), ("V", 374, 56, "green")]
# title, then for every pass its name, its result, and how it accesses K, the row of scores and V
STEPS = [
    ("Step 1: five passes, three for the softmax", [
        ("scores", "", ("read", "write", "")),
        ("maximum", "m", ("", "read", "")),
        ("exponentials", "ℓ", ("", "read, write", "")),
        ("quotients", "", ("", "read, write", "")),
        ("product with V", "O", ("", "read", "read")),
    ]),
    ("Step 2: two passes", [
        ("scores and sum", "m, ℓ", ("read", "write", "")),
        ("weights, V", "O", ("", "read", "read")),
    ]),
    ("Step 3: one pass", [
        ("all of it", "m, ℓ, O", ("read", "", "read")),
    ]),
]
PASS = 29


height = 78 + sum(34 + PASS * len(passes) for _, passes in STEPS)
figure = Figure(450, height, "What each pass over the keys reads and writes. Step 1 writes the row of scores, reads it three "
                             "times for the softmax and once for the product; step 2 reads it once; step 3 has no row of scores.")
figure.text(144, 30, "leaves", "small soft")
for name, x, width, _ in COLUMNS:
    figure.text(x + width / 2, 30, name, "small soft", "middle")
y = 40
for title, passes in STEPS:
    figure.text(20, y + 20, title, "bold")
    y += 34
    for name, leaves, actions in passes:
        figure.text(32, y + 15, name, "small")
        figure.text(144, y + 15, leaves, "small blue")
        for action, (_, x, width, colour) in zip(actions, COLUMNS):
            if action:
                figure.box(x, y, width, 21, colour, action)
            else:
                figure.line([(x, y + 10.5), (x + width, y + 10.5)], "", dashed=True)
        y += PASS
figure.text(20, y + 22, "Each box is one pass over all N keys.", "small soft")
figure.write(__file__)
