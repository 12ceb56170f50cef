#include "common/features/helpers.h"
#include "common/features/types/types_c.h"

namespace flashbook {

std::string name_of(Scaling scaling) {
  return scaling == Scaling::tensor ? "tensor" : scaling == Scaling::head ? "head" : "block";
}

namespace features {

const Definition float32 = {
    .plural = "float32 tensors",
    .cure = "give f16 or bf16",
    .is_in = [](const Spec& spec) { return spec.dtype == DType::f32; },
    .give = [](Spec& spec, std::mt19937&) { spec.dtype = DType::f32; },
};

const Definition e4m3 = {
    .plural = "e4m3 tensors",
    .cure = "give f16 or bf16",
    .is_in = [](const Spec& spec) { return spec.dtype == DType::e4m3; },
    .give = [](Spec& spec, std::mt19937&) { spec.dtype = DType::e4m3; },
    .describe =
        [](const Spec& spec) {
          return concat("a scale per ", name_of(spec.e4m3.scaling),
                        spec.e4m3.mean_subtracted ? ", mean-subtracted" : "");
        },
    .has_gradient = false,
    .in_c = c_struct<FlashbookScales, FLASHBOOK_SCALES>(
        [](const auto& from, Spec& to) {
          require(from.scaling >= 0 && from.scaling <= 2, "scaling is ", from.scaling,
                  ": give a FlashbookScaling, 0 to 2");
          to.e4m3 = {.scaling = Scaling(from.scaling), .cache = to.dtype != DType::e4m3};
        },
        {{"q_scale", offsetof(Tensors, q_scale), 4, true},
         {"k_scale", offsetof(Tensors, k_scale), 4, true},
         {"v_scale", offsetof(Tensors, v_scale), 4, true},
         {"k_mean", offsetof(Tensors, k_mean), 16, true},
         {"v_mean", offsetof(Tensors, v_mean), 16, true}}),
};

const Definition block_scales = {
    .plural = "scales by block",
    .cure = "give a scale for each tensor or head",
    .is_in = [](const Spec& spec) { return spec.e4m3.scaling == Scaling::block; },
    .give = [](Spec& spec, std::mt19937&) { spec.e4m3.scaling = Scaling::block; },
};

const Definition e4m3_cache = {
    .plural = "caches in e4m3",
    .cure = "give a 16-bit cache",
    .is_in = [](const Spec& spec) { return spec.e4m3.cache; },
    .give = [](Spec& spec, std::mt19937&) { spec = with_e4m3_cache(spec); },
    .validate =
        [](const Spec& spec) {
          require(spec.dtype != DType::e4m3,
                  "an e4m3 cache needs queries of a 16-bit type: give f16 or bf16");
        },
    .describe =
        [](const Spec& spec) {
          return concat("cache e4m3, a scale per ",
                        spec.is_latent() ? "128 elements" : name_of(spec.e4m3.scaling));
        },
    .has_gradient = false,
};

const Definition latent = {
    .plural = "latent keys (head dimension 576)",
    .cure = "give a head dimension of 64, 128 or 256",
    .is_in = [](const Spec& spec) { return spec.is_latent(); },
    .give = [](Spec& spec, std::mt19937&) { spec = with_latent_keys(spec); },
    .validate =
        [](const Spec& spec) {
          require(spec.dtype != DType::e4m3,
                  "latent queries have no scales, which e4m3 needs: give f32, f16 or bf16");
          require(spec.layout.v == Strides{},
                  "in latent attention V is the first columns of K: give strides for K only");
        },
    .has_gradient = false,
};

const Definition any_head_dim = {
    .plural = "head dimensions other than 64, 128 and 256",
    .cure = "use one of these three",
    .is_in =
        [](const Spec& spec) {
          const int d = spec.head_dim;
          return d != 64 && d != 128 && d != 256 && !spec.is_latent();
        },
    .give = [](Spec& spec, std::mt19937&) { spec.set_head_dim(96); },
};

const Definition value_dim = {
    .plural = "values that are wider or narrower than keys",
    .cure = "give both the same width",
    .is_in = [](const Spec& spec) { return spec.value_dim != default_value_dim(spec.head_dim); },
    .give = [](Spec& spec, std::mt19937&) { spec.value_dim = spec.head_dim == 128 ? 64 : 128; },
    .validate =
        [](const Spec& spec) {
          require(!spec.is_latent(), "the value of a latent key has 512 columns: give 512");
          require(spec.dtype != DType::e4m3 && !spec.e4m3.cache,
                  "e4m3 needs values as wide as keys: give f32, f16 or bf16");
        },
    .describe = [](const Spec& spec) { return concat("values of ", spec.value_dim); },
    .group = "The shape",
    .options = {{.name = "--value-dim",
                 .type = "N",
                 .help = "Number of columns of V and O (default: as many as --head-dim)",
                 .read = [](const Value& value, Request& to) { to.spec.value_dim = value.count(); }}},
};

}  // namespace features
}  // namespace flashbook
