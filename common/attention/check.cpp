#include "common/attention/check.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>

#include "common/attention/parallel.h"
#include "common/concat.h"

namespace flashbook {
namespace {

constexpr int64_t kRowsComparedAtOnce = 1024;  // unit of work that a core receives at a time

/// The result of comparing some rows.
struct Part {
  struct Worst {
    double ratio = -1, error = 0, bound = 0;
    int64_t row = 0, dim = 0;
    double got = 0, want = 0;
  };
  bool ok = true;
  Worst worst;
  double squared_error = 0, squared_norm = 0;

  /// Returns whether this ratio of error to bound is worse than the worst so far: NaN is the worst.
  bool has_less_than(double ratio) const { return !std::isnan(worst.ratio) && !(ratio <= worst.ratio); }
};

struct Comparison {
  const Spec& spec;
  TensorId id;

  bool is_lse() const { return id == TensorId::lse; }
  std::string name() const { return std::string(id == TensorId::o || is_lse() ? title_of(id) : name_of(id)); }
  int64_t width() const { return columns_of(spec, id); }  ///< elements per row
  int64_t rows() const { return elements_of(spec, id) / width(); }

  Verdict failed(const std::string& why) const {
    return {.ok = false, .max_error = NAN, .bound = NAN, .relative_rms = NAN, .worst = why};
  }

  /// Returns why a tensor of `size` elements cannot hold `rows` rows; empty if it can.
  std::string wrong_size(const std::string& whose, std::size_t size, int64_t rows) const {
    if (int64_t(size) == rows * width()) return "";
    return concat(whose, name(), " has ", size, " elements, not ", rows * width());
  }

  /// Returns the absolute error. The log-sum-exp of a row that sees no key is -inf, which equals only -inf.
  double error(double got, double want) const {
    if (is_lse() && got == -INFINITY && want == -INFINITY) return 0;
    return std::abs(got - want);
  }

  std::string place(int64_t row, int64_t dim, double got, double want) const {
    const std::vector<int64_t> dims = dims_of(spec, id);  // [batch, heads, seqlen, ...]
    const bool of_key = id == TensorId::dk || id == TensorId::dv;
    std::ostringstream text;
    text.precision(9);
    text << "batch " << row / dims[2] / dims[1] << ", head " << row / dims[2] % dims[1]
         << (of_key ? ", key " : ", query ") << row % dims[2];
    if (!is_lse()) text << ", dim " << dim;
    text << ": got " << got << ", want " << want;
    return text.str();
  }

  /// Compares the rows of `got` with those of `want`, whose i-th row is row `rows[i]` of the tensor; the
  /// error of each may be up to `bound(i)`.
  template <typename T, typename Bound>
  Verdict judge(const std::string& whose, std::span<const int64_t> compared, std::span<const T> want,
                std::span<const float> got, Bound bound) const {
    const int64_t count = int64_t(compared.size());
    std::string why = wrong_size("", got.size(), rows());
    if (why.empty()) why = wrong_size(whose, want.size(), count);
    if (why.empty() && count > 0 && compared.back() >= rows())
      why = concat("the reference has rows that ", name(), " lacks");
    if (why.empty() && count == 0) why = concat("no row of ", name(), " was compared");
    if (!why.empty()) return failed(why);
    std::vector<Part> parts(ceil_div(count, kRowsComparedAtOnce));
    parallel_for(int64_t(parts.size()), [&, columns = width()](int64_t number) {
      Part part;
      for (int64_t i = number * kRowsComparedAtOnce; i < std::min(count, (number + 1) * kRowsComparedAtOnce);
           ++i) {
        const double allowed = bound(i);
        for (int64_t dim = 0; dim < columns; ++dim) {
          const double is = got[compared[i] * columns + dim], wanted = want[i * columns + dim];
          const double e = error(is, wanted);
          part.ok &= e <= allowed;  // false for NaN, in the error or in the bound
          const double ratio = e == 0 && allowed == 0 ? 0 : e / allowed;
          if (part.has_less_than(ratio)) part.worst = {ratio, e, allowed, compared[i], dim, is, wanted};
          part.squared_error += e * e;
          if (std::isfinite(wanted)) part.squared_norm += wanted * wanted;
        }
      }
      parts[number] = part;
    });
    Part all;
    for (const Part& part : parts) {
      all.ok &= part.ok;
      if (all.has_less_than(part.worst.ratio)) all.worst = part.worst;
      all.squared_error += part.squared_error, all.squared_norm += part.squared_norm;
    }
    const auto& [ratio, e, allowed, row, dim, is, wanted] = all.worst;
    return {.ok = all.ok,
            .max_error = e,
            .bound = allowed,
            .relative_rms = all.squared_error == 0 ? 0 : std::sqrt(all.squared_error / all.squared_norm),
            .worst = place(row, dim, is, wanted)};
  }
};

/// The bounds of a reference, for rows that it contains and for others.
class RowBounds {
 public:
  RowBounds(const Spec& spec, const Reference& reference) : reference_(reference) {
    for (std::size_t i = 0; i < reference.rows.size(); ++i) {
      const double largest = largest_of(std::span(reference.o).subspan(i * spec.value_dim, spec.value_dim));
      if (largest > 0) relative_o_ = std::max(relative_o_, reference.o_bound[i] / largest);
      lse_ = std::max(lse_, reference.lse_bound[i]);
    }
  }

