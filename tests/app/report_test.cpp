// The tables of steps and the ladder: their widths and the origin of their numbers.
#include "common/app/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace flashbook::testing {
namespace {

constexpr CommittedShape kShapes[] = {{"", "batch 4, bf16", "2026-01-01, commit abc"}};
constexpr CommittedRung kRungs[] = {{"ch04/split_q", 0, 0.02, 1e14, 2e9, 0, 0},
                                    {"ch04/ldmatrix", 0, 0.005, 4e14, 1e9, 3e6, 4}};
constexpr Committed kResults = {"H200", "bench/results/h200", kShapes, kRungs};

/// Returns a report of two steps, with the widest possible number in every column.
Report report_of(bool simulated) {
  Report report{.chapter = 4,
                .name = "04",
                .title = "FlashAttention-2",
                .machine = simulated ? "simulator" : "NVIDIA H200",
                .on_gpu = !simulated,
                .simulated = simulated,
                .shape = "batch 4, bf16",
                .checked_rows = "every row",
                .before = "every head against chapter 3, step 3"};
  const TensorVerdict verdict{TensorId::o, {.ok = true, .max_error = 1.2e-3, .bound = 2e-3, .worst = ""}};
  for (const int step : {1, 2})
    report.steps.push_back({.step = step,
                            .slug = step == 1 ? "split_q" : "ldmatrix",
                            .name = "keys outside, queries inside",
                            .flops = 5.5e11,
                            .memory_bytes = 7.77e6,
                            .requested_bytes = 8.88e6,
                            .workspace_bytes = 9.99e6,
                            .oracle = {verdict},
                            .seconds = step == 1 ? 0.1 : 0.05});
  return report;
}

std::string chapter(const Report& report, const Committed& committed = kResults) {
  std::ostringstream out;
  print_report(out, report, committed);
  return out.str();
}

std::string ladder(const Report& report, const Committed& committed = kResults) {
  std::ostringstream out;
  print_ladder(out, {report}, committed);
  return out.str();
}

std::size_t widest(const std::string& text) {
  std::istringstream lines(text);
  std::size_t most = 0;
  for (std::string line; std::getline(lines, line);) most = std::max(most, line.size());
  return most;
}

/// Returns the words of the last row that begins with `start`.
std::string row(const std::string& text, const std::string& start) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, line.find_first_not_of(' '));
    if (line.rfind(start + " ", 0) != 0) continue;
    line.erase(std::unique(line.begin(), line.end(), [](char a, char b) { return a == ' ' && b == ' '; }),
               line.end());
    return line;
  }
  return "";
}

TEST(Rows, FitIn120Columns) {
  for (const bool simulated : {true, false}) {
    Report report = report_of(simulated);
    EXPECT_GT(widest(chapter(report)), 100u);
    EXPECT_LE(widest(chapter(report)), 120u) << chapter(report);
    EXPECT_LE(widest(ladder(report)), 120u) << ladder(report);
    report.steps[0].oracle.front().verdict.ok = false;
    report.steps[1].oracle = {};
    report.steps[1].shape =
        "batch 2, heads 8 (2 key heads), N 1 x 1000, d 64, full, bf16, cache e4m3, a scale per head";
    std::string text = chapter(report);
    text.erase(text.find("WRONG: step"),
               text.find('\n', text.find("WRONG: step")) - text.find("WRONG: step"));
    EXPECT_LE(widest(text), 120u) << text;
    report.steps[1].why_not = "of the heads";
    EXPECT_LE(widest(ladder(report)), 120u) << ladder(report);
  }
}

TEST(Rows, AreFollowedByWhatMayBeBehindAWrongResult) {
  Report report = report_of(true);
  EXPECT_EQ(chapter(report).find("rarely meant"), std::string::npos);
  report.steps[0].suspects = "\n  suspect: a wait at kernel.cuh:12";
  EXPECT_NE(chapter(report).find("Allowed, but rarely intended:\n  suspect: a wait at kernel.cuh:12"),
            std::string::npos);
}

