#!/usr/bin/env python3
"""Writes one iteration of chapter 7's loop, in issue order, and what TMA does meanwhile: backward_round_single.svg for step 3, whose thread 0 requests
tiles before its own products, and backward_round.svg for step 4 and later, with two consumers."""
from pathlib import Path

from svg import Figure

WIDTH = 41  # width of a product


def draw(name, description, left, actor, places, thread_0, add, tma):
    """Draws a round. `left`: x of the first product; `places`: where each actor's products begin, of S and dP, dV, dQ and dK; `thread_0`: how many places thread 0's
    requests take; `add`: how an actor's threads add dQ; `tma`: (place, width, words)."""
    figure = Figure(430 + left, 262, description)
    barrier = left + 6 * WIDTH - 1.5
    for row, (first, dv, dq, dk) in enumerate(places):
        y = 30 + 86 * row
        figure.text(16, y + 19, f"{actor} {row}", "bold")
        figure.text(16, y + 49, "its threads", "small soft")
        for place, product, look in ((first, "Sᵀ", "blue"), (first + 1, "dPᵀ", "blue"), (dv, "dV", "amber"), (dq, "dQ", "green"), (dk, "dK", "amber")):
            figure.box(left + WIDTH * place, y, WIDTH - 3, 28, look, product, "")
        requests = ((0, thread_0, "requests"),) if thread_0 and row == 0 else ()
        for begin, width, words in (*requests, (first + 1, 1.0, "P"), (first + 2, 1.0, "dS"), (dq + 1, 1.5, add)):
            figure.box(left + WIDTH * begin, y + 32, WIDTH * width - 3, 24, "", words)
    figure.line([(barrier, 22), (barrier, 176)], "red", dashed=True)
    figure.text(16, 213, "TMA", "bold")
    for start, width, words in tma:
        figure.box(left + WIDTH * start, 194, WIDTH * width - 3, 28, "", words)
    figure.text(16, 246, "Colours: products on the tensor cores. Red: both have written their half of dS.", "small soft")
    figure.write(str(Path(__file__).with_name(f"{name}.py")))


draw("backward_round_single", "A round of step 3. Thread 0 of warpgroup 0 requests tiles first, so its warpgroup starts after warpgroup 1. Then the tensor cores go from product to "
                              "product, and both wait at one barrier until dS is complete. dQ and dK of both follow, and each warpgroup adds dQ to memory.",
     126, "warpgroup", ((2, 5, 7, 9), (0, 4, 6, 8)), 2, "adds dQ", ((2.0, 4.5, "the next Q and dO"),))
draw("backward_round", "A round of two consumers. The tensor cores go from product to product. Consumer 0 takes exponentials for P and computes dS while consumer 1's scores are "
                       "multiplied, and the other way round. Both wait at one barrier until dS is complete; then dQ and dK of both follow, and dQ goes to shared memory.",
     114, "consumer", ((0, 4, 6, 8), (2, 5, 7, 9)), 0, "write dQ", ((0.0, 4.5, "the next Q and dO"), (8.5, 1.5, "adds dQ")))
