#include <array>

#include "bench/ablation.h"
#include "chapters/05_flash_attention_3/host/chapter.h"

namespace flashbook {
namespace {

template <int kWhich>
std::string limits(const Spec& spec) {
  if (spec.dtype != DType::bf16) return kOnlyBf16;
  if (kWhich == 4 && !spec.causal()) return "without a mask step 5 already has one loop";
  if (kWhich == 6 && spec.head_dim == 256)
    return "at d = 256 step 5 already stores the output from registers";
  return kFlashAttention3.refusal("persistent", spec);
}

template <int kWhich>
void run(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  const auto run_of = spec.head_dim == 64    ? run_ablation_05<64>
                      : spec.head_dim == 128 ? run_ablation_05<128>
                                             : run_ablation_05<256>;
  run_of(spec, tensors, stream, kWhich);
}

int64_t counter_bytes(const Spec&) { return sizeof(int); }

std::array<Step, 7> rows() {
  Step step = kFlashAttention3.step("persistent");
  step.workspace = step.zeroed = counter_bytes;
  return {
      row(step, "as_it_is", "The persistent step, unchanged.", limits<1>, run<1>),
      row(step, "other_stay",
          "One block per tile of queries; at d = 256 under a causal mask and over 2048 queries, blocks "
          "that stay.",
          limits<2>, run<2>),
      row(step, "other_order", "Tiles by a fixed schedule under a causal mask, and by a counter without one.",
          limits<3>, run<3>),
      row(step, "one_loop", "One loop for tiles with and without a mask.", limits<4>, run<4>),
      row(step, "other_rescaling",
          "Rescaling with every tile; at d = 64, lazy rescaling for short causal sequences.", limits<5>,
          run<5>),
      row(step, "from_registers", "Output stored directly from registers.", limits<6>, run<6>),
      row(step, "other_pingpong", "Consumers take turns where step 5 does not, and vice versa.", limits<7>,
          run<7>)};
}

}  // namespace

std::span<const Step> ablation_05() {
  static const auto found = rows();
  return found;
}

}  // namespace flashbook
