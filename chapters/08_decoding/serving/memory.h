/// \file
/// The size of a cache in memory.
#pragma once
#include <span>

#include "common/numeric/dtype.h"

namespace flashbook::decoding {

/// The properties of a decoder that determine its cache.
struct Model {
  const char* name;
  int layers;
  int heads;     ///< query heads
  int kv_heads;  ///< key heads in the cache
  int head_dim;
  int latent = 0;  ///< with latent attention: elements per token and layer, for keys and values of all heads
                   ///< together; kv_heads and head_dim then do not matter
  const char* source = "";  ///< where these numbers are published
};

/// Models whose configurations are published.
std::span<const Model> known_models();

/// Returns the known model of that name, or null.
const Model* model_named(std::string_view name);

/// Bytes of a cache, and of standard attention for comparison.
struct MemoryUse {
  double token_and_layer;  ///< one token in one layer: 2 * kv_heads * head_dim elements, or `latent`
  double token;            ///< per token, over all layers
  double sequence;
  double batch;
  double standard;  ///< S in float32 and P in the type, for one layer and the prompts of the batch: what
                    ///< chapter 1 allocates, and what no later chapter does
};

/// Returns the memory for `seqlen` tokens in each of `batch` sequences. Scales of e4m3 are not counted.
MemoryUse memory_of(const Model& model, DType dtype, int seqlen, int batch);

}  // namespace flashbook::decoding
