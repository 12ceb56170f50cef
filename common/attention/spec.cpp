#include "common/attention/spec.h"

#include <cmath>
#include <set>
#include <sstream>

#include "common/features/helpers.h"

namespace flashbook {
namespace {

/// Returns "1, 2, 4 or 8", for example; of many divisors, only the smaller ones and the number itself.
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

int64_t Spec::q_scale_of(int64_t row) const {
  const int64_t head = row / seqlen_q, blocks = ceil_div(seqlen_q, kQueriesPerScale);
  if (e4m3.scaling == Scaling::block) return head * blocks + row % seqlen_q / kQueriesPerScale;
  return e4m3.scaling == Scaling::head ? head / (heads / kv_heads) : 0;
}

int64_t Spec::k_scales() const {
  if (has_latent_rows_in_e4m3()) return 0;  // each row contains its own
  if (e4m3.scaling == Scaling::tensor) return 1;
  if (e4m3.scaling == Scaling::block && paging.rows > 0) return int64_t(paging.pages) * kv_heads;
  const int64_t blocks = e4m3.scaling == Scaling::block ? ceil_div(seqlen_k, kKeysPerScale) : 1;
  return int64_t(batch) * kv_heads * blocks;
}

int64_t Spec::k_scale_of(int64_t row) const {
  if (paging.rows > 0 && e4m3.scaling != Scaling::tensor) {
    const int64_t of_page = row / paging.rows;
    return e4m3.scaling == Scaling::block ? of_page : of_page % kv_heads;
  }
  const int64_t head = row / seqlen_k, blocks = ceil_div(seqlen_k, kKeysPerScale);
  if (e4m3.scaling == Scaling::block) return head * blocks + row % seqlen_k / kKeysPerScale;
  return e4m3.scaling == Scaling::head ? head : 0;
}

int Spec::visible_keys(int query) const {
  return causal() ? int(std::clamp<int64_t>(own_key(*this, 0, query) + 1, 0, seqlen_k)) : seqlen_k;
}

float default_scale(int head_dim) { return float(1 / std::sqrt(double(head_dim))); }

Spec with_latent_keys(Spec spec) {
  spec.kv_heads = 1;
  spec.set_head_dim(kLatentKeyDim);
  spec.scale = default_scale(kLatentKeyDim);
  return spec;
}

Spec with_e4m3_cache(Spec spec) {
  spec.e4m3.cache = true;
  spec.e4m3.scaling = Scaling::head;
  return spec;
}

void validate(const Spec& spec) {
  using features::require, features::require_positive, features::require_addressable;
  require_positive("--batch", spec.batch);
  require_positive("--heads", spec.heads);
  require_positive("--kv-heads", spec.kv_heads);
  require_positive("--seqlen", spec.seqlen_q);
  require_positive("--seqlen-k", spec.seqlen_k);
  require(!spec.e4m3.mean_subtracted || spec.dtype == DType::e4m3,
          "--smooth is for e4m3: leave it out, or give --dtype e4m3");
  require((spec.head_dim >= 8 && spec.head_dim <= 256 && spec.head_dim % 8 == 0) || spec.is_latent(),
          "--head-dim ", spec.head_dim,
          " is not supported: use a multiple of 8 up to 256, or 576 for latent attention");
  require((spec.value_dim >= 8 && spec.value_dim <= 256 && spec.value_dim % 8 == 0) || spec.is_latent(),
          "--value-dim ", spec.value_dim, " is not supported: use a multiple of 8 up to 256");
  if (spec.heads % spec.kv_heads != 0)
    throw InputError("--kv-heads ", spec.kv_heads, " does not divide --heads ", spec.heads, ": use ",
                     divisors(spec.heads));
  require(spec.scale > 0 && !std::isinf(spec.scale), "--scale is ", spec.scale,
          ": give a finite number above 0");
  require_addressable("--batch, --heads or --seqlen", spec.batch, spec.heads, spec.seqlen_q, spec.head_dim);
  require_addressable("--batch, --kv-heads or --seqlen-k", spec.batch, spec.kv_heads, spec.seqlen_k,
                      spec.head_dim);
  for (const Definition* feature : definitions())
    if (feature->validate != nullptr && feature->is_in(spec)) feature->validate(spec);
}

std::string describe(const Spec& spec) {
  std::ostringstream text;
  text << "batch " << spec.batch << ", heads " << spec.heads;
  if (spec.kv_heads != spec.heads) text << " (" << spec.kv_heads << " key heads)";
  text << ", N " << spec.seqlen_q;
  if (spec.seqlen_k != spec.seqlen_q) text << " x " << spec.seqlen_k;
  text << ", d " << spec.head_dim << (spec.is_latent() ? " (latent)" : "") << ", "
       << describe(spec.visibility) << ", " << name_of(spec.dtype);
  if (spec.scale != default_scale(spec.head_dim)) text << ", scale " << spec.scale;
  for (const Definition* feature : having(&Definition::describe, spec))
    if (feature->mask == nullptr) text << ", " << feature->describe(spec);
  return text.str();
}

}  // namespace flashbook
