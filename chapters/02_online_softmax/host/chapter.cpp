//| # Chapter 2's descriptor
//|
//| Everything outside the chapter knows it by the `Chapter` at the end: its steps, the types it takes, and functions that say what cannot run, what memory it needs, and that run a step. This chapter runs on the host, so it takes no device memory and any length.
#include "chapters/02_online_softmax/host/chapter.h"

#include <cstdio>
#include <ostream>
#include <type_traits>

#include "chapters/02_online_softmax/host/step5.h"
#include "chapters/02_online_softmax/step1_safe_softmax.h"
#include "chapters/02_online_softmax/step2_online_softmax.h"
#include "chapters/02_online_softmax/step3_one_pass_attention.h"
#include "chapters/02_online_softmax/step4_blocked_attention.h"

namespace flashbook {
namespace {

constexpr Step kSteps[] = {
    {"safe softmax, three passes",
     "The maximum, the sum and the quotients of a stored row of scores, a pass each."},
    {"online softmax, two passes",
     "A running maximum and a running sum, corrected when a larger score turns up."},
    {"one pass over the keys", "O is summed and corrected online too: no row of scores is stored."},
    {"tiles, vectors, all cores",
     "A tile of keys at a time for a tile of queries, with an exp2 that vectorises."},
    {"blocks of registers",
     "Sums stay in registers while a product is taken, queries lie along the widest vectors, and no tile of "
     "keys is transposed."},
};
constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

std::string why_not(const Shape& shape, int) {
  if (shape.dtype == DType::e4m3) return "chapter 2 takes f32, f16 and bf16: choose one with --dtype";
  return why_not_plain(shape);
}

//| ## From a step to its function
//|
//| Steps 1 to 3 are functions of one row of scores, so one loop over rows serves the three. Steps 4 and 5 take tiles, and go over the rows themselves. Step 4 knows `head_dim` when it is compiled, so that the compiler can unroll its loops; step 5 takes whichever it is given.
template <typename T>
void run_step(const Shape& shape, const Tensors& t, int step) {
  const auto *q = static_cast<const T*>(t.q), *k = static_cast<const T*>(t.k),
             *v = static_cast<const T*>(t.v);
  auto* o = static_cast<T*>(t.o);
  switch (step) {
    case 1:
      return for_each_row(shape, q, k, v, o, t.lse, attention_row_safe);
    case 2:
      return for_each_row(shape, q, k, v, o, t.lse, attention_row_two_passes);
    case 3:
      return for_each_row(shape, q, k, v, o, t.lse, attention_row_one_pass);
    case 5:
      return attention_in_registers<T>(shape, t);
  }
  switch (shape.head_dim) {
    case 64:
      return attention_blocked<T, 64>(shape, q, k, v, o, t.lse);
    case 128:
      return attention_blocked<T, 128>(shape, q, k, v, o, t.lse);
    case 256:
      return attention_blocked<T, 256>(shape, q, k, v, o, t.lse);
  }
}

void attention(const Shape& shape, const Tensors& tensors, device::Stream, int step) {
  with_host_type(shape.dtype, [&]<typename T>(T) {
    if constexpr (!std::is_same_v<T, e4m3>) run_step<T>(shape, tensors, step);  // why_not refuses e4m3
  });
}

//| ## The worked example
//|
//| What the program prints first. The functions are those that the steps call, with the numbers of the text.
/// The worked example of the text, from the functions that steps 1 to 3 run.
void print_worked_example(std::ostream& out) {
  const auto line = [&](const char* what, const SoftmaxState& state) {
    char text[96];
    std::snprintf(text, sizeof text, "  %-28s m = %g, l = %.2f\n", what, state.row_max, state.row_sum);
    out << text;
  };
  float first_block[] = {2, 5}, second_block[] = {3}, whole_row[] = {2, 5, 3};
  out << "Worked example: the scores [2, 5, 3], in blocks [2, 5] and [3]\n";
  const SoftmaxState first = safe_softmax(first_block), second = safe_softmax(second_block);
  line("block [2, 5] alone", first);
  line("block [3] alone", second);
  SoftmaxState both = first;
  merge(both, second);
  line("both, by the merge rule", both);
  line("the whole row at once", safe_softmax(whole_row));
  out << "\n";
}

constexpr int64_t no_bytes(const Shape&, int) { return 0; }
constexpr double no_device_memory(const Shape&, int) { return 0; }  // it runs on the host

const Shape kDefaultShape = {.batch = 1,
                             .heads = 1,
                             .kv_heads = 1,
                             .seqlen_q = 4096,
                             .seqlen_k = 4096,
                             .head_dim = 64,
                             .dtype = DType::f32,
                             .scale = default_scale(64)};

}  // namespace

const Chapter kOnlineSoftmax = {
    .number = 2,
    .name = "02_online_softmax",
    .title = "Online softmax",
    .runs_on = device::Place::host,
    .steps = kSteps,
    .dtypes = kTypes,
    .gpu_shape = kDefaultShape,
    .cpu_shape = kDefaultShape,
    .why_not = why_not,
    .workspace_bytes = no_bytes,
    .memory_bytes = no_device_memory,
    .attention = attention,
    .preface = print_worked_example,
    .largest_score = kAnyScore,
};

}  // namespace flashbook
