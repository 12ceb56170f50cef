#include "common/attention/check.h"

#include <cmath>
#include <sstream>

namespace flashbook {
namespace {

/// One tensor held against another: O, or the log-sum-exp.
struct Comparison {
  const Shape& shape;
  bool is_lse;
  double bound;

  const char* name() const { return is_lse ? "log-sum-exp" : "O"; }
  int64_t width() const { return is_lse ? 1 : shape.head_dim; }  ///< elements a row

  Verdict failed(const std::string& why) const {
    return {.ok = false, .max_error = NAN, .bound = bound, .relative_rms = NAN, .worst = why};
  }

  /// Why a tensor of `size` elements cannot hold `rows` rows; empty if it can.
  std::string wrong_size(const std::string& whose, std::size_t size, int64_t rows) const {
    if (int64_t(size) == rows * width()) return "";
    return whose + name() + " has " + std::to_string(size) + " elements, not " +
           std::to_string(rows * width());
  }

  /// The absolute error. The log-sum-exp of a row that sees no key is -inf, which equals only -inf.
  double error(double got, double want) const {
    if (is_lse && got == -INFINITY && want == -INFINITY) return 0;
    return std::abs(got - want);
  }

  std::string place(int64_t row, int64_t dim, double got, double want) const {
    const int64_t head = row / shape.seqlen_q;
    std::ostringstream text;
    text.precision(9);
    text << "batch " << head / shape.heads << ", head " << head % shape.heads << ", query "
         << row % shape.seqlen_q;
    if (!is_lse) text << ", dim " << dim;
    text << ": got " << got << ", want " << want;
    return text.str();
  }

  /// `row(i)` is the row of O, `got(i, dim)` and `want(i, dim)` are the values of the i-th of `count` rows.
  template <typename Row, typename Got, typename Want>
  Verdict judge(int64_t count, Row row, Got got, Want want) const {
    if (count == 0) return failed(std::string("no row of ") + name() + " was compared");
    double worst = -1, squared_error = 0, squared_norm = 0;
    int64_t worst_i = 0, worst_dim = 0;
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t dim = 0; dim < width(); ++dim) {
        const double e = error(got(i, dim), want(i, dim));
        if (!std::isnan(worst) && !(e <= worst)) worst = e, worst_i = i, worst_dim = dim;
        squared_error += e * e;
        if (std::isfinite(want(i, dim))) squared_norm += want(i, dim) * want(i, dim);
      }
    }
    return {.ok = worst <= bound,  // false for NaN, whether it is the error or the bound
            .max_error = worst,
            .bound = bound,
            .relative_rms = squared_error == 0 ? 0 : std::sqrt(squared_error / squared_norm),
            .worst = place(row(worst_i), worst_dim, got(worst_i, worst_dim), want(worst_i, worst_dim))};
  }
};

Verdict against_reference(const Comparison& c, const Reference& reference, std::span<const double> want,
                          std::span<const float> got) {
  std::string why = c.wrong_size("", got.size(), c.shape.q_rows());
  if (why.empty()) why = c.wrong_size("the reference's ", want.size(), int64_t(reference.rows.size()));
  if (why.empty() && !reference.rows.empty() && reference.rows.back() >= c.shape.q_rows())
    why = "the reference has rows that O has not";
  if (!why.empty()) return c.failed(why);
  return c.judge(
      int64_t(reference.rows.size()), [&](int64_t i) { return reference.rows[i]; },
      [&](int64_t i, int64_t dim) { return double(got[reference.rows[i] * c.width() + dim]); },
      [&](int64_t i, int64_t dim) { return want[i * c.width() + dim]; });
}

Verdict against_other(const Comparison& c, std::span<const float> got, std::span<const float> before) {
  std::string why = c.wrong_size("", got.size(), c.shape.q_rows());
  if (why.empty()) why = c.wrong_size("the other ", before.size(), c.shape.q_rows());
  if (!why.empty()) return c.failed(why);
  return c.judge(
      c.shape.q_rows(), [](int64_t i) { return i; },
      [&](int64_t i, int64_t dim) { return double(got[i * c.width() + dim]); },
      [&](int64_t i, int64_t dim) { return double(before[i * c.width() + dim]); });
}

}  // namespace

CheckResult check(const Shape& shape, const Reference& reference, const Outputs& outputs) {
  const Comparison o{shape, false, reference.o_bound};
  const Comparison lse{shape, true, reference.lse_bound};
  return {against_reference(o, reference, reference.o, outputs.o),
          against_reference(lse, reference, reference.lse, outputs.lse)};
}

CheckResult compare(const Shape& shape, const Outputs& outputs, const Outputs& before, double o_bound,
                    double lse_bound) {
  const Comparison o{shape, false, o_bound};
  const Comparison lse{shape, true, lse_bound};
  return {against_other(o, outputs.o, before.o), against_other(lse, outputs.lse, before.lse)};
}

}  // namespace flashbook
