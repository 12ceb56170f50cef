"""FlashInfer's names for what this package does, as its tests import them: prompts and decoding against tensors, packed tensors and pages.

A wrapper's `plan` makes a page table of FlashInfer's lists of pages, and `run` is one call of the package. What they take beyond that is refused by the argument's name:
`_refuse` has the list, and every other name of FlashInfer is there and raises when it is called. The log-sum-exp is FlashInfer's: to base 2, [queries, heads].
"""

import importlib.abc
import importlib.machinery
import math
import pathlib
import sys
import types
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import flashbook
from flashbook import flash_attn_3

HINTS = {"use_tensor_cores", "non_blocking", "q_data_type", "kv_data_type", "data_type", "o_data_type", "o_dtype", "seq_lens", "seq_lens_q", "block_tables",
         "enable_pdl", "max_token_per_sequence", "max_sequence_kv", "rope_scale", "rope_theta", "global_override_indptr_cpu", "use_fp16_qk_reduction",
         "float_workspace_buffer"}  # rotary's are read with pos_encoding_mode alone; products are added up in float32
WANTED: dict[str, tuple[object, str]] = {  # what an argument may be, and the cure
    "custom_mask": (None, "give causal, window_left, or sequences of their own"), "packed_custom_mask": (None, "give causal, window_left, or sequences of their own"),
    "use_cuda_graph": (False, "capture the package's own call, whose page table and lengths are tensors"),
    "fixed_split_size": (None, "keys are dealt out evenly to all multiprocessors"), "disable_split_kv": (False, "keys are dealt out evenly to all multiprocessors"),
    "jit_args": (None, "there are no variants compiled at run time"), "jit_kwargs": (None, "there are no variants compiled at run time"),
    "prefix_len_ptr": (None, "items are sequences of their own"), "token_pos_in_items_ptr": (None, "items are sequences of their own"),
    "token_pos_in_items_len": (0, "items are sequences of their own"), "max_item_len_ptr": (None, "items are sequences of their own"),
    "v_indptr": (None, "give one kv_indptr"), "o_indptr": (None, "give one qo_indptr"), "q_len_per_req": (1, "queries are packed by BatchPrefillWithPagedKVCacheWrapper"),
    "window_right": (0, "give causal"), "sinks": (None, "flash_attn_with_kvcache has s_aux"), "kv_cache_sf": (None, "give a cache of 16 bits or of float8_e4m3fn"),
    "skip_softmax_threshold_scale_factor": (None, "every key counts"), "use_fp16_softmax": (None, "the softmax is float32"), "uses_spcompress": (None, "every key counts"),
    "scale_q": (None, "flash_attn_3 has q_descale"), "scale_k": (None, "flash_attn_3 has k_descale"), "scale_v": (None, "flash_attn_3 has v_descale"),
    "o_scale": (None, "o stays in q's type")}
BACKENDS = ("auto", "fa2", "fa3")


def _refuse(**given: Any) -> None:
    for name, value in given.items():
        wanted, cure = WANTED[name] if name in WANTED else (None, "FlashInfer has it, and this package has not")
        same = value is wanted or (isinstance(value, (bool, int)) and isinstance(wanted, (bool, int)) and value == wanted)
        if name not in HINTS and not same:
            raise NotImplementedError(f"{name} is {'a tensor' if isinstance(value, Tensor) else repr(value)}: {cure}")


def _slopes(heads: int, device: torch.device) -> Tensor:
    """ALiBi's (arXiv 2108.12409): powers of two, and if the heads are no such power every other one of twice as many behind them."""
    power = 1 << (heads.bit_length() - 1)
    found = [2.0 ** (-8 * (head + 1) / power) for head in range(power)] + [2.0 ** (-4 * (2 * head + 1) / power) for head in range(heads - power)]
    return torch.tensor(found, device=device, dtype=torch.float32)


