#!/usr/bin/env python3
"""Draws the book's plots from its result files into docs/plots: NAME.svg for wide screens, and NAME_phone.svg for a phone's width.

    plot.py [--results FOLDER] [--out FOLDER] [PLOT...]

PLOT: peers, roofline, accuracy (default: all that have data)

Like the figures, plots paint their own background, light or dark. The same results give the same bytes. Needs
matplotlib (Debian: python3-matplotlib, seen by /usr/bin/python3).
"""

import argparse
import io
import pathlib
import sys
import textwrap
from dataclasses import dataclass
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "figures")]  # so that python3 docs/tools/plot.py finds the packages and svg.py

import svg

from bench import results
from bench.names import Name
from bench.results import LADDER, Refused

try:
    import matplotlib
except ImportError:
    print("plot.py needs matplotlib: apt-get install python3-matplotlib, and run it with /usr/bin/python3", file=sys.stderr)
    sys.exit(77)
matplotlib.use("Agg")
import matplotlib.pyplot as plt

# Placeholders that Paper.save replaces with the figures' colours, light or dark.
GREY, GROUND = "#010101", "#030303"
NEUTRAL = "#757d88"
CHAPTERS = {1: "#6f8aab", 2: "#5d9a88", 3: "#2f97bd", 4: "#2c82d2", 5: "#5f6be3", 6: "#dd6518"}

plt.rcParams.update({
    "font.family": "DejaVu Sans", "font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "flashbook",
    "text.color": GREY, "axes.labelcolor": GREY, "xtick.color": GREY, "ytick.color": GREY, "axes.edgecolor": GREY,
    "axes.titlecolor": GREY, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "grid.color": GREY, "grid.alpha": 0.25,
    "grid.linewidth": 0.7, "legend.frameon": False,
    "savefig.facecolor": GROUND, "savefig.bbox": "tight", "axes.facecolor": "none", "figure.constrained_layout.use": True})


@dataclass
class Paper:
    """The canvas of plots. On a phone it is 360 CSS pixels wide and stacks panels vertically."""

    folder: pathlib.Path
    phone: bool

    def panels(self, rows: int, columns: int, width: float, height: float, **options: Any) -> Any:
        """Returns the figure and its axes in rows and columns; inches, for a wide screen."""
        if self.phone:
            rows, columns, width, height = rows * columns, 1, 3.4, max(height / rows, 2.1) * rows * columns
        return plt.subplots(rows, columns, figsize=(width, height), squeeze=False, **options)

    def legend(self, figure: Any, axes: Any, columns: int) -> None:
        """Draws the title above all panels."""
        figure.legend(*axes.get_legend_handles_labels(), loc="lower left", bbox_to_anchor=(0, 1), fontsize=7.5, columnspacing=1.2,
                      ncol=min(columns, 2) if self.phone else columns, borderaxespad=0)

    def foot(self, figure: Any, text: str) -> None:
        """The lines below a plot that say what was measured where."""
        if self.phone:
            text = "\n".join(textwrap.fill(line, 62) for line in text.splitlines())
        figure.supxlabel(text, x=0.01, ha="left", fontsize=7, color=GREY)

    def save(self, figure: Any, name: str) -> None:
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        plt.close(figure)
        drawn = text.getvalue().replace("<defs>", f"<style>{svg.variables()}</style>\n <defs>", 1)
        drawn = drawn.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")  # Verdana is equally wide
        for stand_in, colour in ((GREY, "soft"), (GROUND, "paper")):
            drawn = drawn.replace(stand_in, f"var(--{colour})")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{name}{'_phone' if self.phone else ''}.svg").write_text(drawn, encoding="utf-8")


def short(n):
    """Shortens a number: 16k for 16384, 512 for 512."""
    return f"{n // 1024}k" if n >= 1024 and n % 1024 == 0 else str(n)


def tflops(entry):
    return entry.values["FLOPS"] / 1e12


def on_gpu(measured, **shape):
    """Returns {(chapter, step): entry} for the steps timed on the GPU."""
    return {key: entry for key, entry in measured.by_step(**shape).items() if "bytes_per_second" in entry.values}


def fastest_steps(entries):
    """Returns the fastest step of each chapter, the last of equally fast ones."""
    best = {chapter: max(tflops(entry) for key, entry in entries.items() if key[0] == chapter) for chapter, _ in entries}
    return [max(key for key, entry in entries.items() if key[0] == chapter and tflops(entry) > 0.99 * best[chapter]) for chapter in sorted(best)]


