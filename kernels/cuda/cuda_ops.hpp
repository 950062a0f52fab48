#pragma once

#include <memory>
#include <vector>

#include "kernels/cuda/device.hpp"
#include "kernels/ops.hpp"

namespace outrider::kernels::cuda {

/// Ops on a device, whatever it is made of. What the host does of its own (packing, parallel_for)
/// takes `threads` threads, on these CPUs if there are any. Throws std::runtime_error when that
/// many cannot be started.
std::unique_ptr<Ops> make_ops(std::unique_ptr<Device> device, uint32_t threads,
                              std::vector<uint32_t> cpus = {});

/// GPU number `index`. Fails where this build has none, where there is no driver, no such device,
/// or one that this build has no code for; the error is of the field "device". `yields`: its
/// kernels wait for those of others there.
Result<std::unique_ptr<Device>> open_device(uint32_t index, bool yields = false);

}  // namespace outrider::kernels::cuda