class Options:
    """What a plan, or a single call, says of its attention."""

    def __init__(self, heads: int, *, causal: bool = False, pos_encoding_mode: str = "NONE", window_left: int = -1, logits_soft_cap: float | None = None,
                 sm_scale: float | None = None, is_decode: bool = False, return_lse: bool = False, **others: Any) -> None:
        _refuse(**others)
        self.heads, self.causal, self.window, self.scale = heads, causal, (window_left, -1), sm_scale
        self.softcap = logits_soft_cap or 0.0
        self.alibi, self.is_decode = pos_encoding_mode == "ALIBI", is_decode
        if pos_encoding_mode not in ("NONE", "ALIBI"):
            raise NotImplementedError(f"pos_encoding_mode is {pos_encoding_mode!r}: rotate q and k beforehand")
        if self.alibi and (return_lse or not (causal or is_decode)):
            raise NotImplementedError("pos_encoding_mode is 'ALIBI': slopes are taken times the distance here, FlashInfer adds them times the key's "
                                      "number, which is the same under a causal mask and but for the log-sum-exp")

    def of_call(self, q: Tensor, k_scale: object, q_scale: object = None) -> dict[str, Any]:
        """FlashAttention-2's options."""
        factor = _number("k_scale", k_scale) * _number("q_scale", q_scale)
        scale = (1 / math.sqrt(q.shape[-1]) if self.scale is None else self.scale) * factor
        return {"softmax_scale": scale, "causal": self.causal, "window_size": self.window, "softcap": self.softcap,
                "alibi_slopes": _slopes(self.heads, q.device) if self.alibi else None}


def _number(name: str, value: object) -> float:
    if value is None or isinstance(value, (int, float)):
        return 1.0 if value is None else float(value)
    raise NotImplementedError(f"{name} is a tensor: give a number")


def _types(q: Tensor, k: Tensor, v: Tensor, is_decode: bool) -> None:
    if q.dtype not in (torch.float16, torch.bfloat16) or k.dtype != v.dtype or k.dtype not in (q.dtype, torch.float8_e4m3fn):
        raise NotImplementedError(f"q is {q.dtype}, k {k.dtype} and v {v.dtype}: give 16 bits, and keys of those or of float8_e4m3fn")
    if k.dtype != q.dtype and not is_decode:
        raise NotImplementedError(f"k is {k.dtype} beside a prompt: such caches are for decoding")


def _finished(o: Tensor, lse: Tensor, v_scale: object, out: Tensor | None, lse_out: Tensor | None, return_lse: bool) -> Any:
    """o, [queries, heads, head_dim], and lse, [heads, queries] to base e and +inf where a query sees no key, as FlashInfer returns them."""
    if v_scale is not None:
        o = (o.float() * _number("v_scale", v_scale)).to(o.dtype)
    lse = (lse.masked_fill(lse == math.inf, -math.inf) / math.log(2)).transpose(0, 1).contiguous()
    if out is not None:
        o = out.copy_(o)
    if lse_out is not None:
        lse = lse_out.copy_(lse)
    return (o, lse) if return_lse else o


def _decode(q: Tensor, k: Tensor, v: Tensor, options: Options, lengths: Tensor | None, table: Tensor | None, k_scale: object, q_scale: object,
            **results: Any) -> Any:
    """One query of each sequence, q [sequences, heads, head_dim]."""
    _types(q, k, v, True)
    given = options.of_call(q, k_scale, q_scale)
    if k.dtype == torch.float8_e4m3fn:
        if given.pop("alibi_slopes") is not None:
            raise NotImplementedError("pos_encoding_mode is 'ALIBI': a cache in float8_e4m3fn meets no slopes")
        o, lse = flash_attn_3.flash_attn_with_kvcache(q[:, None], k, v, cache_seqlens=lengths, page_table=table, return_softmax_lse=True, **given)
    else:
        o, lse = flashbook.flash_attn_with_kvcache(q[:, None], k, v, cache_seqlens=lengths, block_table=table, return_softmax_lse=True, **given)
    return _finished(o[:, 0], lse[:, :, 0].transpose(0, 1), **results)


# ---- single sequences --------------------------------------------------------------------------------------------------------------


