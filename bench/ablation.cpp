#include "bench/ablation.h"

#include "bench/chapters.h"
#include "chapters/05_flash_attention_3/host/chapter.h"

namespace flashbook {
namespace {

// Names are those of results: ablation/ch05/one_loop/...
constexpr Step kSteps[] = {
    {"as_it_is", "Step 5 as it is."},
    {"other_stay",
     "A block for every tile of queries; at d = 256 under a causal mask and over 2048 queries, blocks that "
     "stay."},
    {"other_order", "Tiles in turn under a causal mask, by a counter without one."},
    {"one_loop", "Tiles with and without a mask in one loop."},
    {"other_rescaling", "Rescaling of every tile; at d = 64, lazy rescaling of short causal sequences."},
    {"from_registers", "The output straight from the registers."},
    {"other_pingpong", "Turns where there are none, none where there are."},
};

std::string why_not(const Shape& shape, int which) {
  if (shape.dtype != DType::bf16) return "the ablation is of bf16: choose it with --dtype";
  if (which == 4 && !shape.causal()) return "without a mask there is one loop already";
  if (which == 6 && shape.head_dim == 256) return "at d = 256 the output leaves from the registers already";
  return kFlashAttention3.why_not(shape, 5);
}

int64_t workspace_bytes(const Shape&, int) { return sizeof(int); }  // of the counter

void attention(const Shape& shape, const Tensors& tensors, device::Stream stream, int which) {
  const auto run = shape.head_dim == 64    ? run_ablation<64>
                   : shape.head_dim == 128 ? run_ablation<128>
                                           : run_ablation<256>;
  run(shape, tensors, stream, which);
}

Chapter ablation() {
  Chapter chapter = kFlashAttention3;
  chapter.steps = kSteps;
  chapter.why_not = why_not;
  chapter.workspace_bytes = chapter.zeroed_bytes = workspace_bytes;
  chapter.attention = attention;
  return chapter;
}

}  // namespace

// In place of bench/chapters.cpp: the library of the ablation has no other chapter.
std::span<const Chapter* const> all_chapters() {
  static const Chapter chapter = ablation();
  static const Chapter* const chapters[] = {&chapter};
  return chapters;
}

}  // namespace flashbook
