"""The race: times contestants interleaved in one process (used by peers.py, backward.py, decode.py, masks.py, as_called.py,
operators.py, on_cpu.py).

The card's power is limited, so a time depends on what ran before. Therefore every contestant is timed once per round, in random order, after
a rest of 60 ms. A time is the median of several launches between CUDA events, each after a flush of the L2; a result is the median of the
rounds. Contestants whose names begin with `ch` are ours: they are checked first, and compared with the others by the median of the ratios in all
rounds. A `called` contestant is timed as its caller sees it, starting from an idle card, and is compared only with others of that kind. With --before
LIBRARY, another build's kernels also run, and `vs_before` is our speed relative to theirs, cell by cell.

A race can be split into several calls. With --seconds, a call ends before its limit, with exit code 75 if cells are left; with --resume, the next
one continues the file. The context has a part for each call, and each entry names its call.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import datetime
import importlib.metadata
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from bench import results
from bench.structs import BAD_ARGUMENT, HARDWARE_MISSING, Chapter, loaded

LAYOUTS = ("bhsd", "bshd")  # layouts of tensors and caches: [batch, heads, seqlen, d] or [batch, seqlen, heads, d]
NAP = 0.06  # seconds
SEED = 1
APART, NEAR = 0.03, 1.25  # a larger spread requires more rounds; a contestant within this factor of the fastest is near it
UNFINISHED = 75  # exit code if cells are left for the next call
BEGAN = time.monotonic()
SAME = ("commit", "machine", "gpu", "driver", "toolkit", "pytorch", "cudnn")  # must be equal in all calls of one race
DISTRIBUTIONS = ("nvidia-cudnn-cu13", "nvidia-cudnn-frontend", "flash-attn", "flash-attn-3", "flash-attn-4", "flashinfer-python", "xformers",
                 "triton")  # peers' packages
torch: Any = None  # imported after the options are checked


class Library:
    """libflashbook.so."""

    def __init__(self, path):
        self.c = loaded(pathlib.Path(path))

    def error(self):
        return self.c.flashbook_last_error().decode()

    def toolkit(self):
        return self.c.flashbook_toolkit().decode()

    def chapters(self):
        found = [Chapter() for _ in range(self.c.flashbook_chapter_count())]
        for place, chapter in enumerate(found):
            self.c.flashbook_chapter(place, ctypes.byref(chapter))
        return found

    def step(self, chapter, step):
        """Returns the number of a step, given by slug or number."""
        number = self.c.flashbook_step(chapter, str(step).encode())
        if not number:
            raise results.Refused(self.error())
        return number

    def slugs(self, chapter, steps=None):
        """Returns the slugs of these steps of a chapter, given by slug or number; by default, of all of them."""
        return [self.c.flashbook_step_slug(chapter, self.step(chapter, step)).decode() for step in steps or range(1, steps_of(self, chapter) + 1)]

    def step_name(self, chapter, step):
        return self.c.flashbook_step_name(chapter, step).decode()

    def workspace_bytes(self, chapter, step, problem):
        """Returns the bytes of workspace, or -1 if the step cannot run the problem, a Shape.described(); error() then has the reason."""
        return self.c.flashbook_workspace_bytes(chapter, step, problem)

    def cost(self, chapter, step, shape):
        """Returns (FLOPs, bytes moved), from the cost model."""
        flops, moved = ctypes.c_double(), ctypes.c_double()
        self.c.flashbook_cost(chapter, step, shape.described(), ctypes.byref(flops), ctypes.byref(moved))
        return flops.value, moved.value

    def attention(self, chapter, step, problem, tensors):
        """Launches on PyTorch's current stream."""
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        must(self, self.c.flashbook_attention(chapter, step, problem, ctypes.byref(tensors), stream))

    def backward(self, chapter, step, problem, tensors, gradients):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        must(self, self.c.flashbook_backward(chapter, step, problem, ctypes.byref(tensors), ctypes.byref(gradients), stream))


def must(library, status):
    """Raises the error of a status: Refused if the step or this card does not support the call, RuntimeError otherwise."""
    if status in (BAD_ARGUMENT, HARDWARE_MISSING):
        raise results.Refused(library.error())
    if status:
        raise RuntimeError(library.error())