def single_decode_with_kv_cache(q: Tensor, k: Tensor, v: Tensor, kv_layout: str = "NHD", pos_encoding_mode: str = "NONE", use_tensor_cores: bool = False,
                                q_scale: object = None, k_scale: object = None, v_scale: object = None, window_left: int = -1,
                                logits_soft_cap: float | None = None, sm_scale: float | None = None, rope_scale: float | None = None,
                                rope_theta: float | None = None, return_lse: bool = False) -> Any:
    k, v = (tensor.transpose(0, 1) if kv_layout == "HND" else tensor for tensor in (k, v))
    options = Options(q.shape[0], pos_encoding_mode=pos_encoding_mode, window_left=window_left, logits_soft_cap=logits_soft_cap, sm_scale=sm_scale,
                      is_decode=True, return_lse=return_lse)
    found = _decode(q[None], k[None], v[None], options, None, None, k_scale, q_scale, v_scale=v_scale, out=None, lse_out=None, return_lse=True)
    return (found[0][0], found[1][0]) if return_lse else found[0][0]


def single_prefill_with_kv_cache(q: Tensor, k: Tensor, v: Tensor, scale_q: object = None, scale_k: object = None, scale_v: object = None,
                                 o_dtype: object = None, custom_mask: object = None, packed_custom_mask: object = None, causal: bool = False,
                                 kv_layout: str = "NHD", backend: str = "auto", return_lse: bool = False, k_scale: object = None, v_scale: object = None,
                                 **others: Any) -> Any:
    _backend(backend)
    options = Options(q.shape[1], causal=causal, return_lse=return_lse, scale_q=scale_q, scale_k=scale_k, scale_v=scale_v, custom_mask=custom_mask,
                      packed_custom_mask=packed_custom_mask, **others)
    k, v = (tensor.transpose(0, 1) if kv_layout == "HND" else tensor for tensor in (k, v))
    _types(q, k, v, False)
    o, lse, _ = flashbook.flash_attn_func(q[None], k[None], v[None], return_attn_probs=True, **options.of_call(q, k_scale))
    return _finished(o[0], lse[0], v_scale, None, None, return_lse)