def shade(measured, key):
    """Returns a chapter's colour, greyer for earlier steps."""
    last = max(step for chapter, step in on_gpu(measured) if chapter == key[0])
    colour, grey = (matplotlib.colors.to_rgb(name) for name in (CHAPTERS.get(key[0], NEUTRAL), NEUTRAL))
    share = 1 if key[1] == last else 0.45
    return tuple(share * c + (1 - share) * g for c, g in zip(colour, grey))


def origin(measured):
    """Returns the place and date of a measurement."""
    context = measured.context()
    where = ", ".join(context[key] for key in ("gpu", "clocks") if key in context)
    return f"{where}. Medians; {measured.origin()}"


def peers(measured, paper):
    """Draws lines: the rate of chapter 5's last step and chapter 6's last two over that of the faster of
    FlashAttention-3 and cuDNN in the same type, by N."""
    panels = {"ch05/persistent": "BF16: chapter 5, step 5", "ch06/transpose_once": "FP8: chapter 6, step 7",
              "ch06/linear_exp": "FP8: step 8, linear exponentials"}
    shown = {name: entry for name, entry in measured.beside_peers.items() if name.who in panels}
    if {name.who for name in shown} != set(panels):
        return False
    figure, grid = paper.panels(1, 3, 7.4, 3.4, sharey=True)
    for axes, (who, title) in zip(grid.flat, panels.items()):
        cells = results.in_turn(measured, who)
        dtype = next(iter(cells)).dtype
        lengths = sorted({name.seqlen for name in cells})
        for head_dim, mark, colour in ((64, "o", CHAPTERS[2]), (128, "s", CHAPTERS[3]), (256, "^", CHAPTERS[6])):
            for mask, style in (("full", "-"), ("causal", "--")):
                by_n = [cells[Name("forward", who, dtype, head_dim, mask, n)].over_better for n in lengths]
                axes.plot(lengths, by_n, mark + style, ms=4.5, lw=1.6, color=colour, label=f"d {head_dim}, {'no mask' if mask == 'full' else mask}")
        axes.axhline(1, color=GREY, lw=1)
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [short(n) for n in lengths])
        axes.minorticks_off()
        axes.set(xlabel="sequence length N", title=title)
        axes.grid()
    for axes in grid[:, 0]:
        axes.set_ylabel("times as fast as the better peer")
    paper.legend(figure, grid[0, 0], 3)
    bf16, fp8 = (measured.origin(entry for name, entry in shown.items() if name.dtype == dtype) for dtype in ("bf16", "e4m3"))
    paper.foot(figure, f"H200, interleaved with both peers: BF16 {bf16}; FP8 {fp8}")
    paper.save(figure, "peers")
    return True


def roofline(measured, paper):
    """Draws dots: a step's TFLOP/s over its FLOPs per byte moved, under the card's limits."""
    entries = on_gpu(measured, **LADDER)
    if not entries:
        return False
    figure, ((axes,),) = paper.panels(1, 1, 6.2, 4.0)
    most = results.limits(measured)
    points = {key: (entry.values["FLOPS"] / entry.values["bytes_per_second"], tflops(entry)) for key, entry in entries.items()}
    left, right = min(x for x, _ in points.values()) / 8, max(5000, *(x for x, _ in points.values())) * 5
    for kind, title in (("multiply_add", "F32 cores"), ("warpgroup_product", "BF16 tensor cores"), ("e4m3", "FP8 tensor cores")):
        if kind in most and "copy" in most:
            roof, bandwidth = most[kind] / 1e12, most["copy"] / 1e12
            ridge = roof / bandwidth
            axes.plot([left, ridge, right], [left * bandwidth, roof, roof], color=GREY, lw=1.6 if kind == "warpgroup_product" else 0.9)
            axes.annotate(f"{title} {roof:.0f}", (right, roof), (-2, 3), textcoords="offset points", ha="right", fontsize=7.5)
    if "copy" in most:
        axes.annotate(f"memory {most['copy'] / 1e12:.2f} TB/s", (left * 1.5, left * 1.5 * most["copy"] / 1e12), (-3, 5),
                      textcoords="offset points", fontsize=7.5, rotation=45, rotation_mode="anchor",
                      transform_rotates_text=True)
    named = fastest_steps(entries)
    for key, (x, y) in points.items():
        axes.plot(x, y, "o", ms=7 if key in named else 4, color=shade(measured, key), zorder=3 if key in named else 2)
        if key in named:  # neighbours have their labels on different sides
            left_side = key[0] in (4, 5)
            title = f"{key[0]} {entries[key].context.get(f'ch{key[0]:02}', '')}"
            axes.annotate(title, (x, y), (-7 if left_side else 7, -9 if key[0] == 6 else 0), textcoords="offset points",
                          va="center", ha="right" if left_side else "left", fontsize=7.5, weight="bold")
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(min(y for _, y in points.values()) / 3, 4000),
             xlabel="FLOPs for each byte of device memory", ylabel="TFLOP/s", title="Below the roof")
    axes.grid()
    paper.foot(figure, f"Batch 4, heads 16, N 4k, d 128, no mask. Bytes by the chapters' cost models, roofs as chapter 0 measured, FP8 twice BF16\n"
               f"{origin(measured)}")
    paper.save(figure, "roofline")
    return True


