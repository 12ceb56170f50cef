// Separate from the chapter's other steps, which are compiled for the processor of the build: this step
// chooses its vectors at run time.
#include "chapters/02_online_softmax/host/step5.h"
#include "chapters/02_online_softmax/step5_register_blocks.h"
#include "common/device/dispatch.h"

namespace flashbook {

template <typename T>
void attention_in_registers(const Spec& spec, const Tensors& t) {
  device::with_head_dim(spec.head_dim, [&]<int kHeadDim>() {
    attention_in_registers<T, kHeadDim>(spec, static_cast<const T*>(t.q), static_cast<const T*>(t.k),
                                        static_cast<const T*>(t.v), static_cast<T*>(t.o), t.lse);
  });
}

template void attention_in_registers<float>(const Spec&, const Tensors&);
template void attention_in_registers<f16>(const Spec&, const Tensors&);
template void attention_in_registers<bf16>(const Spec&, const Tensors&);

}  // namespace flashbook
