#include "chapters/08_decoding/serving/memory.h"

#include <algorithm>
#include <array>

namespace flashbook::decoding {
namespace {

constexpr std::array kModels = {
    Model{"gpt-3", 96, 96, 96, 128, 0, "arXiv 2005.14165, table 2.1"},
    Model{"llama-2-7b", 32, 32, 32, 128, 0, "arXiv 2307.09288; its config.json"},
    Model{"llama-2-70b", 80, 64, 8, 128, 0, "arXiv 2307.09288; its config.json"},
    Model{"llama-3-8b", 32, 32, 8, 128, 0, "arXiv 2407.21783, table 3"},
    Model{"llama-3-405b", 126, 128, 8, 128, 0, "arXiv 2407.21783, table 3"},
    Model{"gemma-2b", 18, 8, 1, 256, 0, "arXiv 2403.08295, table 1"},
    Model{"deepseek-v3", 61, 128, 1, 576, 512 + 64, "arXiv 2412.19437, section 4.2"},
};

}  // namespace

std::span<const Model> known_models() { return kModels; }

const Model* model_named(std::string_view name) {
  const auto found = std::ranges::find(kModels, name, &Model::name);
  return found == kModels.end() ? nullptr : &*found;
}

MemoryUse memory_of(const Model& model, DType dtype, int seqlen, int batch) {
  const double element = double(size_of(dtype)), pairs = double(seqlen) * seqlen * model.heads * batch;
  const double elements = model.latent > 0 ? model.latent : 2.0 * model.kv_heads * model.head_dim;
  MemoryUse use;
  use.token_and_layer = elements * element;
  use.token = use.token_and_layer * model.layers;
  use.sequence = use.token * seqlen;
  use.batch = use.sequence * batch;
  use.standard = pairs * (sizeof(float) + element);
  return use;
}

}  // namespace flashbook::decoding
