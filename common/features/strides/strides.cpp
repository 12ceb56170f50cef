#include "common/features/helpers.h"
#include "common/features/strides/strides_c.h"

namespace flashbook::features {
namespace {

void read_layout(const Value& value, Request& to) {
  Spec& spec = to.spec;
  const auto layout = value.one_of<Layout (*)(const Spec&)>(
      {{"bhsd", nullptr}, {"bshd", layout_bshd}, {"qkv", layout_packed_qkv}});
  if (layout == layout_packed_qkv && spec.seqlen_q != spec.seqlen_k)
    throw InputError("--layout qkv needs as many keys as queries: leave --seqlen-k out");
  if (layout != nullptr) spec.layout = layout(spec);
}

}  // namespace

const Definition strides = {
    .plural = "layouts other than [batch, heads, seqlen, head_dim]",
    .cure = "copy the tensors to that layout",
    .is_in = [](const Spec& spec) { return !spec.is_default_layout(); },
    .give = [](Spec& spec, std::mt19937&) { spec.layout = layout_bshd(spec); },
    .validate = validate_layout,
    .describe =
        [](const Spec& spec) { return std::string(spec.layout == layout_bshd(spec) ? "BSHD" : "strided"); },
    .group = "The shape",
    .options = {{.name = "--layout",
                 .type = "NAME",
                 .help = "Layout of the program's tensors: bhsd, [batch, heads, seqlen, head_dim] (default); "
                         "bshd, [batch, seqlen, heads, head_dim]; or qkv, slices of one tensor",
                 .read = read_layout}},
    .in_c = c_struct<FlashbookLayout, FLASHBOOK_LAYOUT>([](const auto& from, Spec& to) {
      const auto strides = [](const FlashbookStrides& of) { return Strides{of.batch, of.head, of.row}; };
      to.layout = {strides(from.q),   strides(from.k),  strides(from.v),  strides(from.o),
                   strides(from.d_o), strides(from.dq), strides(from.dk), strides(from.dv)};
    }),
};

}  // namespace flashbook::features
