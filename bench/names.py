"""The names of results: what was measured, in which type and shape.

    forward/ch05/persistent/bf16/d128/causal/n8192                a step of a chapter
    forward/cudnn/bf16/d128/full/n8192                            a peer: cudnn, flash, eager; from packages: fa3, fa4, cudnn_frontend, ...
    forward/cudnn_bf16/e4m3/d128/full/n8192                       a peer without FP8, in BF16 on the same values
    forward/product/bf16/d128/full/n8192                          an 8192-cubed matrix product, interleaved with that cell
    forward/ch05/persistent/bf16/d128/causal_bshd/n8192           tensors [batch, seqlen, heads, d]; default: [batch, heads, seqlen, d]
    ablation/ch05/one_loop/bf16/d128/full/n4096                   a step with one switch changed
    ablation/ch08/two_stages/bf16/d128/b16h32k8/n8192             the same for decoding
    triton/ch05/specialised/bf16/d128/full/n4096                  a step, interleaved with its Triton version, triton/triton/...
    blocks/ch03/b64/bf16/d128/full/n4096                          a step with other tiles
    accuracy/outliers/ch06/block_scales_block/e4m3/d128/full/n4096
    gradients/one_hot/ch07/persistent/bf16/d128/full/n4096        errors of dQ, dK and dV
    long/quarter/ch06/persistent_centred/e4m3/d128/full/n16384    the same study for long rows
    long/ones/fa3/e4m3/d128/full/n131072                          bench/long_rows.py: V = 1, next to the peers; halves: V from N(1/2, 1)
    masked/ch09/varlen/bf16/d128/window/n8192                     a mask
    decode/ch08/ring/bf16/d128/b16h32k8/n8192                     one query per sequence: batch, query heads, key heads, keys
    decode/ch08/paged_p64/bf16/d128/b16h32k8/n8192                the same with keys in pages of 64
    decode/ch08/equal_work_p64_once/bf16/d128/b64h32k8shared/n9216   sequences share a prefix, which is read once
    decode/ch08/equal_work/bf16/d128/b16h32k8window/n8192         a query sees the last 1024 of 8192 keys; `rules`: all keys, with a softcap and sinks
    decode/ch08/equal_work_p64/bf16/d128/b8h32k8chunks/n16384     chunks of prompts, packed; b34h32k8mixed: together with sequences that decode
    decode/ch08/warpgroup/bf16/d128/b64h64k8t16_bshd_p64/n8192    16 query tokens; pages of 64, [rows, kv_heads, d]; bhsd: [kv_heads, rows, d]
    called/ch08/warpgroup/bf16/d128/b64h64k8t16_bshd_p64/n8192    the same through the Python package, including the host's time
    called/ch05/persistent/bf16/d128/forward_h64k8_causal/n4096   the same for other calls: backward_h64k8_full, forward_window512_h32k8_causal,
    alone/ch09/backward/bf16/d128/backward_packed_short_h16k16_causal/n16384   ...; alone: a CUDA graph of such a call, without the host's time
    cpu/ch02/register_blocks/f32/d64/c16h8/n4096                  on 16 cores, 8 heads
    python/flash_attn_func/bf16/d128/causal/n4096                 the Python package, interleaved with the C function that it calls
    training/sdpa/bf16/d64/causal/n2048                           a training step of python/examples/train_text.py
    many/ch10/zigzag_nccl/bf16/d128/causal/n65536                 two GPUs, 16 heads, messages over NCCL; causal_p8h64: eight GPUs, 64 heads
    timeline/ch05/pingpong/bf16/d64/full/n4096                    time stamps of one block
    ncu/ch01/register_tile/bf16/d128/full/n8192                   bytes counted by the profiler
    machine/latency/l2                                            chapter 0: a property of the machine, without a shape
"""
import dataclasses
import re

from bench import steps

KINDS = ("forward", "backward", "decode", "called", "alone", "masked", "cpu", "ablation", "triton", "timeline", "ncu", "blocks", "python", "training",
         "many", *(f"accuracy/{inputs}" for inputs in ("normal", "outliers", "channels")),
         *(f"gradients/{inputs}" for inputs in ("normal", "outliers", "one_hot", "large_scores")),
         *(f"long/{inputs}" for inputs in ("quarter", "one", "one_sign", "all_equal", "ones", "halves")))
DTYPES = ("bf16", "e4m3", "f16", "f32")
MASKS = ("full", "causal", "full_bshd", "causal_bshd")  # for all kinds except those in OWN_WORDS
OWN_WORDS = ("masked", "decode", "called", "alone", "ablation", "cpu", "many")
PATTERN = re.compile(rf"(?P<kind>{'|'.join(KINDS)})/(?P<who>ch\d\d/[a-z0-9]\w*|[a-z]\w*)/(?P<dtype>{'|'.join(DTYPES)})"
                     r"/d(?P<head_dim>[1-9]\d{0,4})/(?P<mask>[a-z]\w*)/n(?P<seqlen>[1-9]\d{0,9})", re.ASCII)
MACHINE = re.compile(r"machine/(?P<who>[a-z]\w*(/[a-z]\w*)+)", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Name:
    """The parts of a result's name; `str` joins them."""

    kind: str
    who: str  # ch05/persistent, ch05/one_loop, ch03/b64; for peers cudnn, flash, eager, fa3, plain; for machine/... latency/l2
    dtype: str = ""  # this and the following are empty for a machine
    head_dim: int = 0
    mask: str = ""
    seqlen: int = 0

    @staticmethod
    def parse(text: str) -> "Name | None":
        """Returns the parts of a name, or None if it is not one."""
        if machine := MACHINE.fullmatch(text):
            return Name("machine", machine["who"])
        found = PATTERN.fullmatch(text)
        if not found or (found["kind"] not in OWN_WORDS and found["mask"] not in MASKS):
            return None
        return Name(found["kind"], found["who"], found["dtype"], int(found["head_dim"]), found["mask"], int(found["seqlen"]))

    def __str__(self) -> str:
        if self.kind == "machine":
            return f"machine/{self.who}"
        return f"{self.kind}/{self.who}/{self.dtype}/d{self.head_dim}/{self.mask}/n{self.seqlen}"

    @property
    def chapter(self) -> int | None:
        """The chapter's number; None for a peer."""
        return int(self.who[2:4]) if re.match(r"ch\d\d/", self.who) else None

    @property
    def variant(self) -> str:
        """The variant within the chapter: a step's slug such as persistent, or one_loop, b64. Empty for a peer."""
        return self.who.partition("/")[2]

    @property
    def step(self) -> int | None:
        """The step's number; None unless it is a plain step."""
        found = steps.find(self.chapter, self.variant) if self.chapter else None
        return found.number if found else None

    @property
    def inputs(self) -> str:
        """For accuracy/...: normal, outliers, channels; for long/...: quarter, one, one_sign, all_equal, ones, halves; and so on."""
        return self.kind.partition("/")[2]
