#!/usr/bin/env python3
"""Writes latent_halves.svg: how the warpgroups of chapter 8's latent attention divide the work: one computes the
scores, each of the others half of O. Below, the order of the products on the tensor cores, with lengths to scale: 36 of
32 clocks, and 2 times 4 of 128."""
from svg import Figure

SCORES, VALUES = 1152, 1024  # clocks: 36 products of 64 x 64 x 16, 8 of 64 x 256 x 16
SOFTMAX = 900  # approximate
ROUNDS = 2


def bar(figure, x, y, clocks, scale, look, text):
    figure.box(x, y, clocks * scale, 24, look, text)


figure = Figure(560, 470,
                "Three warpgroups: one computes the scores and the probabilities of all tiles, two multiply them by half of the values each. "
                "Below, what is done at the same time.")
figure.text(16, 26, "A tile of 64 keys: nine panels of 64 columns", "bold")
for panel in range(9):
    look = "blue" if panel < 4 else "green" if panel < 8 else "amber"
    figure.box(16 + panel * 58, 38, 54, 34, look, f"{panel * 64}")
figure.text(16, 90, "all nine are keys", "small soft")
figure.text(144, 90, "values, left half", "small blue")
figure.text(290, 90, "values, right half", "small green")
figure.text(544, 90, "position, later P", "small amber", "end")

for x, look, name, first, second in ((16, "amber", "Scores", "Q in registers", "S = Q K, softmax, P"),
                                     (200, "blue", "Left half", "O, columns 0 to 255", "adds P V of all tiles"),
                                     (384, "green", "Right half", "O, columns 256 to 511", "adds P V, fills the stage")):
    figure.text(x, 126, name, "bold")
    figure.box(x, 138, 160, 68, look)
    figure.text(x + 12, 164, first, "small")
    figure.text(x + 12, 188, second, "small")
figure.arrow(178, 160, 198, 160, "amber")
figure.line([(178, 222), (464, 222)], "amber")
figure.line([(96, 206), (96, 222), (180, 222)], "amber")
figure.arrow(464, 222, 464, 208, "amber")
figure.text(280, 240, "P, corrections, and when scores are computed", "small amber", "middle")

scale, left, y = 420 / (ROUNDS * (SCORES + VALUES)), 124, 290
figure.text(16, 274, "Two tiles", "bold")
figure.text(16, y + 17, "tensor cores", "small")
figure.text(16, y + 53, "scores", "small")
for tile in range(ROUNDS):
    at = left + tile * (SCORES + VALUES) * scale
    after = at + SCORES * scale
    name = f"t + {tile + 1}"
    bar(figure, at, y, SCORES, scale, "amber", f"S of {name}")
    bar(figure, after, y, VALUES, scale, "green", f"P V of t{f' + {tile}' if tile else ''}")
    bar(figure, after, y + 36, SOFTMAX, scale, "amber", "softmax")
    published = after + SOFTMAX * scale
    figure.line([(published, y + 60), (published, y + 88)], "amber")
    figure.text(published + 8, y + 104, f"P of {name}", "small amber", "end")
    figure.line([(after, y + 24), (after, y + 36)], "green")
figure.text(16, y + 136, "Both halves have P of tile t, and wait until S of tile t + 1 is computed.", "small")
figure.text(16, y + 156, "So their products hide the softmax.", "small")
figure.write(__file__)
