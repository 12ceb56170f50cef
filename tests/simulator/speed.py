#!/usr/bin/env python3
"""speed.py COMMIT: measures whether the simulator has become slower since an older commit.

Builds that commit beside this tree and runs chapters of both in turn, untraced and traced, on one OS thread. Prints the
median of the paired ratios of user time, before / now: above 1 is faster. Exits with 1 if one is below the floor. Load on the machine shifts all
times, but the ratios of pairs little; user time excludes time in the system. Run it before considering a change of the simulator complete.
"""
import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = ("01_naive_attention", "03_flash_attention_1", "05_flash_attention_3", "06_fp8", "09_masks")
# Options that run for about a second in a chapter's program and in its traced one.
SHAPES = {"": ("--seqlen", "768", "--heads", "2", "--check", "off", "--reps", "1"), "_traced": ("--seqlen", "384", "--heads", "2")}


def built(tree: Path, commit: str | None, jobs: int) -> Path:
    """Returns the folder of a tree's programs. Other trees than this one are checked out from `commit`."""
    if commit and not tree.exists():
        # --force: git remembers a tree that was deleted with the build folder.
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--force", "--detach", tree, commit], check=True)
    subprocess.run(["cmake", "--preset", "sim"], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    programs = [chapter + traced for chapter in CHAPTERS for traced in SHAPES]
    subprocess.run(["ninja", "-C", tree / "build/sim", f"-j{jobs}", *programs], check=True, stdout=subprocess.DEVNULL)
    return tree / "build/sim/bin"


def user_seconds(program: Path, options: tuple[str, ...]) -> float:
    """Returns the user time of one run."""
    process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               env=os.environ | {"FLASHBOOK_SIM_THREADS": "1"})
    assert process.stderr
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{program.name} {' '.join(options)} failed:\n{said.decode()}")
    return usage.ru_utime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the older commit")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs (default: %(default)s)")
    parser.add_argument("--floor", type=float, default=0.95, help="the minimum ratio that passes (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="of the builds")
    a = parser.parse_args()
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", f"{a.commit}^{{commit}}"],
                            check=True, capture_output=True, text=True).stdout.strip()
    before, now = built(ROOT / "build/speed" / commit, commit, a.jobs), built(ROOT, None, a.jobs)
    worst = float("inf")
    print(f"{'program':28} {commit:>9} {'now':>9} {'ratio':>6}   user seconds and before / now: medians of {a.rounds} pairs")
    for traced, options in SHAPES.items():
        for chapter in CHAPTERS:
            pairs = []
            for turn in range(a.rounds):
                # The order alternates, since the second may find warm caches or a hot processor.
                folders = (before, now) if turn % 2 == 0 else (now, before)
                times = {folder: user_seconds(folder / (chapter + traced), options) for folder in folders}
                pairs.append((times[before], times[now]))
            ratio = statistics.median(b / n for b, n in pairs)
            worst = min(worst, ratio)
            old, new = (statistics.median(times) for times in zip(*pairs, strict=True))
            print(f"{chapter + traced:28} {old:9.2f} {new:9.2f} {ratio:6.3f}{'' if ratio >= a.floor else f'   below {a.floor}'}", flush=True)
    return 0 if worst >= a.floor else 1


if __name__ == "__main__":
    sys.exit(main())