def accuracy(measured, paper):
    """Draws dots: the relative RMS error against FP64 of each way to compute attention, by kind of input."""
    machine = "gpu" if any(entry.cell.kind.startswith("accuracy/") for entry in measured.newest.values()) else "simulator"
    try:
        found = results.accuracy(measured, machine)
    except Refused:
        return False
    figure, ((axes,),) = paper.panels(1, 1, 6.2, 5.5 if paper.phone else 3.6)
    marks = {"normal": ("o", CHAPTERS[3], "N(0, 1)"), "outliers": ("s", CHAPTERS[6], "one outlier in 1000"),
             "channels": ("^", CHAPTERS[5], "large channels")}
    for place, by_kind in enumerate(found.values()):
        errors = [entry.values["relative_rms"] for entry in by_kind.values()]
        axes.plot([min(errors), max(errors)], [place, place], color=GREY, lw=1, zorder=1)
    for kind, (mark, colour, title) in marks.items():
        places = [place for place, by_kind in enumerate(found.values()) if kind in by_kind]
        errors = [by_kind[kind].values["relative_rms"] for by_kind in found.values() if kind in by_kind]
        axes.plot(errors, places, mark, color=colour, ms=6, label=title)
    entries = [next(iter(by_kind.values())) for by_kind in found.values()]
    names = [f"{entry.cell.dtype}: {entry.label}" for entry in entries]
    axes.set_yticks(range(len(entries)), [""] * len(entries) if paper.phone else names, fontsize=8)
    for place, name in enumerate(names if paper.phone else []):  # above the row, since there is no room next to it on a phone
        axes.text(0.01, place - 0.3, name, transform=axes.get_yaxis_transform(), fontsize=7)
    axes.set_ylim(len(entries) - 0.5, -1)
    axes.set(xscale="log", xlabel="RMS error relative to RMS of O", title="Accuracy against FP64")
    axes.grid(axis="x")
    paper.legend(figure, axes, 3)
    last = entries[-1]
    paper.foot(figure, f"Batch {last.values['batch']:.0f}, heads {last.values['heads']:.0f}, N {last.cell.seqlen}, d {last.cell.head_dim}, no mask. "
               f"{last.context.get('gpu', 'The simulator')}; {last.context['date'][:10]}, commit {last.context['commit']}")
    paper.save(figure, "accuracy")
    return True


PLOTS = {draw.__name__: draw for draw in (peers, roofline, accuracy)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plots", nargs="*", metavar="PLOT", help=", ".join(PLOTS))
    parser.add_argument("--results", type=pathlib.Path, default=results.RESULTS / results.BOOK_GPU, metavar="FOLDER")
    parser.add_argument("--out", type=pathlib.Path, default=results.ROOT / "docs" / "plots", metavar="FOLDER")
    options = parser.parse_args()
    unknown = set(options.plots) - set(PLOTS)
    if unknown:
        parser.error(f"there is no plot {', '.join(sorted(unknown))}: there are {', '.join(PLOTS)}")
    try:
        measured = results.load(options.results)
        if not measured.history:
            raise Refused(f"{options.results} has no results: ./flashbook bench measures them")
        for name in options.plots or PLOTS:
            drawn = [PLOTS[name](measured, Paper(options.out, phone)) for phone in (False, True)]
            print(f"{options.out / name}.svg" if all(drawn) else f"{name}: nothing has been measured for it yet")
    except Refused as reason:
        print(f"plot.py: {reason}", file=sys.stderr)
        return 2
    except (KeyError, IndexError, StopIteration) as missing:
        print(f"plot.py: the plot {name} needs a result that was never measured ({missing}): bench/release measures all", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
