#!/usr/bin/env python3
"""Records what a block does without and with a planted fault, event by event, for every Hopper step and for the faults
that earlier chapters show: docs/figures/interactive/fault_chNN_data.js.

    fault_traces.py [--check] PROGRAM...     PROGRAMs are build/sim/bin/planted_NN_traced. With --check nothing is
    written, and the exit code is 1 if a file differs.
"""
import os
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / folder) for folder in ("common/simulator/events", "tests/mutation", "docs/figures")]

import faults
import page
from plant import run_with
from svg import data_text

from bench import steps

MANY_KEYS = ["--seqlen", "192", "--seqlen-k", "640"]  # so that there are more tiles of keys than a ring has stages
FP8_KEYS = ["--seqlen", "192", "--seqlen-k", "384"]
ONE_KEY_TILE = ["--seqlen", "384", "--seqlen-k", "128"]
# The recorded steps, each with the fault that its timeline shows, and the program's options if they are not those with
# which the fault is reported.
RECORDED = {
    "ch01/shared_tile": ("no_barrier_01", None),
    "ch03/queries_outside": ("no_barrier_03", None),
    "ch04/two_stages": ("no_barrier_04", None),
    "ch05/single_warpgroup": ("same_parity_05", None),
    "ch05/specialised": ("wrong_parity_05", None),
    "ch05/pingpong": ("never_released_05", None),
    "ch05/overlap": ("never_released_05", None),
    "ch05/persistent": ("never_released_05", None),
    "ch06/straight": ("arrives_for_others_06", None),
    "ch06/overlapped": ("one_does_not_arrive_06", None),
    "ch06/block_scales": ("one_does_not_arrive_06", FP8_KEYS),
    "ch06/hadamard": ("arrives_for_others_06", None),
    "ch06/persistent": ("never_released_05", FP8_KEYS),
    "ch06/row_sums": ("never_released_05", FP8_KEYS),
    "ch06/transpose_once": ("arrives_for_others_06", None),
    "ch06/linear_exp": ("never_released_05", FP8_KEYS),
    "ch06/promoted_sums": ("never_released_05", FP8_KEYS),
    "ch07/wgmma": ("never_released_05", ONE_KEY_TILE),
    "ch07/specialised": ("no_wait_for_reading_07", None),
    "ch07/persistent": ("never_released_05", ONE_KEY_TILE),
    "ch07/deterministic": ("no_fence_07", None),
    "ch08/per_head": ("same_parity_08", None),
    "ch08/pack_gqa": ("same_parity_08", ["--batch", "1", "--heads", "4", "--kv-heads", "1", "--seqlen", "1", "--seqlen-k", "300"]),
    "ch08/split_kv": ("same_parity_08", ["--batch", "64", "--seqlen", "1", "--seqlen-k", "600"]),
    "ch08/ring": ("keys_behind_the_last_08", None),
    "ch08/paged": ("wrong_parity_05", ["--seqlen", "1", "--seqlen-k", "100", "--page-rows", "16"]),
    "ch08/equal_work": ("last_keys_08", ["--seqlen", "1", "--seqlen-k", "100"]),
    "ch08/latent": ("one_place_08", ["--batch", "1", *faults.LATENT]),
    "ch08/e4m3_cache": ("bytes_of_part_of_a_box_08", ["--cache", "e4m3", "--seqlen", "1", "--seqlen-k", "100"]),
    "ch08/boxes": ("bytes_of_part_of_a_box_08", None),
    "ch08/warpgroup": ("no_fence_08", None),
    "ch09/dense": ("never_released_05", faults.PAIRS),
    "ch09/varlen": ("queries_before_the_store_has_read_09", ["--heads", "1", "--head-dim", "64", *faults.VARLEN]),
    "ch09/ranges": ("never_released_05", ["--documents", "3", *MANY_KEYS]),
    "ch09/flashmask": ("never_released_05", ["--heads", "1", "--head-dim", "64", *faults.INTERVALS]),
    "ch09/mask_functions": ("never_released_05", ["--softcap", "2", *MANY_KEYS]),
    "ch09/backward": ("no_fence_07", ["--seqlen", "256"]),
    "ch09/deterministic": ("never_released_05", ["--seqlen", "256"]),
    "ch09/prompts": ("never_released_05", MANY_KEYS),
}
ON_PAGES = {"ch01/shared_tile", "ch03/queries_outside", "ch04/two_stages", "ch06/overlapped", "ch07/specialised",
            "ch08/ring"}  # the chapter shows this one next to its fault
# Steps of chapters 5 to 9 that run on Ampere as well.
# Without a timeline: not for Hopper, or too long for one, with lists of hundreds of keys.
LEFT_OUT = {"ch07/two_passes", "ch07/one_pass", "ch08/sparse_prefill", "ch08/sparse_decode"}
REPORTS = "the simulator reports: "
VERBS = {"waits": " waits at", "passes": " passes", "lands": " has landed in", "over": " at"}
DIGITS = 57  # an event is written as two characters from # to [, after one from ] on if its warp is not the last event's