def steps_of(library, number):
    """Returns the number of steps of a chapter."""
    for chapter in library.chapters():
        if chapter.number == number:
            return chapter.steps
    raise results.Refused(f"the library has no chapter {number}: build this commit's library: cmake --build --preset gpu --target flashbook_shared")


@dataclasses.dataclass
class Contestant:
    """A kernel that takes part in a race."""

    who: str  # such as "ch01/register_tile", "cudnn", or "ch05/one_loop" of an ablation
    label: str
    run: Any  # launches once and returns O
    context: object = contextlib.nullcontext  # entered around all launches of a measurement
    values: dict[str, float] = dataclasses.field(default_factory=dict)  # counters of its result
    skipped: str = ""
    launches: int = 1  # number of launches per round
    milliseconds: list[float] = dataclasses.field(default_factory=list)  # times of all rounds
    keeps: Any = ()  # tensors to keep alive while their pointers are in use
    kind: str = "forward"  # or "ablation": the first part of the result's name
    called: bool = False  # whether the time includes the host's work
    nap: float | None = None  # seconds to rest before timing, if not NAP
    flops: float = 0  # FLOPs per launch, if they differ from the problem's
    encoded: bool = False  # a peer that reads the problem's e4m3 tensors, if it has any
    install: str = ""  # how to install its missing package; it is then reported once and left out


class Replayed:
    """A launch as a CUDA graph, captured by the first call and replayed by every call, which measures the card alone."""

    def __init__(self, launch):
        self.launch, self.graph, self.o = launch, None, None

    def __call__(self):
        if self.graph is None:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # allocations and loads of a first launch cannot be captured
                self.launch()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):  # the same one, since autograd runs a gradient on its forward pass's stream
                self.o = self.launch()
            self.graph = graph
        self.graph.replay()
        return self.o


def check_outputs(problem, contestants, largest_error, launches):
    """Runs each contestant once, records errors, and drops those that cannot run. `largest_error(problem, o)` returns an output's error and bound.
    Sets each contestant's launches per round. Raises Wrong if a kernel of ours is wrong."""
    for contestant in contestants:
        if contestant.skipped:
            continue
        try:
            with contestant.context():
                contestant.run()  # loads the kernels
                o = contestant.run()
            torch.cuda.synchronize()
        except Exception as error:  # torch.compile raises other exceptions than RuntimeError
            if not isinstance(error, results.Refused) and contestant.who.startswith("ch"):
                raise Wrong(f"{problem.name(contestant)}: {error}") from None
            contestant.skipped = (str(error).splitlines() or ["failed"])[0]
            continue
        largest, bound = largest_error(problem, o)
        contestant.values |= {"error": largest, "error_bound": bound}
        contestant.launches = launches
        message = f"{problem.name(contestant)}: error {largest:.1e}, bound {bound:.1e}"
        if contestant.who.startswith("ch") and not largest <= bound:
            raise Wrong(message)
        if not largest <= 2 * bound:
            contestant.skipped = message


class Wrong(Exception):
    """A kernel of ours failed or gave a wrong result."""


# ---- timing ------------------------------------------------------------------------------------------------------------------------


def timed(contestant, cache_filler):
    """Returns the median of the contestant's launches, after a rest, in milliseconds."""
    time.sleep(NAP if contestant.nap is None else contestant.nap)
    events = []
    with contestant.context():
        for _ in range(contestant.launches + (contestant.launches > 1)):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            cache_filler.zero_()  # runs long enough to hide the host's time for the launch below
            if contestant.called:
                torch.cuda.synchronize()
            begin.record()
            contestant.run()
            end.record()
            events.append((begin, end))
        torch.cuda.synchronize()
    # The first of several launches is a warm-up.
    return statistics.median(begin.elapsed_time(end) for begin, end in events[contestant.launches > 1:])


def spread(contestant):
    """Returns the spread of a contestant's rounds, relative to their median."""
    return (max(contestant.milliseconds) - min(contestant.milliseconds)) / statistics.median(contestant.milliseconds)


