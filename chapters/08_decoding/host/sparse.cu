#include "chapters/08_decoding/host/latent.h"
#include "chapters/08_decoding/host/latent_launch.h"
#include "chapters/08_decoding/step12_sparse_decode.cuh"

namespace flashbook::decoding {
namespace {

/// Returns the sizes of the same problem with a sequence of one query for each token, whose keys are its
/// list.
Sizes sizes_by_token(const Spec& spec) {
  Sizes sizes = spec;
  sizes.batch = spec.batch * spec.seqlen_q;
  sizes.seqlen_q = 1;
  sizes.seqlen_k = spec.visibility.indices.count;
  return sizes;
}

LatentLaunch sparse_launch(const Sizes& by_token) {
  return latent_launch(by_token, true, SparseTraits::kRoundKeys);
}

template <typename Keys>
void run(const Spec& spec, const Tensors& t, device::Stream stream) {
  const Sizes sizes = sizes_by_token(spec);
  const LatentLaunch launch = sparse_launch(sizes);
  SparseProblem problem{problem_of(spec, t, spec.heads), spec.seqlen_q};
  problem.batch = sizes.batch, problem.seqlen_q = 1, problem.seqlen_k = sizes.seqlen_k;
  const int page_rows = spec.paging.rows > 0 ? spec.paging.rows : spec.seqlen_k;
  const Strides strides = spec.strides(TensorId::k);
  const auto bytes = int64_t(size_of(type_of(spec, TensorId::k)));
  const SparseCache cache = {.keys = static_cast<const uint4*>(t.k),
                             .lists = static_cast<const int*>(t.tables[int(TableId::indices)]),
                             .count = spec.visibility.indices.count,
                             .seqlen_k = spec.seqlen_k,
                             .table = static_cast<const int*>(t.tables[int(TableId::page_table)]),
                             .page_rows = page_rows,
                             .pages_of_sequence = ceil_div(spec.seqlen_k, page_rows),
                             .batch_pieces = int(strides.batch * bytes / 16),
                             .row_pieces = int(strides.row * bytes / 16)};
  device::launch(start_of(launch), sparse_latent<Keys>, dim3(launch.row_tiles, launch.blocks),
                 dim3(SparseTraits::kThreads), sizeof(SparseShared), stream,
                 static_cast<const __nv_bfloat16*>(t.q), static_cast<__nv_bfloat16*>(t.o), t.lse, cache,
                 parts_in(t.workspace, launch), problem, even_plan(launch, sizes));
}

}  // namespace

std::string limits_of_sparse(const Spec& spec) {
  if (spec.dtype != DType::bf16) return "lists of keys need queries in bf16: give --dtype bf16";
  if (spec.kv_heads != 1) return "lists of keys need one key head: give --kv-heads 1";
  const int64_t units =
      int64_t(spec.batch) * spec.seqlen_q * ceil_div(spec.visibility.indices.count, SparseTraits::kRoundKeys);
  if (elements_spanned(spec, TensorId::k) * int64_t(size_of(type_of(spec, TensorId::k))) > int64_t(1) << 35)
    return "keys span more than 32 GiB, which lists cannot address: give a smaller --batch or fewer pages";
  if (units > INT_MAX) return "chapter 8 takes at most 2^38 entries in all lists: give a smaller --batch";
  return "";
}

int64_t sparse_workspace_bytes(const Spec& spec) { return workspace_of(sparse_launch(sizes_by_token(spec))); }

void run_sparse(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  spec.e4m3.cache ? run<ConvertedKeys>(spec, tensors, stream) : run<GatheredKeys>(spec, tensors, stream);
}

}  // namespace flashbook::decoding