def words(event):
    """Returns what happens, without the parts that change when a line is added to a file."""
    if event.kind == "fault":
        report = re.sub(r" (at|from) [\w.]+:\d+| 0x[0-9a-f]{9,}", "", (event.detail or event.what).partition("\n")[0])
        return REPORTS + re.split(r" in block | by |\. ", report)[0]
    times = f" \u00d7{event.times}" if event.times > 1 else ""
    thing = "" if event.object.startswith("products") else event.object.removeprefix("mbarrier ")
    return f"{event.what}{times}{VERBS.get(event.kind, '')} {thing}".strip()


def source(event, texts):
    """Returns the line of the kernel that an event comes from."""
    if not event.stack:
        return ""
    frame = event.stack[0]
    lines = texts.setdefault(frame.file, pathlib.Path(frame.file).read_text(encoding="utf-8").splitlines())
    return f"{pathlib.Path(frame.file).name}: {lines[frame.line - 1].strip()[:90]}"


def launches_of(program, options, asked):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "events.json")
        run_with(program, options, asked, {"FLASHBOOK_SIM_EVENTS": file})
        return page.read(file)["launches"]


def options_of(slug, fault, options):
    """Returns the program's options for a step."""
    if options is None:
        at = fault.traced.index("--step")
        options = [*fault.traced[:at], *fault.traced[at + 2:]]
    missing = [word for name, value in zip(faults.SMALL[::2], faults.SMALL[1::2]) if name not in options for word in (name, value)]
    return ["--step", slug, *options, *([] if "--lengths" in options else missing)]


class Recording:
    """The recorded steps of a chapter. Texts are stored once, and so is each kind of event."""

    def __init__(self):
        self.texts: dict[str, int] = {}
        self.events: dict[tuple[int, ...], int] = {}
        self.files: dict[str, list[str]] = {}
        self.steps: dict[str, dict[str, object]] = {}

    def number(self, event):
        """Returns an event as its warp and the number of its kind."""
        says, line = (self.texts.setdefault(text, len(self.texts)) for text in (words(event), source(event, self.files)))
        return event.warp, self.events.setdefault((page.GROUPS.index(event.group), event.warps, says, line), len(self.events))

    def add(self, program, name, faulty, options):
        """Records the launch that contains the fault, and the same launch without it."""
        fault, slug = faults.FAULTS[faulty], name.partition("/")[2]
        options = options_of(slug, fault, options)
        good, broken = (launches_of(program, options, asked) for asked in (-1, list(faults.FAULTS).index(faulty)))
        found = ((launch, words(event)) for launch in broken if launch["error"] for event in launch["blocks"][0]["events"] if event.kind == "fault")
        wrong, report = next(found, (None, None))
        if wrong is None or report is None:
            sys.exit(f"{name}: the simulator does not report {faulty} in block 0 of {program} {' '.join(options)}")
        right = next(launch for launch in good if launch["kernel"] == wrong["kernel"])
        rows = [[self.number(event) for event in launch["blocks"][0]["events"]] for launch in (right, wrong)]
        same = next((i for i, (one, other) in enumerate(zip(*rows)) if one != other), min(map(len, rows)))
        self.steps[slug] = {"kernel": right["kernel"], "warps": right["blocks"][0]["warps"], "options": " ".join(options),
                            "file": fault.path, "line": " ".join(fault.old.split()), "now": " ".join(fault.new.split()),
                            "report": report.removeprefix(REPORTS), "on_page": name in ON_PAGES,
                            "good": packed(rows[0]), "same": same, "broken": packed(rows[1][same:])}

    def data(self):
        return {"groups": page.GROUPS, "texts": list(self.texts), "events": [number for event in self.events for number in event], "steps": self.steps}


def packed(events):
    text, last = "", None
    for warp, number in events:
        text += ("" if warp == last else chr(94 + warp)) + chr(35 + number // DIGITS) + chr(35 + number % DIGITS)
        last = warp
    return text


def main():
    *check, = [word for word in sys.argv[1:] if word == "--check"]
    left_out = {step for chapter in range(5, 10) for step in steps.names(chapter)} ^ ({name for name in RECORDED if name >= "ch05"} | LEFT_OUT)
    if left_out:
        sys.exit(f"{', '.join(sorted(left_out))}: a step of chapters 5 to 9 is either in RECORDED or in LEFT_OUT")
    stale = []
    for program in sys.argv[1 + len(check):]:
        number = program.removesuffix("_traced")[-2:]
        name, recording = f"fault_ch{number}", Recording()
        for step, (fault, options) in RECORDED.items():
            if step.startswith(f"ch{number}/"):
                recording.add(os.path.abspath(program), step, fault, options)
        file = ROOT / "docs" / "figures" / "interactive" / f"{name}_data.js"
        text = data_text(name, f"Blocks of chapter {int(number)} without a fault and with it", "recorded/fault_traces.py", recording.data())
        if not check:
            file.write_text(text, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != text:
            stale.append(program)
    if stale:
        sys.exit(f"the kernels' events have changed: {sys.argv[0]} {' '.join(stale)} records them, docs/figures/fault_traces.py draws them")


if __name__ == "__main__":
    main()