def race(contestants, rounds, shuffle, cache_filler):
    """Times each contestant in every round, in a new order. If rounds disagree, that contestant and those near the fastest get 3 times as many."""
    runners = [contestant for contestant in contestants if not contestant.skipped]

    def in_turn(some, count):
        for _ in range(count):
            shuffle(some)
            for contestant in some:
                contestant.milliseconds.append(timed(contestant, cache_filler))

    in_turn(runners, rounds)
    if any(spread(contestant) > APART for contestant in runners):
        medians = [statistics.median(contestant.milliseconds) for contestant in runners]
        in_turn([contestant for contestant, median in zip(runners, medians, strict=True)
                 if median <= NEAR * min(medians) or spread(contestant) > APART], 2 * rounds)


def before(contestant):
    """Returns the same step from the other build."""
    return contestant.who + "_before"


def note_same_bits(contestants, twins):
    """Notes whether both builds give bitwise equal outputs."""
    outputs = lambda found: found if isinstance(found, list) else [found]
    for contestant, twin in zip((c for c in contestants if c.who.startswith("ch")), twins, strict=True):
        if not contestant.skipped and not twin.skipped:
            pairs = zip(outputs(contestant.run()), outputs(twin.run()), strict=True)
            contestant.values["same_bits"] = float(all(torch.equal(a, b) for a, b in pairs))


def entry(problem, contestant, contestants, flops):
    """Returns a result as Google Benchmark would write it."""
    name = problem.name(contestant)
    found = {"name": name, "run_name": name, "run_type": "iteration", "iterations": 1, "real_time": 0.0, "cpu_time": 0.0,
             "time_unit": "ms", "label": contestant.label}
    if contestant.skipped:
        return found | {"error_occurred": True, "error_message": contestant.skipped, "label": "skipped"}
    median = statistics.median(contestant.milliseconds)
    values = dict(contestant.values)
    moved = values.pop("bytes", None)
    if moved:
        values["bytes_per_second"] = moved / (median * 1e-3)
    ours = contestant.who.startswith("ch")
    for other in contestants:
        against = "as_it_is" if other.who.endswith("/as_it_is") else "before" if other.who == before(contestant) else other.who
        if other.skipped or other is contestant or other.called != contestant.called or against.startswith("ch"):
            continue
        ratio = statistics.median(b / a for a, b in zip(contestant.milliseconds, other.milliseconds))
        in_bf16 = bool(problem.encoded) and not other.encoded and against not in ("as_it_is", "before")  # peers without FP8 run in BF16
        if other.flops and (ours or not problem.encoded):  # the product has the problem's type
            values["of_" + against] = ratio * flops / other.flops
        elif ours and not other.flops:
            values["vs_" + against + "_bf16" * in_bf16] = ratio
    return found | {"real_time": median, "FLOPS": (contestant.flops or flops) / (median * 1e-3), "rounds": len(contestant.milliseconds),
                    "launches": contestant.launches, "spread": spread(contestant)} | values


def told(found):
    """Returns an entry, formatted for a terminal."""
    bytes_rate = f" {found['bytes_per_second'] / 1e12:6.3f} TB/s" if "bytes_per_second" in found else ""
    return f"{found['real_time']:10.4f} ms {found['FLOPS'] / 1e12:8.3f} TFLOP/s{bytes_rate}" + "".join(
        f"  {key[3:]} x{value:.3f}" for key, value in found.items() if key.startswith(("vs_", "of_")))


class Unfinished(Exception):
    """Raised if cells are left for another call."""