def single_prefill_with_kv_cache_return_lse(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
    return single_prefill_with_kv_cache(q, k, v, **{**options, "return_lse": True})


def _backend(name: str) -> None:
    if name not in BACKENDS:
        raise NotImplementedError(f"backend is {name!r}: give one of {', '.join(BACKENDS)}, which are one here")


# ---- wrappers ----------------------------------------------------------------------------------------------------------------------


class _Wrapper:
    """What wrappers have in common. FlashInfer's older names run under options that the call itself brings."""

    is_decode = False

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD", use_cuda_graph: bool = False, use_tensor_cores: bool = False,
                 backend: str = "auto", **buffers: Any) -> None:
        _backend(backend)
        _refuse(use_cuda_graph=use_cuda_graph, **{name: value for name, value in buffers.items() if name.startswith("jit")})
        self.device, self.kv_layout = float_workspace_buffer.device, kv_layout
        self.options: Options | None = None

    def _plan(self, heads: int, head_dim: int, head_dim_vo: int | None, options: dict[str, Any]) -> None:
        if head_dim_vo not in (None, head_dim):
            raise NotImplementedError(f"head_dim_vo is {head_dim_vo}: give {head_dim}, that of the keys")
        self.heads, self.given = heads, options
        self.options = Options(heads, is_decode=self.is_decode, **options)

    def _here(self, tensor: Tensor) -> Tensor:
        return tensor.to(device=self.device, dtype=torch.int32)

    def _pages(self, indptr: Tensor, indices: Tensor, last_page_len: Tensor, page_size: int) -> None:
        """The page table, [sequences, most pages of one], and the keys of each sequence, of FlashInfer's lists."""
        first, last = indptr.cpu().long(), last_page_len.cpu()
        counts = first.diff()
        table = torch.zeros(len(counts), max(int(counts.max()), 1), dtype=torch.int32)
        table[torch.arange(table.shape[1])[None] < counts[:, None]] = indices.cpu()[int(first[0]):int(first[-1])].int()
        self.table, self.lengths = self._here(table), self._here(torch.where(counts > 0, (counts - 1) * page_size + last, 0))

    def _of_pages(self, cache: Tensor | Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        k, v = cache.unbind(1) if isinstance(cache, Tensor) else cache
        return (k.transpose(1, 2), v.transpose(1, 2)) if self.kv_layout == "HND" else (k, v)

    def _options_of_run(self, window_left: int | None, return_lse: bool, others: dict[str, Any]) -> Options:
        _refuse(**others)
        given = self.given if window_left is None else {**self.given, "window_left": window_left}
        return Options(self.heads, is_decode=self.is_decode, **given, return_lse=return_lse)

    def run_return_lse(self, *arguments: Any, **options: Any) -> Any:
        return self.run(*arguments, **options, return_lse=True)  # type: ignore[attr-defined]

    def begin_forward(self, *arguments: Any, **options: Any) -> None:
        self.plan(*arguments, **options)  # type: ignore[attr-defined]

    def end_forward(self) -> None:
        pass

    def forward(self, *tensors: Tensor, k_scale: object = None, v_scale: object = None, q_scale: object = None, return_lse: bool = False, **options: Any) -> Any:
        self.given = {"causal": False, **options} if not self.is_decode else options
        scales = {"k_scale": k_scale, "v_scale": v_scale, "q_scale": q_scale}
        return self.run(*tensors, return_lse=return_lse, **{name: value for name, value in scales.items() if value is not None})  # type: ignore[attr-defined]

    def forward_return_lse(self, *tensors: Tensor, **options: Any) -> Any:
        return self.forward(*tensors, **options, return_lse=True)


class BatchDecodeWithPagedKVCacheWrapper(_Wrapper):
    is_decode = True

    def plan(self, indptr: Tensor, indices: Tensor, last_page_len: Tensor, num_qo_heads: int, num_kv_heads: int, head_dim: int, page_size: int,
             pos_encoding_mode: str = "NONE", window_left: int = -1, logits_soft_cap: float | None = None, **options: Any) -> None:
        self._plan(num_qo_heads, head_dim, None, {"pos_encoding_mode": pos_encoding_mode, "window_left": window_left, "logits_soft_cap": logits_soft_cap,
                                                  **options})
        self._pages(indptr, indices, last_page_len, page_size)

    def run(self, q: Tensor, paged_kv_cache: Any, q_scale: object = None, k_scale: object = None, v_scale: object = None, out: Tensor | None = None,
            lse: Tensor | None = None, return_lse: bool = False, window_left: int | None = None, **others: Any) -> Any:
        options = self._options_of_run(window_left, return_lse, others)
        return _decode(q, *self._of_pages(paged_kv_cache), options, self.lengths, self.table, k_scale, q_scale, v_scale=v_scale, out=out, lse_out=lse,
                       return_lse=return_lse)


class BatchPrefillWithPagedKVCacheWrapper(_Wrapper):
    def plan(self, qo_indptr: Tensor, paged_kv_indptr: Tensor, paged_kv_indices: Tensor, paged_kv_last_page_len: Tensor, num_qo_heads: int,
             num_kv_heads: int, head_dim_qk: int, page_size: int, head_dim_vo: int | None = None, **options: Any) -> None:
        self._plan(num_qo_heads, head_dim_qk, head_dim_vo, options)
        self._pages(paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size)
        self.first, self.most = self._here(qo_indptr), int(qo_indptr.diff().max())
        self.first_key = self._here(torch.nn.functional.pad(self.lengths.cumsum(0), (1, 0)))

    def run(self, q: Tensor, paged_kv_cache: Any, q_scale: object = None, k_scale: object = None, v_scale: object = None, out: Tensor | None = None,
            lse: Tensor | None = None, return_lse: bool = False, window_left: int | None = None, **others: Any) -> Any:
        options, (k, v) = self._options_of_run(window_left, return_lse, others), self._of_pages(paged_kv_cache)
        _types(q, k, v, False)
        o, found, _ = flashbook.flash_attn_varlen_func(q, k, v, self.first, self.first_key, max(self.most, 1), int(self.table.shape[1]) * k.shape[1],
                                                       block_table=self.table, return_attn_probs=True, **options.of_call(q, k_scale, q_scale))
        return _finished(o, found, v_scale, out, lse, return_lse)


class BatchPrefillWithRaggedKVCacheWrapper(_Wrapper):
    def plan(self, qo_indptr: Tensor, kv_indptr: Tensor, num_qo_heads: int, num_kv_heads: int, head_dim_qk: int, head_dim_vo: int | None = None,
             **options: Any) -> None:
        self._plan(num_qo_heads, head_dim_qk, head_dim_vo, options)
        self.first, self.first_key = self._here(qo_indptr), self._here(kv_indptr)

    def run(self, q: Tensor, k: Tensor, v: Tensor, q_scale: object = None, k_scale: object = None, v_scale: object = None, out: Tensor | None = None,
            lse: Tensor | None = None, return_lse: bool = False, **others: Any) -> Any:
        options = self._options_of_run(None, return_lse, others)
        k, v = (tensor.transpose(0, 1) if self.kv_layout == "HND" else tensor for tensor in (k, v))
        _types(q, k, v, False)
        o, found, _ = flashbook.flash_attn_varlen_func(q, k, v, self.first, self.first_key, len(q), len(k), return_attn_probs=True,
                                                       **options.of_call(q, k_scale, q_scale))
        return _finished(o, found, v_scale, out, lse, return_lse)


def fast_decode_plan(wrapper: BatchDecodeWithPagedKVCacheWrapper, *arguments: Any, **options: Any) -> None:
    """FlashInfer's plan that copies less."""
    BatchDecodeWithPagedKVCacheWrapper.plan(wrapper, *arguments, **options)


# ---- the modules -------------------------------------------------------------------------------------------------------------------


class NotHere:
    """A name of FlashInfer's that nothing here stands for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"{self.name} is not here")

    def __getattr__(self, name: str) -> "NotHere":
        if name.startswith("__"):
            raise AttributeError(name)
        return NotHere(f"{self.name}.{name}")

    def __or__(self, other: object) -> "NotHere":  # in annotations it may be a type
        return self


class GPUArchitectureError(RuntimeError):
    pass


def get_compute_capability(device: torch.device) -> Any:
    """torch's, which the adapter replaces in the simulator."""
    return torch.cuda.get_device_capability(device)


HERE: dict[str, Any] = {of.__name__: of for of in (
    single_decode_with_kv_cache, single_prefill_with_kv_cache, single_prefill_with_kv_cache_return_lse, BatchDecodeWithPagedKVCacheWrapper,
    BatchPrefillWithPagedKVCacheWrapper, BatchPrefillWithRaggedKVCacheWrapper, fast_decode_plan)}
UTILS = {"has_flashinfer_jit_cache": lambda: True, "get_compute_capability": get_compute_capability,
         "GPUArchitectureError": GPUArchitectureError}


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes `flashinfer`, and whatever module of it a test imports."""

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        is_theirs = name == "flashinfer" or name.startswith("flashinfer.")
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_theirs else None

    def exec_module(self, module: types.ModuleType) -> None:
        name = module.__name__

        def not_here(attribute: str) -> NotHere:
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            return NotHere(f"{name}.{attribute}")

        module.__getattr__ = not_here  # type: ignore[method-assign]
        vars(module).update(UTILS if name == "flashinfer.utils" else HERE)


def install(source: pathlib.Path) -> None:
    """Puts these names where FlashInfer's tests look for them, and its helpers of tests, which lie in `tests` of its source."""
    sys.meta_path.insert(0, Finder())
    sys.path.insert(0, str(source))
    for name in [name for name in sys.modules if name == "tests" or name.startswith("tests.")]:
        del sys.modules[name]

