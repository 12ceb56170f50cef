#include "bench/ablation.h"

#include "chapters/05_flash_attention_3/host/chapter.h"
#include "library/chapters.h"

namespace flashbook {
namespace {

template <int kWhich>
std::string why_not(const Shape& shape) {
  if (shape.dtype != DType::bf16) return "the ablation is of bf16: choose it with --dtype";
  if (kWhich == 4 && !shape.causal()) return "without a mask there is one loop already";
  if (kWhich == 6 && shape.head_dim == 256) return "at d = 256 the output leaves from the registers already";
  return kFlashAttention3.step(5).why_not(shape);
}

int64_t counter_bytes(const Shape&) { return sizeof(int); }

template <int kWhich>
void run(const Shape& shape, const Tensors& tensors, device::Stream stream) {
  const auto run_of = shape.head_dim == 64    ? run_ablation<64>
                      : shape.head_dim == 128 ? run_ablation<128>
                                              : run_ablation<256>;
  run_of(shape, tensors, stream, kWhich);
}

template <int kWhich>
constexpr Step row(const char* name, const char* idea) {
  return {.name = name,
          .idea = idea,
          .operation = Operation::forward,
          .why_not = why_not<kWhich>,
          .workspace = counter_bytes,
          .run = run<kWhich>,
          .zeroed = counter_bytes};
}

// Names are those of results: ablation/ch05/one_loop/...
constexpr Step kSteps[] = {
    row<1>("as_it_is", "Step 5 as it is."),
    row<2>("other_stay",
           "A block for every tile of queries; at d = 256 under a causal mask and over 2048 queries, blocks "
           "that stay."),
    row<3>("other_order", "Tiles in turn under a causal mask, by a counter without one."),
    row<4>("one_loop", "Tiles with and without a mask in one loop."),
    row<5>("other_rescaling",
           "Rescaling of every tile; at d = 64, lazy rescaling of short causal sequences."),
    row<6>("from_registers", "The output straight from the registers."),
    row<7>("other_pingpong", "Turns where there are none, none where there are."),
};

Chapter ablation() {
  Chapter chapter = kFlashAttention3;
  chapter.steps = kSteps;
  return chapter;
}

}  // namespace

// In place of library/chapters.cpp: the library of the ablation has no other chapter.
std::span<const Chapter* const> all_chapters() {
  static const Chapter chapter = ablation();
  static const Chapter* const chapters[] = {&chapter};
  return chapters;
}

}  // namespace flashbook
