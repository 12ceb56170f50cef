#include "common/attention/operation.h"

#include <gtest/gtest.h>

#include "common/attention/cost.h"
#include "common/attention/inputs.h"
#include "common/attention/tensors.h"

namespace flashbook {
namespace {

/// "q k v -> o lse".
std::string signature(Operation operation) {
  std::string text;
  Role role = Role::input;
  for (const TensorSpec& tensor : tensors_of(operation)) {
    if (tensor.role != role) text += "-> ";
    role = tensor.role;
    text += std::string(tensor.name) + " ";
  }
  return text;
}

TEST(Operation, HasItsTensors) {
  EXPECT_EQ(signature(Operation::forward), "q k v -> o lse ");
  EXPECT_EQ(signature(Operation::backward), "q k v o lse do -> dq dk dv ");
  EXPECT_EQ(signature(Operation::decode), "q k v -> o lse ");
  EXPECT_EQ(name_of(Operation::forward), "forward");
  EXPECT_EQ(name_of(Operation::backward), "backward");
  EXPECT_EQ(name_of(Operation::decode), "decode");
}

TEST(Operation, TensorsHaveExtentsAndTypes) {
  Shape shape{.batch = 2, .heads = 6, .kv_heads = 3, .seqlen_q = 5, .seqlen_k = 7, .head_dim = 128};
  using Dims = std::vector<int64_t>;
  for (TensorId id : {TensorId::q, TensorId::o, TensorId::d_o, TensorId::dq})
    EXPECT_EQ(dims_of(shape, id), (Dims{2, 6, 5, 128}));
  for (TensorId id : {TensorId::k, TensorId::v, TensorId::dk, TensorId::dv})
    EXPECT_EQ(dims_of(shape, id), (Dims{2, 3, 7, 128}));
  EXPECT_EQ(dims_of(shape, TensorId::lse), (Dims{2, 6, 5}));
  EXPECT_EQ(elements_of(shape, TensorId::lse), shape.q_rows());
  shape.paging = {.rows = 4, .pages = 9, .table = {1, 2, 3, 4}};
  EXPECT_EQ(dims_of(shape, TensorId::v), (Dims{9, 3, 4, 128}));
  EXPECT_EQ(dims_of(shape, TensorId::dv), (Dims{2, 3, 7, 128}));

  shape.dtype = DType::e4m3;
  EXPECT_EQ(type_of(shape, TensorId::k), DType::e4m3);
  EXPECT_EQ(type_of(shape, TensorId::o), DType::bf16);
  EXPECT_EQ(type_of(shape, TensorId::lse), DType::f32);
  shape.dtype = DType::f16;
  EXPECT_EQ(type_of(shape, TensorId::dq), DType::f16);
  EXPECT_EQ(type_of(shape, TensorId::d_o), DType::f16);
}

TEST(Operation, ItsTensorsAreReachedByTheirId) {
  Inputs inputs;
  Outputs outputs;
  Tensors pointers;
  std::byte memory[9];
  int place = 0;
  for (const TensorSpec& tensor : tensors_of(Operation::backward)) {
    if (tensor.role == Role::input) inputs[tensor.id] = {float(place)};
    if (tensor.role == Role::output) outputs[tensor.id] = {float(place)};
    pointers.set(tensor.id, &memory[place++]);
  }
  EXPECT_EQ(inputs.q[0] + inputs.k[0] + inputs.v[0] + inputs.o[0] + inputs.lse[0] + inputs.d_o[0], 15);
  EXPECT_EQ(outputs.dq[0] + outputs.dk[0] + outputs.dv[0], 21);
  EXPECT_EQ(pointers.q, &memory[0]);
  EXPECT_EQ(static_cast<void*>(pointers.lse), &memory[4]);
  EXPECT_EQ(pointers.d_o, &memory[5]);
  EXPECT_EQ(pointers.dv, &memory[8]);
  EXPECT_THROW(inputs[TensorId::dq], std::logic_error);
  EXPECT_THROW(outputs[TensorId::q], std::logic_error);
}

TEST(Operation, TablesOfAShapeAreItsOwn) {
  EXPECT_TRUE(tables_of({}).empty());
  Shape shape{.heads = 2, .kv_heads = 2};
  shape.paging.rows = 1, shape.paging.table = {7};
  shape.visibility = {.lengths = {1},
                      .documents = {{0, 1}, {0, 1}},
                      .columns = {.bounds = 1, .queries = {1}},
                      .blocks = {1, 1, {0, 1}, {0}},
                      .dense = {.visible = {1}}};
  shape.score.alibi = {0.5f, 0.25f};
  shape.score.bias = {0, {1, 2}};
  std::string names;
  for (const ShapeTable& table : tables_of(shape)) {
    names += std::string(table.name) + " ";
  }
  EXPECT_EQ(
      names,
      "lengths document_query document_key block_first block_keys columns dense slopes bias page_table ");
  EXPECT_EQ(tables_of(shape).front().bytes.size(), sizeof(int));
  EXPECT_EQ(tables_of(shape).back().bytes.data(), std::as_bytes(std::span(shape.paging.table)).data());
}

TEST(Operation, BackwardIsFiveProducts) {
  const Shape shape{.batch = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 30, .seqlen_k = 50};
  EXPECT_EQ(flops(shape, Operation::backward), 2.5 * flops(shape));
  EXPECT_EQ(flops(shape, Operation::decode), flops(shape));
  const double q = 2 * 4 * 30 * 64 * 2, k = 2 * 2 * 50 * 64 * 2, lse = 2 * 4 * 30 * 4;
  EXPECT_EQ(compulsory_bytes(shape, Operation::forward), 2 * q + 2 * k + lse);
  EXPECT_EQ(compulsory_bytes(shape, Operation::backward), 4 * q + 4 * k + lse);
}

TEST(Operation, DecodingReadsTheKeysThatSequencesHave) {
  Shape shape{.batch = 2, .heads = 8, .kv_heads = 2, .seqlen_q = 1, .seqlen_k = 100, .head_dim = 128};
  shape.visibility.lengths = {30, 100};
  shape.paging = {.rows = 64, .pages = 1000, .table = {5, 6, 7, 8}};
  EXPECT_EQ(flops(shape, Operation::decode), 4.0 * 128 * 8 * (30 + 100));
  const double kv = 2.0 * (30 + 100) * 2 * 128 * 2, qo = 2.0 * 2 * 8 * 128 * 2, lse = 2 * 8 * 4;
  const double tables = (4 + 2) * 4;
  EXPECT_EQ(compulsory_bytes(shape, Operation::decode), kv + qo + lse + tables);
}

// As FlashMLA counts: each pair takes 576 multiply-adds for Q K^T and 512 for P V.
TEST(Operation, LatentKeysAreReadOnceAndAreValuesToo) {
  Shape shape{.batch = 2, .heads = 8, .kv_heads = 1, .seqlen_q = 1, .seqlen_k = 100, .head_dim = 576};
  EXPECT_EQ(flops(shape, Operation::decode), 2.0 * (576 + 512) * 100 * 8 * 2);
  const double q = 2.0 * 8 * 576 * 2, o = 2.0 * 8 * 512 * 2, k = 2.0 * 100 * 576 * 2, lse = 2 * 8 * 4;
  EXPECT_EQ(compulsory_bytes(shape, Operation::decode), q + k + o + lse);
  EXPECT_EQ(dims_of(shape, TensorId::o), (std::vector<int64_t>{2, 8, 1, 512}));
  EXPECT_EQ(dims_of(shape, TensorId::v), (std::vector<int64_t>{2, 1, 100, 512}));
  EXPECT_EQ(elements_of(shape, TensorId::v), 0) << "they are K's";
  EXPECT_EQ(shape.strides(TensorId::v), shape.strides(TensorId::k));
  EXPECT_TRUE(make_inputs(shape, InputKind::drifting, 1).v.empty());
  shape.layout = layout_bshd(shape);
  EXPECT_NO_THROW(validate(shape));
}

}  // namespace
}  // namespace flashbook
