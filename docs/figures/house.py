#!/usr/bin/env python3
"""Writes house.svg: the three main data flows of the project."""
from svg import Figure

# (heading, colour, stations from left to right: what it is, where it lives)
WAYS = (
    ("A shape, from the command line to the report", "blue",
     (("options", "app/options"), ("Spec, inputs", "attention"), ("Call", "app/call"), ("kernel", "chapters/NN"),
      ("check", "attention"), ("report", "app/report"))),
    ("A number, from the card to a page", "amber",
     (("on the card", "release"), ("alone, in turn", "forward, peers.py"), ("filed", "release --file"), ("kept", "bench/results"),
      ("quoted, drawn", "quote.py, plot.py"), ("page, plot", "README, docs"))),
    ("An answer, from the student to a grade", "green",
     (("answer", "between marks"), ("gate", "course/gate.py"), ("sandbox, judge", "sandbox, judge.py"), ("tests, hidden", "tests/exercises"),
      ("points", "course/score.py"), ("grade", "course/grade.py"))),
)
COLUMNS, BOX_WIDTH, BOX_HEIGHT, STEP_X, STEP_Y, LEFT = 3, 148, 48, 178, 74, 18


figure = Figure(540, len(WAYS) * 196 - 10, "The three main data flows: a shape from the command line to the report, "
                "a number from the card to a page, an answer from the student to a grade.")
for way, (heading, colour, stations) in enumerate(WAYS):
    top = 18 + way * 196
    figure.text(LEFT, top + 18, heading, f"bold {colour}")
    for place, (what, where) in enumerate(stations):
        row, column = divmod(place, COLUMNS)
        x, y = LEFT + column * STEP_X, top + 32 + row * STEP_Y
        figure.box(x, y, BOX_WIDTH, BOX_HEIGHT, colour)
        figure.text(x + BOX_WIDTH / 2, y + 20, what, "bold", "middle")
        figure.text(x + BOX_WIDTH / 2, y + 38, where, "code", "middle")
        if place + 1 == len(stations):
            continue
        middle = y + BOX_HEIGHT / 2
        if column + 1 < COLUMNS:
            figure.arrow(x + BOX_WIDTH, middle, x + STEP_X, middle)
        else:  # the arrow continues in the next row
            lane = y + BOX_HEIGHT + (STEP_Y - BOX_HEIGHT) / 2
            first = LEFT + BOX_WIDTH / 2
            figure.line([(x + BOX_WIDTH / 2, y + BOX_HEIGHT), (x + BOX_WIDTH / 2, lane), (first, lane)])
            figure.arrow(first, lane, first, y + STEP_Y)
figure.write(__file__)
