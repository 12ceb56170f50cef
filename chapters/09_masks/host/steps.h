/// \file
/// The chapter's steps, each in a separate file: a kernel is compiled for two types and three head
/// dimensions.
#pragma once
#include "common/attention/tensors.h"
#include "common/device/device.h"

namespace flashbook::masks {

void run_pairs(const Spec& spec, const Tensors& tensors, device::Stream stream);      ///< step 1
void run_varlen(const Spec& spec, const Tensors& tensors, device::Stream stream);     ///< step 2
void run_ranges(const Spec& spec, const Tensors& tensors, device::Stream stream);     ///< step 3
void run_columns(const Spec& spec, const Tensors& tensors, device::Stream stream);    ///< step 4
void run_functions(const Spec& spec, const Tensors& tensors, device::Stream stream);  ///< step 5
/// Step 5 for packed sequences, without listed blocks.
void run_packed_functions(const Spec& spec, const Tensors& tensors, device::Stream stream);

void run_prompts(const Spec& spec, const Tensors& tensors, device::Stream stream);  ///< step 8

/// Launches step 6 or, `in_turns`, step 7. Each head dimension has its own file, since they take long to
/// compile.
template <int kHeadDim>
void run_gradients(const Spec& spec, const Tensors& tensors, device::Stream stream, bool in_turns);
/// The same if keys and values have tiles of different widths.
template <int kHeadDim, int kValueDim>
void run_wide_gradients(const Spec& spec, const Tensors& tensors, device::Stream stream, bool in_turns);

/// The counter of tiles, at the beginning of every step's workspace. What follows it is aligned.
constexpr int64_t kCounterBytes = 16;

/// Returns the bytes of the workspace: the counter, and the plan if there are documents; the scanned
/// intervals, if any; the classes of tiles.
int64_t varlen_workspace_bytes(const Spec& spec);
int64_t columns_workspace_bytes(const Spec& spec);
int64_t functions_workspace_bytes(const Spec& spec);
int64_t prompts_workspace_bytes(const Spec& spec);                   ///< the plan
int64_t gradients_workspace_bytes(const Spec& spec, bool in_turns);  ///< sums, and lists of tiles

/// Returns whether steps 6 and 7 can number the rows of its workspace and the entries of its lists.
bool gradients_fit(const Spec& spec);

}  // namespace flashbook::masks
