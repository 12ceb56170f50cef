/// \file
/// Options whose meaning depends on more than their own value: files of tensors, and limits of the chapter.
#pragma once
#include <string>

#include "common/app/options.h"
#include "common/features/value.h"

namespace flashbook {

/// Rejects a --device for which this build was not made: HardwareMissing for "gpu", InputError for "sim" and
/// for unknown names.
void check_device(const std::string& text);

/// Returns the name of a writable file. An error is reported now rather than after minutes of work.
std::string writable(const Value& file);

/// Returns the option for a tensor's file: the tensor's name, or --output for O as an output.
std::string option_of(const TensorSpec& tensor);

/// Returns whether an input is computed if it is not given: for backward, the results of the forward pass.
bool is_optional(const TensorSpec& tensor);

/// Returns whether inputs come from files: either all that cannot be computed, or none. Throws InputError if
/// only some do.
bool has_files(const Given& given, Operation operation);

/// Fills in shape and inputs from the files of the operation's tensors: Q and K determine the shape. Throws
/// InputError if they contradict each other or other options.
void read_inputs(const Given& given, const Chapter& chapter, Options& options);

/// Returns the type with this name, if the chapter accepts it.
DType dtype_of(const Value& name, const Chapter& chapter);

/// Returns whether K and V are mean-subtracted. The columns that models compute have nonzero means, so e4m3
/// subtracts them unless the user declines.
bool is_smoothed(const Given& given, DType type);

/// Returns names such as "f16, bf16".
std::string names_of(std::span<const DType> types);

/// Returns the row that a value names: "3,17" is query 17 of head 3, and "1,3,17" that of batch entry 1.
RowOf row_of(const Value& value, const Spec& spec);

}  // namespace flashbook
