#include "chapters/05_flash_attention_3/chapter.cu"
#include <cstdio>
using namespace flashbook;
using namespace flashbook::flash3;
namespace tune {
struct Variant { const char* name; int head_dim, causal; void (*run)(const Shape&, const Tensors&, device::Stream); };
template <typename C> struct NoLazy : C { static constexpr bool kLazy = false; };
template <typename C> struct Lazy : C { static constexpr bool kLazy = true; };
template <typename C> struct NoPp : C { static constexpr bool kPingpong = false; };
template <typename C> struct Pp : C { static constexpr bool kPingpong = true; };
template <typename C> struct NoTma : C { static constexpr bool kStoreByTma = false; };
template <typename C> struct NoSplit : C { static constexpr bool kSplitLoops = false; };
template <typename C> struct Trim : C { static constexpr bool kTrim = true; };
template <typename C> struct One : C { static constexpr Schedule kSchedule = Schedule::one_tile; };
template <typename C> struct Come : C { static constexpr Schedule kSchedule = Schedule::first_come; };
template <typename C> struct Turn : C { static constexpr Schedule kSchedule = Schedule::in_turn; };
using B = __nv_bfloat16;
#define V(name, ...) {name, __VA_ARGS__::kHeadDim, __VA_ARGS__::kCausal, run_persistent<B, __VA_ARGS__>}
template <bool C> using D64 = Persistent<64, 3, 128, 8, C>;
template <bool C> using D64b = Persistent<64, 2, 128, 8, C>;
template <bool C> using D128 = Persistent<128, 2, 128, 5, C>;

const Variant variants[] = {
#include "variants.inc"
};
Shape shape_of(const int* s, float scale) {
  Shape shape; shape.batch=s[0]; shape.heads=s[1]; shape.kv_heads=s[2]; shape.seqlen_q=s[3]; shape.seqlen_k=s[4]; shape.head_dim=s[5]; shape.causal=s[6]; shape.dtype=s[7]==1?DType::f16:DType::bf16; shape.scale=scale; return shape;
}
}
using namespace tune;
extern "C" {
int variant_count() { return int(std::size(variants)); }
const char* variant_name(int i) { return variants[i].name; }
int variant_takes(int i, const int* s) { return variants[i].head_dim == s[5] && variants[i].causal == s[6]; }
// which >= 0: a variant; < 0: step -which of the chapter
int tune_run(int which, const int* s, float scale, void* q, void* k, void* v, void* o, float* lse, void* workspace, void* stream) {
  try {
    const Shape shape = shape_of(s, scale);
    Tensors t; t.q=q; t.k=k; t.v=v; t.o=o; t.lse=lse; t.workspace=workspace;
    if (which >= 0) variants[which].run(shape, t, static_cast<device::Stream>(stream));
    else kFlashAttention3.attention(shape, t, static_cast<device::Stream>(stream), -which);
    return 0;
  } catch (const std::exception& e) { fprintf(stderr, "%s\n", e.what()); return 1; }
}
}
