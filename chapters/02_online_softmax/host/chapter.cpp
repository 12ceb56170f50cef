//| # Chapter 2's descriptor
//|
//| The rest of the program sees this chapter only through the `Chapter` at the end: its steps, the types it
//| accepts, and for each step its name, the inputs it accepts and how it runs. This chapter runs on the host,
//| so it takes no device memory and accepts any length.
#include "chapters/02_online_softmax/host/chapter.h"

#include <type_traits>

#include "chapters/02_online_softmax/host/step5.h"
#include "chapters/02_online_softmax/step1_safe_softmax.h"
#include "chapters/02_online_softmax/step2_online_softmax.h"
#include "chapters/02_online_softmax/step3_one_pass_attention.h"
#include "chapters/02_online_softmax/step4_blocked_attention.h"
#include "common/device/dispatch.h"

namespace flashbook {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

//| ## From a step to its function
//|
//| Steps 1 to 3 are functions of one row of scores, so they share one loop over rows. Steps 4 and 5 take
//| tiles and loop over the rows themselves. For both, `head_dim` is known at compile time, so that the
//| compiler can unroll their loops.
template <typename T, int kStep>
void run_step(const Spec& spec, const Tensors& t) {
  const auto *q = static_cast<const T*>(t.q), *k = static_cast<const T*>(t.k),
             *v = static_cast<const T*>(t.v);
  auto* o = static_cast<T*>(t.o);
  if constexpr (kStep == 1) for_each_row(spec, q, k, v, o, t.lse, attention_row_safe);
  if constexpr (kStep == 2) for_each_row(spec, q, k, v, o, t.lse, attention_row_two_passes);
  if constexpr (kStep == 3) for_each_row(spec, q, k, v, o, t.lse, attention_row_one_pass);
  if constexpr (kStep == 4)
    device::with_head_dim(spec.head_dim,
                          [&]<int kHeadDim>() { attention_blocked<T, kHeadDim>(spec, q, k, v, o, t.lse); });
  if constexpr (kStep == 5) attention_in_registers<T>(spec, t);
}

template <int kStep>
void run(const Spec& spec, const Tensors& tensors, device::Stream) {
  with_host_type(spec.dtype, [&]<typename T>(T) {
    if constexpr (!std::is_same_v<T, e4m3>) run_step<T, kStep>(spec, tensors);  // no step accepts e4m3
  });
}

double no_device_memory(const Spec&) { return 0; }

//| ## The steps
//|
//| Each step is a row. It needs no workspace, and causes no traffic with a GPU.
template <int kStep>
constexpr Step row(const char* slug, const char* name, const char* idea) {
  return {.slug = slug,
          .name = name,
          .idea = idea,
          .operation = Operation::forward,
          .accepts = Feature::float32 | Feature::causal,
          .run = run<kStep>,
          .memory = no_device_memory};
}

constexpr Step kSteps[] = {
    row<1>("safe_softmax", "safe softmax, three passes",
           "Separate passes over a stored row of scores for the maximum, the sum and the quotients."),
    row<2>("online_softmax", "online softmax, two passes",
           "A running maximum and a running sum, which is corrected when a larger score arrives."),
    row<3>("one_pass", "one pass over the keys",
           "O is summed and corrected in the same pass: no row of scores is stored."),
    row<4>("blocked", "tiles, vectors, all cores",
           "A tile of queries processes one tile of keys at a time, with an exp2 that vectorises."),
    row<5>(
        "register_blocks", "blocks of registers",
        "Sums stay in registers during a product, queries run along the widest vectors, and no tile of keys "
        "is transposed."),
};

const Spec kDefaultSpec = square_spec(1, 1, 2048, 64, DType::f32);

}  // namespace

const Chapter kOnlineSoftmax = {
    .number = 2,
    .name = "02_online_softmax",
    .title = "Online softmax",
    .runs_on = device::Place::host,
    .steps = kSteps,
    .dtypes = kTypes,
    .gpu_spec = kDefaultSpec,
    .cpu_spec = kDefaultSpec,
};

}  // namespace flashbook
