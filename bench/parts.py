"""The parts of a release (bench/release), most important first: the program, the names of its results, and the estimated time.

Pages may quote only numbers that a part here measures: the test bench.release compares their names with `gives`.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

from bench import ncu_bytes, steps
from bench.as_called import PACKED
from bench.race import LAYOUTS, in_layout

ROOT = pathlib.Path(__file__).resolve().parents[1]
BIN, LIBRARY = ROOT / "build/gpu/bin", ROOT / "build/gpu/lib/libflashbook.so"
FILES = ("machine", "forward", "fp8", "backward", "decode", "caches", "masked", "studies", "many")
ROUNDS = "3"
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
DIMS, MASKS = (64, 128, 256), ("full", "causal")
SHARED = ("flashbook_shared",)
Commands = Callable[[pathlib.Path], list[list[str]]]  # for a result file


@dataclasses.dataclass(frozen=True)
class Part:
    """A command of a release, or several."""

    name: str
    file: str  # a key of FILES; "" writes no result
    seconds: float  # estimated, on an H200
    what: str
    commands: Commands
    gives: str = ""  # a regular expression for the names of its results
    targets: tuple[str, ...] = SHARED  # targets that must be built
    resumes: bool = False  # whether the program can continue its file
    cards: int = 1


def words(values: Iterable[Any]) -> str:
    return ",".join(map(str, values))


def either(values: Iterable[Any]) -> str:
    return f"({'|'.join(map(str, values))})"


def names(kind: str, who: str, dtype: str = "bf16", dims: Iterable[int] = DIMS, masks: Iterable[str] = MASKS,
          lengths: Iterable[int] = LENGTHS) -> str:
    """Returns a regular expression for the names of a grid."""
    return rf"{kind}/{who}/{dtype}/d{either(dims)}/{either(masks)}/n{either(lengths)}"


def race(program: str, *options: str) -> Commands:
    return lambda out: [["python3", f"bench/{program}", *options, "--rounds", ROUNDS, "--out", str(out)]]


def grid(name: str, file: str, seconds: float, what: str, ours: Iterable[str], peers: Iterable[str] = (), dims: Iterable[int] = DIMS,
         masks: Iterable[str] = MASKS, lengths: Iterable[int] = LENGTHS, dtype: str = "bf16", layout: str = LAYOUTS[0]) -> Part:
    """Runs peers.py over a grid of shapes."""
    who = [*ours]
    command = race("peers.py", "--dtype", dtype, "--step", words(who), "--peers", words(peers) or "none", "--head-dim", words(dims),
                   "--mask", words(masks), "--seqlen", words(lengths), "--layout", layout)
    who += [peer + "_bf16" * (dtype == "e4m3" and peer not in ("product", "cudnn_frontend", "fa3")) for peer in peers]
    named = [in_layout(mask, layout) for mask in masks]
    return Part(name, file, seconds, what, command, names("forward", either(who), dtype, dims, named, lengths), resumes=True)


def program(name: str, *options: str) -> Commands:
    return lambda out: [[str(BIN / name), *options, str(out)]]


def counted(out: pathlib.Path) -> list[list[str]]:
    """Returns the bytes counted by Nsight Compute, compared with the models of chapters 1 and 3."""
    shape = "--batch 1 --heads 8 --kv-heads 8 --seqlen 8k --head-dim 128"
    command_by_name = {"ncu/ch01/register_tile/bf16/d128/full/n8192": f"01_naive_attention --step register_tile {shape}"}
    for dim, heads in ((128, 16), (64, 32)):
        for step in steps.of(3):
            command_by_name[f"ncu/{step.name}/bf16/d{dim}/full/n4096"] = (f"03_flash_attention_1 --step {step.slug} --batch 4 --heads {heads} "
                                                                          f"--kv-heads {heads} --seqlen 4k --head-dim {dim}")
    counters, report = str(out.parent / "counters.csv"), str(out.parent / "counted.txt")
    found = [[str(BIN / "forward"), "--chapter", "1", "--step", "register_tile", "--dtype", "bf16", "--head-dim", "128", "--mask", "full",
              "--seqlen", "512", "--max-seconds", "0", "--out", str(out)]]  # any result of this machine, for its context
    for name, command in command_by_name.items():
        chapter, *options = command.split()
        found.append(["ncu", "--clock-control", "none", "--metrics", ",".join(ncu_bytes.MEMORY + ncu_bytes.L2), "--csv", "--print-units", "base",
                      "--log-file", counters, str(BIN / chapter), *options, "--dtype", "bf16", "--reps", "1", "--check", "off", "--json", report])
        found.append(["python3", "bench/ncu_bytes.py", *["--tell"] * ("split_k" in name), counters, report, str(out), name])
    return found


def built(_: pathlib.Path) -> list[list[str]]:
    architectures, only = os.environ.get("FLASHBOOK_ARCHITECTURES"), os.environ.get("FLASHBOOK_ONLY_RELEASE")
    return [["cmake", "--preset", "gpu", *([f"-DCMAKE_CUDA_ARCHITECTURES={architectures}"] if architectures else [])],
            ["cmake", "--build", "--preset", "gpu", "-j", str(os.cpu_count()), *(["--target", *targets()] if only else [])]]


def packaged() -> list[str]:
    """Makes Python import the package of this tree."""
    return ["env", f"PYTHONPATH={ROOT / 'python'}", f"FLASHBOOK_LIBRARY={LIBRARY}", "FLASHBOOK_REQUIRE_GPU=1", "python3"]


def tested(_: pathlib.Path) -> list[list[str]]:
    """Runs every test except that of quoted numbers, which are known only after a release."""
    return [["env", "FLASHBOOK_REQUIRE_GPU=1", "ctest", "--preset", "gpu-all", "-j", "8", "-E", r"bench\.quote"],
            [*packaged(), "-m", "pytest", "-q", "python/tests"]]


def sanitized(_: pathlib.Path) -> list[list[str]]:
    """Runs compute-sanitizer's four tools on small shapes of every chapter with kernels, without their false alarms (docs/pages/golden.md)."""
    packed = "--lengths 100,37,0,131 --heads 2 --head-dim 128 --causal"
    extra_shapes = {"06": ["--scaling block --heads 2 --seqlen 50 --seqlen-k 131 --head-dim 64 --layout bshd"],
                  "08": ["--step latent --head-dim 576 --heads 64 --kv-heads 1 --seqlen 1 --seqlen-k 131"],
                  "09": ["--step backward --heads 2 --kv-heads 1 --seqlen 100 --seqlen-k 131 --head-dim 64 --causal", packed,
                         f"--step backward {packed}"]}
    small = ["--heads 2 --kv-heads 1 --seqlen 100 --seqlen-k 131 --head-dim 64", "--heads 1 --seqlen 65 --head-dim 128 --causal"]
    chapters = sorted(path.parts[-3] for path in ROOT.glob("chapters/*/host/chapter.cu"))
    return [["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", str(BIN / chapter), "--batch", "1", *shape.split(), "--reps", "1"]
            for chapter in chapters for shape in [*small, *extra_shapes.get(chapter[:2], [])]
            for tool in ("memcheck", "initcheck", "synccheck", "racecheck")
            if not (tool == "racecheck" and shape.startswith(("--step backward --lengths", "--step latent")))
            and not (tool == "synccheck" and chapter.startswith("08") and shape in small)]


