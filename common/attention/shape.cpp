#include "common/attention/shape.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <sstream>

#include "common/attention/error.h"
#include "common/attention/slopes.h"

namespace flashbook {
namespace {

void require_positive(const char* option, int value) {
  if (value < 1) throw InputError(option, " is ", value, ": give at least 1");
}

/// "1, 2, 4 or 8"; of many divisors only the smaller ones and the number itself.
std::string divisors(int number) {
  constexpr std::size_t kListed = 8;
  std::set<int> all;
  for (int i = 1; i <= number / i; ++i)
    if (number % i == 0) all.insert({i, number / i});
  all.erase(--all.end());  // the number itself comes last, after "or"
  std::string text;
  std::size_t listed = 0;
  for (int divisor : all) {
    if (++listed == kListed) {
      text += ", ...";
      break;
    }
    text += (text.empty() ? "" : ", ") + std::to_string(divisor);
  }
  return text + (text.empty() ? "" : " or ") + std::to_string(number);
}

void require_addressable(const char* options, int batch, int heads, int seqlen, int head_dim) {
  // A double holds these products closely enough to compare, where an int64_t could overflow.
  if (double(batch) * heads * seqlen * head_dim > std::ldexp(1.0, 40))
    throw InputError("a tensor has more than 2^40 elements: give a smaller ", options);
}

void validate_score(const Shape& shape) {
  const ScoreFunction& score = shape.score;
  if (!(score.softcap >= 0) || std::isinf(score.softcap))
    throw InputError("the softcap is no finite number of at least 0: give one, 0 for none");
  if (const int64_t slopes = int64_t(score.alibi.size()), every = sequences_of(shape) * shape.heads;
      slopes != 0 && slopes != shape.heads && slopes != every)
    throw InputError("there are ", slopes, " slopes: give ", shape.heads, ", one a head, or ", every,
                     ", one a head of each sequence");
  for (float slope : score.alibi)
    if (!std::isfinite(slope)) throw InputError("a slope is not finite: give finite slopes");
  if (!score.sinks.empty() && int64_t(score.sinks.size()) != shape.heads)
    throw InputError("there are ", score.sinks.size(), " sinks: give ", shape.heads, ", one a head");
  for (float sink : score.sinks)
    if (std::isnan(sink) || sink == std::numeric_limits<float>::infinity())
      throw InputError("a sink is ", sink, ": give finite ones, or -inf for none");
  const RelativeBias& bias = score.bias;
  if (const int64_t values = shape.heads * (2 * int64_t(bias.reach) + 1);
      !bias.values.empty() && (bias.reach < 0 || int64_t(bias.values.size()) != values))
    throw InputError("the bias has ", bias.values.size(), " values: give ", values,
                     ", 2 * reach + 1 for each head");
  for (float value : bias.values)
    if (!std::isfinite(value)) throw InputError("a bias is not finite: give finite ones");
  if (!(score.dropout >= 0 && score.dropout < 1))
    throw InputError("the dropout is no number from 0 to below 1: give one, 0 for none");
}

void validate_paging(const Shape& shape) {
  const Paging& paging = shape.paging;
  if (paging.rows == 0) return;
  if (paging.rows < 0 || paging.pages < 1)
    throw InputError("there are ", paging.pages, " pages of ", paging.rows, " rows: give at least 1 of each");
  if (shape.dtype == DType::e4m3)
    throw InputError("queries in e4m3 meet no pages: give f16 or bf16, and the cache may be e4m3");
  const int64_t pages_of_sequence = shape.pages_of_sequence();
  if (int64_t(paging.table.size()) != shape.batch * pages_of_sequence)
    throw InputError("the page table has ", paging.table.size(), " entries: give ",
                     shape.batch * pages_of_sequence, ", batch times the pages of seqlen_k");
  for (int batch = 0; batch < shape.batch; ++batch)
    for (int64_t i = 0; i * paging.rows < shape.length_of(batch); ++i)
      if (const int page = paging.table[batch * pages_of_sequence + i]; page < 0 || page >= paging.pages)
        throw InputError("the page table has page ", page, " in sequence ", batch, ": give 0 to ",
                         paging.pages - 1);
  if (paging.shared < 0 || paging.shared > shape.seqlen_k || paging.shared % paging.rows != 0)
    throw InputError("a prefix of ", paging.shared, " keys is shared: give a multiple of the ", paging.rows,
                     " rows of a page, at most seqlen_k");
  // Queries are behind the prefix, so that each sees all of it.
  const bool causal = shape.visibility.window.right >= 0;
  const int64_t least = int64_t(paging.shared) + (causal ? shape.seqlen_q - 1 : 0);
  for (int batch = 0; batch < shape.batch && paging.shared > 0; ++batch) {
    const auto pages = paging.table.begin() + batch * pages_of_sequence;
    if (shape.length_of(batch) < least ||
        !std::equal(pages, pages + paging.shared / paging.rows, paging.table.begin()))
      throw InputError("sequence ", batch, " does not share the prefix of ", paging.shared,
                       " keys: give all sequences the same first pages, and at least ", least, " keys");
  }
  require_addressable("number of pages", paging.pages, shape.kv_heads, paging.rows, shape.head_dim);
}

}  // namespace

std::string name_of(Scaling scaling) {
  return scaling == Scaling::tensor ? "tensor" : scaling == Scaling::head ? "head" : "block";
}

std::string name_of(TokenOrder order) {
  return order == TokenOrder::contiguous ? "contiguous" : order == TokenOrder::zigzag ? "zigzag" : "striped";
}

int64_t Shape::q_scale_of(int64_t row) const {
  const int64_t head = row / seqlen_q, blocks = ceil_div(seqlen_q, kQueriesOfScale);
  if (scaling == Scaling::block) return head * blocks + row % seqlen_q / kQueriesOfScale;
  return scaling == Scaling::head ? head / (heads / kv_heads) : 0;
}

int64_t Shape::k_scales() const {
  if (scaling == Scaling::tensor) return 1;
  if (scaling == Scaling::block && paging.rows > 0) return int64_t(paging.pages) * kv_heads;
  const int64_t blocks = scaling == Scaling::block ? ceil_div(seqlen_k, kKeysOfScale) : 1;
  return int64_t(batch) * kv_heads * blocks;
}

int64_t Shape::k_scale_of(int64_t row) const {
  if (paging.rows > 0 && scaling != Scaling::tensor) {
    const int64_t of_page = row / paging.rows;
    return scaling == Scaling::block ? of_page : of_page % kv_heads;
  }
  const int64_t head = row / seqlen_k, blocks = ceil_div(seqlen_k, kKeysOfScale);
  if (scaling == Scaling::block) return head * blocks + row % seqlen_k / kKeysOfScale;
  return scaling == Scaling::head ? head : 0;
}

int Shape::visible_keys(int query) const {
  return causal() ? int(std::clamp<int64_t>(own_key(*this, 0, query) + 1, 0, seqlen_k)) : seqlen_k;
}

float default_scale(int head_dim) { return float(1 / std::sqrt(double(head_dim))); }

Shape with_latent_keys(Shape shape) {
  shape.kv_heads = 1;
  shape.head_dim = kLatentKeyDim;
  shape.scale = default_scale(kLatentKeyDim);
  return shape;
}

Shape with_e4m3_cache(Shape shape) {
  shape.e4m3_cache = true;
  shape.scaling = Scaling::head;
  return shape;
}

void validate(const Shape& shape) {
  require_positive("--batch", shape.batch);
  require_positive("--heads", shape.heads);
  require_positive("--kv-heads", shape.kv_heads);
  require_positive("--seqlen", shape.seqlen_q);
  require_positive("--seqlen-k", shape.seqlen_k);
  require_positive("--ranks", shape.ranks);
  if (shape.packed_queries < 0)
    throw InputError("there are ", shape.packed_queries, " queries: give 0 or more");
  if ((shape.head_dim < 8 || shape.head_dim > 256 || shape.head_dim % 8 != 0) && !shape.is_latent())
    throw InputError("--head-dim ", shape.head_dim,
                     " is not supported: use a multiple of 8 up to 256, or for latent attention 576");
  if (shape.heads % shape.kv_heads != 0)
    throw InputError("--kv-heads ", shape.kv_heads, " does not divide --heads ", shape.heads, ": use ",
                     divisors(shape.heads));
  if (!(shape.scale > 0) || std::isinf(shape.scale))
    throw InputError("--scale is ", shape.scale, ": give a finite number above 0");
  require_addressable("--batch, --heads or --seqlen", shape.batch, shape.heads, shape.seqlen_q,
                      shape.head_dim);
  require_addressable("--batch, --kv-heads or --seqlen-k", shape.batch, shape.kv_heads, shape.seqlen_k,
                      shape.head_dim);
  if (shape.mean_subtracted && shape.dtype != DType::e4m3)
    throw InputError("--smooth is for e4m3: leave it out, or give --dtype e4m3");
  if (shape.e4m3_cache && shape.dtype == DType::e4m3)
    throw InputError("a cache in e4m3 is for queries of another type: give f16 or bf16");
  if (shape.is_latent() && (shape.dtype == DType::e4m3 || shape.e4m3_cache))
    throw InputError("a latent key has no scales, which e4m3 needs: give f32, f16 or bf16");
  if (shape.is_latent() && shape.layout.v != Strides{})
    throw InputError("of latent attention V is the first columns of K: give strides of K alone");
  validate_visibility(shape);
  validate_score(shape);
  validate_paging(shape);
  validate_layout(shape);
}

std::string describe(const Shape& shape) {
  std::ostringstream text;
  text << "batch " << shape.batch << ", heads " << shape.heads;
  if (shape.kv_heads != shape.heads) text << " (" << shape.kv_heads << " key heads)";
  text << ", N " << shape.seqlen_q;
  if (shape.seqlen_k != shape.seqlen_q) text << " x " << shape.seqlen_k;
  text << ", d " << shape.head_dim << (shape.is_latent() ? " (latent)" : "") << ", "
       << describe(shape.visibility) << ", " << name_of(shape.dtype);
  if (shape.e4m3_cache) text << ", cache e4m3";
  if (shape.dtype == DType::e4m3 || shape.e4m3_cache) text << ", a scale per " << name_of(shape.scaling);
  if (shape.mean_subtracted) text << ", mean-subtracted";
  if (shape.scale != default_scale(shape.head_dim)) text << ", scale " << shape.scale;
  if (shape.score.softcap > 0) text << ", softcap " << shape.score.softcap;
  if (!shape.score.alibi.empty()) text << ", ALiBi";
  if (shape.score.alibi.size() > std::size_t(shape.heads)) text << " by sequence";
  if (!shape.score.bias.values.empty()) text << ", bias";
  if (!shape.score.sinks.empty()) text << ", sinks";
  if (shape.score.dropout > 0) text << ", dropout " << shape.score.dropout;
  if (shape.paging.rows > 0) text << ", pages of " << shape.paging.rows;
  if (shape.paging.padded) text << ", padded";
  if (shape.paging.shared > 0) text << ", " << shape.paging.shared << " keys shared";
  if (shape.packed_queries > 0) text << ", " << shape.packed_queries << " queries packed";
  if (shape.ranks > 1) text << ", " << shape.ranks << " ranks";
  if (shape.order) text << ", " << name_of(*shape.order) << " tokens";
  if (shape.layout == layout_bshd(shape))
    text << ", BSHD";
  else if (!shape.is_default_layout())
    text << ", strided";
  return text.str();
}

}  // namespace flashbook
