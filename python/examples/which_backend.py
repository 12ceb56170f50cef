#!/usr/bin/env python3
"""Which kernel PyTorch's scaled_dot_product_attention takes for a call, and what the others say against it.

    which_backend.py [--log]

For each call on a GPU: the kernel that the default took, as the profiler saw it, and for each kernel that was allowed alone whether it ran.
What PyTorch warns of when such a one refuses is its reason, and is printed below the table. --log calls it once in a compiled function and once
without, and nothing else, so that TORCH_LOGS="+dynamo" has something to tell.
"""

import argparse
import sys
import warnings

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile

KERNELS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
           "math": SDPBackend.MATH}
SHAPE = 2, 8, 1024  # batch, heads, length


def tensors(head_dim: int = 64, dtype: torch.dtype = torch.bfloat16, queries: int = SHAPE[2], device: str = "cuda") -> list[torch.Tensor]:
    batch, heads, length = SHAPE
    return [torch.randn(batch, heads, rows, head_dim, device=device, dtype=dtype) for rows in (queries, length, length)]


def calls(device: str = "cuda") -> dict[str, tuple[list[torch.Tensor], dict[str, object]]]:
    """What is asked, in words, with its tensors and options."""
    length = SHAPE[2]
    hidden = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    return {"bf16, causal": (tensors(device=device), {"is_causal": True}),
            "the same mask as a tensor": (tensors(device=device), {"attn_mask": hidden}),
            "float32, causal": (tensors(dtype=torch.float32, device=device), {"is_causal": True}),
            "head_dim 256": (tensors(256, device=device), {"is_causal": True}),
            "head_dim 80": (tensors(80, device=device), {"is_causal": True}),
            "head_dim 100": (tensors(100, device=device), {"is_causal": True}),
            "head_dim 512": (tensors(512, device=device), {"is_causal": True}),
            "one query": (tensors(queries=1, device=device), {}),
            "128 queries, causal": (tensors(queries=128, device=device), {"is_causal": True}),
            "dropout 0.1": (tensors(device=device), {"is_causal": True, "dropout_p": 0.1})}


def longest_kernel(run) -> str:
    """The name of the kernel that took most of the time."""
    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    found = [event for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return max(found, key=lambda event: event.time_range.elapsed_us()).name if found else "nothing"


def family(name: str) -> str:
    """Whose kernel that is."""
    known = {"cudnn": "cuDNN", "flash": "flash", "fmha": "efficient", "cutlass": "math"}
    return next((word for part, word in known.items() if part in name), "math")


def refusal(kernel: SDPBackend, run) -> str:
    """Why a kernel that is allowed alone does not run: PyTorch's warnings; empty if it does."""
    with warnings.catch_warnings(record=True) as told, sdpa_kernel(kernel):
        warnings.simplefilter("always")
        try:
            run()
        except RuntimeError:
            reasons = [str(warning.message).split(" (Triggered")[0] for warning in told]
            return " ".join(reason for reason in reasons if "not used because" not in reason) or "no reason given"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU: which kernel is taken is decided on one; PyTorch sees none here", file=sys.stderr)
        return 77
    torch.manual_seed(0)
    if options.log:
        q, k, v = tensors()
        attend = lambda: scaled_dot_product_attention(q, k, v, is_causal=True)
        attend()
        torch.compile(attend)()
        return 0
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}")
    print(f"{'call':26}{'default':11}" + "".join(f"{name:11}" for name in KERNELS))
    reasons: dict[str, str] = {}
    for call, (given, how) in calls().items():
        run = lambda given=given, how=how: scaled_dot_product_attention(*given, **how)
        name = longest_kernel(run)
        refused = {word: refusal(kernel, run) for word, kernel in KERNELS.items()}
        reasons |= {f"{call}, {word}": why for word, why in refused.items() if why}
        print(f"{call:26}{family(name):11}" + "".join(f"{'-' if why else 'runs':11}" for why in refused.values()) + name[:60])
    for call, why in reasons.items():
        print(f"{call}: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
