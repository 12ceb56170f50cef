"""FlashAttention-3's kernels from xFormers' wheel, as an alternative to building its own package, which is in no registry.

xFormers 0.0.34 contains them, forward and backward, in BF16 and f16, as operators for PyTorch 2.10 and later. They are loaded without the rest:

    pip install --no-deps xformers==0.0.34 nvidia-cuda-runtime-cu12
"""

import ctypes
import functools
import importlib
import importlib.util
import pathlib
from typing import Any


def folders(package: str) -> list[pathlib.Path]:
    """Returns a package's folder, found without importing it, since its __init__ may need more packages."""
    try:
        found = importlib.util.find_spec(package)
    except ImportError:
        return []
    return [pathlib.Path(folder) for folder in (found and found.submodule_search_locations) or []]


def operators() -> pathlib.Path | None:
    """Returns the library in xFormers' wheel, or None."""
    return next((path for folder in folders("xformers") for path in folder.glob("flash_attn_3/_C*.so")), None)


@functools.cache
def library() -> Any:
    """Returns torch.ops.flash_attn_3, with the wheel's kernels or those of FlashAttention-3's own package."""
    import torch

    if operators() is None:
        importlib.import_module("flash_attn_interface")
        return torch.ops.flash_attn_3
    runtime = [path for folder in folders("nvidia.cuda_runtime") for path in folder.glob("lib/libcudart.so.12")]
    if runtime:  # otherwise the system's libraries would be found
        ctypes.CDLL(str(runtime[0]))
    torch.ops.load_library(str(operators()))
    return torch.ops.flash_attn_3


def with_cache(q: Any, k: Any, v: Any, softmax_scale: float, seqused_k: Any = None, page_table: Any = None) -> Any:
    """Returns O of a sequence's last queries, [batch, queries, heads, head_dim], against a cache or pages [.., rows,
    kv_heads, head_dim]. The kernel chooses the number of splits."""
    return library().fwd(q, k, v, softmax_scale=softmax_scale, is_causal=True, seqused_k=seqused_k, page_table=page_table, num_splits=0)[0]


@functools.cache
def flash_attn_func() -> Any:
    """Returns FlashAttention-3's function with the arguments that a race uses, on tensors [batch, seqlen, heads,
    head_dim], with a gradient. `packing` is cu_seqlens_q, cu_seqlens_k, max_seqlen_q and max_seqlen_k, for tensors
    [tokens, heads, head_dim]."""
    import torch

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any, options: dict[str, Any]) -> Any:
            o, lse, *_ = library().fwd(q, k, v, num_splits=1, **options)
            ctx.save_for_backward(q, k, v, o, lse)
            ctx.options = options
            return o

        @staticmethod
        def backward(ctx: Any, d_o: Any) -> Any:
            q, k, v, o, lse = ctx.saved_tensors
            gradients = [torch.empty_like(tensor) for tensor in (q, k, v)]
            library().bwd(d_o.contiguous(), q, k, v, o, lse, *gradients, **ctx.options)
            return *gradients, None

    def attend(q: Any, k: Any, v: Any, softmax_scale: float, causal: bool = False, window_size: tuple[int, int] = (-1, -1),
               softcap: float = 0.0, **packing: Any) -> Any:
        return Attention.apply(q, k, v, {"softmax_scale": softmax_scale, "is_causal": causal, "window_size_left": window_size[0],
                                         "window_size_right": window_size[1], "softcap": softcap, **packing})

    return attend
