#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/cuda/few_rows.hpp"
#include "kernels/cuda/float_attention.hpp"
#include "kernels/cuda/kv_append.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/many_rows.hpp"
#include "kernels/cuda/rows.hpp"
#include "kernels/cuda/sampling.hpp"
#include "kernels/cuda/tensor_attention.hpp"
#include "kernels/ops.hpp"

namespace outrider::kernels::cuda {

struct DeviceTraits {
  std::string name;      ///< for people
  std::string numerics;  ///< devices of one name give the same bits
  uint32_t multiprocessors = 1;
  size_t shared_bytes_max = 0;  ///< of a block
};

/// Rows of memory that lie `pitch` bytes apart on the device and follow each other on the host.
struct StridedRows {
  size_t width = 0;  ///< bytes of a row
  size_t rows = 0;
  size_t pitch = 0;
};

enum class CopyTo : uint8_t { device, host };

struct RowsCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  StridedRows rows;
};

/// Products of up to 8 rows by FewRows<type>.
struct FewProducts : Products {};
/// Products of more rows by ManyRows<type, nt>, nt 2, 4, 8 or 16.
struct ManyProducts : Products {
  uint32_t nt = 16;
};

/// Kernels with their arguments, as they were recorded; what these point to is read when they run.
class Graph {
 public:
  virtual ~Graph() = default;
};

/// A GPU (gpu/gpu_device.cu) or its emulation (emulated_device.hpp). What is started on it runs in
/// the order of the calls; whatever gives the host something waits for all that was started before
/// it. Not thread-safe. An error of the hardware ends the process: nothing that the device holds
/// can be used again, and sessions resume elsewhere.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceTraits& traits() const = 0;

  /// Zeroed memory of the device, aligned to 256 bytes. Freeing it waits for what was started
  /// before. Throws std::bad_alloc.
  virtual Ops::Buffer allocate(size_t bytes) = 0;
  /// Memory of the host that the device copies from and to at full speed. Throws std::bad_alloc.
  virtual Ops::Buffer allocate_host(size_t bytes) = 0;
  virtual void synchronize() = 0;

  /// Returns when `from` may be changed.
  virtual void copy_in(std::byte* to, const std::byte* from, size_t bytes) = 0;
  /// `from` is memory from `allocate_host`, unchanged until synchronize().
  virtual void start_copy_in(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void copy_out(std::byte* to, const std::byte* from, size_t bytes) = 0;
  /// `to` is memory from `allocate_host`; there after synchronize().
  virtual void start_copy_out(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void copy_within(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void copy_rows_in(std::byte* to, const std::byte* from, const StridedRows& rows) = 0;
  virtual void copy_rows_out(std::byte* to, const std::byte* from, const StridedRows& rows) = 0;

  /// Beside the kernels, begun when all that was started before is done but such copies; the host's
  /// memory is from `allocate_host`. Nobody may change what is read, or look at what is written,
  /// until it is done.
  virtual std::unique_ptr<Copy> start_rows(CopyTo to, std::span<const RowsCopy> copies) = 0;

  /// Between the two kernels are recorded instead of run, and nothing else may be asked for. Null:
  /// there is no memory for the graph.
  virtual void begin_recording() = 0;
  virtual std::unique_ptr<Graph> end_recording() = 0;
  virtual void replay(const Graph& graph) = 0;

  virtual void run(const Launch& launch, const PrepareRows& kernel) = 0;
  virtual void run(const Launch& launch, const FewProducts& kernel) = 0;
  virtual void run(const Launch& launch, const ManyProducts& kernel) = 0;
  virtual void run(const Launch& launch, const AddSegments& kernel) = 0;
  virtual void run(const Launch& launch, const Swiglu& kernel) = 0;
  virtual void run(const Launch& launch, const Embed& kernel) = 0;
  virtual void run(const Launch& launch, const Rope& kernel) = 0;
  virtual void run(const Launch& launch, const Gather& kernel) = 0;
  virtual void run(const Launch& launch, const KvAppend& kernel) = 0;
  virtual void run(const Launch& launch, const Attention& kernel) = 0;
  virtual void run(const Launch& launch, const MergeChunks& kernel) = 0;
  virtual void run(const Launch& launch, const SampleRows& kernel) = 0;
};

/// Calls use(kernel) with the template that a call names.
template <WeightType type, class Use>
void with_many_rows(const ManyProducts& call, const Use& use) {
  switch (call.nt) {
    case 2:
      return use(ManyRows<type, 2>(call));
    case 4:
      return use(ManyRows<type, 4>(call));
    case 8:
      return use(ManyRows<type, 8>(call));
    default:
      return use(ManyRows<type, 16>(call));
  }
}
template <class Use>
void with_attention(const Attention& call, const Use& use) {
  if (!call.on_tensor_cores) {
    return call.queries_max == 4 ? use(FloatAttention<4>(call)) : use(FloatAttention<8>(call));
  }
  if (call.queries_max <= 16) return use(TensorAttention<1>(call));
  return call.queries_max == 32 ? use(TensorAttention<2>(call)) : use(TensorAttention<4>(call));
}

}  // namespace outrider::kernels::cuda
