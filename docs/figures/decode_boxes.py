#!/usr/bin/env python3
"""Writes decode_boxes.svg: how one head's rows are read from a cache ordered by token, with one copy per row and with
one box."""
from svg import Figure

TOKENS, HEADS, HEAD = 6, 4, 1
WIDTH, HEIGHT, PITCH = 26, 24, 26  # width and height of one head's row; distance between tokens
TOP = 84
STAGE = 140  # x of the stage within a panel


def panel(figure, x, title, in_a_box, told):
    figure.text(x, 34, title, "bold")
    for head in range(HEADS):
        figure.text(x + head * WIDTH + WIDTH / 2 - 1, 70, str(head), "small blue" if head == HEAD else "small soft", "middle")
    for token in range(TOKENS):
        y = TOP + token * PITCH
        for head in range(HEADS):
            figure.box(x + head * WIDTH, y, WIDTH - 2, HEIGHT - 2, "blue" if head == HEAD else "")
        figure.box(x + STAGE, y, 44, HEIGHT - 2, "blue")
        if not in_a_box:
            middle = y + HEIGHT / 2 - 1
            figure.line([(x + (HEAD + 1) * WIDTH, middle), (x + HEADS * WIDTH, middle)], "amber")
            figure.arrow(x + HEADS * WIDTH, middle, x + STAGE - 4, middle, "amber")
    if in_a_box:
        left, right, bottom = x + HEAD * WIDTH - 4, x + (HEAD + 1) * WIDTH + 2, TOP + TOKENS * PITCH + 2
        figure.line([(left, TOP - 5), (right, TOP - 5), (right, bottom), (left, bottom), (left, TOP - 5)], "amber")
        middle = TOP + TOKENS * PITCH / 2 - 1
        figure.line([(right, middle), (x + HEADS * WIDTH, middle)], "amber")
        figure.arrow(x + HEADS * WIDTH, middle, x + STAGE - 4, middle, "amber")
    figure.text(x, TOP + TOKENS * PITCH + 28, told, "small amber")


figure = Figure(420, 330, f"A cache by token: the keys of head {HEAD} of {TOKENS} tokens are copied to shared memory by {TOKENS} copies, or by one box; they are "
                          "contiguous there in both cases.")
for x, *words in ((16, "a copy per key", False, f"{TOKENS} instructions"), (220, "a box", True, "1 instruction")):
    figure.text(x, 52, "heads of a token", "small soft")
    figure.text(x + 184, 52, "stage", "small soft", "end")
    panel(figure, x, *words)
figure.text(16, 294, "A line is a token. In memory, the keys of head 1 are", "small soft")
figure.text(16, 314, "kv_heads * 256 bytes apart; in a stage, 256.", "small soft")
figure.write(__file__)
