#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/clock.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/ops.hpp"

namespace outrider::tools {

/// Bytes that one turn of a reading loop takes.
inline constexpr size_t k_read_turn_bytes = 256;

/// Reads `bytes`, a multiple of k_read_turn_bytes, once from front to back.
void read_all(kernels::Isa isa, const std::byte* memory, size_t bytes);

/// What this machine can do at this moment with a number of threads: plain reading, and integer dot
/// products from registers. Machines are shared, so a limit is worth something only next to a test
/// of the same run. Owned and called by one thread.
class MachineLimits {
 public:
  MachineLimits(uint32_t threads, kernels::Isa isa, const Clock& clock)
      : pool_(threads), isa_(isa), clock_(clock) {}

  /// Time of reading `bytes` once from front to back, each thread some pieces.
  double read_seconds(size_t bytes);

  /// Operations per second (a multiply-add is two) of the widest integer dot product that the
  /// instruction set has for this element type. Each call adds some bursts of a few milliseconds
  /// and gives the best of all so far: what the processor can do, not what its other users leave.
  enum class Dot : uint8_t { int8, int16 };
  double dot_operations_per_s(Dot dot);

 private:
  void reserve(size_t bytes);

  kernels::ThreadPool pool_;
  kernels::Isa isa_;
  const Clock& clock_;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;  ///< [memory_bytes_], aligned to 64
  size_t memory_bytes_ = 0;
  double best_[2] = {};  ///< operations per second, by Dot
};

}  // namespace outrider::tools
