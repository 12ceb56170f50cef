#!/usr/bin/env python3
"""Measures what a longer context is worth: one model, trained for the same time at several lengths, then scored on the same bytes.

    longer_context.py [--seconds 20] [--arms eager:1024,flashbook:1024,flashbook:2048,flashbook:4096] [--batch 32] [--out FILE]

An arm is an attention function and a length. All arms start from the same weights, take turns of a second each, and see the same number of bytes per
step: `batch` sequences of 1024, or half as many of 2048. They train on the Python sources of this interpreter's packages, which are long and full of
recurring names. One file in thirty is held out. Held-out files that are long enough are cut into windows as long as the longest arm, and the last 256
bytes of each window are scored. All arms predict the same bytes, each with as much of the window as its own length covers. `loss` is the mean in nats
per byte, `gain` is how far it is below that of the first arm, and `gain_error` is the standard error of the gain over windows, which does not
cover other seeds.
"""

import argparse
import pathlib
import random
import statistics
import sys
import sysconfig
import time

import torch
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from train_text import SIZE, Gpt, optimizer_of, parameters, row_of, step, write_file  # type: ignore[import-not-found]

SCORED = 256  # scored bytes at the end of a window
SLICE = 1.0  # seconds per turn
TOKENS_OF = 1024  # --batch counts sequences of this length
WARM = 3  # untimed steps of an arm


def sources(most: int) -> tuple[bytes, list[bytes]]:
    """Returns the training text and the held-out files, from the installed packages, in an order that depends only on
    names."""
    packages = pathlib.Path(sysconfig.get_paths()["purelib"])
    files = sorted(path for path in packages.rglob("*.py") if path.is_file())
    random.Random(1).shuffle(files)
    held = [path.read_bytes() for path in files[::30]]
    text = bytearray()
    for place, path in enumerate(files):
        if len(text) < most and place % 30:
            text += path.read_bytes() + b"\n\n"
    return bytes(text), held


def windows(held: list[bytes], length: int, count: int) -> torch.Tensor:
    """Returns [count, length + 1]: windows of held-out files."""
    long = [file for file in held if len(file) > length]
    if not long:
        raise ValueError(f"no held-out file has {length + 1} bytes: use shorter arms")
    choose = random.Random(2)
    rows = []
    for i in range(count):
        file = long[i % len(long)]
        first = choose.randrange(len(file) - length)
        rows.append(torch.frombuffer(bytearray(file[first:first + length + 1]), dtype=torch.uint8))
    return torch.stack(rows)


@torch.no_grad()
def scores(model: Gpt, rows: torch.Tensor, length: int, batch: int) -> list[float]:
    """Returns the mean loss of each window's last bytes, given the last `length` bytes of the window."""
    told: list[float] = []
    for part in rows[:, -length - 1:].split(batch):
        part = part.long()
        with torch.autocast(part.device.type, dtype=torch.bfloat16):
            logits = model(part[:, :-1])[:, -SCORED:].float()
        told += F.cross_entropy(logits.flatten(0, 1), part[:, -SCORED:].flatten(), reduction="none").view(len(part), -1).mean(1).tolist()
    return told


class Arm:
    """One model in training."""

    def __init__(self, word: str, options: argparse.Namespace, device: torch.device) -> None:
        self.kernel, _, length = word.partition(":")
        self.length = int(length)
        self.batch = max(1, options.batch * TOKENS_OF // self.length)
        torch.manual_seed(1)
        self.model = Gpt(options.width, max(1, options.width // 64), options.layers, self.kernel).to(device)
        self.optimizer = optimizer_of(self.model)
        self.generator = torch.Generator().manual_seed(2)
        self.seconds, self.steps = 0.0, 0
        self.losses: list[float] = []

    def train(self, text: torch.Tensor, until: float, budget: float) -> None:
        """Trains for this many seconds; the learning rate falls with the spent part of the budget."""
        while self.seconds < until:
            start = time.perf_counter()
            first = torch.randint(len(text) - self.length - 1, (self.batch, 1), generator=self.generator).to(text.device)
            batch = text[first + torch.arange(self.length + 1, device=text.device)].long()
            rate = 6e-4 * min(1, (self.steps + 1) / 50) * (1 - 0.9 * min(1, self.seconds / budget))
            self.losses.append(step(self.model, self.optimizer, batch, rate).item())  # waits
            self.steps += 1
            self.seconds += time.perf_counter() - start if self.steps > WARM else 0  # the first steps load kernels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="training time per arm")
    parser.add_argument("--arms", default="eager:1024,flashbook:1024,flashbook:2048,flashbook:4096")
    parser.add_argument("--batch", type=int, default=32, help=f"sequences of {TOKENS_OF} bytes per step; proportionally fewer if longer")
    parser.add_argument("--windows", type=int, default=512)
    parser.add_argument("--width", type=int, default=SIZE[0])
    parser.add_argument("--layers", type=int, default=SIZE[1])
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    if options.out and not torch.cuda.is_available():
        parser.error("--out needs a GPU, and PyTorch sees none")
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    train_on, held = sources(200_000_000 if device.type == "cuda" else 1_000_000)
    text = torch.frombuffer(bytearray(train_on), dtype=torch.uint8).to(device)
    arms = [Arm(word, options, device) for word in options.arms.split(",")]
    longest = max(arm.length for arm in arms)
    rows = windows(held, longest, options.windows).to(device)
    print(f"{parameters(arms[0].model) / 1e6:.1f} M parameters, {len(text) / 1e6:.0f} MB to train on, {len(rows)} windows", file=sys.stderr)
    until = 0.0
    while until < options.seconds:
        until = min(options.seconds, until + SLICE)
        for arm in arms:
            arm.train(text, until, options.seconds)
        print(f"{until:.0f} s", *(f"{arm.kernel}:{arm.length} {arm.losses[-1]:.3f}" for arm in arms), file=sys.stderr, flush=True)
    found: list[list[float]] = []
    results = []
    for arm in arms:
        found.append(scores(arm.model, rows, arm.length, max(1, 65536 // arm.length if device.type == "cuda" else 4)))
        gains = [a - b for a, b in zip(found[0], found[-1])]
        values = {"loss": statistics.fmean(found[-1]), "gain": statistics.fmean(gains), "gain_error": statistics.stdev(gains) / len(gains) ** 0.5,
                  "train_seconds": arm.seconds, "steps": arm.steps, "batch": arm.batch, "bytes_seen": arm.steps * arm.batch * arm.length,
                  "windows": len(rows), "text_bytes": len(text), "parameters": parameters(arm.model)}
        name = f"training/{arm.kernel}_by_time/bf16/d{arm.model.head_dim}/causal/n{arm.length}"
        results.append(row_of(name, arm.kernel, arm.seconds / max(1, arm.steps - WARM) * 1e3, argparse.Namespace(steps=arm.steps), **values))
        print(f"{name}: {arm.steps} steps, {values['bytes_seen'] / 1e6:.0f} MB seen, loss {values['loss']:.4f}, "
              f"{values['gain']:+.4f} ± {values['gain_error']:.4f} below the first arm's")
    if options.out:
        write_file(options.out, results, text=f"Python sources of the installed packages, {len(text) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
