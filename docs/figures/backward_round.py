#!/usr/bin/env python3
"""Writes backward_round.svg: a round of chapter 7's loop for two consumers, and what the other threads do beside it."""
from svg import Figure

LEFT, WIDTH = 112, 45  # of the first product, and of each

figure = Figure(540, 268, "A round of two consumers. Each issues S and dP, computes P under dP, then dS; dV is issued before the barrier, dQ and dK after it. While dK runs, "
                          "dQ goes to shared memory, and TMA adds it. The second consumer is half a round behind.")
for row, (name, shift) in enumerate((("consumer 0", 0), ("consumer 1", 80))):
    y, x = 40 + 84 * row, LEFT + shift
    figure.text(16, y + 19, name, "bold")
    figure.text(16, y + 49, "its threads", "small soft")
    for place, (product, look) in zip((0.0, 1.0, 3.0, 4.0, 5.0), (("Sᵀ", "blue"), ("dPᵀ", "blue"), ("dV", "amber"), ("dQ", "green"), ("dK", "amber"))):
        figure.box(x + WIDTH * place, y, WIDTH - 4, 28, look)
        figure.text(x + WIDTH * place + WIDTH / 2 - 2, y + 19, product, "", "middle")
    for place, width, words in ((1.0, WIDTH, "P"), (2.05, WIDTH, "dS"), (5.0, 1.5 * WIDTH, "write dQ")):
        figure.box(x + WIDTH * place, y + 32, width - 4, 24)
        figure.text(x + WIDTH * place + width / 2 - 2, y + 48, words, "small", "middle")
    figure.line([(x + WIDTH * 4 - 2, y - 6), (x + WIDTH * 4 - 2, y + 60)], "red", dashed=True)
figure.text(16, 227, "TMA", "bold")
for place, words in ((0, "the next Q and dO"), (6, "adds dQ")):
    figure.box(LEFT + WIDTH * place, 208, 2.9 * WIDTH - 4, 28)
    figure.text(LEFT + WIDTH * (place + 1.45) - 2, 227, words, "small", "middle")
figure.text(16, 258, "Upper rows: tensor cores. Red: both consumers have written their half of dS.", "small soft")
figure.write(__file__)
