/// \file
/// Basic shapes for tests.
#pragma once
#include "common/attention/spec.h"

namespace flashbook::testing {

/// Returns a problem with one batch entry, the default scale, bf16 and one head unless the test says more.
inline Spec make_spec(int seqlen_q, int seqlen_k, int head_dim, bool causal = false,
                      DType dtype = DType::bf16, int heads = 1, int kv_heads = 1) {
  return {{.heads = heads,
           .kv_heads = kv_heads,
           .seqlen_q = seqlen_q,
           .seqlen_k = seqlen_k,
           .head_dim = head_dim,
           .dtype = dtype,
           .scale = default_scale(head_dim)},
          Visibility::causal_if(causal)};
}

}  // namespace flashbook::testing
