#include "common/features/helpers.h"

namespace flashbook::features {
namespace {

void read_layout(const Value& value, Request& to) {
  Shape& shape = to.shape;
  const auto layout = value.one_of<Layout (*)(const Shape&)>(
      {{"bhsd", nullptr}, {"bshd", layout_bshd}, {"qkv", layout_packed_qkv}});
  if (layout == layout_packed_qkv && shape.seqlen_q != shape.seqlen_k)
    throw InputError("--layout qkv needs as many keys as queries: leave --seqlen-k out");
  if (layout != nullptr) shape.layout = layout(shape);
}

}  // namespace

const Definition strides = {
    .plural = "layouts other than [batch, heads, seqlen, head_dim]",
    .cure = "copy the tensors to that layout",
    .is_in = [](const Shape& shape) { return !shape.is_default_layout(); },
    .give = [](Shape& shape, std::mt19937&) { shape.layout = layout_bshd(shape); },
    .validate = validate_layout,
    .describe =
        [](const Shape& shape) {
          return std::string(shape.layout == layout_bshd(shape) ? "BSHD" : "strided");
        },
    .group = "The shape",
    .options = {{.name = "--layout",
                 .type = "NAME",
                 .help = "Layout of the program's tensors: bhsd, [batch, heads, seqlen, head_dim] (default); "
                         "bshd, [batch, seqlen, heads, head_dim]; or qkv, slices of one tensor",
                 .read = read_layout}},
};

}  // namespace flashbook::features
