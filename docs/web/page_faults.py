"""Faults that a page can plant into its chapter's kernels: some of tests/mutation/chapters.py, and others of the same
form, a line of a file and its replacement. These are the faults that break kernels in practice: a wait, a barrier or an
arrival that is missing or too early.

A name ends in the chapter's number. PAGES has a short description of each and what the page then runs: the first of
`steps`, with other settings if the fault needs them."""
from dataclasses import dataclass, field

from chapters import ALL, FAULTS, MASKED, Fault

SQUARE = "01_naive_attention/step3_shared_tile.cuh"
SPLIT_K = "03_flash_attention_1/step3_split_k.cuh"
SINGLE = "05_flash_attention_3/step1_single_warpgroup.cuh"
ROLES = "05_flash_attention_3/step2_specialised.cuh"
TURNS = "05_flash_attention_3/step3_pingpong.cuh"
OVERLAP = "05_flash_attention_3/step4_overlap.cuh"
FP8 = "06_fp8/step1_attention.cuh"
DECODE = "08_decoding/step1_pack_gqa.cuh"
MASKS = "09_masks/attention.cuh"
PIPELINE = "common/hopper/pipeline.h"


def gone(file: str, line: str, steps: tuple[str, ...], old: str = "") -> Fault:
    """Removes a statement: `old`, or the part of the line before its comment."""
    return Fault(file, line, old or line.partition(";")[0].strip() + ";", "", steps)


