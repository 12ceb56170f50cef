"""FlashInfer's functions and classes, as its tests of decoding and prompts call them, by this package's. adapter.py installs them as `flashinfer`."""

import math
import sys
import types
from typing import Any

import torch
from torch import Tensor

from flashbook import flash_attn_3

OPTIONS = {"causal": False, "sm_scale": None, "window_left": -1, "logits_soft_cap": None}
NO_EFFECT = {"backend", "use_tensor_cores", "use_fp16_qk_reduction", "non_blocking", "global_override_indptr_cpu", "q_data_type", "kv_data_type", "data_type",
             "rope_scale", "rope_theta", "jit_args"}


class Missing(NotImplementedError):
    """Something that only FlashInfer has."""


class GPUArchitectureError(Exception):
    pass


def options_of(given: dict[str, Any]) -> dict[str, Any]:
    """Returns this package's options. Raises Missing for others than OPTIONS, unless they have their default."""
    others = {name: value for name, value in given.items() if name not in OPTIONS and name not in NO_EFFECT}
    for name, value in others.items():
        if value is not None and value is not False and not (name == "pos_encoding_mode" and value == "NONE"):
            raise Missing(f"{name} is not in this package")
    of = OPTIONS | {name: value for name, value in given.items() if name in OPTIONS}
    return {"causal": of["causal"], "softmax_scale": of["sm_scale"], "softcap": of["logits_soft_cap"] or 0.0, "window_size": (of["window_left"], -1)}


def token_major(tensor: Tensor, kv_layout: str) -> Tensor:
    """Returns a view [..., rows, heads, head_dim]."""
    return tensor.transpose(-2, -3) if kv_layout == "HND" else tensor


def returned(o: Tensor, lse: Tensor, out: Tensor | None, lse_out: Tensor | None, return_lse: bool) -> Any:
    """Returns O, [rows, heads, head_dim], and the log-sum-exp, [heads, rows], to base 2 and transposed."""
    lse = lse.T / math.log(2)
    o = o if out is None else out.copy_(o)
    lse = lse if lse_out is None else lse_out.copy_(lse)
    return (o, lse) if return_lse else o


def single_prefill_with_kv_cache(q: Tensor, k: Tensor, v: Tensor, *, kv_layout: str = "NHD", return_lse: bool = False, **given: Any) -> Any:
    o, lse = flash_attn_3.flash_attn_with_kvcache(q[None], token_major(k, kv_layout)[None], token_major(v, kv_layout)[None], return_softmax_lse=True,
                                                  **options_of(given))
    return returned(o[0], lse[0], None, None, return_lse)


def single_decode_with_kv_cache(q: Tensor, k: Tensor, v: Tensor, kv_layout: str = "NHD", **given: Any) -> Any:
    found = single_prefill_with_kv_cache(q[None], k, v, kv_layout=kv_layout, **given)
    return (found[0][0], found[1][0]) if isinstance(found, tuple) else found[0]


class Paged:
    """BatchPrefillWithPagedKVCacheWrapper, and with one query per sequence BatchDecodeWithPagedKVCacheWrapper."""

    use_tensor_cores = False

    def __init__(self, workspace: Tensor, kv_layout: str = "NHD", **given: Any) -> None:
        options_of(given)
        self.kv_layout = kv_layout

    def plan(self, qo_indptr: Tensor | None, paged_kv_indptr: Tensor, paged_kv_indices: Tensor, paged_kv_last_page_len: Tensor, num_qo_heads: int,
             num_kv_heads: int, head_dim_qk: int, page_size: int, **given: Any) -> None:
        self.options, (indptr, indices, last) = options_of(given), (of.to("cuda") for of in (paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len))
        count = indptr.diff()
        places = indptr[:-1, None] + torch.arange(int(count.max()), device=indptr.device)
        self.options |= {"page_table": indices[places.clamp(max=len(indices) - 1)].to(torch.int32),
                         "cache_seqlens": ((count - 1) * page_size + last).clamp(min=0).to(torch.int32)}
        if qo_indptr is not None:
            self.options |= {"cu_seqlens_q": qo_indptr.to("cuda"), "max_seqlen_q": int(qo_indptr.diff().max())}

    def run(self, q: Tensor, cache: Any, *, out: Tensor | None = None, lse: Tensor | None = None, return_lse: bool = False, **given: Any) -> Any:
        options_of(given)
        k, v = (token_major(part, self.kv_layout) for part in (cache if isinstance(cache, tuple) else cache.unbind(1)))
        packed = "cu_seqlens_q" in self.options
        o, found = flash_attn_3.flash_attn_with_kvcache(q if packed else q[:, None], k, v, return_softmax_lse=True, **self.options)
        return returned(o if packed else o[:, 0], found if packed else found[..., 0].T, out, lse, return_lse)


class Decode(Paged):
    def plan(self, indptr: Tensor, indices: Tensor, last_page_len: Tensor, num_qo_heads: int, num_kv_heads: int, head_dim: int,  # type: ignore[override]
             page_size: int, **given: Any) -> None:
        super().plan(None, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, **given)


class Ragged(Paged):
    """BatchPrefillWithRaggedKVCacheWrapper."""

    def plan(self, qo_indptr: Tensor, kv_indptr: Tensor, num_qo_heads: int, num_kv_heads: int, head_dim_qk: int,  # type: ignore[override]
             **given: Any) -> None:
        self.options = options_of(given)
        self.where = qo_indptr.to("cuda"), kv_indptr.to("cuda"), int(qo_indptr.diff().max()), int(kv_indptr.diff().max())

    def run(self, q: Tensor, k: Tensor, v: Tensor, *, out: Tensor | None = None, lse: Tensor | None = None, return_lse: bool = False,  # type: ignore[override]
            **given: Any) -> Any:
        options_of(given)
        o, found = flash_attn_3.flash_attn_varlen_func(q, token_major(k, self.kv_layout), token_major(v, self.kv_layout), *self.where,
                                                       return_attn_probs=True, **self.options)
        return returned(o, found, out, lse, return_lse)


def fast_decode_plan(wrapper: Decode, *arguments: Any, **options: Any) -> None:
    Decode.plan(wrapper, *arguments, **options)


def missing(name: str) -> type:
    """Returns a class, for annotations, that raises Missing when it is called."""
    def call(*_: Any, **__: Any) -> Any:
        raise Missing(f"{name} is not in this package")

    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {"__init__": call})


def install() -> None:
    names = {"single_prefill_with_kv_cache": single_prefill_with_kv_cache, "single_decode_with_kv_cache": single_decode_with_kv_cache,
             "BatchDecodeWithPagedKVCacheWrapper": Decode, "BatchPrefillWithPagedKVCacheWrapper": Paged,
             "BatchPrefillWithRaggedKVCacheWrapper": Ragged, "fast_decode_plan": fast_decode_plan, "GPUArchitectureError": GPUArchitectureError,
             "get_compute_capability": lambda *_: torch.cuda.get_device_capability(), "has_flashinfer_jit_cache": lambda: True}
    whole = None
    for name in ("", ".decode", ".prefill", ".utils", ".jit", ".fp4_quantization", ".quantization", ".quantization.nvfp4_quantization_utils"):
        module = sys.modules[f"flashinfer{name}"] = types.ModuleType(f"flashinfer{name}")
        module.__dict__.update(names, __path__=[], __getattr__=missing)
        whole = whole or module
        if name.count(".") == 1:
            setattr(whole, name[1:], module)
