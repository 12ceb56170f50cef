"""Faults that a page can plant into its chapter's kernels: some of tests/mutation/chapters.py, and others of the same form, a line of a file and
what becomes of it. These are what breaks kernels in practice: a wait, a barrier or an arrival that is missing, or comes too early.

A name ends in the chapter's number. PAGES says of each what is done, in a few words, and what the page then runs: the first of `steps`, and more
if the fault wants it."""
from dataclasses import dataclass, field

from chapters import FAULTS, Fault

SQUARE = "01_naive_attention/step3_shared_tile.cuh"
SINGLE = "05_flash_attention_3/step1_single_warpgroup.cuh"
ROLES = "05_flash_attention_3/step2_specialised.cuh"
PIPELINE = "common/hopper/pipeline.h"

OWN = {
    "stands_still_01": Fault("01_naive_attention/step1_textbook.cuh", "for (int j = 0; j < visible; ++j) p[j] =", "++j", "j += 0", (1,)),
    "one_more_key_01": Fault("01_naive_attention/step1_textbook.cuh", "if (query >= problem.seqlen_q || key >= problem.visible_keys(query)) return;",
                             "key >= problem.visible_keys(query)", "key > problem.visible_keys(query)", (1,)),
    "rows_beyond_01": Fault(SQUARE, "if (query < problem.seqlen_q) o[problem.q_row(head, query) * head_dim + dim]", "query < problem.seqlen_q",
                            "true", (3,)),
    "early_return_01": Fault(SQUARE, "if (first_key >= problem.visible_keys(min(first_query + kSquare, problem.seqlen_q) - 1)) return;",
                             "first_key >= problem.visible_keys(min(first_query + kSquare, problem.seqlen_q) - 1)",
                             "first_key + tx >= problem.visible_keys(first_query + ty)", (3,)),
    "far_row_01": Fault(SQUARE, "const T* k_row = k + problem.k_row(head, min(first_key + ty, problem.seqlen_k - 1)) * head_dim;",
                        "min(first_key + ty, problem.seqlen_k - 1)", "(first_key + ty) * problem.seqlen_k * 4096", (3,)),
    "no_wait_05": Fault(SINGLE, "mbarrier_wait(&shared.landed, phase);", "mbarrier_wait(&shared.landed, phase);", "", (1,)),
    "no_fence_05": Fault(SINGLE, "wgmma_fence();  // P and O were just written", "wgmma_fence();", "", (1,)),
    "no_wait_for_scores_05": Fault(SINGLE, "wgmma_wait<0>();  // S is in registers", "wgmma_wait<0>();", "", (1,)),
    "queries_uncounted_05": Fault(SINGLE, "(first ? decltype(shared.q)::kBytes : 0)", "(first ? decltype(shared.q)::kBytes : 0)", "0", (1,)),
    "no_fence_of_barriers_05": Fault(ROLES, "    fence_mbarrier_init();\n", "fence_mbarrier_init();", "", (2, 3, 4)),
    "registers_kept_05": Fault(ROLES, "setmaxnreg_dec<kProducerRegisters<kConsumers>>();",
                               "setmaxnreg_dec<kProducerRegisters<kConsumers>>();", "", (2, 3, 4)),
    "waits_for_one_product_05": Fault(ROLES, "wgmma_wait<1>();  // the scores are done", "wgmma_wait<1>();", "wgmma_wait<2>();", (4,)),
    "turn_kept_05": Fault(ROLES, "    Traits::record(Moment::issued, tile);\n    if constexpr (Traits::kPingpong) pass_turn<Traits>(consumer);",
                          "pass_turn<Traits>(consumer);", "", (3, 4)),
    "queries_not_awaited_05": Fault(ROLES, "  mbarrier_wait(&shared.q_full, 0);\n  wait_full(pipeline, state);", "mbarrier_wait(&shared.q_full, 0);",
                                    "", (2, 3, 4)),
    "stage_given_back_early_05": Fault(ROLES, "    Traits::record(Moment::turn, tile);\n", "Traits::record(Moment::turn, tile);",
                                       "release(pipeline, k_state);", (4,)),
    "one_warp_releases_05": Fault(PIPELINE, "if (threadIdx.x % 32 == 0) mbarrier_arrive", "threadIdx.x % 32 == 0", "threadIdx.x % 128 == 0",
                                  (2, 3, 4, 5)),
    "wrong_parity_05": Fault(PIPELINE, "mbarrier_wait(&pipeline.empty[state.stage], state.phase ^ 1);", "state.phase ^ 1", "state.phase",
                             (2, 3, 4, 5)),
    "half_the_bytes_05": Fault(PIPELINE, "mbarrier_arrive_expect_tx(&pipeline.full[state.stage], sizeof(Tile));", "sizeof(Tile)", "sizeof(Tile) / 2",
                               (2, 3, 4, 5)),
    "tile_not_awaited_05": Fault(PIPELINE, "mbarrier_wait(&pipeline.full[state.stage], state.phase);",
                                 "mbarrier_wait(&pipeline.full[state.stage], state.phase);", "", (2, 3, 4, 5)),
}


