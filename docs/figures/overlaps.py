#!/usr/bin/env python3
"""Writes overlaps.svg: what overlaps in steps 1 to 4 of chapter 5, in clocks. Products take the chapter's sums, a copy
what the L2 needs, and the softmax what was recorded in step 3; overlaps are ideal, not measured."""
from svg import Figure

LEFT, HIGH, HALF, PITCH = 104, 26, 17, 36
CLOCK = 0.0455                      # pixels
PRODUCT = 512 * CLOCK               # of 64 queries and 128 keys: 2048 / 4
SOFTMAX = 1507 * CLOCK              # 1262, and 245 to round P and rescale O
COPY = 1769 * CLOCK                 # 64 KB at 37 bytes per clock
END = LEFT + 8800 * CLOCK
LOOKS = ("blue", "amber")  # one per consumer


def span(figure, x, y, width, words, look, high=HIGH):
    figure.box(round(x, 1), y, round(width, 1), high, look)
    if words:
        figure.text(round(x + width / 2, 1), y + high / 2 + 5, words, "small", "middle")


def step(figure, y, title):
    figure.text(16, y - 10, title, "bold")
    for i, name in enumerate(("copies", "tensor cores", "softmax")):
        figure.text(16, y + i * PITCH + 18, name, "small soft")
    return [y + i * PITCH for i in range(3)]


figure = Figure(520, 646, "Step 1: copies, products and softmax take turns. Step 2: copies overlap with them, and two consumers begin together. Step 3: one's "
                          "softmax overlaps with the other's products, and gaps are left. Step 4: it also overlaps with the same consumer's product with V.")
copies, tensor, softmax = step(figure, 40, "Step 1: one after the other")
x: float = LEFT
for tile in range(2):
    span(figure, x, copies, COPY, "K, V", "")
    x += COPY
    span(figure, x, tensor, PRODUCT, "S", "blue")
    span(figure, x + PRODUCT, softmax, SOFTMAX, "softmax", "blue")
    span(figure, x + PRODUCT + SOFTMAX, tensor, PRODUCT, "O", "blue")
    x += 2 * PRODUCT + SOFTMAX

copies, tensor, softmax = step(figure, 188, "Step 2: a producer; consumers begin together")
span(figure, LEFT, copies, END - LEFT, "K, V, K, V, ...", "")
x = LEFT + 18
for tile in range(2):
    for i, look in enumerate(LOOKS):
        span(figure, x, tensor + i * HALF, 4 * PRODUCT, "O, S", look, HALF)
        span(figure, x + 4 * PRODUCT, softmax + i * HALF, SOFTMAX, "softmax", look, HALF)
    x += 4 * PRODUCT + SOFTMAX

copies, tensor, softmax = step(figure, 340, "Step 3: pingpong")
span(figure, LEFT, copies, END - LEFT, "K, V, K, V, ...", "")
for i, look in enumerate(LOOKS):  # the second consumer issues when half of the first one's round is over
    x = LEFT + 18 + i * (2 * PRODUCT + SOFTMAX) / 2
    while x + 2 * PRODUCT + SOFTMAX <= END:
        span(figure, x, tensor, 2 * PRODUCT, "O, S", look)
        span(figure, x + 2 * PRODUCT, softmax + i * HALF, SOFTMAX, "softmax", look, HALF)
        x += 2 * PRODUCT + SOFTMAX

copies, tensor, softmax = step(figure, 492, "Step 4: and within a warpgroup")
span(figure, LEFT, copies, END - LEFT, "K, V, K, V, ...", "")
for i, look in enumerate(LOOKS):
    x = LEFT + 18 + i * 2 * PRODUCT
    while x + 4 * PRODUCT <= END:
        span(figure, x, tensor, PRODUCT, "S", look)
        span(figure, x + PRODUCT, tensor, PRODUCT, "O", look)
        span(figure, x + PRODUCT, softmax + i * HALF, SOFTMAX, "softmax", look, HALF)
        x += 4 * PRODUCT
figure.text(16, 632, "Ideal, to scale: a product 512 clocks, a softmax 1507 (recorded in step 3).", "small soft")
figure.write(__file__)
