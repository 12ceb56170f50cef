#!/usr/bin/env python3
"""A slow model and its fixes, for docs/pages/symptoms.md.

    diagnosis.py [--out FILE] [--library FILE]     times a step of the slow model, and after each fix
    diagnosis.py --profile found|mask|causal|ours  one step under PyTorch's profiler

The model is that of python/examples/train_text.py, as large as GPT-2, with weights in BF16. The slow version converts q, k and v to
float32, a precaution for the softmax, and passes the causal mask as a tensor, a leftover from padded batches. Nothing fails, and the loss is right.

    found     float32 and the mask
    mask      BF16, still with the mask
    causal    BF16, is_causal=True
    ours      flash_attn_func

`utilisation` is the step's FLOPs over its time, as a fraction of PEAK. The FLOPs are 6 per weight and token, plus 3 times the causal half of
attention's forward pass.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "python"), str(ROOT / "python" / "examples")]  # the packages, for python3 bench/diagnosis.py

from bench import race
from bench.names import Name

VARIANTS = {"found": "float32, and the mask as a tensor", "mask": "BF16, the mask as a tensor", "causal": "BF16, is_causal",
            "ours": "flash_attn_func"}
PEAK = 989e12  # BF16 FLOPS of an H100 or H200, from NVIDIA's datasheet
WIDTH, HEADS, LAYERS = 768, 12, 12
BATCH, LENGTH = 4, 2048
ROUNDS, STEPS = 5, 4
torch: Any = None


def attention(variant, causal):
    """Returns the model's attention function on q, k, v [batch, length, heads, head_dim]; causal: the mask as a
    tensor."""
    from torch.nn.functional import scaled_dot_product_attention

    from flashbook import flash_attn_func

    def attend(q, k, v):
        if variant == "ours":
            return flash_attn_func(q, k, v, causal=True)
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
        if variant == "found":
            return scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=causal).to(v.dtype).transpose(1, 2)
        how = {"attn_mask": causal} if variant == "mask" else {"is_causal": True}
        return scaled_dot_product_attention(q, k, v, **how).transpose(1, 2)

    return attend


class Training:
    """A model, its data and a step."""

    def __init__(self, variant, batch, length, device, size=(WIDTH, HEADS, LAYERS)):
        import train_text  # type: ignore[import-not-found]

        torch.manual_seed(1)
        self.model = train_text.Gpt(*size, "sdpa").to(device).bfloat16()
        self.optimizer = train_text.optimizer_of(self.model)
        self.text = torch.randint(256, (batch, length + 1), device=device)
        attend = attention(variant, torch.ones(length, length, dtype=torch.bool, device=device).tril())
        for block in self.model.blocks:
            block.attention.attend_whole = attend
        weights = sum(weight.numel() for name, weight in self.model.named_parameters() if weight.dim() == 2 and name != "tokens.weight")
        width, _, layers = size
        self.flops = batch * length * (6 * weights + 3 * 2 * length * width * layers)

    def step(self):
        loss = torch.nn.functional.cross_entropy(self.model(self.text[:, :-1]).flatten(0, 1).float(), self.text[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def run(options, library):
    whole = {"context": race.context(library), "benchmarks": []}
    trained = {variant: Training(variant, BATCH, LENGTH, "cuda") for variant in VARIANTS}
    losses = {variant: training.step().item() for variant, training in trained.items()}
    spread = max(losses.values()) - min(losses.values())
    print(", ".join(f"{variant} {loss:.4f}" for variant, loss in losses.items()), flush=True)
    if not spread < 0.02:
        raise race.Wrong(f"first losses differ by {spread:.4f}")
    times: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    peaks = {}
    for turn in range(ROUNDS):
        for variant in sorted(VARIANTS, reverse=bool(turn % 2)):
            trained[variant].step()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            held = torch.cuda.memory_allocated()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(STEPS):
                trained[variant].step()
            end.record()
            torch.cuda.synchronize()
            times[variant].append(begin.elapsed_time(end) / STEPS)
            peaks[variant] = (torch.cuda.max_memory_allocated() - held) / 1e9
    for variant, label in VARIANTS.items():
        median, training = statistics.median(times[variant]), trained[variant]
        name = str(Name("training", f"diagnosis_{variant}", "bf16", WIDTH // HEADS, "causal", LENGTH))
        found = {"name": name, "run_name": name, "run_type": "iteration", "iterations": ROUNDS * STEPS, "real_time": median, "cpu_time": 0.0,
                 "time_unit": "ms", "label": label, "FLOPS": training.flops / median * 1e3, "utilisation": training.flops / median * 1e3 / PEAK,
                 "peak_gbytes": peaks[variant], "batch": BATCH, "first_loss": losses[variant],
                 "vs_found": statistics.median(a / b for a, b in zip(times["found"], times[variant]))}
        whole["benchmarks"].append(found)
        print(f"{name:48} {median:8.2f} ms, {found['utilisation']:.1%} of the peak, x{found['vs_found']:.2f}, {peaks[variant]:.1f} GB")
    options.out.write_text(json.dumps(whole, indent=1) + "\n")


def profiled(variant):
    """Returns the table of PyTorch's profiler for one step: kernels by time."""
    from torch.profiler import ProfilerActivity, profile

    training = Training(variant, BATCH, LENGTH, "cuda")
    training.step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        training.step()
        torch.cuda.synchronize()
    kernels: dict[str, list[float]] = {}
    for event in seen.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels.setdefault(event.name, []).append(event.time_range.elapsed_us() / 1e3)
    total = sum(map(sum, kernels.values()))
    print(f"{variant}: {VARIANTS[variant]}. One step, {total:.1f} ms of kernels")
    for name, times in sorted(kernels.items(), key=lambda item: -sum(item[1]))[:6]:
        print(f"{sum(times) / total:6.1%} {sum(times):8.2f} ms {len(times):5} x  {name[:90]}")


def main():
    global torch  # noqa: PLW0603
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", choices=VARIANTS)
    parser.add_argument("--library", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.set_defaults(before=None, rounds=1, resume=False)
    options = parser.parse_args()
    os.environ["FLASHBOOK_LIBRARY"] = str(options.library or ROOT / "build" / "gpu" / "lib" / "libflashbook.so")
    torch = race.torch = race.pytorch("diagnosis.py")
    if torch is None:
        return 77
    if options.profile:
        return profiled(options.profile)
    return race.measure("diagnosis.py", options, run)


if __name__ == "__main__":
    sys.exit(main())
