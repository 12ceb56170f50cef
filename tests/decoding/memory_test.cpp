#include "chapters/08_decoding/serving/memory.h"

#include <gtest/gtest.h>

#include "chapters/01_naive_attention/host/chapter.h"
#include "common/attention/cost.h"

namespace flashbook::decoding {
namespace {

/// Returns one layer of a model, with one query per head and a cache.
Spec layer_of(const Model& model, DType dtype, int seqlen, int batch) {
  return {{.batch = batch,
           .heads = model.heads,
           .kv_heads = model.kv_heads,
           .seqlen_k = seqlen,
           .head_dim = model.head_dim,
           .dtype = dtype}};
}

TEST(Memory, OneMoreTokenIsWhatTheCostModelReadsMore) {
  for (const Model& model : known_models()) {
    if (model.latent > 0) continue;  // not covered by the cost model
    for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::e4m3}) {
      const int seqlen = 4096, batch = 3;
      const double more = compulsory_bytes(layer_of(model, dtype, seqlen + 1, batch), Operation::decode) -
                          compulsory_bytes(layer_of(model, dtype, seqlen, batch), Operation::decode);
      const MemoryUse use = memory_of(model, dtype, seqlen, batch);
      EXPECT_EQ(use.token_and_layer * batch, more) << model.name;
      EXPECT_EQ(use.token, use.token_and_layer * model.layers);
      EXPECT_EQ(use.batch, use.token * seqlen * batch);
    }
  }
}

TEST(Memory, StandardAttentionTakesWhatChapter1Allocates) {
  const Model model = *model_named("llama-2-7b");
  Spec spec = layer_of(model, DType::bf16, 512, 2);
  spec.seqlen_q = spec.seqlen_k;
  EXPECT_EQ(memory_of(model, DType::bf16, 512, 2).standard,
            double(kNaiveAttention.step("textbook").workspace_bytes(spec)));
}

TEST(Memory, OfPublishedModels) {
  const auto token = [](const char* name) { return memory_of(*model_named(name), DType::bf16, 1, 1).token; };
  EXPECT_EQ(token("llama-3-8b"), 128 * 1024);
  EXPECT_EQ(token("llama-2-70b"), 320 * 1024);
  EXPECT_EQ(token("llama-2-7b"), 512 * 1024);
  EXPECT_EQ(token("deepseek-v3"), 70272);
  EXPECT_EQ(model_named("llama-2-71b"), nullptr);
}

}  // namespace
}  // namespace flashbook::decoding
