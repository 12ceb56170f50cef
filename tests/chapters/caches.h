/// \file
/// For steps that read a cache: sequences of different lengths, pages in any order, packed queries.
#pragma once
#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "common/features/pages/pages.h"
#include "tests/chapters/conformance.h"

namespace flashbook::testing {

/// Returns two queries of eight heads, with a cache.
inline Spec cache_of(std::vector<int> lengths, int head_dim = 64) {
  const int longest = *std::ranges::max_element(lengths), batch = int(lengths.size());
  return {{.batch = batch,
           .heads = 8,
           .kv_heads = 2,
           .seqlen_q = 2,
           .seqlen_k = std::max(longest, 1),
           .head_dim = head_dim,
           .dtype = DType::bf16,
           .scale = default_scale(head_dim)},
          {.window = {.right = 0}, .lengths = std::move(lengths)}};
}

/// Writes NaN after every sequence's last key.
inline void poison_tails(const Spec& spec, Inputs& inputs) {
  for (int batch = 0; batch < spec.batch; ++batch)
    for (int head = 0; head < spec.kv_heads; ++head) {
      const int64_t first = (int64_t(batch) * spec.kv_heads + head) * spec.seqlen_k;
      for (std::vector<float>* tensor : {&inputs.k, &inputs.v})
        if (!tensor->empty())
          std::fill(tensor->begin() + (first + spec.visibility.lengths[batch]) * spec.head_dim,
                    tensor->begin() + (first + spec.seqlen_k) * spec.head_dim,
                    std::numeric_limits<float>::quiet_NaN());
    }
}

/// Returns the problem with its keys in pages of `rows`, ordered by `seed`, with `spare` unused pages.
inline Spec in_pages(Spec spec, int rows, uint64_t seed, int spare = 3) {
  const int pages = ceil_div(spec.seqlen_k, rows) * spec.batch;
  spec.paging = {.rows = rows, .pages = pages + spare, .table = {}};
  std::vector<int> order(pages + spare);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(unsigned(seed)));
  spec.paging.table.assign(order.begin(), order.begin() + pages);
  return spec;
}

/// Returns the bytes of O and the log-sum-exp from a step.
inline std::vector<std::byte> bits_of(const Spec& spec, const Inputs& inputs, int step) {
  const UploadedInputs uploaded(operation_under_test, spec, inputs, device::Place::device);
  const Call call(chapter_under_test, spec, uploaded, step);
  call.run();
  return call.download_bytes();
}

/// Checks a step with pages. Unused pages are NaN, as is everything past a sequence's last key. The order of
/// pages of `rows`, and paging itself, must not change a bit.
inline void expect_pages_do_not_show(const std::vector<int>& steps, const Spec& spec, const Inputs& inputs,
                                     int rows) {
  SCOPED_TRACE(describe(spec) + ", pages of " + std::to_string(rows));
  for (int step : steps) {
    const std::vector<std::byte> want = bits_of(spec, inputs, step);
    for (uint64_t seed : {1, 2}) {
      const Spec paged = in_pages(spec, rows, seed);
      ASSERT_EQ(chapter_under_test.refusal(step, paged), "");
      EXPECT_TRUE(bits_of(paged, scatter_pages(paged, inputs), step) == want) << "step " << step;
    }
  }
}

