#!/usr/bin/env python3
"""Writes backward_round.svg: one iteration of chapter 7's loop for two consumers, in issue order, and what TMA does
meanwhile."""
from svg import Figure

LEFT, WIDTH = 114, 41  # x of the first product, width of each

figure = Figure(544, 262, "A round of two consumers. The tensor cores go from product to product. Consumer 0 takes exponentials for P and computes dS while consumer 1's scores are "
                          "multiplied, and the other way round. Both wait at one barrier until dS is complete; then dQ and dK of both follow, and dQ goes to shared memory.")
BARRIER = LEFT + 6 * WIDTH - 1.5
for row, (first, dv, dq, dk) in enumerate(((0, 4, 6, 8), (2, 5, 7, 9))):
    y = 30 + 86 * row
    figure.text(16, y + 19, f"consumer {row}", "bold")
    figure.text(16, y + 49, "its threads", "small soft")
    for place, product, look in ((first, "Sᵀ", "blue"), (first + 1, "dPᵀ", "blue"), (dv, "dV", "amber"), (dq, "dQ", "green"), (dk, "dK", "amber")):
        figure.box(LEFT + WIDTH * place, y, WIDTH - 3, 28, look)
        figure.text(LEFT + WIDTH * (place + 0.5) - 1.5, y + 19, product, "", "middle")
    for begin, width, words in ((first + 1, 1.0, "P"), (first + 2, 1.0, "dS"), (dq + 1, 1.5, "write dQ")):
        figure.box(LEFT + WIDTH * begin, y + 32, WIDTH * width - 3, 24)
        figure.text(LEFT + WIDTH * (begin + width / 2) - 1.5, y + 48, words, "small", "middle")
figure.line([(BARRIER, 22), (BARRIER, 176)], "red", dashed=True)
figure.text(16, 213, "TMA", "bold")
for start, width, words in ((0.0, 4.5, "the next Q and dO"), (8.5, 1.5, "adds dQ")):
    figure.box(LEFT + WIDTH * start, 194, WIDTH * width - 3, 28)
    figure.text(LEFT + WIDTH * (start + width / 2) - 1.5, 213, words, "small", "middle")
figure.text(16, 246, "Colours: products on the tensor cores. Red: both have written their half of dS.", "small soft")
figure.write(__file__)
