/// \file
/// What `flashbook profile` runs, and what it prints.
#pragma once
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "common/app/chapter.h"
#include "common/simulator/trace/trace.h"

namespace flashbook {

/// One step, traced.
struct StepProfile {
  int step;
  std::string name;
  std::vector<sim::LaunchTrace> launches;
  double model_bytes;            ///< by the chapter's cost model
  double compulsory_bytes;       ///< that no kernel can avoid
  double requested_model_bytes;  ///< what the kernels should request; 0 if the chapter has no model of it
};

/// What a traced program found out.
struct Profile {
  int chapter;
  std::string name, title, shape;
  std::vector<StepProfile> steps;
};

/// A table for each launch, its lines by waste, and each step's bytes beside the cost model.
void print_profile(std::ostream& out, const Profile& profile);

/// The same as JSON, whole or not at all. Throws InputError if the file cannot be written.
void write_profile(const std::filesystem::path& file, const Profile& profile);

/// The whole of a chapter's traced program: every step that can run the shape runs once, is checked, and is
/// told in tables. It takes the options of run_chapter_program (program.h) and returns its exit codes.
int profile_chapter(int argc, char** argv, const Chapter& chapter);

}  // namespace flashbook
