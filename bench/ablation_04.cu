#include <array>

#include "bench/ablation.h"
#include "chapters/04_flash_attention_2/host/chapter.h"
#include "chapters/04_flash_attention_2/host/switches.cuh"
#include "common/device/dispatch.h"

namespace flashbook {
namespace {

void run_row(const Spec& spec, const Tensors& tensors, device::Stream stream, int which) {
  using namespace fa2;
  device::with_head_dim(spec.head_dim, [&]<int kHeadDim>() {
    using Traits = TraitsFor<kHeadDim>;
    const auto run = [&]<typename Version>() {
      run_launch(launch_with<Version>(tuned<__nv_bfloat16, Version>), spec, tensors, stream);
    };
    switch (which) {
      case 1:
        return run.template operator()<AsItIs<Traits>>();
      case 2:
        if constexpr (Traits::kRowBlocks > 1) return run.template operator()<SixteenRows<Traits>>();
        break;
      case 3:
        if constexpr (Traits::kRowBlocks > 1) return run.template operator()<TileOfStep4<Traits>>();
        break;
      case 4:
        if constexpr (Traits::kKeepQueries) return run.template operator()<QueriesAgain<Traits>>();
        break;
      case 5:
        return run.template operator()<OneLoop<Traits>>();
      case 6:
        return run.template operator()<AllTiles<Traits>>();
      case 7:
        return run.template operator()<ShortestFirst<Traits>>();
    }
  });
}

template <int kWhich>
std::string limits(const Spec& spec) {
  if (spec.dtype != DType::bf16) return kOnlyBf16;
  if ((kWhich == 2 || kWhich == 3) && spec.head_dim == 256) return "at d = 256 a warp already has 16 rows";
  if (kWhich == 4 && spec.head_dim != 64) return "Q is kept in registers at d = 64 only";
  if (kWhich >= 6 && !spec.causal())
    return "without a mask all tiles are visible, and all blocks take equally long";
  return kFlashAttention2.refusal("tuned", spec);
}

template <int kWhich>
void run(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  run_row(spec, tensors, stream, kWhich);
}

std::array<Step, 8> rows() {
  const Step& step = kFlashAttention2.step("tuned");
  return {row(step, "as_it_is", "The tuned step, unchanged.", limits<1>, run<1>),
          row(step, "sixteen_rows", "16 rows per warp, and twice as many warps.", limits<2>, run<2>),
          row(step, "half_the_queries", "16 rows per warp, and half as many queries per block.", limits<3>,
              run<3>),
          row(step, "queries_again", "Q reloaded with every tile, at d = 64.", limits<4>, run<4>),
          row(step, "one_loop", "Every tile compared with the mask.", limits<5>, run<5>),
          row(step, "all_tiles", "All tiles visited, visible or not.", limits<6>, run<6>),
          row(step, "shortest_first", "The first queries first.", limits<7>, run<7>),
          before(kFlashAttention2.step("fewer_operations"))};
}

}  // namespace

std::span<const Step> ablation_04() {
  static const auto found = rows();
  return found;
}

}  // namespace flashbook
