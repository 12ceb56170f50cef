// capstone_ladder EXERCISES PAGE: counts the book's own kernels like capstones, at the same shapes. Prints
// the tables of PAGE, chapters/capstones/README.md. Exit code 1 if PAGE lacks a row, or if the "clocks" in
// EXERCISES, the capstones' exercises.json, differ.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "chapters/01_naive_attention/host/chapter.h"
#include "chapters/03_flash_attention_1/host/chapter.h"
#include "chapters/04_flash_attention_2/host/chapter.h"
#include "chapters/05_flash_attention_3/host/chapter.h"
#include "chapters/07_backward/host/chapter.h"
#include "common/app/call.h"
#include "common/app/expected.h"
#include "tests/support/specs.h"
#include "tests/support/work.h"

using namespace flashbook;

namespace {

constexpr int kShapes = 2;
using Clocks = std::array<double, kShapes>;

struct Row {
  std::string name;
  Clocks clocks;
};

Spec spec_of(int heads, int kv_heads, int seqlen, bool causal) {
  return testing::make_spec(seqlen, seqlen, 64, causal, DType::bf16, heads, kv_heads);
}

std::vector<Row> rows_of(Operation operation, std::span<const Chapter* const> chapters,
                         const std::array<Spec, kShapes>& specs) {
  std::vector<Row> rows;
  for (const Chapter* chapter : chapters)
    for (const int number : chapter->steps_of(operation)) {
      Row row{"chapter " + std::to_string(chapter->number) + ", step " + std::to_string(number) + ": " +
                  chapter->step(number).name,
              {}};
      for (std::size_t i = 0; i < kShapes; ++i) {
        const UploadedInputs inputs(operation, specs[i],
                                    make_inputs(operation, specs[i], InputKind::normal, 6, nullptr),
                                    chapter->runs_on);
        const Call call(*chapter, specs[i], inputs, number);
        const double multiply_adds = flops(specs[i], operation) / 2;
        const auto work = testing::work_of({[&] { call.run(); }}, multiply_adds, device::multiprocessors());
        row.clocks[i] = std::round(work->clocks());
      }
      rows.push_back(row);
    }
  return rows;
}

/// Returns whether the page has these rows and the exercise these clocks. `begins_naive`: the first row is
/// the naive kernel.
bool agree(const std::vector<Row>& rows, const nlohmann::json& exercise, bool begins_naive,
           const std::string& page) {
  Clocks naive{}, best{};
  std::size_t specs = 0;
  for (const auto& test : exercise["tests"])
    if (test.contains("clocks")) {
      naive[specs] = test["clocks"][0], best[specs] = test["clocks"][1];
      ++specs;
    }
  bool right = specs == kShapes;
  for (std::size_t i = 0; i < kShapes; ++i) {
    const auto least = std::ranges::min_element(rows, {}, [i](const Row& row) { return row.clocks[i]; });
    right &= least->clocks[i] == best[i] && (!begins_naive || rows[0].clocks[i] == naive[i]);
  }
  for (std::size_t n = 0; n < rows.size(); ++n) {
    const Row& row = rows[n];
    if (n > 0 && row.clocks == rows[n - 1].clocks) continue;  // the page lists equal rows once
    double score = 0;
    for (std::size_t i = 0; i < kShapes; ++i)
      score += 100 * std::log(naive[i] / row.clocks[i]) / std::log(naive[i] / best[i]) / kShapes;
    char text[256];
    std::snprintf(text, sizeof text, "| %s | %.0f | %.0f | %.0f |\n", row.name.c_str(), row.clocks[0],
                  row.clocks[1], score);
    std::fputs(text, stdout);
    right &= page.find(text) != std::string::npos;
  }
  return right;
}

std::string text_of(const char* file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

}  // namespace

int main(int, char** words) {
  const nlohmann::json exercises = nlohmann::json::parse(text_of(words[1]));
  const std::string page = text_of(words[2]);
  const Chapter* const forward[] = {&kNaiveAttention, &kFlashAttention1, &kFlashAttention2,
                                    &kFlashAttention3};
  const Chapter* const backward[] = {&kBackward};
  const bool of_forward =
      agree(rows_of(Operation::forward, forward, {spec_of(2, 2, 256, false), spec_of(4, 2, 256, true)}),
            exercises[0], true, page);
  const bool of_backward =
      agree(rows_of(Operation::backward, backward, {spec_of(2, 2, 128, false), spec_of(2, 1, 192, true)}),
            exercises[1], false, page);
  if (of_forward && of_backward) return 0;
  std::fputs("the page or exercises.json says otherwise\n", stderr);
  return 1;
}
