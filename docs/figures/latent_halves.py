#!/usr/bin/env python3
"""Writes latent_halves.svg: chapter 8's latent attention, who computes which scores, and which half of O each of two warpgroups has; below, the
order in which the tensor cores get their products. Lengths are those of the products: 36 of 32 clocks, 4 of 128 and 4 of 128."""
from svg import Figure

SCORES, HALF = 1152, 512  # clocks: 36 products of 64 x 64 x 16, 4 of 64 x 256 x 16
SOFTMAX = 640  # about


def bar(figure, x, y, clocks, scale, look, text):
    figure.box(x, y, clocks * scale, 24, look)
    figure.text(x + clocks * scale / 2, y + 17, text, "small", "middle")


def main():
    figure = Figure(560, 474,
                    "O's two halves: each warpgroup makes the scores of every other tile, and multiplies the probabilities of all tiles by its "
                    "half of the values. Below, what is done at the same time.")
    figure.text(16, 26, "A tile of 64 keys: nine panels of 64 columns", "bold")
    for panel in range(9):
        look = "blue" if panel < 4 else "green" if panel < 8 else "amber"
        figure.box(16 + panel * 58, 38, 54, 34, look)
        figure.text(43 + panel * 58, 60, f"{panel * 64}", "small", "middle")
    figure.text(16, 90, "all nine are keys", "small soft")
    figure.text(144, 90, "values, left half", "small blue")
    figure.text(290, 90, "values, right half", "small green")
    figure.text(544, 90, "position, later P", "small amber", "end")

    figure.text(16, 126, "First warpgroup", "bold")
    figure.box(16, 138, 248, 92, "blue")
    figure.text(28, 160, "S = Q K of even tiles, softmax, P", "small")
    figure.text(28, 184, "O, columns 0 to 255", "small")
    figure.text(28, 204, "adds P V of all tiles", "small")
    figure.text(296, 126, "Second warpgroup", "bold")
    figure.box(296, 138, 248, 92, "green")
    figure.text(308, 160, "S = Q K of odd tiles, softmax, P", "small")
    figure.text(308, 184, "O, columns 256 to 511", "small")
    figure.text(308, 204, "adds P V of all tiles", "small")
    figure.arrow(266, 162, 294, 162, "amber")
    figure.arrow(294, 192, 266, 192, "amber")
    figure.text(280, 252, "P, new maxima and corrections change hands", "small amber", "middle")

    scale, left, y = 434 / (2 * SCORES + 4 * HALF), 110, 300
    figure.text(16, 284, "A round of two tiles", "bold")
    figure.text(16, y + 17, "tensor cores", "small")
    odd, even_values, odd_values = left + SCORES * scale, left + 2 * SCORES * scale, left + (2 * SCORES + 2 * HALF) * scale
    bar(figure, left, y, SCORES, scale, "blue", "S even")
    bar(figure, odd, y, SCORES, scale, "green", "S odd")
    bar(figure, even_values, y, 2 * HALF, scale, "amber", "P V even")
    bar(figure, odd_values, y, 2 * HALF, scale, "amber", "P V odd")
    figure.text(16, y + 53, "first", "small")
    bar(figure, odd, y + 36, SOFTMAX, scale, "blue", "softmax")
    figure.text(16, y + 89, "second", "small")
    bar(figure, even_values, y + 72, SOFTMAX, scale, "green", "softmax")
    figure.line([(odd + SOFTMAX * scale, y + 60), (odd + SOFTMAX * scale, y + 124)], "amber")
    figure.text(odd + SOFTMAX * scale, y + 138, "P even", "small amber", "middle")
    figure.line([(even_values + SOFTMAX * scale, y + 96), (even_values + SOFTMAX * scale, y + 124)], "amber")
    figure.text(even_values + SOFTMAX * scale, y + 138, "P odd", "small amber", "middle")
    figure.text(16, y + 164, "Each softmax is done while the tensor cores have other products.", "small")
    figure.write(__file__)


if __name__ == "__main__":
    main()
