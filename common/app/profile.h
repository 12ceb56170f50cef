/// \file
/// What `flashbook profile` prints of a traced program.
#pragma once
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

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

}  // namespace flashbook
