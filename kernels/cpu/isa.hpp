#pragma once

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/ops.hpp"

namespace outrider::kernels {

/// The kernels of one of `available_isas()`.
const KernelTable& kernels_of(Isa isa);

}  // namespace outrider::kernels
