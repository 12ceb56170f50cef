#!/usr/bin/env python3
"""Writes sparse_round.svg: a round of chapter 8's step 11, from a model of its consumers, its producers and
the tensor cores, which finish one request before they start the next. Clocks are those of the page's
ledger."""
from pathlib import Path
from types import SimpleNamespace

from svg import Figure

L2_BYTES, SHARED_BYTES = 37.05, 128  # per clock
L2_LATENCY, DEVICE_LATENCY = 283, 660  # as chapter 0 measured
SOFTMAX, VALUES = 900, 512  # clocks
SCORES, BYTES = (512, 640), (32 << 10, 40 << 10)  # clocks and bytes of each half of a tile
ROUNDS, STEP = 20, 4  # clocks per step of the model


class Round:
    """Runs the model. Actors generate conditions to wait for. Flags count how often something happened.
    Whatever the latency, refills come at the L2's rate."""

    def __init__(self, latency=0, shared=1e9):
        self.now, self.flags, self.bars, self.requests, self.refills = 0.0, {}, [], [], []
        self.latency, self.shared = latency, shared
        self.begins: list[float] = []
        waiting = [[actor, lambda: True] for actor in (self.left(), self.right(), self.producers())]
        while waiting:
            while ready := [pair for pair in waiting if pair[1]()]:
                for pair in ready:
                    pair[1] = next(pair[0], None)
                    if pair[1] is None:
                        waiting.remove(pair)
            self.multiply(self.refill())
            self.now += STEP
        self.clocks = (self.begins[-1] - self.begins[-9]) / 8

    def passed(self, flag, times=1):
        return lambda: self.flags.get(flag, 0) >= times

    def signal(self, flag):
        self.flags[flag] = self.flags.get(flag, 0) + 1

    def request(self, side, what, clocks, operands, flag):
        """Requests a product that reads `operands` bytes of shared memory per clock."""
        self.requests.append(SimpleNamespace(what=what, left=clocks, flag=flag, begin=None, side=side,
                                             operands=operands))

    def softmax(self, side, flag):
        begin = self.now
        yield lambda: self.now >= begin + SOFTMAX
        self.bars.append((side, "softmax", begin, self.now))
        self.signal(flag)

    def scores(self, side, tile, times):
        for half in (0, 1):
            yield self.passed(f"full{tile}{half}", times)
            self.request(side, f"S {tile}", SCORES[half], 128, f"scores{tile}{half}")

    def left(self):
        yield from self.scores("left", 0, 1)
        for i in range(1, ROUNDS + 1):
            yield self.passed("scores01", i)
            self.begins.append(self.now)
            yield from self.softmax("left", "p0")
            self.request("left", "PV 0", VALUES, 64, "left0")
            yield self.passed("left0", i)
            self.signal("empty00")
            yield self.passed("p1", i)
            self.request("left", "PV 1", VALUES, 80, "empty10")  # passed P is another operand
            if i < ROUNDS:
                yield from self.scores("left", 0, i + 1)

    def right(self):
        for i in range(1, ROUNDS + 1):
            yield from self.scores("right", 1, i)
            yield self.passed("p0", i)
            self.request("right", "PV 0", VALUES, 80, "right0")
            yield self.passed("scores11", i)
            yield from self.softmax("right", "p1")
            yield self.passed("right0", i)
            self.signal("empty01")
            self.request("right", "PV 1", VALUES, 64, "empty11")
            yield self.passed("empty11", i)

    def producers(self):
        for i in range(ROUNDS):
            for tile, half in ((0, 0), (0, 1), (1, 0), (1, 1)):
                if i > 0:
                    yield self.passed(f"empty{tile}{half}", i)
                self.refills.append(SimpleNamespace(what=f"{tile} {'right' if half else 'left'}", begin=None,
                                                    left=BYTES[half], flag=f"full{tile}{half}",
                                                    ready=self.now + self.latency))

    def advance(self, queue, amount, row, *look):
        """Takes an amount off the first entry of a queue, and removes it when nothing is left."""
        first = queue[0]
        first.begin = self.now if first.begin is None else first.begin
        first.left -= amount
        if first.left <= 1e-9:
            queue.pop(0)
            self.bars.append((row, first.what, first.begin, self.now + STEP, *look))
            self.signal(first.flag)

    def refill(self):
        """Loads for a step, and returns the bytes per clock."""
        if not self.refills or self.now < self.refills[0].ready:
            return 0.0
        self.advance(self.refills, L2_BYTES * STEP, "producers")
        return L2_BYTES

    def multiply(self, writes):
        """Multiplies for a step, as fast as shared memory delivers operands while it is written."""
        if self.requests:
            first = self.requests[0]
            self.advance(self.requests, STEP * min(1.0, (self.shared - writes) / first.operands), "tensor",
                         "blue" if first.side == "left" else "green")


