#include "chapters/08_decoding/host/rules_launch.cuh"

template void flashbook::decoding::run_with_rules<64>(const Spec&, const Tensors&, device::Stream, bool,
                                                      bool);
