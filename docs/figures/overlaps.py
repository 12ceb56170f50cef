#!/usr/bin/env python3
"""Writes overlaps.svg: what overlaps in steps 1 to 4 of chapter 5. Lengths are illustrative, not measured."""
from svg import Figure

LEFT, HIGH, HALF, PITCH = 104, 26, 17, 36
SCORES, VALUES, SOFTMAX = 34, 34, 60
LOOKS = ("blue", "amber")  # one per consumer


def span(figure, x, y, width, words, look, high=HIGH):
    figure.box(x, y, width, high, look)
    if words:
        figure.text(x + width / 2, y + high / 2 + 5, words, "small", "middle")


def step(figure, y, title):
    figure.text(16, y - 10, title, "bold")
    for i, name in enumerate(("copies", "tensor cores", "softmax")):
        figure.text(16, y + i * PITCH + 18, name, "small soft")
    return [y + i * PITCH for i in range(3)]


figure = Figure(520, 604, "Step 1: copies, products and softmax take turns. Step 2: copies overlap with them, and two consumers begin together. Step 3: one's "
                          "softmax overlaps with the other's products. Step 4: also with the same consumer's product with V.")
copies, tensor, softmax = step(figure, 40, "Step 1: one after the other")
x = LEFT
for tile in range(2):
    span(figure, x, copies, 44, "K, V", "")
    span(figure, x + 46, tensor, SCORES, "S", "blue")
    span(figure, x + 48 + SCORES, softmax, SOFTMAX, "exp", "blue")
    span(figure, x + 50 + SCORES + SOFTMAX, tensor, VALUES, "O", "blue")
    x += 54 + SCORES + SOFTMAX + VALUES

copies, tensor, softmax = step(figure, 188, "Step 2: a producer; consumers begin together")
span(figure, LEFT, copies, 396, "K, V, K, V, ...", "")
x = LEFT + 46
for tile in range(2):
    for i, look in enumerate(LOOKS):
        span(figure, x, tensor + i * HALF, SCORES + VALUES, "O, S", look, HALF)
        span(figure, x + SCORES + VALUES + 2, softmax + i * HALF, SOFTMAX, "exp", look, HALF)
    x += SCORES + VALUES + SOFTMAX + 4

copies, tensor, softmax = step(figure, 340, "Step 3: pingpong")
span(figure, LEFT, copies, 396, "K, V, K, V, ...", "")
x = LEFT + 46
for turn in range(4):
    look = LOOKS[turn % 2]
    span(figure, x, tensor, SCORES + VALUES, "O, S", look)
    span(figure, x + SCORES + VALUES + 2, softmax, SOFTMAX, "exp", look)
    x += SCORES + VALUES + 2

copies, tensor, softmax = step(figure, 488, "Step 4: and within a warpgroup")
span(figure, LEFT, copies, 396, "K, V, K, V, ...", "")
x = LEFT + 46
for turn in range(4):
    look = LOOKS[turn % 2]
    span(figure, x, tensor, SCORES, "S", look)
    span(figure, x + SCORES, tensor, VALUES, "O", look)
    span(figure, x + SCORES + 2, softmax, SOFTMAX, "exp", look)
    x += SCORES + VALUES + 2
figure.write(__file__)
