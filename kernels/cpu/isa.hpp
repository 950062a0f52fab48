#pragma once

#include <memory>
#include <string_view>

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/ops.hpp"

namespace outrider::kernels {

/// The kernels of one of `available_isas()`.
const KernelTable& kernels_of(Isa isa);

/// The back end over any table of kernels, which outlives it.
std::unique_ptr<Ops> make_cpu_ops(uint32_t threads, const KernelTable& kernels,
                                  std::string_view name);

}  // namespace outrider::kernels
