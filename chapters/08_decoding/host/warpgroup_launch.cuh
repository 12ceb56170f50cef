//| # How step 10 is launched
//|
//| The plan is that of step 6, for blocks of 64 or 128 rows (`warpgroup_launch`), and the rules are those of
//| steps 4 to 6.
#pragma once
#include "chapters/08_decoding/host/rules_launch.cuh"
#include "chapters/08_decoding/host/warpgroup.h"
#include "chapters/08_decoding/step10_warpgroup.cuh"

namespace flashbook::decoding {

template <typename T, typename Traits, typename PlanType>
void launch_warpgroups(const Spec& spec, const Problem& problem, const Tensors& t, device::Stream stream,
                       const RingLaunch& launch, const PlanType& plan) {
  const int box_keys = box_keys_of(spec, Traits::kKeys);
  const auto map = [&](TensorId id) { return box_map(spec, t, id, box_keys, kPanel, Swizzle::b128); };
  Cache cache = cache_of(spec, t, Traits::kKeys, true);
  cache.copy_rows = box_keys;
  const Workspace workspace = workspace_of(spec, t, launch);
  device::launch(warpgroups<T, Traits, PlanType>, dim3(launch.blocks), dim3(Traits::kThreads),
                 sizeof(WarpgroupShared<T, Traits>), stream,
                 KeyMaps{map(TensorId::k), map(TensorId::v), true}, static_cast<const T*>(t.q),
                 static_cast<T*>(t.o), t.lse, cache, workspace, problem, plan);
  launch_merge_many<T, Traits>(problem, workspace, t, stream, launch.blocks, plan);
}

template <int kHeadDim>
void run_warpgroups(const Spec& spec, const Tensors& t, device::Stream stream) {
  const RingLaunch launch = warpgroup_launch(spec, t.tables[int(TableId::lengths)] == nullptr);
  device::with_16_bit_type(spec.dtype, [&]<typename T>() {
    const auto run = [&]<typename Traits>() {
      if (spec.head_dim == kHeadDim && !has_rules(spec))
        return launch_warpgroups<T, Traits>(spec, problem_of(spec, t, spec.heads / spec.kv_heads), t, stream,
                                            launch, launch.plan);
      launch_warpgroups<T, Traits>(spec, problem_with_rules(spec, t), t, stream, launch,
                                   rules_of<true, true>(spec, t, launch));
    };
    if (launch.rows == kRowsPerWarpgroup) return run.template operator()<WarpgroupTraits<kHeadDim, 1>>();
    if constexpr (kHeadDim < 256) run.template operator()<WarpgroupTraits<kHeadDim, 2>>();
  });
}

}  // namespace flashbook::decoding
