#!/usr/bin/env python3
"""Writes quad_transpose.svg: how the four lanes of a quad exchange words so that each can store 16 contiguous bytes."""
from svg import Figure

SIZE, LOOKS = 34, ("blue", "amber", "green", "")


def matrix(figure, x, y, title, group_of):
    figure.text(x, y - 26, title, "bold")
    for i in range(4):
        figure.text(x + i * SIZE + SIZE / 2, y - 8, f"w{i}", "small soft", "middle")
    for lane in range(4):
        figure.text(x - 8, y + lane * SIZE + 22, str(lane), "small soft", "end")
        for word in range(4):
            group, pair = group_of(lane, word)
            figure.box(x + word * SIZE, y + lane * SIZE, SIZE - 3, SIZE - 3, LOOKS[group], f"{group}{pair}")


def first(lane, word):  # round 1 swaps bit 0 of lane and word
    return (word & 2) | (lane & 1), (lane & 2) | (word & 1)

figure = Figure(556, 258, "Before: lane j holds pair j of each of four groups of 8 columns. After a round with the neighbour and one with the lane "
                          "two further, lane j holds all four pairs of group j.")
matrix(figure, 40, 64, "as WGMMA left it", lambda lane, word: (word, lane))
matrix(figure, 224, 64, "round 1: bit 0", first)
matrix(figure, 408, 64, "round 2: bit 1", lambda lane, word: (lane, word))
figure.text(16, 224, "Row: a lane of the quad. Column: its word. 21: group 2 of 8 columns, pair 1.", "small")
figure.text(16, 244, "At the end a lane's words are 16 bytes side by side.", "small soft")
figure.write(__file__)