class File:
    """A result file that is complete after each cell, and can be continued."""

    def __init__(self, options, library):
        self.path, self.seconds, self.longest = options.out, options.seconds, 0.0
        this = context(library)
        self.whole = {"context": this | {"calls": [this]}, "benchmarks": []}
        if options.resume and self.path.exists():
            before = json.loads(self.path.read_text())
            for key in SAME:
                if before["context"].get(key) != this.get(key):
                    raise results.Refused(f"{self.path} was started with the {key} {before['context'].get(key)}, and this call has {this.get(key)}: "
                                          "use the same, or write to another file")
            self.whole = {"context": this | {"calls": [*before["context"]["calls"], this]}, "benchmarks": before["benchmarks"]}
        self.done = {entry["cell"] for entry in self.whole["benchmarks"]}

    def begin(self, cell):
        """Returns the start time of a cell. Raises Unfinished if there may not be enough time for it."""
        now = time.monotonic()
        if self.seconds and now - BEGAN + 1.5 * self.longest + 2 > self.seconds:
            raise Unfinished(f"{cell} and later cells are left for another call with --resume")
        return now

    def add(self, cell, entries, begun):
        call = len(self.whole["context"]["calls"]) - 1
        self.whole["benchmarks"] += [entry | {"cell": cell, "call": call} for entry in entries]
        results.write(self.path, self.whole)
        self.longest = max(self.longest, time.monotonic() - begun)

    def lacks(self, contestants):
        """Returns the contestants that are installed; the others are reported once, with the command that installs
        them."""
        absent = self.whole["context"].setdefault("absent", {})
        for contestant in contestants:
            if contestant.install and contestant.who not in absent:
                absent[contestant.who] = f"{contestant.skipped}: {contestant.install}"
                print(f"{contestant.who} is left out: {absent[contestant.who]}", flush=True)
        return [contestant for contestant in contestants if not contestant.install]


def run(options, library, check, cells):
    """Measures every cell that the file lacks; the file is complete after each. `cells` maps a word to a function that takes a library and makes a
    problem, its contestants and its FLOPs; cells are made one at a time to reuse memory. `check(problem, contestants)` is called first."""
    file = File(options, library)
    shuffle = random.Random(SEED).shuffle
    cache_filler = torch.empty(1 << 28, device="cuda", dtype=torch.uint8)  # 256 MB, several times the size of any L2 cache
    earlier = options.before and Library(options.before)
    for cell, make in cells.items():
        if cell in file.done:
            continue
        begun = file.begin(cell)
        problem, contestants, flops = make(library)
        contestants = file.lacks(contestants)
        if earlier:
            kept, others, _ = make(earlier)  # the same problem again, since contestants have pointers into their own
            twins = [dataclasses.replace(twin, who=before(twin), keeps=(twin.keeps, kept)) for twin in others if twin.who.startswith("ch")]
            check(problem, contestants + twins)
            note_same_bits(contestants, twins)
            contestants += twins
        else:
            check(problem, contestants)
        race(contestants, options.rounds, shuffle, cache_filler)
        entries = [entry(problem, contestant, contestants, flops) for contestant in contestants]
        for contestant, found in zip(contestants, entries, strict=True):
            print(f"{found['name']:50}", (contestant.skipped and f"skipped: {contestant.skipped}") or told(found), flush=True)
        file.add(cell, entries, begun)
        del problem, contestants
        torch.cuda.empty_cache()


# ---- the program -------------------------------------------------------------------------------------------------------------------


def command():
    """Returns the command line, with paths relative to the root of this tree."""
    return " ".join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]).replace(f"{results.ROOT}/", "")


def packages():
    """Returns {distribution: version} of the installed packages with peers."""
    found = {}
    for name in DISTRIBUTIONS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def context(library):
    """Returns the machine's description in the result file."""
    asked = subprocess.run(["nvidia-smi", "-i", "0", "--query-gpu=driver_version,clocks.max.sm,clocks.max.mem,power.limit,uuid,memory.total",
                            "--format=csv,noheader"], capture_output=True, text=True)
    found = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "command": command(), "machine": "gpu",
             "gpu": torch.cuda.get_device_name(), "runtime": f"CUDA {torch.version.cuda}", "toolkit": library.toolkit(),
             "pytorch": torch.__version__, "cudnn": str(torch.backends.cudnn.version()), "commit": results.commit()}
    if asked.returncode == 0:
        driver, sm, memory, power, uuid, total = asked.stdout.splitlines()[0].split(", ")
        clocks = f"SM up to {sm}, memory {memory}, power limit {power.replace('.00 ', ' ')}"
        found |= {"driver": driver, "clocks": clocks, "gpu_uuid": uuid, "memory": total}
    found["packages"] = packages()
    return found | {f"ch{chapter.number:02}": chapter.title.decode() for chapter in library.chapters()}


