#!/usr/bin/env python3
"""Chapter 5's drawings of layouts and its table of phases: a program says what the code does, this puts it there, or checks that it is there.

    hopper_figures.py [--check] HOPPER_LAYOUTS

docs/figures/hopper_layouts.json                  what the program prints; wgmma_tiles.py, wgmma_fragments.py and ring_phases.py draw it
<!-- simulated ring --> ... <!-- /simulated -->   in the chapter's appendix: the barriers of a ring of two stages, event by event
With --check nothing is written: exit code 1 if something differs.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs" / "figures"
PAGE = ROOT / "chapters" / "05_flash_attention_3" / "appendix.md"
LAYOUTS = FIGURES / "hopper_layouts.json"
DRAWN = ("wgmma_tiles", "wgmma_fragments", "ring_phases")
sys.path[:0] = [str(ROOT), str(FIGURES)]

from ring_phases import BARRIERS, spelt, told

from docs.tools import pages
from docs.tools.pages import row


def state(event, barrier):
    phase, pending, missing = event[barrier]
    return f"{phase}:\u00a0{missing // 1024}\u00a0KB" if missing and not pending else f"{phase}:\u00a0{pending}"


def words(event, events):
    """What happens, in a reader's words. `events` are this one and those after it."""
    barrier, stage = event["barrier"], event["barrier"][-2]
    parity = 1 - event[barrier][0] % 2  # of the phase that is over
    if event["what"].endswith("passes"):
        return f"{event['what']} {spelt(barrier)}, parity {parity}" + (f": {event['tile']}" if event["tile"] and barrier.startswith("full") else "")
    if event["what"] == "producer announces":
        tile = next(later["tile"] for later in events if later["what"] == "over" and later["barrier"] == barrier)
        return f"producer announces {tile}"
    if event["what"] == "over":
        return f"{event['tile']} has landed" if barrier.startswith("full") else f"all warps have: stage {stage} is empty"
    return f"{event['what']} stage {stage}"


def ring_table(events):
    text = row("", "what happens", *map(spelt, BARRIERS)) + row("--:", "---", *["---"] * len(BARRIERS))
    before = None
    for number, event in enumerate(told(events), 1):
        cells = [f"**{state(event, barrier)}**" if before and event[barrier] != before[barrier] else state(event, barrier)
                 for barrier in BARRIERS]
        text += row(str(number), words(event, events[events.index(event):]), *cells)
        before = event
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if something differs")
    parser.add_argument("program", metavar="HOPPER_LAYOUTS")
    options = parser.parse_args()
    said = subprocess.run([options.program], stdout=subprocess.PIPE, check=True, text=True).stdout
    right = LAYOUTS.exists() and LAYOUTS.read_text(encoding="utf-8") == said
    if not right and options.check:
        print(f"{LAYOUTS}: not what the program prints", file=sys.stderr)
    if not options.check:
        LAYOUTS.write_text(said, encoding="utf-8")
        for name in DRAWN:  # docs/check.py holds them against what they are drawn from
            subprocess.run([sys.executable, FIGURES / f"{name}.py"], check=True)
        right = True
    table = ring_table(json.loads(said)["ring"])
    right &= pages.update(PAGE, {"simulated": lambda _: table}, options.check, expected=["simulated ring"])
    if not right:
        sys.exit(f"python3 tests/docs/hopper_figures.py {options.program} brings these up to date")


if __name__ == "__main__":
    main()
