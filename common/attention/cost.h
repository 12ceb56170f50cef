/// \file
/// The cost model: the work and the memory traffic that attention needs, regardless of the kernel.
#pragma once
#include "common/attention/operation.h"

namespace flashbook {

/// Returns the floating-point operations: 2 * (head_dim + value_dim) * visible pairs, two for each
/// multiply-add of Q K^T and of P V; if the two are equal, that is 4 * head_dim per pair. The backward pass
/// needs 2.5 times as many: five products instead of two.
double flops(const Spec& spec, Operation operation = Operation::forward);

/// Returns the bytes of device memory traffic that no kernel can avoid: every tensor of the operation and
/// every table of the problem, read or written once. For K and V, only keys within the sequences' lengths
/// count, and a shared prefix counts once.
double compulsory_bytes(const Spec& spec, Operation operation = Operation::forward);

}  // namespace flashbook
