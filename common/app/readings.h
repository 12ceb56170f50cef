/// \file
/// Options whose meaning depends on more than their own value: files, and options that depend on the rest of
/// the shape.
#pragma once
#include <map>
#include <string>

#include "common/app/options.h"
#include "common/app/value.h"

namespace flashbook {

/// The options that were given, by name.
using Given = std::map<std::string, Value>;

/// The option for a tensor's file is the tensor's name; O as an output is --output.
std::string option_of(const TensorSpec& tensor);

/// Whether an input is computed if it is not given: for backward, the results of the forward pass.
bool is_optional(const TensorSpec& tensor);

/// Whether inputs come from files: either all that cannot be computed, or none. Throws InputError if only
/// some do.
bool has_files(const Given& given, Operation operation);

/// Fills in shape and inputs from the files of the operation's tensors: Q and K determine the shape. Throws
/// InputError if they contradict each other or other options.
void read_inputs(const Given& given, const Chapter& chapter, Options& options);

/// Reads a mask from a file: pairs [seqlen, seqlen_k] or [batch, heads or 1, seqlen, seqlen_k], or
/// FlashMask's intervals [batch, kv_heads or 1, seqlen_k, 1, 2 or 4].
void read_mask(const Value& file, Shape& shape);

/// A bias by distance, [heads, 2 * reach + 1].
RelativeBias read_bias(const Value& file, const Shape& shape);

/// The type with this name, if the chapter accepts it.
DType dtype_of(const Value& name, const Chapter& chapter);

/// Whether K and V are mean-subtracted. The columns of what models compute have nonzero means, so e4m3
/// subtracts them unless the user says no.
bool is_smoothed(const Given& given, DType type);

/// "f16, bf16"
std::string names_of(std::span<const DType> types);

/// "1000,37,0,4096": the lengths of a cache's sequences, or of sequences packed into one batch entry.
void set_lengths(const Value& value, const Given& given, Operation operation, Shape& shape);
/// Splits the sequence into documents of equal length, as evenly as possible.
void set_documents(const Value& value, Shape& shape);
/// Pages in random order, with the number of rows and the shared prefix that shape.paging specifies.
void set_pages(const Chapter& chapter, Operation operation, uint64_t seed, Shape& shape);
void set_layout(const Value& value, Shape& shape);

/// "3,17" is query 17 of head 3, and "1,3,17" that of batch entry 1.
RowOf row_of(const Value& value, const Shape& shape);

}  // namespace flashbook
