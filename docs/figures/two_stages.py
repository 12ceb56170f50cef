#!/usr/bin/env python3
"""Writes two_stages.svg: tiles of keys and values through one buffer (step 2 of chapter 4), and through two (step 3)."""
from svg import Figure

LEFT, COPY, USE = 84, 62, 84  # x of the first copy; lengths of a copy and of a use
LOOKS = ("blue", "amber")     # one per stage


def span(figure, x, y, width, words, look):
    figure.box(x, y, width, 30, look, words)


def barrier(figure, x, top, bottom):
    figure.line([(x, top), (x, bottom)], "red", dashed=True)


figure = Figure(474, 372, "With one buffer, a tile is copied, waited for and used, in turn. With two, the next tile is copied into the other "
                          "buffer while this one is used, and one wait and one barrier per tile are enough.")
y = 54
figure.text(16, 28, "Step 2: one buffer", "bold")
for name, row in (("copies", y), ("products", y + 38)):
    figure.text(16, row + 20, name, "small soft")
x = LEFT
for tile in range(3):
    barrier(figure, x - 3, y - 8, y + 76)
    span(figure, x, y, COPY, f"tile {tile}", "blue")
    barrier(figure, x + COPY + 3, y - 8, y + 76)
    x += COPY + 6
    if tile < 2:
        span(figure, x, y + 38, USE, f"tile {tile}", "blue")
        x += USE + 6
figure.text(16, y + 94, "two barriers per tile: it has landed; all have read it", "small red")

y = 212
figure.text(16, y - 26, "Step 3: two stages", "bold")
for name, row in (("copies", y), ("products", y + 38)):
    figure.text(16, row + 20, name, "small soft")
span(figure, LEFT, y, COPY, "tile 0", LOOKS[0])
x = LEFT + COPY + 6
for tile in range(3):
    barrier(figure, x - 3, y - 8, y + 76)
    span(figure, x, y, COPY, f"tile {tile + 1}", LOOKS[(tile + 1) % 2])
    span(figure, x, y + 38, USE, f"tile {tile}", LOOKS[tile % 2])
    x += USE + 6
figure.text(16, y + 94, "one wait, one barrier per tile: tile j has landed, and all are", "small red")
figure.text(16, y + 114, "done with tile j − 1, whose stage tile j + 1 may overwrite", "small red")
for i, look in enumerate(LOOKS):
    figure.box(16 + 100 * i, y + 130, 16, 14, look)
    figure.text(38 + 100 * i, y + 142, f"stage {i}", "small soft")
figure.write(__file__)
