#include "common/attention/shape.h"

#include <cmath>
#include <set>
#include <sstream>

#include "common/features/helpers.h"

namespace flashbook {
namespace {

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

}  // namespace

int64_t Shape::q_scale_of(int64_t row) const {
  const int64_t head = row / seqlen_q, blocks = ceil_div(seqlen_q, kQueriesPerScale);
  if (scaling == Scaling::block) return head * blocks + row % seqlen_q / kQueriesPerScale;
  return scaling == Scaling::head ? head / (heads / kv_heads) : 0;
}

int64_t Shape::k_scales() const {
  if (scaling == Scaling::tensor) return 1;
  if (scaling == Scaling::block && paging.rows > 0) return int64_t(paging.pages) * kv_heads;
  const int64_t blocks = scaling == Scaling::block ? ceil_div(seqlen_k, kKeysPerScale) : 1;
  return int64_t(batch) * kv_heads * blocks;
}

int64_t Shape::k_scale_of(int64_t row) const {
  if (paging.rows > 0 && scaling != Scaling::tensor) {
    const int64_t of_page = row / paging.rows;
    return scaling == Scaling::block ? of_page : of_page % kv_heads;
  }
  const int64_t head = row / seqlen_k, blocks = ceil_div(seqlen_k, kKeysPerScale);
  if (scaling == Scaling::block) return head * blocks + row % seqlen_k / kKeysPerScale;
  return scaling == Scaling::head ? head : 0;
}

int Shape::visible_keys(int query) const {
  return causal() ? int(std::clamp<int64_t>(own_key(*this, 0, query) + 1, 0, seqlen_k)) : seqlen_k;
}

float default_scale(int head_dim) { return float(1 / std::sqrt(double(head_dim))); }

Shape with_latent_keys(Shape shape) {
  shape.kv_heads = 1;
  shape.set_head_dim(kLatentKeyDim);
  shape.scale = default_scale(kLatentKeyDim);
  return shape;
}

Shape with_e4m3_cache(Shape shape) {
  shape.e4m3_cache = true;
  shape.scaling = Scaling::head;
  return shape;
}

void validate(const Shape& shape) {
  using features::require, features::require_positive, features::require_addressable;
  require_positive("--batch", shape.batch);
  require_positive("--heads", shape.heads);
  require_positive("--kv-heads", shape.kv_heads);
  require_positive("--seqlen", shape.seqlen_q);
  require_positive("--seqlen-k", shape.seqlen_k);
  require(!shape.mean_subtracted || shape.dtype == DType::e4m3,
          "--smooth is for e4m3: leave it out, or give --dtype e4m3");
  require((shape.head_dim >= 8 && shape.head_dim <= 256 && shape.head_dim % 8 == 0) || shape.is_latent(),
          "--head-dim ", shape.head_dim,
          " is not supported: use a multiple of 8 up to 256, or 576 for latent attention");
  require((shape.value_dim >= 8 && shape.value_dim <= 256 && shape.value_dim % 8 == 0) || shape.is_latent(),
          "--value-dim ", shape.value_dim, " is not supported: use a multiple of 8 up to 256");
  if (shape.heads % shape.kv_heads != 0)
    throw InputError("--kv-heads ", shape.kv_heads, " does not divide --heads ", shape.heads, ": use ",
                     divisors(shape.heads));
  require(shape.scale > 0 && !std::isinf(shape.scale), "--scale is ", shape.scale,
          ": give a finite number above 0");
  require_addressable("--batch, --heads or --seqlen", shape.batch, shape.heads, shape.seqlen_q,
                      shape.head_dim);
  require_addressable("--batch, --kv-heads or --seqlen-k", shape.batch, shape.kv_heads, shape.seqlen_k,
                      shape.head_dim);
  for (const Definition* feature : definitions())
    if (feature->validate != nullptr && feature->is_in(shape)) feature->validate(shape);
}

std::string describe(const Shape& shape) {
  std::ostringstream text;
  text << "batch " << shape.batch << ", heads " << shape.heads;
  if (shape.kv_heads != shape.heads) text << " (" << shape.kv_heads << " key heads)";
  text << ", N " << shape.seqlen_q;
  if (shape.seqlen_k != shape.seqlen_q) text << " x " << shape.seqlen_k;
  text << ", d " << shape.head_dim << (shape.is_latent() ? " (latent)" : "") << ", "
       << describe(shape.visibility) << ", " << name_of(shape.dtype);
  if (shape.scale != default_scale(shape.head_dim)) text << ", scale " << shape.scale;
  for (const Definition* feature : having(&Definition::describe, shape))
    if (feature->mask == nullptr) text << ", " << feature->describe(shape);
  return text.str();
}

}  // namespace flashbook
