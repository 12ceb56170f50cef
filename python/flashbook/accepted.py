"""What the functions accept, argument by argument: the tables of docs/pages/in_pytorch.md, which docs/tools/accepted.py makes from this file and the
functions' signatures. A row has the arguments, the functions (none: all that have them), a verdict and a note. Verdicts are

* taken: the argument has the same meaning as in FlashAttention;
* hint: it changes no result;
* ignored: the kernels do not need it.
"""

Row = tuple[str, str, str, str]

FLASH_ATTENTION_2: tuple[Row, ...] = (
    ("q k v qkv kv", "", "taken",
     "`float16` or `bfloat16`; `head_dim` up to 256. A multiple of 8 is [padded in the kernels' "
     "tiles](../../chapters/05_flash_attention_3/appendix.md#head-dimensions-between-the-tiles); any other is copied with columns of 0, as in "
     "FlashAttention. `v` may have [another multiple of 8](../../chapters/09_masks/appendix.md#wide-keys), such as 128 columns with a "
     "`head_dim` of 192, for dense and packed calls with windows; more than 256 columns are read in parts of 256, each of which computes the "
     "scores again. With `softcap`, `alibi_slopes` or `dropout_p` the narrower ones are copied with columns of 0, and so "
     "they are for a gradient, unless `head_dim` is 136 to 192 and `v` has up to 128 columns"),
    ("k_cache v_cache", "", "taken",
     "`head_dim` as above: a multiple of 8 is [read in place](../../chapters/08_decoding/as_models_do_it.md), and for any other the whole "
     "cache is copied, so allocate it wider. Pages have any number of rows; unless it is a power of two, they are read as pages of one row, "
     "which is slower"),
    ("dropout_p", "", "taken",
     "by [chapter 9](../../chapters/09_masks/gradient.md), gradients included. PyTorch's generator on the CPU draws a seed for each call, so "
     "`torch.manual_seed` repeats it. Refused together with `softcap` (as there), `block_table` and `return_attn_probs`, and within a CUDA "
     "graph, whose replays would all drop the same elements"),
    ("softmax_scale", "", "taken", "above 0"),
    ("causal", "", "taken", ""),
    ("window_size", "", "taken", "in `flash_attn_with_kvcache` keys before the window are not read"),
    ("softcap", "", "taken", "up to 1024; also with `alibi_slopes`, which are subtracted from the capped score, as there"),
    ("alibi_slopes", "", "taken",
     "`[heads]` or `[batch, heads]`, also packed; slopes that require a gradient are refused; FlashAttention-2 returns no gradient for them"),
    ("deterministic", "", "taken", "under every mask that has a gradient"),
    ("return_attn_probs", "", "taken",
     "`(o, lse, None)`; refused together with `dropout_p`. The log-sum-exp of a row that sees no key is `+inf`, as there; it has a gradient, "
     "which FlashAttention-2 leaves out"),
    ("cu_seqlens cu_seqlens_q cu_seqlens_k", "", "taken", "values are not checked; rows after the last sequence have an output and gradients of 0"),
    ("max_seqlen max_seqlen_q max_seqlen_k", "", "ignored", "except `max_seqlen_q` with `block_table`"),
    ("block_table", "", "taken",
     "in `flash_attn_varlen_func`, without gradients: decoding sequences and chunks of prompts in one launch, by [chapter "
     "9](../../chapters/09_masks/prompts.md), or by chapter 8 if no sequence has more than 128 rows of a group, a page has fewer than 8, or "
     "there are `softcap`, `alibi_slopes` or `s_aux`"),
    ("cache_seqlens", "", "taken", "a number, or one per sequence; values are not checked"),
    ("rotary_cos rotary_sin rotary_interleaved", "", "taken", "PyTorch rotates `q` and `k` before the kernel: about a dozen launches"),
    ("cache_batch_idx", "", "taken", "with `cache_seqlens`, and without `block_table`"),
    ("cache_leftpad", "", "taken", "with `block_table`, which FlashAttention-2 refuses, pages are read as pages of one row"),
    ("num_splits", "", "hint", "chapter 8 distributes the keys evenly"),
    ("return_softmax_lse", "", "taken", "`(o, lse)`"),
    ("s_aux", "", "taken", "not in FlashAttention-2, so by keyword only: gpt-oss's sinks, one per head, which are added to the row's sum"),
)

