//| # Promoted sums
//|
//| A tensor core drops the bits of a product below the lowest bit that it keeps of the sum. If products have
//| both signs, these losses cancel. If they have one sign, as when values have a mean, they add up, and long
//| sums come out too small. Promotion sums each tile from 0, while sums are short, and adds the tiles up in
//| float32.
//|
//| This serves only the study of accuracy, not any step. The second accumulator prevents overlap: `sums`
//| takes the registers that the next scores would need.
//|
//| ![TMA brings keys and raw values, two warps transpose the values, consumers read keys and transposed
//| values](../../docs/figures/fp8_block.svg)
#pragma once
#include "chapters/06_fp8/version.cuh"
#include "common/hopper/mask.h"

namespace flashbook::fp8 {

// The tensor cores keep some 14 bits of a sum (arXiv 2411.10958). Promotion moves sums out of them while they
// are small.

/// A tile of keys whose values are summed from 0 and then added to the output, in float32.
template <typename Consumer>
__device__ __forceinline__ void step_promoted(Consumer& consumer, int tile) {
  constexpr int kKeys = Consumer::kKeys, kFloats = Consumer::kHeadDim / 2;
  const TileScale scale = consumer.scale_of(tile);
  wait_full(consumer.shared.keys, consumer.key);
  wgmma_fence();
  consumer.issue_next_scores();
  wgmma_wait<0>();
  consumer.pin_scores();
  consumer.scores_done(tile);
  if (needs_mask(consumer.problem, consumer.first_query, tile * kKeys, kKeys))
    mask(consumer.scores, consumer.problem, consumer.query, tile * kKeys);
  //| The output is rescaled before the tile is added, since the sums of this tile belong to the new maximum.
  float correction[2], sums[kFloats] = {};
  consumer.template to_probabilities<true, false>(correction, scale);
  round_to_fragments(consumer.p, consumer.scores);
  rescale_rows(consumer.output, correction);
  wait_full(consumer.shared.transposed, consumer.value);
  wgmma_pin(sums);
  wgmma_pin(consumer.p);
  wgmma_fence();
  consumer.issue_next_values(sums);
  wgmma_wait<0>();
  wgmma_pin(sums);
  wgmma_pin(consumer.p);
  consumer.values_done();
#pragma unroll
  for (int i = 0; i < kFloats; ++i) consumer.output[i] += sums[i];
}

//| One loop handles all tiles, masked or not, since speed does not matter here.
/// One tile of queries, whose last one sees `key_tiles` tiles of keys.
template <typename Consumer, int kHeadDim>
__device__ __forceinline__ void attend_promoted(Consumer& consumer, int key_tiles,
                                                const Means<kHeadDim>& means) {
  consumer.use_queries(means);
  consumer.begin_rows();
#pragma unroll 1
  for (int tile = key_tiles - 1; tile >= 0; --tile) step_promoted(consumer, tile);
}

}  // namespace flashbook::fp8
