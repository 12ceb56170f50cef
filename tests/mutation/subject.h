/// \file
/// The kernels of this suite, as written and with faults planted.
#pragma once
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "common/attention/operation.h"
#include "common/attention/tensors.h"

namespace flashbook::mutation {

/// Computes attention, or its gradients, on the machine of this build.
using Attention = void (*)(const Spec&, const Tensors&);

/// A kernel without faults.
struct Kernel {
  std::string_view name;   ///< name of its file, without .cuh
  DType dtype;             ///< type of its tensors
  int seqlen_q, seqlen_k;  ///< not multiples of a tile, and long enough for every fault to show
  Attention head_dim_64;
  Attention head_dim_128;  ///< null if it has none
  Operation operation = Operation::forward;
  int64_t (*workspace_bytes)(const Spec&) = nullptr;  ///< null: it needs none
  bool same_sums = false;  ///< whether the workspace has the same bits in every mode, at head_dim 64
};

std::span<const Kernel> kernels();

/// Returns the kernel of that name. Throws std::out_of_range if there is none.
const Kernel& kernel_named(std::string_view name);

/// Returns a problem for `kernel`, with one batch entry and two heads, so that a wrong head shows.
Spec spec_of(const Kernel& kernel, int seqlen_q, int seqlen_k, int head_dim);

/// How a kernel is run.
enum class Mode {
  eager,   ///< asynchronous work is done at once
  lazy,    ///< asynchronous work is done as late as the rules allow
  random,  ///< asynchronous work is done at random times, and warps run in random order
  traced   ///< lazy, with every memory access checked
};
constexpr Mode kModes[] = {Mode::eager, Mode::lazy, Mode::random, Mode::traced};

/// A mode that must report a fault, and the text that its report must contain.
struct Expectation {
  Mode mode;
  std::string_view text;
};

/// A kernel with a fault planted.
struct Mutant {
  std::string_view kernel;
  std::string_view fault;
  std::vector<Expectation> expected;
  int head_dim;
  Attention attention;
};

/// Returns all mutants. The generated files add theirs before main runs.
std::vector<Mutant>& mutants();

/// Adds a mutant.
struct Planted {
  explicit Planted(Mutant mutant) { mutants().push_back(std::move(mutant)); }
};

}  // namespace flashbook::mutation