  /// Returns the bound for a row of O with these elements.
  double o(int64_t row, std::span<const float> elements) const {
    const auto i = find(row);
    return i ? reference_.o_bound[*i] : relative_o_ * largest_of(elements);
  }

  double lse(int64_t row) const {
    const auto i = find(row);
    return i ? reference_.lse_bound[*i] : lse_;
  }

 private:
  template <typename T>
  static double largest_of(std::span<const T> elements) {
    double largest = 0;
    for (T element : elements) largest = std::max(largest, double(std::abs(element)));
    return largest;
  }

  std::optional<std::size_t> find(int64_t row) const {
    const auto at = std::ranges::lower_bound(reference_.rows, row);
    if (at == reference_.rows.end() || *at != row) return std::nullopt;
    return at - reference_.rows.begin();
  }

  const Reference& reference_;
  double relative_o_ = 0, lse_ = 0;  // the largest relative bounds of any row
};

Verdict against_reference(const Comparison& c, const std::vector<int64_t>& rows, std::span<const double> want,
                          std::span<const double> bounds, std::span<const float> got) {
  if (bounds.size() != rows.size())
    return c.failed(
        concat("the reference has ", bounds.size(), " bounds of ", c.name(), ", not ", rows.size()));
  return c.judge("the reference's ", rows, want, got, [&](int64_t i) { return bounds[i]; });
}

}  // namespace

CheckResult check(const Spec& spec, const Reference& reference, const Outputs& outputs) {
  return {against_reference({spec, TensorId::o}, reference.rows, reference.o, reference.o_bound, outputs.o),
          against_reference({spec, TensorId::lse}, reference.rows, reference.lse, reference.lse_bound,
                            outputs.lse)};
}

Verdict check(const Spec& spec, const TensorReference& reference, std::span<const float> got) {
  return against_reference({spec, reference.id}, reference.rows, reference.values, reference.bound, got);
}

CheckResult compare(const Spec& spec, const Outputs& outputs, const Outputs& before,
                    const Reference& reference) {
  const RowBounds bounds(spec, reference);
  const std::vector<int64_t> rows = all_rows(spec);
  const auto against = [&](TensorId id, auto bound) {
    return Comparison{spec, id}.judge("the other ", rows, std::span<const float>(before[id]), outputs[id],
                                      bound);
  };
  return {against(TensorId::o,
                  [&](int64_t row) {
                    return 2 *
                           bounds.o(row, std::span(before.o).subspan(row * spec.value_dim, spec.value_dim));
                  }),
          against(TensorId::lse, [&](int64_t row) { return 2 * bounds.lse(row); })};
}

}  // namespace flashbook
