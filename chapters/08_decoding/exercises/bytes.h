/// \file
/// Exercise ch08-bytes: what a cache weighs, from paper and pencil.
#pragma once

namespace flashbook::decoding {

// All in bf16, two bytes an element, unless a line says otherwise. A card reads 4.3 TB/s (T is 10^12) and
// does 790 TFLOP/s, a multiply-add counted as two.
//
// Llama-3-8B: 32 layers, 32 query heads, 8 key heads of 128. Llama-2-70B: 80 layers, 64 query heads, 8 key
// heads of 128. DeepSeek-V3: 61 layers, 128 query heads, one latent of 512 elements and a key of 64 that has
// the position, for all heads together. A score takes all 576; the value is the first 512.
//
// Write products, not results: they show how you think, and the compiler multiplies. Whole numbers divide
// downwards: 7 / 2 is 3, 7 / 2.0 is 3.5. Within one percent is right.

// BEGIN SOLUTION ch08-bytes
// 1 + 2 + ... + 1000.
constexpr double kKeysWithoutCache = 1000 * 1001 / 2;
// Keys and values.
constexpr double kTokenOf8B = 2.0 * 32 * 8 * 128 * 2;
constexpr double kTokenOf70B = 2.0 * 80 * 8 * 128 * 2;
constexpr double kTokenOf70BUngrouped = 2.0 * 80 * 64 * 128 * 2;
constexpr double kTokenOfLatent = 61.0 * (512 + 64) * 2;
// 116.4, and the last does not fit.
constexpr double kSequences = int((141e9 - 16e9) / (kTokenOf8B * 8192));
// Of one layer.
constexpr double kMicroseconds = 16 * 8192 * (kTokenOf8B / 32) / 4.3e12 * 1e6;
// 16 parts of 32 rows: O and the log-sum-exp.
constexpr double kPartialBytes = 16.0 * 32 * (128 + 1) * 4;
// A key head's key and value are 2 * 128 elements, for which each of 4 query heads does 4 * 128 FLOPs.
constexpr double kIntensityOfGroup = 4.0 * 4 * 128 / (2 * 128 * 2);
// A head multiplies by 576 and by 512 elements, and 576 are read.
constexpr double kIntensityOfLatentHead = 2.0 * (576 + 512) / (576 * 2);
// 790 / 4.3 is 183.7, and 183.7 / 1.889 is 97.3.
constexpr double kHeadsAtRidge = 98;
//~ // A model writes 1000 tokens after the first, without a cache: the first new token takes the keys of 1 token,
//~ // the last those of 1000. How many keys of one key head are computed in a layer?
//~ constexpr double kKeysWithoutCache = 0;
//~ // Bytes of a token's keys and values, in all layers: of Llama-3-8B, of Llama-2-70B, of Llama-2-70B if each
//~ // query head had a key head of its own, and of DeepSeek-V3.
//~ constexpr double kTokenOf8B = 0;
//~ constexpr double kTokenOf70B = 0;
//~ constexpr double kTokenOf70BUngrouped = 0;
//~ constexpr double kTokenOfLatent = 0;
//~ // How many sequences of 8192 tokens of Llama-3-8B fit into 141 GB beside 16 GB of weights (G is 10^9)?
//~ constexpr double kSequences = 0;
//~ // The least microseconds that attention of one layer of Llama-3-8B can take for 16 sequences of 8192 tokens,
//~ // one query each.
//~ constexpr double kMicroseconds = 0;
//~ // One sequence of Llama-3-8B, its keys split into 16 parts: bytes of a layer's partial results, in float32.
//~ constexpr double kPartialBytes = 0;
//~ // FLOPs of attention per byte of keys and values: of Llama-3-8B's groups; and of DeepSeek-V3 if it had one
//~ // query head.
//~ constexpr double kIntensityOfGroup = 0;
//~ constexpr double kIntensityOfLatentHead = 0;
//~ // From how many query heads on does latent attention take longer to compute than to read?
//~ constexpr double kHeadsAtRidge = 0;
// END SOLUTION ch08-bytes

}  // namespace flashbook::decoding
