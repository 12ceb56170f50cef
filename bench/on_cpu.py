"""Times chapter 2's last step, interleaved with PyTorch's attention on the CPU, both in float32.

    peers.py --cpu [--cores 1,2,16] [--heads 1] [--head-dim 64] [--seqlen 4096] [--rounds 5] [--out FILE]
                   [--program build/gpu/bin/02_online_softmax]

Without --heads, --head-dim and --seqlen it runs one and eight heads with N 4096, d 64, and 16 heads with N 2048, d 128.
In every round each contestant is timed once, in random order, after a rest. The chapter's program runs in a separate
process, PyTorch and a large matrix product in this one, all on the same cores. A time is the median of several runs,
and a result is the median of the rounds. Ours is checked against the oracle first. `vs_torch` is our speed relative to
PyTorch, `of_product` the fraction of the product's FLOPS. Exit code 1 if ours is wrong, 77 without PyTorch.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from bench import race, results
from bench.names import Name
from bench.race import SEED, Contestant, whole_numbers

CHAPTER, STEP = 2, "register_blocks"
PRODUCT = 2048  # rows, columns and terms
SHAPES = ((1, 64, 4096), (8, 64, 4096), (16, 128, 2048))  # heads, head_dim, N
SECONDS, MAX_RUNS = 0.15, 9  # per contestant and round
torch: Any = None


class Problem:
    """A cell to measure: the shape and the number of cores."""

    encoded = ()  # not quantised

    def __init__(self, heads, head_dim, seqlen, cores):
        self.heads, self.head_dim, self.seqlen, self.cores = heads, head_dim, seqlen, cores

    def name(self, contestant):
        return str(Name("cpu", contestant.who, "f32", self.head_dim, f"c{self.cores}h{self.heads}", self.seqlen))


def ours(program, problem):
    """Returns the program's last step, checked. The program reports its own time."""
    command = [program, "--step", STEP, "--dtype", "f32",
               "--heads", str(problem.heads), "--seqlen", str(problem.seqlen), "--head-dim", str(problem.head_dim)]

    def asked(*options):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "run.json"
            done = subprocess.run([*command, *options, "--json", file], capture_output=True, text=True)
            if done.returncode:
                raise race.Wrong(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
            return json.loads(file.read_text())["steps"][-1]

    first = asked("--check", "sample", "--reps", "3")
    found = Contestant(f"ch{CHAPTER:02}/{STEP}", first["name"], None)
    found.launches = runs_in(first["seconds"])
    found.run = lambda: asked("--check", "off", "--reps", str(found.launches))["seconds"]
    return found


def runs_in(seconds):
    return max(1, min(MAX_RUNS, int(SECONDS / seconds)))


def in_process(who, label, work, flops=0.0):
    """Returns a contestant from PyTorch, timed in this process."""

    def once():
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    once()  # creates the threads
    found = Contestant(who, label, None, flops=flops)
    found.launches = runs_in(once())

    def run():
        once()  # the caches hold another contestant's data
        return statistics.median(once() for _ in range(found.launches))

    found.run = run
    return found


def contestants_of(program, problem):
    q, k, v = (torch.randn(1, problem.heads, problem.seqlen, problem.head_dim) for _ in range(3))
    a, b = (torch.randn(PRODUCT, PRODUCT) for _ in range(2))
    return [ours(program, problem),
            in_process("torch", "PyTorch's attention", lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)),
            in_process("product", f"{PRODUCT}-cubed matrix product", lambda: a @ b.mT, 2.0 * PRODUCT**3)]


def pin(cores):
    """Restricts this process, with its threads and subprocesses, to this many cores."""
    torch.set_num_threads(cores)
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), range(cores))


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def context():
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "machine": "gpu" if gpu else "cpu", "gpu": gpu,
            "cpu": processor(), "num_cpus": os.cpu_count(), "pytorch": torch.__version__, "commit": results.commit(),
            "torch_vectors": torch.backends.cpu.get_cpu_capability()}


def run(options):
    """Measures every cell; the file is complete after each."""
    whole = {"context": context(), "benchmarks": []}
    shuffle = random.Random(SEED).shuffle
    for cores in options.cores:
        pin(cores)
        for heads, head_dim, seqlen in options.shapes:
            problem = Problem(heads, head_dim, seqlen, cores)
            contestants = contestants_of(options.program, problem)
            order = list(contestants)
            for _ in range(options.rounds):
                shuffle(order)
                for contestant in order:
                    time.sleep(race.NAP)
                    contestant.milliseconds.append(1e3 * contestant.run())
            for contestant in contestants:
                found = race.entry(problem, contestant, contestants, 4.0 * heads * seqlen**2 * head_dim)
                whole["benchmarks"].append(found)
                print(f"{found['name']:50}", race.told(found), flush=True)
            options.out.write_text(json.dumps(whole, indent=1) + "\n")


def parse(words):
    parser = argparse.ArgumentParser("peers.py --cpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=whole_numbers, help="default: 1, 2, and all of the first sixteen")
    parser.add_argument("--heads", type=int)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--seqlen", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", type=pathlib.Path, default=results.ROOT / "build" / "gpu" / "bin" / "02_online_softmax")
    parser.add_argument("--out", type=pathlib.Path, help="write to this file instead of bench/results/<gpu>/")
    options = parser.parse_args(words)
    there = os.cpu_count() or 1
    options.cores = options.cores or [cores for cores in dict.fromkeys((1, 2, min(there, 16))) if cores <= there]
    if not all(1 <= cores <= there for cores in options.cores):
        parser.error(f"--cores takes numbers from 1 to {there}")
    if options.rounds < 1:
        parser.error("--rounds must be at least 1, and 5 for results")
    options.shapes = [(options.heads, options.head_dim, options.seqlen)] if options.heads else SHAPES
    return options


def main(words):
    global torch  # noqa: PLW0603
    options = parse(words)
    try:
        import torch
    except ImportError:
        print("peers.py --cpu needs PyTorch (pip install torch); without it, bench/forward times our kernels alone", file=sys.stderr)
        return 77
    if not options.program.exists():
        print(f"{options.program} is missing: build it with cmake --build --preset gpu --target 02_online_softmax, or set --program", file=sys.stderr)
        return 2
    return race.filed("peers.py", options, lambda: run(options))