def add_options(parser):
    """Adds the options of every program that races."""
    parser.add_argument("--library", type=pathlib.Path, help="default: build/gpu/lib/libflashbook.so, or libablation.so in the same folder")
    parser.add_argument("--before", type=pathlib.Path, help="the libflashbook.so of another commit, timed interleaved with this one; needs --out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, help="write to this file instead of bench/results/<gpu>/")
    add_calls(parser)


def add_layout(parser):
    """Adds the option of every program that times attention: a bench covers both layouts
    (tests/bench/layouts_test.py)."""
    parser.add_argument("--layout", **some_of(LAYOUTS, "memory layouts of the tensors"))


def some_of(known, what=""):
    """Returns the arguments of an option that takes a comma-separated list of some of these words, or none; default: all."""

    def words(text):
        if unknown := [word for word in text.split(",") if word not in (*known, "none")]:
            raise argparse.ArgumentTypeError(f"{unknown[0]} is unknown: use a comma-separated list of {','.join(known)}, or none")
        return [word for word in text.split(",") if word != "none"]

    return {"type": words, "default": list(known), "help": f"{what}{what and ': '}some of {','.join(known)} (default: all)"}


def in_layout(word: str, layout: str) -> str:
    """Returns a mask's name in the names of results."""
    return word if layout == LAYOUTS[0] else f"{word}_{layout}"


def randn(layout, batch, heads, rows, head_dim, dtype):
    """Returns normal random numbers as a view [batch, heads, rows, head_dim] of a tensor in the given layout."""
    made = lambda *sizes: torch.randn(*sizes, device="cuda", dtype=dtype)
    return made(batch, heads, rows, head_dim) if layout == "bhsd" else made(batch, rows, heads, head_dim).transpose(1, 2)


def set_strides(shape, **tensors):
    """Sets the strides of views [batch, heads, rows, head_dim]."""
    shape.set_strides(**{name: tensor.stride() for name, tensor in tensors.items()})


def add_calls(parser):
    """Adds the options of a race that can be split into several calls."""
    parser.add_argument("--resume", action="store_true", help="continue the file of --out")
    parser.add_argument("--seconds", type=float, default=0, help="start no cell that may end later; exit code 75 if some are left")


def whole_numbers(text):
    """Returns [512, 4096] of "512,4k"."""
    return [int(word[:-1]) * 1024 if word[-1:] in "kK" and word else int(word) for word in text.split(",")]


def pytorch(program):
    """Returns PyTorch, if it is installed and sees a GPU; otherwise None, with the reason on stderr."""
    global torch  # noqa: PLW0603
    try:
        import torch
    except ImportError:
        print(f"{program} needs PyTorch with CUDA (pip install torch); without it, bench/forward times our kernels alone", file=sys.stderr)
        return None
    if not torch.cuda.is_available():
        print(f"PyTorch sees no GPU: {program} times kernels on one", file=sys.stderr)
        return None
    return torch


def measure(program, options, run, target="flashbook_shared"):
    """Runs `run(options, library)`, which writes options.out, and files the result unless the user named the file. Returns the exit code."""
    options.library = options.library or results.ROOT / "build" / "gpu" / "lib" / f"lib{target.removesuffix('_shared')}.so"
    if options.rounds < 1:
        print(f"{program}: --rounds must be at least 1, and 5 for results", file=sys.stderr)
        return 2
    if options.before and not (options.out and options.before.exists()):
        missing = "--out FILE is" if options.before.exists() else f"{options.before} is"
        print(f"{program}: {missing} missing: --before compares with another build, which is not filed", file=sys.stderr)
        return 2
    if options.resume and not options.out:
        print(f"{program}: --resume continues the file of --out: name it", file=sys.stderr)
        return 2
    if not options.library.exists():
        print(f"{options.library} is missing: cmake --build --preset gpu --target {target}", file=sys.stderr)
        return 2
    return filed(program, options, lambda: run(options, Library(options.library)))


def filed(program, options, run):
    """Runs `run()`, which writes options.out, and files the result unless the user named the file. Returns the exit code."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            keep = options.out
            options.out = keep or pathlib.Path(folder) / "measured.json"
            run()
            print(keep or results.add(options.out))
    except Wrong as reason:
        print(f"{program}: wrong: {reason}", file=sys.stderr)
        return 1
    except Unfinished as reason:
        print(f"{program}: {reason}", file=sys.stderr)
        return UNFINISHED
    except results.Refused as reason:
        print(f"{program}: {reason}", file=sys.stderr)
        return 2
    return 0