// The simulator's time has a separate column, and is never given as a rate.
TEST(Rows, HaveWhatTheBooksGpuTookBesideTheSimulator) {
  const Report report = report_of(true);
  EXPECT_EQ(row(chapter(report), "2"),
            "2 keys outside, queries inside 7.77 MB 8.88 MB 9.99 MB 1.2e-03 right 5.00 ms 400 4.00x 50.0 ms");
  EXPECT_EQ(row(ladder(report), "4.2"), "4.2 keys outside, queries inside 1.00 GB 3.00 MB 5.00 ms 400 4.00x");
  for (const std::string& text : {chapter(report), ladder(report)}) {
    EXPECT_NE(text.find(" times from bench/results/h200"), std::string::npos) << text;
    EXPECT_NE(text.find("chapter 4: batch 4, bf16; 2026-01-01, commit abc"), std::string::npos) << text;
  }
}

TEST(Rows, FollowTheCommittedResults) {
  CommittedRung rungs[] = {kRungs[0], kRungs[1]};
  rungs[1].seconds = 0.008;
  rungs[1].factor = 2.5;
  const Committed changed{"H200", "bench/results/h200", kShapes, rungs};
  EXPECT_EQ(row(ladder(report_of(true), changed), "4.2"),
            "4.2 keys outside, queries inside 1.00 GB 3.00 MB 8.00 ms 400 2.50x");
  EXPECT_NE(row(chapter(report_of(true), changed), "2").find(" 8.00 ms 400 2.50x "), std::string::npos);
}

TEST(Rows, LeaveOutWhatWasNeverMeasured) {
  for (const std::string& text :
       {chapter(report_of(true), Committed{}), ladder(report_of(true), Committed{})}) {
    EXPECT_EQ(text.find("TFLOP/s"), std::string::npos) << text;
    EXPECT_EQ(text.find("H200"), std::string::npos) << text;
  }
}

// On a GPU, its own times come first, followed by those of the book if the shape is the same.
TEST(Rows, HaveTheirOwnTimesOnAGpu) {
  Report report = report_of(false);
  EXPECT_EQ(
      row(chapter(report), "2"),
      "2 keys outside, queries inside 7.77 MB 8.88 MB 9.99 MB 1.2e-03 right 50.0 ms 11.0 2.00x 5.00 ms");
  EXPECT_EQ(row(ladder(report), "4.2"),
            "4.2 keys outside, queries inside 7.77 MB 9.99 MB 50.0 ms 11.0 2.00x 5.00 ms");
  report.shape = "batch 2, bf16";
  EXPECT_EQ(row(ladder(report), "4.2"),
            "4.2 keys outside, queries inside 7.77 MB 9.99 MB 50.0 ms 11.0 2.00x");
}

// Times in the book's shape are not combined with another shape's bytes.
TEST(Rows, HaveBytesOfTheShapeThatWasTimed) {
  CommittedRung rungs[] = {kRungs[0], kRungs[1]};
  rungs[1].memory_bytes = 0;  // like a decoding step
  const Committed results{"H200", "bench/results/h200", kShapes, rungs};
  Report report = report_of(true);
  report.steps[1].book_memory_bytes = 6.66e9;
  for (const auto& [spec, memory] :
       {std::pair("batch 4, bf16, cache e4m3", "6.66 GB"), std::pair("batch 2, bf16", "-")}) {
    report.steps[1].book_shape = spec;
    EXPECT_EQ(row(ladder(report, results), "4.2"),
              std::string("4.2 keys outside, queries inside ") + memory + " 3.00 MB 5.00 ms 400 4.00x");
  }
}

TEST(Ladder, CountsHowStepsDid) {
  Report report = report_of(true);
  EXPECT_NE(ladder(report).find("2 right, against FP64"), std::string::npos) << ladder(report);
  report.steps[1].oracle.front().verdict.ok = false;
  EXPECT_NE(ladder(report).find("1 WRONG, 1 right, against FP64"), std::string::npos) << ladder(report);
  EXPECT_NE(row(ladder(report), "4.2").find(" WRONG"), std::string::npos) << ladder(report);
}

// bench/rungs.py --check compares the table with the results; this tests how a program reads it.
TEST(CommittedResults, HaveTheBooksShape) {
  const CommittedRung* last = committed_results().find(5, "persistent");
  ASSERT_NE(last, nullptr);
  EXPECT_GT(last->factor, 1);
  Spec spec{{.batch = 4, .heads = 16, .kv_heads = 16, .seqlen_q = 4096, .seqlen_k = 4096, .head_dim = 128}};
  spec.dtype = DType::bf16;
  spec.scale = default_scale(128);
  EXPECT_EQ(committed_results().shape_of(*last).described, describe(spec));
  EXPECT_EQ(committed_results().find(5, "two_stages"), nullptr);
}

}  // namespace
}  // namespace flashbook::testing
