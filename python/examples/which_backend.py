#!/usr/bin/env python3
"""Shows which kernel PyTorch's scaled_dot_product_attention uses for a call, and why the others do not run.

    which_backend.py [--log]

For each call on a GPU it prints the kernel that PyTorch chose, as seen by the profiler, and whether each kernel runs when only it is allowed. If
one does not, PyTorch's warnings give the reason, which is printed below the table. --log only makes one compiled and one uncompiled call, to be
watched with TORCH_LOGS="+dynamo".
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
    """Returns the calls: a description, the tensors and the options."""
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
    """Returns the name of the kernel that took the most time."""
    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    found = [event for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return max(found, key=lambda event: event.time_range.elapsed_us()).name if found else "nothing"


def family(name: str) -> str:
    """Returns the library that the kernel belongs to."""
    known = {"cudnn": "cuDNN", "flash": "flash", "fmha": "efficient", "cutlass": "math"}
    return next((word for part, word in known.items() if part in name), "math")


def refusal(kernel: SDPBackend, run) -> str:
    """Returns why a kernel does not run when only it is allowed, from PyTorch's warnings; empty if it runs."""
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
        print("PyTorch sees no GPU, and the choice of kernel depends on one: run this on a GPU", file=sys.stderr)
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