@dataclass
class OnPage:
    about: str
    settings: dict[str, str | int] = field(default_factory=dict)  # what shows it: mask, mode, seed, n, d


CAUSAL: dict[str, str | int] = {"mask": "causal"}

PAGES = {
    "no_barrier_01": OnPage("No barrier before the product: threads multiply tiles that are not complete"),
    "unwritten_01": OnPage("The tile of P takes what nobody has written", CAUSAL),
    "early_return_01": OnPage("Threads without a score leave before the barriers", CAUSAL),
    "rows_beyond_01": OnPage("Rows beyond the last query are stored, too", {"n": 250}),
    "far_row_01": OnPage("The row of K lies far beyond the tensor"),
    "one_lane_01": OnPage("The sum of a row is one lane's"),
    "not_turned_01": OnPage("K is read as if it had not been turned round"),
    "no_mask_01": OnPage("The causal mask is forgotten", CAUSAL),
    "no_zeros_01": OnPage("P is not zero where the mask is", CAUSAL),
    "no_barrier_fragments_01": OnPage("No barrier between storing the tile and loading fragments"),
    "one_more_key_01": OnPage("A thread too many: > in the place of >=", {"n": 200}),
    "stands_still_01": OnPage("A loop whose counter does not move"),
    "no_wait_05": OnPage("Nobody waits for the tiles that TMA brings"),
    "no_fence_05": OnPage("No fence between ordinary instructions and WGMMA"),
    "no_wait_for_scores_05": OnPage("The scores are read while WGMMA computes them"),
    "queries_uncounted_05": OnPage("The bytes of Q are not announced at the mbarrier"),
    "no_fence_of_barriers_05": OnPage("TMA is not shown the barriers"),
    "registers_kept_05": OnPage("The producer keeps its registers"),
    "queries_not_awaited_05": OnPage("Nobody waits for Q", {"mode": "random", "seed": 2}),
    "tile_not_awaited_05": OnPage("Nobody waits for a full stage"),
    "half_the_bytes_05": OnPage("Half of a tile's bytes are announced"),
    "wrong_parity_05": OnPage("The producer waits for the other parity"),
    "one_warp_releases_05": OnPage("One warp of four gives a stage back", {"n": 512}),
    "waits_for_one_product_05": OnPage("The wait leaves two products in flight"),
    "stage_given_back_early_05": OnPage("K's stage is given back before the product that reads it, and again after it",
                                        {"n": 512, "mode": "eager", "seed": 2}),
    "turn_kept_05": OnPage("The turn at the tensor cores is not passed on"),
    "no_rescaling_05": OnPage("The sums are not rescaled when the maximum rises"),
    "no_rescaling_03": OnPage("The sums are not rescaled when the maximum rises"),
    "no_rescaling_split_04": OnPage("The output is not rescaled when the maximum rises"),
    "no_rescaling_04": OnPage("The sums are not rescaled when the maximum rises"),
    "no_rescaling_06": OnPage("The sums are not rescaled when the maximum rises"),
    "no_scales_06": OnPage("The scales of the tensors are forgotten"),
    "other_slope_06": OnPage("The line that stands for the exponential has another slope"),
    "no_d_07": OnPage("D is not subtracted from dP"),
    "no_mask_07": OnPage("The causal mask is forgotten", CAUSAL),
    "no_scale_07": OnPage("dK lacks the scale of the scores"),
    "no_wait_07": OnPage("Nobody waits for what cp.async copies"),
    "no_barrier_07": OnPage("No barrier before a tile is overwritten"),
    "same_stage_07": OnPage("Both stages lie in the same memory"),
    "not_transposed_07": OnPage("dS is not transposed"),
    "no_rescaling_08": OnPage("The sums are not rescaled when the maximum rises"),
    "forgotten_warp_08": OnPage("The last warp's part is forgotten"),
    "keys_exchanged_08": OnPage("The keys of a product are exchanged"),
    "last_keys_08": OnPage("Keys beyond the end are not masked", {"n": 250}),
}

ALL = {name: {**OWN, **FAULTS}[name] for name in PAGES}
