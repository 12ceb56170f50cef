#!/usr/bin/env python3
"""Chapters without their idea: what a reader runs by default must notice.

chapters.py plant NAME FOLDER    writes the chapter's file with the fault in it below FOLDER, where an include finds it first
chapters.py check NAME PROGRAM REPORTS
                                 runs the chapter's program, built with that file, and expects it to call the steps wrong; what it says of them
                                 goes to a file in the folder REPORTS, for the chapter's page

Exit code 1, with a message, if a fault's text is not in the chapter any more, or if it goes unnoticed.
"""
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from fault import Refused

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Fault:
    """In `file`, `old` becomes `new`, and the program says that `steps` are wrong."""
    file: str  # below chapters/
    old: str
    new: str
    steps: tuple[int, ...]  # of its output, O, or of a gradient
    options: list[str] = field(default_factory=list)  # what the program is run with: nothing, but for a mask


FAULTS = {
    "no_mask_01": Fault("01_naive_attention/problem.cuh", "if (!causal) return seqlen_k;", "return seqlen_k;", (1, 2), ["--causal"]),
    "no_rescaling_02": Fault("02_online_softmax/online_softmax.h",
                             ".correction = std::exp(state.row_max - new_max)", ".correction = 1", (2, 3)),
    "no_rescaling_02_tiles": Fault("02_online_softmax/blocked_attention.h",
                                   "for (float& element : o) element *= correction;", "", (4,)),
    "no_guard_02": Fault("02_online_softmax/register_blocks.h",
                         "const Floats subtracted = new_max == kMinusInfinity ? Floats{} : new_max;",
                         "const Floats subtracted = new_max;", (5,),
                         ["--seqlen", "100", "--seqlen-k", "70", "--causal"]),
    "no_rescaling_03": Fault("03_flash_attention_1/problem.cuh",
                             "return {new_max, subtracted, exp2_approx(row_max - subtracted)};",
                             "return {new_max, subtracted, 1.0f};", (1, 2, 3)),
    "no_rescaling_04_split": Fault("04_flash_attention_2/split_q.cuh", "out[0][n][i] *= before * inverse;",
                                   "if (before == 0) out[0][n][i] = 0;", (1, 2, 3)),
    "no_rescaling_04": Fault("04_flash_attention_2/warp_tile.cuh",
                             "float correction = exp2_approx((rows.max[r][half] - maxima[r][half]) * scale_log2e);",
                             "float correction = 1;", (4, 5, 6)),
    "no_rescaling_05": Fault("05_flash_attention_3/softmax.cuh",
                             "correction[r] = exp2_approx((rows.max[r] - base[r]) * scale_log2);",
                             "correction[r] = 1;", (1, 2, 3, 4, 5)),
    "no_rescaling_06": Fault("06_fp8/softmax.cuh",
                             "correction[r] = exp2_approx(rows.max[r] - safe_max);", "correction[r] = 1;",
                             (1, 2, 3, 4, 5, 6, 7)),
    "no_scales_06": Fault("06_fp8/problem.cuh", "return scale == nullptr ? 1.0f :", "return true ? 1.0f :",
                          (1, 2, 3, 4, 5, 6, 7)),
    "no_means_06": Fault("06_fp8/epilogue.cuh", "if (problem.v_mean != nullptr)", "if (false)", (1, 2, 3, 4, 5, 6, 7),
                         ["--seqlen", "40", "--seqlen-k", "8"]),
    "twos_06": Fault("06_fp8/tiles.cuh", "kOne = 0x38;", "kOne = 0x40;", (6, 7)),
    "other_slope_06": Fault("06_fp8/softmax.cuh", "kLineSlope = 8.0f / 128;", "kLineSlope = 4.0f / 128;", (7,)),
    # Of chapter 7 the steps with mma.sync: those for Hopper are compiled without the fault.
    "no_d_07": Fault("07_backward/keys_outside.cuh", "y = x * (y - query_d);", "y = x * y;", (1, 2)),
    "no_mask_07": Fault("07_backward/keys_outside.cuh", "kMasked && r * 16", "false && r * 16", (1, 2), ["--causal"]),
    "no_scale_07": Fault("07_backward/keys_outside.cuh", "(dk_sums, problem.scale,", "(dk_sums, 1.0f,", (1, 2)),
    "no_wait_07": Fault("07_backward/keys_outside.cuh", "    cp_async_wait<0>();\n", "", (1, 2)),
    "no_barrier_07": Fault("07_backward/keys_outside.cuh", "if (!kShares) __syncthreads();", "", (2,)),
    "same_stage_07": Fault("07_backward/keys_outside.cuh", "stage = stages + i % 2 * C::kStageBytes;", "stage = stages;", (1, 2)),
    "not_turned_07": Fault("07_backward/keys_outside.cuh", "ldmatrix_x4_trans(a[r], ds_tile", "ldmatrix_x4(a[r], ds_tile", (2,)),
    "one_head_07": Fault("07_backward/keys_outside.cuh", "tiles = tiles_of_head * problem.group;", "tiles = tiles_of_head;", (1, 2),
                         ["--heads", "4", "--kv-heads", "2"]),
    "first_query_07": Fault("07_backward/problem.cuh", "max(key + seqlen_q - seqlen_k, 0)", "key", (1, 2),
                            ["--causal", "--seqlen", "100", "--seqlen-k", "200"]),
    "last_tile_07": Fault("07_backward/queries_outside.cuh", "last_key / kKeys + 1;", "last_key / kKeys;", (1,)),
}


def plant(name, folder):
    fault = FAULTS[name]
    text = (ROOT / "chapters" / fault.file).read_text(encoding="utf-8")
    found = text.count(fault.old)
    if found != 1:
        raise Refused(f"{name}: its text stands {found} times in chapters/{fault.file}, not once. The chapter has changed: bring "
                      f"`old` up to date.\n{fault.old}")
    target = Path(folder) / "chapters" / fault.file
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text.replace(fault.old, fault.new), encoding="utf-8")


def check(name, program, reports):
    fault = FAULTS[name]
    run = subprocess.run([program, *fault.options], capture_output=True, text=True)
    found = re.findall(r"^WRONG: step (\d+), (?:O|d[QKV]) against the oracle", run.stdout, re.M)
    wrong = tuple(sorted({int(step) for step in found}))
    if run.returncode != 1 or wrong != fault.steps:
        raise Refused(f"{name}: {program} should call steps {fault.steps} wrong and exit with 1. It called {wrong} wrong and exited with "
                      f"{run.returncode}:\n{run.stdout}{run.stderr}")
    said = re.findall(r"^(WRONG: .* against the oracle.*)", run.stdout, re.M)
    (Path(reports) / f"{name}.txt").write_text("".join(line + "\n" for line in said), encoding="utf-8")


def main():
    command, *words = sys.argv[1:]
    try:
        if command == "plant":
            plant(*words)
        else:
            check(*words)
    except Refused as reason:
        sys.exit(f"chapters.py: {reason}")


if __name__ == "__main__":
    main()