model = Round()
begin, end = model.begins[-3], model.begins[-2]
LEFT, WIDTH = 116, 424
ROWS = {"tensor": 34, "left": 96, "right": 162, "producers": 216}
NAMES = ("tensor cores", "left warpgroup", "right warpgroup", "refills")
LOOKS = {"left": "blue", "right": "green", "producers": "amber"}
HALVES = {512: "left", 640: "right"}  # of a tile, by the clocks of its scores


def x(clock):
    return LEFT + (min(max(clock, begin), end) - begin) * WIDTH / (end - begin)


figure = Figure(560, 368, "A round of two tiles: softmax, products, refills, and who waits")
passed, busy = {}, [begin]
for row, what, first, last, *look in model.bars:
    if last > begin and first < end:
        width, high = x(last) - x(first), 42 if row == "tensor" else 28
        figure.box(x(first), ROWS[row], width - 1, high, look[0] if look else LOOKS[row],
                   what if width > 36 and row != "tensor" else "")
        if row == "tensor":
            half = HALVES[round(last - first)] if what[0] == "S" else "left" if look == ["blue"] else "right"
            figure.lines((x(first) + x(last)) / 2, ROWS[row] + 17, [what, half], "small", "middle", 18)
            if first > busy[-1]:
                idle = [f"{first - busy[-1]:.0f}", "idle"]
                figure.lines((x(busy[-1]) + x(first)) / 2, ROWS[row] + 17, idle, "small red", "middle", 18)
            busy.append(last)
        if what == "softmax":
            passed[row] = (x(first), x(last))
for y, name in zip(ROWS.values(), NAMES):
    figure.text(12, y + (26 if y == ROWS["tensor"] else 19), name, "small")
for row, start, stop, words in (("left", passed["left"][1], passed["right"][1], "waits for PV 0 and P"),
                                ("left", passed["right"][1], LEFT + WIDTH, "waits for PV 1 and S 0"),
                                ("right", LEFT, passed["right"][0], "waits for keys and S 1"),
                                ("right", passed["right"][1], LEFT + WIDTH, "waits for PV 1")):
    figure.text((start + stop) / 2, ROWS[row] + 19, words, "small soft", "middle")
for row, ends in (("left", (126, 158)), ("right", (158, 126))):
    at = passed[row][1]
    figure.arrow(at, ends[0], at, ends[1], "soft")
    figure.text(at + 7, 147, "P", "small")
for clocks in (1412, 2952):
    figure.arrow(x(begin + clocks), 194, x(begin + clocks), 214, "amber")
    figure.text(x(begin + clocks) + 7, 208, "released", "small amber")
figure.text(x(end) - 6, ROWS["producers"] + 19, "\u2026", "small", "middle")
figure.text(12, 264, "clocks", "small soft")
for clocks in (0, 512, 900, 1412, 2052, 2564, 2952, 3464, 3976, 4488):
    figure.text(x(begin + clocks), 264, str(clocks), "small soft", "middle" if clocks else "start")
figure.text(LEFT + WIDTH, 264, f"{model.clocks:.0f}", "small soft", "end")
figure.text(12, 286, "landed", "small amber")
for clocks in (920, 2296, 4058, 4942):  # to the clock; the model's steps are coarser
    figure.line([(x(begin + clocks), 244), (x(begin + clocks), 250)], "amber")
    figure.text(x(begin + clocks), 286, str(clocks), "small amber", "middle")
l2, memory = (round(Round(latency, SHARED_BYTES).clocks, -1) for latency in (L2_LATENCY, DEVICE_LATENCY))
figure.lines(12, 314, [
    "0 and 1 are tiles; left and right are their halves. S and PV are blue if the",
    "left warpgroup issued them, green if the right one did. With shared memory and",
    f"latency, a round takes {l2:.0f} (keys in the L2) to {memory:.0f} clocks."], "small")
figure.write(__file__)
drawing = Path(__file__).with_suffix(".svg")
text = drawing.read_text(encoding="utf-8")
for before, after in (("}", "}\n"), ("@media ", "@media\n"), (" text-anchor", "\ntext-anchor")):
    text = text.replace(before, after)  # for lines of at most 110 columns
drawing.write_text(text, encoding="utf-8")