OWN = {
    "stands_still_01": Fault("01_naive_attention/step1_textbook.cuh", "for (int j = 0; j < visible; ++j) p[j] =", "++j", "j += 0", ("textbook",)),
    "one_more_key_01": Fault("01_naive_attention/step1_textbook.cuh", "if (query >= problem.seqlen_q || key >= problem.visible_keys(query)) return;",
                             "key >= problem.visible_keys(query)", "key > problem.visible_keys(query)", ("textbook",)),
    "rows_beyond_01": Fault(SQUARE, "if (query < problem.seqlen_q) o[problem.q_row(head, query) * head_dim + dim]", "query < problem.seqlen_q",
                            "true", ("shared_tile",)),
    "early_return_01": Fault(SQUARE, "if (first_key >= problem.visible_keys(min(first_query + kSquare, problem.seqlen_q) - 1)) return;",
                             "first_key >= problem.visible_keys(min(first_query + kSquare, problem.seqlen_q) - 1)",
                             "first_key + tx >= problem.visible_keys(first_query + ty)", ("shared_tile",)),
    "far_row_01": Fault(SQUARE, "const T* k_row = k + problem.k_row(head, min(first_key + ty, problem.seqlen_k - 1)) * head_dim;",
                        "min(first_key + ty, problem.seqlen_k - 1)", "(first_key + ty) * problem.seqlen_k * 4096", ("shared_tile",)),
    "no_barrier_after_load_03": gone("03_flash_attention_1/step1_keys_outside.cuh",
                                     "__syncthreads();  // all three tiles are complete before anyone multiplies", ("keys_outside",)),
    "no_mask_03": Fault("03_flash_attention_1/tile.cuh", "scores[i][j] = tx + kSide * j < visible ? scores", "tx + kSide * j < visible", "true",
                        ("keys_outside", "queries_outside")),
    "no_wait_03": gone(SPLIT_K, "cp_async_wait<Traits::kSharesKV ? 0 : 1>();  // this thread's part of K, the first", ("split_k",)),
    "no_wait_for_values_03": gone(SPLIT_K, "cp_async_wait<Traits::kSharesKV ? 0 : 1>();  // this thread's part of V", ("split_k",)),
    "scores_not_awaited_03": gone(SPLIT_K, "__syncthreads();  // all scores of a row are there", ("split_k",)),
    "no_mask_04": Fault("04_flash_attention_2/softmax.cuh", "if (n * 8 + lane % 4 * 2 + i >= visible) scores", "n * 8 + lane % 4 * 2 + i >= visible",
                        "false", ALL[4]),
    "no_wait_04": gone("04_flash_attention_2/step5_tuned.cuh", "cp_async_wait<0>();\n    __syncthreads();  // the tile has arrived, and no warp",
                       ("tuned",)),
    "no_wait_05": gone(SINGLE, "mbarrier_wait(&shared.landed, phase);", ("single_warpgroup",)),
    "no_fence_05": gone(SINGLE, "wgmma_fence();  // P and O were just written", ("single_warpgroup",)),
    "no_wait_for_scores_05": gone(SINGLE, "wgmma_wait<0>();  // S is in registers", ("single_warpgroup",)),
    "queries_uncounted_05": Fault(SINGLE, "(first ? decltype(shared.q)::kBytes : 0)", "(first ? decltype(shared.q)::kBytes : 0)", "0",
                                  ("single_warpgroup",)),
    "no_fence_of_barriers_05": Fault(ROLES, "    fence_mbarrier_init();\n", "fence_mbarrier_init();", "", ("specialised",)),
    "registers_kept_05": Fault(ROLES, "setmaxnreg_dec<kProducerRegisters<kConsumers>>();",
                               "setmaxnreg_dec<kProducerRegisters<kConsumers>>();", "", ("specialised",)),
    "waits_for_one_product_05": Fault(OVERLAP, "wgmma_wait<1>();  // the scores are done", "wgmma_wait<1>();", "wgmma_wait<2>();", ("overlap",)),
    "turn_kept_05": Fault(TURNS, "    Traits::record(Moment::issued, tile);\n    pass_turn<Traits>(consumer);",
                          "pass_turn<Traits>(consumer);", "", ("pingpong",)),
    "queries_not_awaited_05": Fault(ROLES, "  mbarrier_wait(&shared.q_full, 0);\n  wait_full(pipeline, state);", "mbarrier_wait(&shared.q_full, 0);",
                                    "", ("specialised",)),
    "stage_given_back_early_05": Fault(OVERLAP, "    Traits::record(Moment::turn, tile);\n", "Traits::record(Moment::turn, tile);",
                                       "release(pipeline, k_state);", ("overlap",)),
    "one_warp_releases_05": Fault(PIPELINE, "if (threadIdx.x % 32 == 0) mbarrier_arrive", "threadIdx.x % 32 == 0", "threadIdx.x % 128 == 0",
                                  ALL[5][1:]),
    "half_the_bytes_05": Fault(PIPELINE, "mbarrier_arrive_expect_tx(&pipeline.full[state.stage], sizeof(Tile));", "sizeof(Tile)", "sizeof(Tile) / 2",
                               ALL[5][1:]),
    "tile_not_awaited_05": Fault(PIPELINE, "mbarrier_wait(&pipeline.full[state.stage], state.phase);",
                                 "mbarrier_wait(&pipeline.full[state.stage], state.phase);", "", ALL[5][1:]),
    "no_fence_of_barriers_06": gone(FP8, "    fence_mbarrier_init();\n", ALL[6]),
    "waits_for_one_product_06": Fault(FP8, "wgmma_wait<1>();  // the scores are done; P V still runs", "wgmma_wait<1>();", "wgmma_wait<2>();",
                                      ALL[6][1:]),
    "values_not_awaited_06": gone(FP8, "wgmma_wait<0>();  // P V is done: P may be overwritten", ALL[6][1:]),
    "no_wait_08": gone(DECODE, "mbarrier_wait(&shared.landed, phase);  // K and V have landed", ALL[8][:3]),
    "no_fence_08": gone(DECODE, "wgmma_fence();  // P and O were just written by ordinary instructions", ALL[8][:3]),
    "no_wait_for_scores_08": gone(DECODE, "wgmma_wait<0>();  // S is in registers", ALL[8][:3]),
    "keys_not_awaited_08": gone("08_decoding/step4_ring.cuh", "if (first == 0) wait_full(shared.ring, keys);  // K has landed",
                                ("ring", "paged", "equal_work", "e4m3_cache"), "wait_full(shared.ring, keys);"),
    "queries_not_awaited_09": gone(MASKS, "mbarrier_wait(&shared.barriers.q_full[place.stage][number], place.phase);  // the queries have landed",
                                   MASKED),
    "waits_for_one_product_09": Fault(MASKS, "wgmma_wait<1>();  // the scores are done; the product with V still runs",
                                      "wgmma_wait<1>();", "wgmma_wait<2>();", MASKED),
    "values_not_awaited_09": gone(MASKS, "wgmma_wait<0>();  // the product with V is done: P may be overwritten", MASKED),
    "wrong_first_parity_09": Fault("09_masks/step6_backward.cuh", "mbarrier_wait(&shared.keys_empty, parity ^ 1);", "parity ^ 1", "parity",
                                   ("backward", "deterministic")),
    "turn_skips_a_block_09": Fault("09_masks/step6_backward.cuh", "store_release(semaphore, turn + 1);", "turn + 1", "turn + 2", ("deterministic",)),
}


