#!/usr/bin/env python3
"""What kernels and library do, as figures show it: a program says it, docs/figures/interactive/PROGRAM_data.js keeps it.

    recorded_data.py [--check] PROGRAM      with --check nothing is written: exit code 1 if the file differs
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from bench import results

INTERACTIVE = ROOT / "docs" / "figures" / "interactive"
WHAT = {"backward_round": "A block of chapter 7's step 4, as the simulator ran it", "decode_cache": "Pages and plans as chapter 8's library makes them",
        "mask_tiles": "Tiles of masks as chapter 9's policies class them, and rates on an H200",
        "rank_errors": "Errors of chapter 10's ring over its ranks, in the simulator"}

# Where one stands in chapter 7's kernel: what is done, the file, and how its line begins; after another line where there are several.
ROUND, BLOCK, PARTS = "chapters/07_backward/hopper_gradients.cuh", "chapters/07_backward/step4_hopper_blocks.cuh", "common/hopper/gradient_round.h"
CODE = {
    "consumer passes keys full": (BLOCK, "mbarrier_wait(&shared.keys_full"), "consumer passes q full": (ROUND, "wait_full(shared.q"),
    "consumer issues S": (ROUND, "issue_scores<T, kHeadDim, kTileKeys>(scores"), "consumer passes do full": (ROUND, "wait_full(shared.d_o"),
    "consumer issues dP": (ROUND, "issue_scores<T, kHeadDim, kTileKeys>(dp"), "consumer has S": (ROUND, "wgmma_wait<1>();  // S^T"),
    "consumer has dP": (ROUND, "wgmma_wait<0>();", "//| dP^T was multiplied beside"), "consumer issues dV": (ROUND, "issue_accumulate<T>(dv"),
    "consumer arrives ds written": (ROUND, "named_barrier_sync<kDsWritten"), "consumer passes ds written": (ROUND, "named_barrier_sync<kDsWritten"),
    "consumer issues dQ": (ROUND, "issue_dq<T"), "consumer issues dK": (ROUND, "issue_accumulate<T>(dk"), "consumer has dV dQ": (ROUND, "wgmma_wait<1>();  // dV and dQ"),
    "consumer arrives do empty": (ROUND, "release(shared.d_o"), "consumer passes dq empty": (PARTS, "mbarrier_wait(&shared.dq_empty[number], parity ^ 1)"),
    "consumer arrives dq full": (PARTS, "if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.dq_full"), "consumer has dK": (ROUND, "wgmma_wait<0>();", "add_from_registers(dq, sums);"),
    "consumer arrives q empty": (ROUND, "release(shared.q"), "consumer arrives keys empty": (BLOCK, "if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.keys_empty"),
    "producer passes q empty": (BLOCK, "wait_empty("), "producer arrives q full": (PARTS, "mbarrier_arrive_expect_tx(full"), "producer loads Q": (PARTS, "load(pipeline.tile"),
    "producer passes do empty": (BLOCK, "wait_empty("), "producer arrives do full": (PARTS, "mbarrier_arrive_expect_tx(full"), "producer loads dO": (PARTS, "load(pipeline.tile"),
    "producer passes keys empty": (BLOCK, "mbarrier_wait(&shared.keys_empty"), "producer arrives keys full": (BLOCK, "mbarrier_arrive_expect_tx(&shared.keys_full"),
    "producer loads K": (BLOCK, "load(shared.k"), "producer loads V": (BLOCK, "if constexpr (Shared::kHasDp) load(shared.v"),
}

# What bench/masks.py calls masks like those of mask_tiles, of 8192 tokens, and who is shown.
LIKE = {"full": "full", "causal": "causal", "window1024": "window", "sinks": "window", "prefix": "prefix", "causal_documents": "documents"}
WHO = {"ours": "ch09/step3", "flex": "flex"}


def rates(newest, mask):
    """TFLOP/s of visible pairs by who was measured."""
    entries = {who: newest.get(f"masked/{path}/bf16/d128/{LIKE.get(mask)}/n8192") for who, path in WHO.items()}
    return {who: round(entry.values["FLOPS"] / 1e12) for who, entry in entries.items() if entry and not entry.skipped}


def line_of(file, beginning, after=""):
    """A line of a file of chapter 7's, without its number, which changes too often."""
    lines = [line.strip() for line in (ROOT / file).read_text(encoding="utf-8").splitlines()]
    first = next(number for number, line in enumerate(lines) if line.startswith(after))
    found = next(number for number, line in enumerate(lines) if number >= first and line.startswith(beginning))
    return [pathlib.Path(file).name, lines[found]]


def main():
    *check, program = sys.argv[1:]
    name = pathlib.Path(program).name
    said = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout
    data = json.loads(said)
    if name == "backward_round":
        data["code"] = {what: line_of(*place) for what, place in CODE.items()}
    if name == "mask_tiles":
        newest = results.load(results.RESULTS / results.BOOK_GPU).newest
        data["masks"] = [mask | ({"measured": found} if (found := rates(newest, mask["name"])) else {}) for mask in data["masks"]]
    now = (f"// {WHAT[name]}: docs/figures/recorded/recorded_data.py writes this.\n"
           f"(window.flashbookData ??= {{}}).{name} = {json.dumps(data, separators=(',', ':'))};\n")
    file = INTERACTIVE / f"{name}_data.js"
    if not check:
        file.write_text(now)
    elif file.read_text() != now:
        sys.exit(f"{file.name} is not what the program says: {sys.argv[0]} {program} writes it, docs/figures/{name}.py draws it")


if __name__ == "__main__":
    main()