/// Packs sequences with the given numbers of queries, runs each step with their caches, and compares each
/// sequence with FP64. `by_token`: [queries, heads], not [heads, queries].
inline void expect_packed_right(const std::vector<int>& steps, const std::vector<int>& queries,
                                std::vector<int> lengths, const Spec& like, int rows, bool by_token) {
  Spec spec = cache_of(std::move(lengths), like.head_dim);
  spec.seqlen_q = std::max(1, *std::ranges::max_element(queries));
  spec.visibility.window = like.visibility.window;
  spec.score = like.score;
  spec.batching.unsplit = like.batching.unsplit;
  std::vector<int> first = {0};
  for (int count : queries) first.push_back(first.back() + count);
  const int total = first.back(), d = spec.head_dim;
  const Inputs inputs = make_inputs(spec, InputKind::normal, 3);
  Spec given = rows > 0 ? in_pages(spec, rows, 3) : spec;
  const UploadedInputs uploaded(Operation::decode, given, rows > 0 ? scatter_pages(given, inputs) : inputs,
                                device::Place::device);
  given.batching.packed_queries = total;
  given.layout.q = {int64_t(total) * 8 * d, by_token ? d : int64_t(total) * d, by_token ? 8 * d : d};
  given.layout.o = given.layout.q;
  SCOPED_TRACE(describe(given));
  const auto at = [&](int head, int row) { return head * given.layout.q.head + row * given.layout.q.row; };
  std::vector<float> q(std::size_t(total) * 8 * d);
  for (int batch = 0; batch < spec.batch; ++batch)
    for (int head = 0; head < 8; ++head)
      for (int i = 0; i < queries[batch]; ++i)
        std::copy_n(&inputs.q[((int64_t(batch) * 8 + head) * spec.seqlen_q + i) * d], d,
                    &q[at(head, first[batch] + i)]);
  const auto upload = [](std::span<const std::byte> bytes) {
    device::Buffer buffer(device::Place::device, int64_t(bytes.size()));
    buffer.upload({bytes.begin(), bytes.end()});
    return buffer;
  };
  const device::Buffer on_q = upload(encode(DType::bf16, q)),
                       on_first = upload(std::as_bytes(std::span(first)));
  device::Buffer o(device::Place::device, int64_t(q.size()) * 2),
      lse(device::Place::device, int64_t(total) * 8 * 4);
  for (int step : steps) {
    ASSERT_EQ(chapter_under_test.refusal(step, given), "");
    device::Buffer workspace(device::Place::device, chapter_under_test.step(step).workspace_bytes(given));
    workspace.upload(std::vector<std::byte>(workspace.bytes()));
    o.poison(), lse.poison();
    Tensors tensors = uploaded.tensors();
    tensors.q = on_q.data(), tensors.o = o.data(), tensors.lse = static_cast<float*>(lse.data());
    tensors.workspace = workspace.data();
    tensors.tables[int(TableId::document_query)] = on_first.data();
    chapter_under_test.step(step).run(given, tensors, nullptr);
    device::synchronize();
    std::vector<std::byte> bytes(o.bytes()), lse_bytes(lse.bytes());
    o.download(bytes), lse.download(lse_bytes);
    const std::vector<float> got = decode(DType::bf16, bytes), got_lse = decode(DType::f32, lse_bytes);
    for (int batch = 0; batch < spec.batch; ++batch) {
      if (queries[batch] == 0) continue;
      Spec one = spec;
      one.batch = 1, one.seqlen_q = queries[batch];
      one.visibility.lengths = {spec.visibility.lengths[batch]};
      Inputs own = {.q = {}, .k = {}, .v = {}};
      Outputs outputs;
      for (int head = 0; head < 8; ++head)
        for (int i = 0; i < queries[batch]; ++i) {
          const int64_t place = at(head, first[batch] + i);
          own.q.insert(own.q.end(), &q[place], &q[place] + d);
          outputs.o.insert(outputs.o.end(), &got[place], &got[place] + d);
          outputs.lse.push_back(got_lse[std::size_t(head) * total + first[batch] + i]);
        }
      const int64_t keys = int64_t(2) * spec.seqlen_k * d;
      own.k.assign(inputs.k.begin() + batch * keys, inputs.k.begin() + (batch + 1) * keys);
      own.v.assign(inputs.v.begin() + batch * keys, inputs.v.begin() + (batch + 1) * keys);
      const CheckResult result = check(one, make_reference(one, own, all_rows(one)), outputs);
      EXPECT_TRUE(result.o.ok) << "sequence " << batch << ", step " << step << ": " << result.o.worst;
      EXPECT_TRUE(result.lse.ok) << "sequence " << batch << ", step " << step << ": " << result.lse.worst;
    }
  }
}

}  // namespace flashbook::testing