FLASH_ATTENTION_3: tuple[Row, ...] = (
    ("q k v qkv", "", "taken",
     "as above; also `float8_e4m3fn`, without gradients: by [chapter 6](../../chapters/06_fp8/README.md) if full or causal with a `head_dim` "
     "of 64, 128 or 256. Other calls, and `flash_attn_varlen_func`, run on copies in `bfloat16`. `flash_attn_with_kvcache` copies `q` to "
     "`bfloat16`"),
    ("k_cache v_cache", "", "taken",
     "as above. Also `float8_e4m3fn`, read in place with a `head_dim` of 64, 128 or 256. With another one, a window, chunks, `softcap`, "
     "`s_aux`, `cache_leftpad` or packed tokens, every call copies the whole cache to 16 bits. New keys must be `float8_e4m3fn`, too"),
    ("softmax_scale", "", "taken", "above 0"),
    ("causal", "", "taken", ""),
    ("window_size", "", "taken", "as above"),
    ("softcap", "", "taken", "as above"),
    ("qv", "flash_attn_func flash_attn_varlen_func", "taken",
     "if it and `q` have at most 256 columns together, which are copied into one tensor. All masks and gradients work"),
    ("qv", "flash_attn_with_kvcache", "taken",
     "in full or causal attention by [chapter 8's step 7](../../chapters/08_decoding/latent.md), without rules and packed new keys: `k_cache` "
     "has up to 64 columns, `v_cache` up to 512, pages a multiple of 64 rows. Views of one tensor, `cache[..., 512:]` and `cache[..., :512]`, "
     "are read in place; otherwise every call copies the whole cache"),
    ("q_descale k_descale v_descale", "", "taken",
     "`[batch, kv_heads]`, for `float8_e4m3fn`; caches by [chapter 8's step 8](../../chapters/08_decoding/e4m3_cache.md)"),
    ("attention_chunk", "", "taken",
     "by [chapter 9](../../chapters/09_masks/README.md), as one document per chunk. Gradients respect the chunks; those of FlashAttention-3 do "
     "not. With `page_table`, a chunk that is no multiple of the rows per page reads them as pages of one row"),
    ("num_splits pack_gqa", "", "hint", "the kernels split keys and pack heads where that is faster"),
    ("sm_margin", "", "hint", "it leaves multiprocessors free for communication in FlashAttention-3; the kernels here always use all of them"),
    ("num_heads_q", "", "taken", ""),
    ("deterministic", "", "taken", "as above"),
    ("return_attn_probs return_softmax_lse", "", "taken",
     "`(o, lse)`; the log-sum-exp of a row that sees no key is `-inf`, as there, and has a gradient, which FlashAttention-3 leaves out. "
     "Partial results of a cache are not returned"),
    ("cu_seqlens_q cu_seqlens_k", "flash_attn_varlen_func", "taken",
     "values are not checked; rows after the last sequence have an output and gradients of 0"),
    ("cu_seqlens_q", "flash_attn_with_kvcache", "taken", "with `max_seqlen_q`"),
    ("cu_seqlens_k_new", "flash_attn_with_kvcache", "taken", "its last value is the number of rows in `k` and `v`"),
    ("max_seqlen_q max_seqlen_k", "", "ignored",
     "except `max_seqlen_q` with `cu_seqlens_q` in `flash_attn_with_kvcache`, and `max_seqlen_k` with `attention_chunk`"),
    ("seqused_q seqused_k", "", "taken", "the rows beyond them have an output and gradients of 0"),
    ("page_table", "", "taken", ""),
    ("cache_seqlens", "", "taken", "a number, or one per sequence; values are not checked"),
    ("rotary_cos rotary_sin rotary_seqlens rotary_interleaved", "", "taken", "as above"),
    ("cache_batch_idx", "", "taken", "with `page_table` it names rows of it"),
    ("cache_leftpad", "", "taken", "as above"),
    ("s_aux", "", "taken", "not in FlashAttention-3, but in vLLM's fork; by keyword only, as above"),
    ("scheduler_metadata", "", "hint", "`get_scheduler_metadata` returns an empty one: chapter 8 plans on the device"),
    ("out_partial lse_partial", "", "taken", "float32; partial results are not read where `lse_partial` is `-inf`"),
    ("out out_dtype", "", "taken", "float32, `float16` or `bfloat16`"),
)
