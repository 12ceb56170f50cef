//| # From a launch to its kernel
//|
//| The element type and the head dimension are known only at run time, but kernels need them at compile time.
#include "chapters/10_many_gpus/host/attend.h"
#include "chapters/10_many_gpus/host/launch.cuh"

namespace flashbook::many_gpus {
namespace {

/// Returns a grid with a block per kMergeWarps rows, for the heads of all batch entries.
dim3 grid_of(const Sizes& sizes, int rows) {
  return dim3(ceil_div(rows, kMergeWarps), sizes.batch * sizes.heads);
}

}  // namespace

int Attention::last_key(int query) const {
  Problem problem = part_of_problem(*this, 0);
  problem.causal = spec.causal();
  return problem.last_key(query);
}

int Attention::first_seeing() const {
  int begin = 0, end = spec.seqlen_q;
  while (begin < end) {  // binary search: later queries see more keys
    const int middle = begin + (end - begin) / 2;
    if (last_key(middle) < 0)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

void attend(const Attention& attention, device::Queue& queue) {
  device::with_head_dim(attention.spec.head_dim,
                        [&]<int kHeadDim>() { attend_with<kHeadDim>(attention, queue); });
}

void merge(const Attention& a, const float* part_o, const float* part_lse, device::Queue& queue) {
  device::with_16_bit_type_and_head_dim(a.spec.dtype, a.spec.head_dim, [&]<typename T, int kHeadDim>() {
    device::launch(merge_part<T, kHeadDim>, grid_of(a.spec, a.spec.seqlen_q - a.carried.first),
                   dim3(kMergeWarps * 32), 0, queue.stream(), part_o, part_lse, a.carried,
                   static_cast<T*>(a.o), a.lse, a.spec.seqlen_q);
  });
}

void clear(const Attention& a, int rows, device::Queue& queue) {
  device::with_16_bit_type_and_head_dim(a.spec.dtype, a.spec.head_dim, [&]<typename T, int kHeadDim>() {
    device::launch(see_nothing<T, kHeadDim>, grid_of(a.spec, rows), dim3(kMergeWarps * 32), 0, queue.stream(),
                   static_cast<T*>(a.o), a.lse, rows, a.spec.seqlen_q);
  });
}

}  // namespace flashbook::many_gpus