def script(path: str, *options: str) -> Commands:
    """Returns a program that calls the package."""
    return lambda out: [[*packaged(), path, *options, "--out", str(out)]]


def train_text(*options: str) -> Commands:
    """Returns python/examples/train_text.py."""
    return script("bench/example.py", *options)


def many_on_two_cards(out: pathlib.Path) -> list[list[str]]:
    """Runs chapter 10's race."""
    return [["python3", "bench/many.py", "--rounds", ROUNDS, "--out", str(out)]]


BESIDE = ("cudnn", "cudnn_frontend", "flash", "fa3", "fa4")  # compared with chapter 5 in every cell
LADDER_PEERS = (*BESIDE, "eager", "product")
BOOK_STEPS = [name for chapter in (1, 3, 4, 5) for name in steps.names(chapter)]
EVERY_STEP = either([*BOOK_STEPS, *steps.names(6)])
FULL, AT_4K, LONGEST = ("full",), (4096,), (512, 4096, 16384)
DECODE_PEERS = "cudnn,flash,cudnn_paged,flashinfer,flashinfer_tc"
CHUNK_PEERS = ("cudnn_paged", "flashinfer_fa2", "flashinfer_fa3")
DECODE = (rf"decode/(ch08/{either([step.slug for step in steps.of(8)][:-1])}(_p\d+)?(_once)?|cudnn|flash|flex|copy"
          r"|(cudnn_paged|flashinfer|flashinfer_tc)_p\d+)/bf16/d(128|256|576)/\w+/n\d+")
