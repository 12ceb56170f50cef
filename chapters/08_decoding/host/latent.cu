#include "chapters/08_decoding/host/latent.h"
#include "chapters/08_decoding/host/latent_launch.h"
#include "chapters/08_decoding/step7_latent.cuh"
#include "common/device/dispatch.h"

namespace flashbook::decoding {
namespace {

template <typename T>
void run(const Spec& spec, const Tensors& t, device::Stream stream) {
  const bool even = t.tables[int(TableId::lengths)] == nullptr;
  const LatentLaunch launch = latent_launch(spec, even);
  const LatentParts parts = parts_in(t.workspace, launch);
  const int page_rows = spec.paging.rows > 0 ? spec.paging.rows : spec.seqlen_k;
  const LatentCache cache = {.table = static_cast<const int*>(t.tables[int(TableId::page_table)]),
                             .page_rows = page_rows,
                             .pages_of_sequence = ceil_div(spec.seqlen_k, page_rows)};
  const Problem problem = problem_of(spec, t, spec.heads / spec.kv_heads);
  const dim3 grid(launch.row_tiles, launch.blocks);
  const CUtensorMap map = tile_map(spec, TensorId::k, spec.dtype, t.k, kPanel, LatentKernelTraits::kKeys,
                                   LatentKernelTraits::kBoxPanels);
  const auto with = [&]<typename PlanType>(const PlanType& plan) {
    device::launch(start_of(launch), latent<T, PlanType>, grid, dim3(LatentKernelTraits::kThreads),
                   sizeof(LatentShared<T>), stream, static_cast<const T*>(t.q), map, static_cast<T*>(t.o),
                   t.lse, cache, parts, problem, plan);
  };
  if (!even) return with(launch.plan);
  with(even_plan(launch, spec));
}

}  // namespace

int64_t latent_workspace_bytes(const Spec& spec) { return workspace_of(latent_launch(spec)); }

std::string limits_of_latent_pages(const Spec& spec) {
  if (spec.paging.rows % LatentKernelTraits::kKeys == 0) return "";
  return "pages have 64 rows or a multiple here: give such a number";
}

void run_latent(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  device::with_16_bit_type(spec.dtype, [&]<typename T>() { run<T>(spec, tensors, stream); });
}

}  // namespace flashbook::decoding
