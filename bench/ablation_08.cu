#include <array>

#include "bench/ablation.h"
#include "chapters/08_decoding/host/chapter.h"
#include "chapters/08_decoding/host/rules.h"
#include "chapters/08_decoding/host/switches.cuh"

namespace flashbook {
namespace {

using namespace decoding;

std::string limits(const Spec& spec) {
  if (spec.dtype != DType::bf16) return kOnlyBf16;
  if (spec.head_dim != 128 || decoding::has_rules(spec) || spec.heads / spec.kv_heads * spec.seqlen_q > 16)
    return "the ablation of decoding supports d = 128 and up to 16 rows without masks: choose such a shape";
  return kDecoding.refusal("ring", spec);
}

template <template <typename> typename Version>
void run(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  run_turned<__nv_bfloat16, Version<RingKernelTraits<RingSizes{.head_dim = 128}>>>(spec, tensors, stream);
}

int64_t zeroed_bytes(const Spec&) { return kArrivalBytes; }

std::array<Step, 7> rows() {
  Step step = kDecoding.step("ring");
  step.workspace = turned_workspace_bytes, step.zeroed = zeroed_bytes;
  return {row(step, "as_it_is", "The ring, unchanged.", limits, run<AsItIs>),
          row(step, "tile_by_tile", "Each tile starts after the previous one is finished.", limits,
              run<TileByTile>),
          row(step, "two_stages", "A ring of two stages.", limits, run<TwoStages>),
          row(step, "six_stages", "A ring of six stages.", limits, run<SixStages>),
          row(step, "sixty_four_rows", "Tiles of 64 rows.", limits, run<SixtyFourRows>),
          row(step, "second_kernel", "Parts merged by a second kernel.", limits, run<SecondKernel>),
          before(kDecoding.step("split_kv"))};
}

}  // namespace

std::span<const Step> ablation_08() {
  static const auto found = rows();
  return found;
}

}  // namespace flashbook