@dataclass
class OnPage:
    about: str
    settings: dict[str, str | int] = field(default_factory=dict)  # settings that show it: step, mask, mode, seed, n, d, more
    unseen: str = ""  # why the page cannot show it, if only the traced mode can


CAUSAL: dict[str, str | int] = {"mask": "causal"}
RACE = ("The result is still right: here the threads happened to run in a harmless order. The traced mode, which is not available on this "
        "page, reports the race")
VARLEN = "--lengths 60,200,100 --causal"

PAGES = {
    "no_barrier_01": OnPage("No barrier before the product: threads multiply tiles that are not complete"),
    "half_a_mask_01": OnPage("A shuffle names half of the lanes that call it"),
    "unwritten_01": OnPage("The tile of P is filled with values that were never written", CAUSAL),
    "early_return_01": OnPage("Threads without a score leave before the barriers", CAUSAL),
    "rows_beyond_01": OnPage("Rows beyond the last query are stored, too", {"n": 250}),
    "far_row_01": OnPage("The row of K is far outside the tensor"),
    "one_lane_01": OnPage("The sum of a row includes only one lane's part"),
    "not_turned_01": OnPage("K is read as if it had not been transposed"),
    "no_mask_01": OnPage("The causal mask is forgotten", CAUSAL),
    "no_zeros_01": OnPage("P is not zero where the mask hides a pair", CAUSAL),
    "no_barrier_fragments_01": OnPage("No barrier between storing the tile and loading fragments"),
    "one_more_key_01": OnPage("One thread too many: > instead of >=", {"n": 200}),
    "stands_still_01": OnPage("A loop does not advance its counter"),
    "no_wait_05": OnPage("The kernel does not wait for the tiles that TMA loads"),
    "no_fence_05": OnPage("No fence between ordinary instructions and WGMMA"),
    "no_wait_for_scores_05": OnPage("The scores are read while WGMMA computes them"),
    "queries_uncounted_05": OnPage("The bytes of Q are not announced at the mbarrier"),
    "no_fence_of_barriers_05": OnPage("The initialised barriers are not made visible to TMA"),
    "registers_kept_05": OnPage("The producer keeps its registers"),
    "queries_not_awaited_05": OnPage("The consumers do not wait for Q", {"mode": "random", "seed": 2}),
    "tile_not_awaited_05": OnPage("The consumers do not wait for a full stage"),
    "half_the_bytes_05": OnPage("Half of a tile's bytes are announced"),
    "wrong_parity_05": OnPage("The producer waits for the other parity"),
    "one_warp_releases_05": OnPage("Only one of four warps releases a stage", {"n": 512}),
    "waits_for_one_product_05": OnPage("The wait leaves two products in flight"),
    "stage_given_back_early_05": OnPage("K's stage is released before the product that reads it, and again afterwards",
                                        {"n": 512, "mode": "eager", "seed": 2}),
    "turn_kept_05": OnPage("The turn at the tensor cores is not passed on"),
    "no_rescaling_05": OnPage("The sums are not rescaled when the maximum rises"),
    "no_rescaling_02": OnPage("The sum is not rescaled when the maximum rises"),
    "no_rescaling_tiles_02": OnPage("The output is not rescaled when the maximum rises"),
    "no_guard_02": OnPage("A row without a key is not guarded", {"more": "--seqlen 100 --seqlen-k 70 --causal"}),
    "no_barrier_03": OnPage("No barrier before K and V are overwritten"),
    "added_too_early_03": OnPage("No barrier between the warps that add to one piece"),
    "no_rescaling_03": OnPage("The sums are not rescaled when the maximum rises"),
    "no_barrier_after_load_03": OnPage("No barrier after the tiles are loaded"),
    "no_mask_03": OnPage("The causal mask is forgotten", CAUSAL),
    "no_wait_03": OnPage("The kernel does not wait for cp.async to copy K"),
    "no_wait_for_values_03": OnPage("The kernel does not wait for cp.async to copy V"),
    "scores_not_awaited_03": OnPage("No barrier between computing four warps' scores and using the whole row"),
    "no_barrier_04": OnPage("No barrier after the wait for the copies"),
    "no_swizzle_04": OnPage("The tile is not swizzled", unseen="The result is right, because reads and writes use the same layout. It only costs "
                            "clocks, which the traced mode counts"),
    "no_rescaling_split_04": OnPage("The output is not rescaled when the maximum rises"),
    "no_rescaling_04": OnPage("The sums are not rescaled when the maximum rises"),
    "no_mask_04": OnPage("The causal mask is forgotten", CAUSAL),
    "no_wait_04": OnPage("The kernel does not wait for cp.async"),
    "waits_for_one_less_05": OnPage("The wait leaves one product in flight"),
    "one_does_not_arrive_06": OnPage("Only one of the transposing warps releases a stage", {"n": 512}),
    "arrives_for_others_06": OnPage("Lane 0 arrives for lanes that may not have finished", unseen=RACE),
    "no_rescaling_06": OnPage("The sums are not rescaled when the maximum rises"),
    "no_scales_06": OnPage("The scales of the tensors are forgotten"),
    "no_means_06": OnPage("The means of V are not added again", {"more": "--seqlen 40 --seqlen-k 8"}),
    "twos_06": OnPage("The column of ones contains twos"),
    "other_slope_06": OnPage("The line that approximates the exponential has the wrong slope"),
    "no_fence_of_barriers_06": OnPage("The initialised barriers are not made visible to TMA"),
    "waits_for_one_product_06": OnPage("The wait leaves two products in flight"),
    "values_not_awaited_06": OnPage("O is rescaled while WGMMA still adds to it"),
    "no_fence_07": OnPage("TMA reads what was written without a fence", unseen=RACE),
    "no_wait_for_reading_07": OnPage("A part of dQ is overwritten while TMA reads it"),
    "no_d_07": OnPage("D is not subtracted from dP"),
    "no_mask_07": OnPage("The causal mask is forgotten", CAUSAL),
    "no_scale_07": OnPage("dK lacks the scale of the scores"),
    "no_wait_07": OnPage("The kernel does not wait for cp.async"),
    "no_barrier_07": OnPage("No barrier before a tile is overwritten"),
    "same_stage_07": OnPage("Both stages use the same memory"),
    "not_transposed_07": OnPage("dS is not transposed"),
    "one_head_07": OnPage("dK sums only one head of a group", {"more": "--heads 4 --kv-heads 2"}),
    "first_query_07": OnPage("The key's own query is used as the first query that sees it", {"more": "--seqlen 100 --seqlen-k 200 --causal"}),
    "last_tile_07": OnPage("The last tile of keys is left out"),
    "no_handover_08": OnPage("Passing on a part does not order memory accesses", unseen=RACE),
    "keys_behind_the_last_08": OnPage("The last copy includes rows past the last key", {"n": 100, "more": "--batch 1 --heads 1 --kv-heads 1"}),
    "no_rescaling_08": OnPage("The sums are not rescaled when the maximum rises"),
    "forgotten_warp_08": OnPage("The last warp's part is forgotten"),
    "keys_exchanged_08": OnPage("The keys of a product are exchanged"),
    "last_keys_08": OnPage("Keys beyond the end are not masked", {"n": 250}),
    "wrong_page_08": OnPage("The previous page is read instead of the right one", {"mask": "pages"}),
    "window_begins_late_08": OnPage("The window begins a key too late", {"mask": "window"}),
    "key_before_the_window_08": OnPage("The key before the window is seen", {"mask": "window", "more": "--page-rows 16"}),
    "distance_from_the_chunk_08": OnPage("The slope counts from the beginning of the cache", {"mask": "alibi"}),
    "sink_without_weight_08": OnPage("The sink has no weight", {"mask": "sinks", "n": 20}),
    "no_correction_08": OnPage("The sum is not rescaled when the maximum rises", {"n": 300}),
    "one_half_08": OnPage("Both warpgroups multiply the first half of the values", {"n": 300}),
    "waits_for_one_08": OnPage("The merge waits for one part of several", {"n": 300}),
    "no_scale_08": OnPage("The parts are merged without their scales", {"n": 300}),
    "scale_of_values_left_out_08": OnPage("The power of two is not divided out again", {"n": 100}),
    "keys_twice_08": OnPage("A product has the same keys twice", {"n": 100}),
    "power_left_out_08": OnPage("The power of two of a row is left out", {"n": 100}),
    "behind_the_last_key_08": OnPage("Scales past the last key are read", {"n": 100}),
    "no_wait_08": OnPage("The kernel does not wait for the tiles that TMA loads"),
    "no_fence_08": OnPage("No fence between ordinary instructions and WGMMA"),
    "no_wait_for_scores_08": OnPage("The scores are read while WGMMA computes them"),
    "keys_not_awaited_08": OnPage("The kernel does not wait for K"),
    "skips_at_the_end_09": OnPage("A tile whose last query sees keys is skipped", {"mask": "intervals"}),
    "partial_is_full_09": OnPage("A tile with hidden pairs is treated as full", {"mask": "intervals"}),
    "over_the_next_09": OnPage("A sequence's last rows overwrite the next sequence's", {"more": VARLEN}),
    "other_sequence_09": OnPage("A tile is assigned to the previous sequence", {"more": VARLEN}),
    "no_barrier_09": OnPage("No barrier between emptying the buckets and counting into them", {"more": VARLEN}),
    "full_by_one_row_09": OnPage("A tile that is full for its first query is treated as full", {"more": VARLEN}),
    "skips_the_last_query_09": OnPage("A tile that only its last query sees is skipped", {"more": "--seqlen 328 --seqlen-k 201 --causal"}),
    "full_by_the_first_key_09": OnPage("A tile that is full for its first key is treated as full", CAUSAL),
    "slope_after_the_mask_09": OnPage("The softcap's slope is computed from masked scores", {"mask": "softcap", "more": "--causal"}),
    "over_the_next_keys_09": OnPage("The gradients of a sequence's last keys overwrite the next sequence's", {"more": VARLEN}),
    "slope_of_both_09": OnPage("The derivative includes the slopes, which are constant, in the softcap", {"mask": "both", "more": "--causal"}),
    "no_penalty_after_the_cap_09": OnPage("The slopes after the softcap are forgotten", {"mask": "both", "more": "--causal"}),
    "drawn_at_the_transposed_place_09": OnPage("The gradient draws dropout's bits for the transposed pair", {"more": "--dropout 0.2 --causal"}),
    "dp_is_not_dropped_09": OnPage("dP keeps the elements that dropout removed", {"more": "--dropout 0.2 --causal"}),
    "queries_not_awaited_09": OnPage("The consumers do not wait for Q"),
    "waits_for_one_product_09": OnPage("The wait leaves two products in flight"),
    "values_not_awaited_09": OnPage("O is rescaled while WGMMA still adds to it"),
    "wrong_first_parity_09": OnPage("The producer waits for consumers to read a tile of keys that was never loaded"),
    "turn_skips_a_block_09": OnPage("The turn skips the next block"),
}

SHOWN: dict[str, Fault] = {name: (FAULTS | OWN)[name] for name in PAGES}


def steps_of(fault: Fault) -> tuple[str, ...]:
    """Returns the steps that a fault breaks; for a fault that only the traced mode shows, the traced step."""
    return fault.steps or (fault.traced[fault.traced.index("--step") + 1],)
