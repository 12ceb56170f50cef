"""What the package refuses of the calls in others' tests: nothing else may be refused there.

Each has the arguments, or functions, that the tables of docs/pages/in_pytorch.md or the lines beside them name, and what the error says. python/tests/test_others.py holds the names
against the page.
"""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Refusal:
    name: str
    arguments: tuple[str, ...]  # as the tables of the page have them
    says: str  # a regular expression that the error's message matches
    kind: type[Exception] | tuple[type[Exception], ...] = NotImplementedError

    def is_for(self, error: BaseException) -> bool:
        return isinstance(error, self.kind) and re.search(self.says, str(error)) is not None


REFUSALS = (
    Refusal("the probabilities that dropout left", ("return_attn_probs",), r"^return_attn_probs is True beside dropout_p"),
    Refusal("dropout beside a function on scores", ("dropout_p",), r"^dropout_p is .* beside (softcap|alibi_slopes)"),
    Refusal("a cache in float8_e4m3fn of a head dimension that chapter 8 does not pad", ("k_cache",), r"^head_dim is \d+, and a cache in float8_e4m3fn"),
    Refusal("new keys beside a cache in float8_e4m3fn", ("k_cache",), r"^k and v are given beside a cache in float8_e4m3fn"),
    Refusal("keys and values of different head dimensions", ("q",), r"^k is .* and v is .*: give one shape", ValueError),
    Refusal("float8_e4m3fn under a mask, or packed", ("q",), r"chapter 9 does not take e4m3", ValueError),
    Refusal("float8_e4m3fn of a head dimension that chapter 6 does not pad", ("q",), r"^head dimensions between 64, 128 and 256 are for chapters", ValueError),
    Refusal("pages of other sizes", ("k_cache",), r"[Pp]ages? .*(16|rows)", ValueError),
    Refusal("a gradient through pages", ("block_table",), r"^no gradient goes through (pages|a cache)"),
    Refusal("a second product in the scores", ("qv",), r"^qv is .* and only None is taken here"),
    Refusal("chunks", ("attention_chunk",), r"^attention_chunk is .* and only 0 is taken here"),
    Refusal("sequences that end before their place does", ("seqused_q", "seqused_k"), r"^seqused_[qk] is .* and only None is taken here"),
    Refusal("packed new keys, or packed queries beside new keys", ("cu_seqlens_k_new",),
            r"^cu_seqlens_k_new is .* and only None is taken here|^cu_seqlens_q packs queries, and only"),
    Refusal("functions that are not here", ("flash_attn_combine",), r"^flash_attn_combine is not here"),
    Refusal("multiprocessors left free", ("sm_margin",), r"^sm_margin is .* and only 0 is taken here"),
    Refusal("paddings beside pages", ("cache_leftpad",), r"^cache_leftpad is for caches without pages", ValueError),
    Refusal("packed queries against a cache without pages", ("cu_seqlens_q",), r"^cu_seqlens_q packs queries against pages", ValueError),
    Refusal("queries in float8_e4m3fn against a cache", ("q",), r"^chapter 8 does not take e4m3", ValueError),
    Refusal("scales of packed sequences and caches", ("q_descale",), r"^[qkv]_descale is .* and only None is taken here"),
)


# FlashInfer's names are those of of_flashinfer.py, whose arguments the page's table of FlashInfer's has.
OF_FLASHINFER = (
    Refusal("rotary embedding beside attention", ("pos_encoding_mode",), r"^pos_encoding_mode is 'ROPE_LLAMA'"),
    Refusal("ALiBi without a causal mask, or its log-sum-exp", ("pos_encoding_mode",), r"^pos_encoding_mode is 'ALIBI'"),
    Refusal("a mask by pairs", ("custom_mask", "packed_custom_mask"), r"^(packed_)?custom_mask is a tensor"),
    Refusal("a plan within a CUDA graph", ("use_cuda_graph",), r"^use_cuda_graph is True"),
    Refusal("how keys are split", ("fixed_split_size", "disable_split_kv"), r"^(fixed_split_size|disable_split_kv) is"),
    Refusal("several items in a sequence", ("prefix_len_ptr", "token_pos_in_items_ptr", "token_pos_in_items_len", "max_item_len_ptr"),
            r"^(prefix_len_ptr|token_pos_in_items_ptr|token_pos_in_items_len|max_item_len_ptr) is"),
    Refusal("variants compiled at run time", ("jit_args", "jit_kwargs"), r"^jit_(kw)?args is"),
    Refusal("other backends", ("backend",), r"^backend is"),
    Refusal("keys of other types", ("k",), r"^q is torch\.\w+, k torch|^k is torch\.float8_e4m3fn beside a prompt"),
    Refusal("values of another head dimension", ("head_dim_vo",), r"^head_dim_vo is|^k is .* and v is .*: give one shape", (NotImplementedError, ValueError)),
    Refusal("head dimensions above 256", ("head_dim",), r"^head_dim is \d+: give a multiple of 8 up to 256", ValueError),
    Refusal("pages of other sizes", ("page_size",), r"^pages have 1, 2, 4, 8", ValueError),
    Refusal("scales in a tensor", ("k_scale", "v_scale", "q_scale", "scale_q", "scale_k", "scale_v", "o_scale"), r"^([qkvo]_scale|scale_[qkv]) is"),
    Refusal("FlashInfer's other arguments", ("v_indptr", "o_indptr", "q_len_per_req", "window_right", "sinks", "kv_cache_sf"),
            r"^(v_indptr|o_indptr|q_len_per_req|window_right|sinks|kv_cache_sf|skip_softmax_threshold_scale_factor|use_fp16_softmax|uses_spcompress) is"),
    Refusal("functions that are not here", ("flashinfer",), r"^flashinfer[\w.]* is not here"),
)


def refusal_of(error: BaseException, of: tuple[Refusal, ...] = REFUSALS) -> Refusal | None:
    return next((refusal for refusal in of if refusal.is_for(error)), None)
