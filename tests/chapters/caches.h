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
inline Shape cache_of(std::vector<int> lengths, int head_dim = 64) {
  const int longest = *std::ranges::max_element(lengths), batch = int(lengths.size());
  return {.batch = batch,
          .heads = 8,
          .kv_heads = 2,
          .seqlen_q = 2,
          .seqlen_k = std::max(longest, 1),
          .head_dim = head_dim,
          .visibility = {.window = {.right = 0}, .lengths = std::move(lengths)},
          .dtype = DType::bf16,
          .scale = default_scale(head_dim)};
}

/// Writes NaN after every sequence's last key.
inline void poison_tails(const Shape& shape, Inputs& inputs) {
  for (int batch = 0; batch < shape.batch; ++batch)
    for (int head = 0; head < shape.kv_heads; ++head) {
      const int64_t first = (int64_t(batch) * shape.kv_heads + head) * shape.seqlen_k;
      for (std::vector<float>* tensor : {&inputs.k, &inputs.v})
        if (!tensor->empty())
          std::fill(tensor->begin() + (first + shape.visibility.lengths[batch]) * shape.head_dim,
                    tensor->begin() + (first + shape.seqlen_k) * shape.head_dim,
                    std::numeric_limits<float>::quiet_NaN());
    }
}

/// Returns the problem with its keys in pages of `rows`, ordered by `seed`, with `spare` unused pages.
inline Shape in_pages(Shape shape, int rows, uint64_t seed, int spare = 3) {
  const int pages = ceil_div(shape.seqlen_k, rows) * shape.batch;
  shape.paging = {.rows = rows, .pages = pages + spare, .table = {}};
  std::vector<int> order(pages + spare);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(unsigned(seed)));
  shape.paging.table.assign(order.begin(), order.begin() + pages);
  return shape;
}

/// Returns the bytes of O and the log-sum-exp from a step.
inline std::vector<std::byte> bits_of(const Shape& shape, const Inputs& inputs, int step) {
  const UploadedInputs uploaded(operation_under_test, shape, inputs, device::Place::device);
  const Call call(chapter_under_test, shape, uploaded, step);
  call.run();
  return call.download_bytes();
}

/// Unused pages are NaN, as is everything past a sequence's last key. The order of pages of `rows`, and
/// paging itself, must not change a bit.
inline void expect_pages_do_not_show(const std::vector<int>& steps, const Shape& shape, const Inputs& inputs,
                                     int rows) {
  SCOPED_TRACE(describe(shape) + ", pages of " + std::to_string(rows));
  for (int step : steps) {
    const std::vector<std::byte> want = bits_of(shape, inputs, step);
    for (uint64_t seed : {1, 2}) {
      const Shape paged = in_pages(shape, rows, seed);
      ASSERT_EQ(chapter_under_test.refusal(step, paged), "");
      EXPECT_TRUE(bits_of(paged, scatter_pages(paged, inputs), step) == want) << "step " << step;
    }
  }
}

/// Packs sequences with the given numbers of queries, runs each step with their caches, and compares each
/// sequence with FP64. `by_token`: [queries, heads], not [heads, queries].
inline void expect_packed_right(const std::vector<int>& steps, const std::vector<int>& queries,
                                std::vector<int> lengths, const Shape& like, int rows, bool by_token) {
  Shape shape = cache_of(std::move(lengths), like.head_dim);
  shape.seqlen_q = std::max(1, *std::ranges::max_element(queries));
  shape.visibility.window = like.visibility.window;
  shape.score = like.score;
  shape.unsplit = like.unsplit;
  std::vector<int> first = {0};
  for (int count : queries) first.push_back(first.back() + count);
  const int total = first.back(), d = shape.head_dim;
  const Inputs inputs = make_inputs(shape, InputKind::normal, 3);
  Shape given = rows > 0 ? in_pages(shape, rows, 3) : shape;
  const UploadedInputs uploaded(Operation::decode, given, rows > 0 ? scatter_pages(given, inputs) : inputs,
                                device::Place::device);
  given.packed_queries = total;
  given.layout.q = {int64_t(total) * 8 * d, by_token ? d : int64_t(total) * d, by_token ? 8 * d : d};
  given.layout.o = given.layout.q;
  SCOPED_TRACE(describe(given));
  const auto at = [&](int head, int row) { return head * given.layout.q.head + row * given.layout.q.row; };
  std::vector<float> q(std::size_t(total) * 8 * d);
  for (int batch = 0; batch < shape.batch; ++batch)
    for (int head = 0; head < 8; ++head)
      for (int i = 0; i < queries[batch]; ++i)
        std::copy_n(&inputs.q[((int64_t(batch) * 8 + head) * shape.seqlen_q + i) * d], d,
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
    for (int batch = 0; batch < shape.batch; ++batch) {
      if (queries[batch] == 0) continue;
      Shape one = shape;
      one.batch = 1, one.seqlen_q = queries[batch];
      one.visibility.lengths = {shape.visibility.lengths[batch]};
      Inputs own = {.q = {}, .k = {}, .v = {}};
      Outputs outputs;
      for (int head = 0; head < 8; ++head)
        for (int i = 0; i < queries[batch]; ++i) {
          const int64_t place = at(head, first[batch] + i);
          own.q.insert(own.q.end(), &q[place], &q[place] + d);
          outputs.o.insert(outputs.o.end(), &got[place], &got[place] + d);
          outputs.lse.push_back(got_lse[std::size_t(head) * total + first[batch] + i]);
        }
      const int64_t keys = int64_t(2) * shape.seqlen_k * d;
      own.k.assign(inputs.k.begin() + batch * keys, inputs.k.begin() + (batch + 1) * keys);
      own.v.assign(inputs.v.begin() + batch * keys, inputs.v.begin() + (batch + 1) * keys);
      const CheckResult result = check(one, make_reference(one, own, all_rows(one)), outputs);
      EXPECT_TRUE(result.o.ok) << "sequence " << batch << ", step " << step << ": " << result.o.worst;
      EXPECT_TRUE(result.lse.ok) << "sequence " << batch << ", step " << step << ": " << result.lse.worst;
    }
  }
}

}  // namespace flashbook::testing