CELLS = (r"(decode|called)/(ch08/(equal_work|boxes|warpgroup)|ch09/prompts|fa3|cudnn|cudnn_frontend|flashinfer(_tc|_fa2|_fa3)?)"
         rf"/bf16/d{either((64, 128, 256))}/b\d+h\d+k\d+t\d+(ragged)?_{either(LAYOUTS)}(_p\d+)?/n\d+")
CALLED = (rf"(called|alone)/(ch\d\d/\w+|fa3|cudnn)/bf16/d{either((*DIMS, 192))}"
          rf"/(forward|backward)(_packed_{either(PACKED)}|_window\d+)?_h\d+k\d+_{either(MASKS)}/n\d+")
ROWS = r"\w+(?<!_bshd)"  # a mask on [batch, heads, seqlen, d]
MASKED = (r"masked/(ch09/(dense|varlen|ranges|flashmask|mask_functions)|ch05/persistent|flex|varlen|flash2|fa3|dense|cudnn)"
          r"/bf16/d(128|192)/{}/n\d+")
NEW_GRADIENTS = [step.slug for step in steps.of(7)][1:]  # the first is measured at fewer lengths
GRADIENTS = names("backward", rf"(ch07/{either(NEW_GRADIENTS)}|\w+)")

PARTS = (
    grid("ladder", "forward", 40, "every step of chapters 1, 3, 4 and 5 and every peer, at the ladder's shape",
         BOOK_STEPS, LADDER_PEERS, (128,), FULL, AT_4K),
    grid("forward", "forward", 135, "the last steps of these chapters and the peers, every shape of the papers",
         ("ch01/register_tile", "ch01/wmma", "ch03/split_k", "ch04/late_maximum", "ch05/persistent"), (*BESIDE, "eager")),
    grid("fp8", "fp8", 90, "chapter 6's steps 5 to 9 and the peers in FP8, every shape",
         (*steps.names(6)[4:], "ch06/transpose_once_means"), ("cudnn_frontend", "fa3"), dtype="e4m3"),
    grid("fp8_ladder", "fp8", 20, "every step of chapter 6, N 4096, no mask",
         steps.names(6), ("cudnn", "cudnn_frontend", "fa3", "product"), masks=FULL, lengths=AT_4K, dtype="e4m3"),
    Part("fp8_errors", "studies", 15, "errors of long rows in FP8, ours and the peers'", race("long_rows.py"), r"long/(ones|halves)/.*",
         resumes=True),
    grid("fp8_long", "fp8", 30, "chapter 6's two ways to sum and the peers, 32k to 128k keys", ("ch06/transpose_once", "ch06/promoted_sums"),
         ("cudnn_frontend", "fa3"), (128,), lengths=(32768, 65536, 131072), dtype="e4m3"),
    Part("backward", "backward", 160, "chapter 7's steps and the peers, every shape",
         race("backward.py", "--step", words(NEW_GRADIENTS), "--seqlen", words(LENGTHS), "--layout", LAYOUTS[0]), GRADIENTS, resumes=True),
    Part("cells", "caches", 330, "caches as used in practice, in both layouts, on the GPU alone and as called",
         race("decode.py"), CELLS, resumes=True),
    Part("as_called", "studies", 320, "the Python package's other calls, as called, on [batch, seqlen, heads, d]", race("as_called.py"), CALLED,
         resumes=True),
    Part("decode", "decode", 65, "one query per sequence: chapter 8 and the peers", race("decode.py", "--one-query", "--peers", DECODE_PEERS), DECODE,
         resumes=True),
    Part("prefill", "decode", 20, "chunks of prompts against pages: chapters 8 and 9 and the peers",
         race("decode.py", "--prefill", "--peers", words(CHUNK_PEERS)),
         rf"decode/(ch08/equal_work_p64|(ch09/prompts|{either(CHUNK_PEERS)})_p(16|64))/bf16/d128/(b8h32k8chunks/n16384|b34h32k8mixed/n4096)",
         resumes=True),
    Part("masked", "masked", 70, "chapter 9 and the peers with every mask", race("masks.py", "--layout", LAYOUTS[0]), MASKED.format(ROWS),
         resumes=True),
    Part("masked_backward", "masked", 65, "the same for gradients", race("masks.py", "--backward", "--layout", LAYOUTS[0]),
         rf"masked/(ch09/backward(_bias)?|flex_backward)/bf16/d(128|192)/{ROWS}/n\d+", resumes=True),
    grid("forward_bshd", "forward", 60, "the last step and the fastest peers on [batch, seqlen, heads, d]", ("ch05/persistent",),
         ("cudnn", "cudnn_frontend", "fa3"), layout="bshd"),
    Part("backward_bshd", "backward", 60, "the same for gradients",
         race("backward.py", "--step", "persistent,deterministic", "--peers", "cudnn,cudnn_frontend,fa3", "--layout", "bshd"),
         names("backward", r"(ch07/(persistent|deterministic)|cudnn|cudnn_frontend|fa3)", masks=("full_bshd", "causal_bshd"),
               lengths=(512, 1024, 4096, 16384)), resumes=True),
    Part("masked_bshd", "masked", 50, "chapter 9 and FlashAttention-3 on [batch, seqlen, heads, d]",
         race("masks.py", "--peers", "fa3", "--layout", "bshd"), MASKED.format(r"\w+_bshd"), resumes=True),
    Part("masked_backward_bshd", "masked", 30, "chapter 9's gradients on [batch, seqlen, heads, d]",
         race("masks.py", "--backward", "--peers", "none", "--layout", "bshd"), r"masked/ch09/backward(_bias)?/bf16/d(128|192)/\w+_bshd/n\d+",
         resumes=True),
    grid("short_long", "forward", 40, "lengths from 64 to 256, and 32k and 64k", ("ch05/persistent",), ("cudnn", "flash", "eager"), (64, 128),
         lengths=(64, 128, 256, 32768, 65536)),
    grid("steps5", "forward", 35, "chapter 5's steps 1 to 4 against cuDNN, at three lengths", steps.names(5)[:-1], ("cudnn",), lengths=LONGEST),
    grid("steps4", "forward", 12, "chapter 4's steps against FlashAttention-2, N 4096", steps.names(4), ("flash",), (64, 256), FULL, AT_4K),
    grid("steps4_5", "forward", 12, "step 5 of chapter 4 at a short and a long N", ("ch04/tuned",), ("flash",), (64, 256), lengths=(512, 8192)),
    grid("steps3", "forward", 10, "chapter 3's steps 1 and 2 at a short and a long N", steps.names(3)[:2], (), (128,), FULL, (1024, 16384)),
    Part("backward_first", "backward", 20, "step 1 of chapter 7",
         race("backward.py", "--step", "two_passes", "--peers", "none", "--layout", LAYOUTS[0]),
         names("backward", "ch07/two_passes", lengths=(512, 1024, 4096, 16384)), resumes=True),
    Part("many", "many", 120, "chapter 10 on two cards", many_on_two_cards, r"(many|machine/hop)/.*", ("many", *SHARED), resumes=True, cards=2),
    Part("resources", "machine", 30, "registers, shared memory and occupancy of every kernel",
         program("forward", "--chapter", "1,3,4,5,6", "--dtype", "bf16,e4m3", "--mask", "full", "--seqlen", "4096", "--max-seconds", "0", "--out"),
         names("forward", EVERY_STEP, "(bf16|e4m3)", masks=FULL, lengths=AT_4K), ("forward",)),
    Part("machine", "machine", 5, "chapter 0: the card's times for a load, a product, an exponential", program("00_the_machine", "--json"),
         r"machine/[\w/]+", ("00_the_machine",)),
    Part("flex_decode", "decode", 20, "FlexAttention with one query per sequence",
         race("decode.py", "--one-query", "--shape", "2", "--step", "equal_work", "--peers", "cudnn,flex", "--pages", "0"), DECODE, resumes=True),
    Part("blocks", "machine", 8, "chapter 3's tiles from 16 to 128, and its step 3 with chapter 4's tiles",
         program("forward", "--block-sizes", "--max-seconds", "0.1", "--out"), r"blocks/.*", ("forward",)),
    Part("timeline", "machine", 8, "time stamps from chapter 5's loops", program("timeline"), r"timeline/.*", ("timeline",)),
    Part("ablation", "machine", 35, "chapter 5's last step, one switch changed at a time", race("peers.py", "--ablation", "--seqlen", "4k,512,16k"),
         r"ablation/ch05/.*", ("ablation",), resumes=True),
    Part("ablation_04", "machine", 25, "chapter 4's step 5, one switch changed at a time, and step 4",
         race("peers.py", "--ablation", "--chapter", "4", "--seqlen", "4k,512"), r"ablation/ch04/.*", ("ablation",), resumes=True),
    Part("ablation_07", "machine", 20, "chapter 7's step 5, one switch changed at a time, and step 4",
         race("backward.py", "--ablation", "--seqlen", "4k,512"), r"ablation/ch07/.*", ("ablation",), resumes=True),
    Part("ablation_08", "machine", 8, "chapter 8's step 4, one switch changed at a time, and step 3",
         race("decode.py", "--ablation"), r"ablation/ch08/.*", ("ablation",), resumes=True),
    Part("gradients", "backward", 10, "errors of gradients for each kind of inputs", race("backward.py", "--accuracy"), r"gradients/.*"),
    Part("host", "machine", 15, "chapter 2 on the CPU",
         program("forward", "--chapter", "2", "--dtype", "f32", "--head-dim", "64", "--mask", "full", "--max-seconds", "0.3", "--out"),
         names("forward", either(steps.names(2)), "f32", (64,), FULL), ("forward",)),
    Part("counted", "machine", 30, "bytes counted by Nsight Compute", counted, r"ncu/.*", ("forward", "01_naive_attention", "03_flash_attention_1")),
    Part("python", "studies", 45, "the Python package against its C function", race("operators.py"), r"python/.*"),
    Part("accuracy", "studies", 55, "errors in f16 and FP8 against FP64", program("accuracy", "--out"), r"accuracy/.*", ("accuracy",)),
    Part("cpu", "machine", 60, "chapter 2's last step against PyTorch on 1, 2 and 16 cores", race("peers.py", "--cpu"), r"cpu/.*",
         ("02_online_softmax",)),
    Part("training", "studies", 125, "a small model trained with our attention and with PyTorch's", train_text(), r"training/.*"),
    *(Part(f"model_{length}", "studies", 35, f"training a model of GPT-2's size, also with eager attention, {length} tokens per sequence",
           train_text("--eager", "--width", "768", "--layers", "12", "--turn", "8", "--steps", "40", "--write", "4",
                   "--length", str(length), "--batch", str(16384 // length)),
           rf"training/(eager|sdpa|flashbook)_\w*w\d+l\d+/.*/n{length}") for length in (512, 1024, 2048, 4096)),
    Part("triton", "forward", 50, "chapter 5's step 2 in Triton", script("bench/in_triton.py", "--rounds", ROUNDS),
         names("triton", "(triton|cudnn|ch05/(single_warpgroup|specialised|persistent))", dims=(128,), lengths=(1024, 4096, 16384)), resumes=True),
    Part("long", "studies", 220, "errors of long rows",
         program("accuracy", "--long", "--batch", "1", "--heads", "8", "--seqlen", "65536", "--out"), r"long/(quarter|one|one_sign|all_equal)/.*",
         ("accuracy",)),
    Part("every", "forward", 300, "every step alone at every shape, for the tables",
         program("forward", "--chapter", "1,3,4,5,6", "--dtype", "bf16,e4m3", "--max-seconds", "0.05", "--out"),
         names("forward", EVERY_STEP, "(bf16|e4m3)"), ("forward",)),
)
ALONE = ("resources", "every")  # parts that time ours alone; interleaved results of the same name take precedence
ASKED_FOR = (Part("build", "", 260, "the gpu preset (FLASHBOOK_ONLY_RELEASE=1: only what a release runs)", built, targets=()),
             Part("test", "", 240, "ctest and the Python package's tests, on the card", tested, targets=()),
             Part("sanitize", "", 200, "memcheck, initcheck, synccheck and racecheck on small shapes", sanitized, targets=()))


def targets() -> list[str]:
    return sorted({target for part in PARTS for target in part.targets})
