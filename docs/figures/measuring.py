#!/usr/bin/env python3
"""Writes measuring.svg: what happens in one timed run."""
from svg import Figure

figure = Figure(540, 196, "A timed run: the L2 cache is overwritten, an event is recorded, the kernels run, an event is "
                          "recorded. The median of the runs counts.")
figure.text(20, 30, "one timed run, on the device", "bold")
figure.box(20, 50, 150, 44, "", "overwrite the L2", "")
figure.box(196, 50, 200, 44, "blue", "the step's kernels", "")
figure.box(422, 50, 98, 44, "", "next run", "soft")
for at, name in ((183, "event"), (409, "event")):
    figure.line([(at, 44), (at, 116)], "red")
    figure.text(at, 133, name, "small red", "middle")
figure.arrow(296, 108, 187, 108, "red")
figure.arrow(296, 108, 405, 108, "red")
figure.text(296, 129, "time", "small red", "middle")
figure.text(20, 174, "30 runs or two seconds; the median is reported", "small soft")
figure.write(__file__)
