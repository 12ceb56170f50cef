#include <array>

#include "bench/ablation.h"
#include "chapters/07_backward/host/chapter.h"

namespace flashbook {
namespace {

template <int kWhich>
std::string limits(const Spec& spec) {
  if (spec.dtype != DType::bf16) return kOnlyBf16;
  if (spec.head_dim != 64 && spec.head_dim != 128)
    return "the ablation of gradients supports d = 64 and 128: choose one with --head-dim";
  if (kWhich == 3 && spec.causal()) return "under a causal mask blocks already start on the diagonal";
  if ((kWhich == 4 || kWhich == 5) && !spec.causal())
    return "without a mask the order is already head by head";
  if (kWhich == 7 && spec.head_dim != 64) return "dQ is late at d = 64 only";
  return kBackward.refusal("persistent", spec);
}

template <int kWhich>
void run(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  const auto run_of = spec.head_dim == 64 ? run_ablation_07<64> : run_ablation_07<128>;
  run_of(spec, tensors, stream, kWhich);
}

std::array<Step, 8> rows() {
  const Step& step = kBackward.step("persistent");
  return {
      row(step, "as_it_is", "The persistent step, unchanged.", limits<1>, run<1>),
      row(step, "none_stay", "One block per tile of keys.", limits<2>, run<2>),
      row(step, "one_start", "All blocks start with a head's first queries.", limits<3>, run<3>),
      row(step, "head_by_head", "Under a causal mask, sections of one head.", limits<4>, run<4>),
      row(step, "shortest_first", "Under a causal mask, head by head, shortest first.", limits<5>, run<5>),
      row(step, "other_adder", "dQ is added by TMA where step 5 adds from registers, and vice versa.",
          limits<6>, run<6>),
      row(step, "early_dq", "Each round's dQ in the same round, at d = 64.", limits<7>, run<7>),
      before(kBackward.step("specialised"))};
}

}  // namespace

std::span<const Step> ablation_07() {
  static const auto found = rows();
  return found;
}

}  // namespace flashbook
