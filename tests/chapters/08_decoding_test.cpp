#include "chapters/05_flash_attention_3/chapter.h"
#include "chapters/08_decoding/chapter.h"
#include "tests/chapters/conformance.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kDecoding;
const Chapter* const chapter_before = &kFlashAttention3;

namespace {

/// Two queries of eight heads against a cache.
Shape cache_of(std::vector<int> lengths, int head_dim = 64) {
  const int longest = *std::ranges::max_element(lengths), batch = int(lengths.size());
  return {.batch = batch,
          .heads = 8,
          .kv_heads = 2,
          .seqlen_q = 2,
          .seqlen_k = std::max(longest, 1),
          .head_dim = head_dim,
          .visibility = {.window = {.right = 0}, .lengths = std::move(lengths)},
          .dtype = DType::bf16,
          .scale = default_scale(head_dim)};
}

/// NaN behind every sequence's last key.
void poison_tails(const Shape& shape, Inputs& inputs) {
  for (int batch = 0; batch < shape.batch; ++batch)
    for (int head = 0; head < shape.kv_heads; ++head) {
      const int64_t first = (int64_t(batch) * shape.kv_heads + head) * shape.seqlen_k;
      for (std::vector<float>* tensor : {&inputs.k, &inputs.v})
        std::fill(tensor->begin() + (first + shape.visibility.lengths[batch]) * shape.head_dim,
                  tensor->begin() + (first + shape.seqlen_k) * shape.head_dim,
                  std::numeric_limits<float>::quiet_NaN());
    }
}

// Sequences of one batch have lengths of their own, and none. What lies behind a sequence's last key is NaN.
TEST_F(ChapterTest, SequencesHaveLengthsOfTheirOwn) {
  for (int head_dim : {64, 128, 256}) {
    const Shape shape = cache_of({0, 1, 2, 127, 128, 129, 700}, head_dim);
    Inputs inputs = make_inputs(shape, InputKind::normal, 3);
    poison_tails(shape, inputs);
    expect_right(shape, inputs);
  }
}

}  // namespace
}  // namespace flashbook::testing
