#include <new>
#include <string>

#include "kernels/cuda/cuda_ops.hpp"
#include "kernels/cuda/gpu/launch.cuh"
#include "kernels/cuda/product_plan.hpp"

namespace outrider::kernels::cuda {
namespace {

/// cudaMalloc and cudaMallocHost, or std::bad_alloc.
Ops::Buffer owned(cudaError_t error, void* data, void (*release)(std::byte*)) {
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // it is no more than that
    throw std::bad_alloc();
  }
  must(error, "allocate");
  return Ops::Buffer(static_cast<std::byte*>(data), release);
}

/// A thread that chose none would make a context on the first GPU.
void select_device_of(const std::byte* data) {
  cudaPointerAttributes where;
  if (cudaPointerGetAttributes(&where, data) == cudaSuccess) (void)cudaSetDevice(where.device);
}

void free_of_device(std::byte* data) {
  select_device_of(data);
  (void)cudaDeviceSynchronize();  // cudaFree may wait for what runs there, and need not
  (void)cudaFree(data);
}

void free_of_host(std::byte* data) {
  select_device_of(data);
  (void)cudaFreeHost(data);
}

void load_kernels(size_t shared_bytes_max) {
  for (const WeightType type :
       {WeightType::q4_0, WeightType::q4_1, WeightType::q5_0, WeightType::q5_1, WeightType::q8_0,
        WeightType::q4_k, WeightType::q5_k, WeightType::q6_k, WeightType::f16, WeightType::bf16,
        WeightType::f32}) {
    with_weight_type(type, [&]<WeightType t>() {
      load_products<t>(shared_bytes_max);
      load_kernel<EmbedOf<t>>(shared_bytes_max);
    });
  }
  load_kernel<PrepareRows>(shared_bytes_max);
  load_kernel<AddSegments>(shared_bytes_max);
  load_kernel<Swiglu>(shared_bytes_max);
  load_kernel<Rope>(shared_bytes_max);
  load_kernel<Gather>(shared_bytes_max);
  load_kernel<KvAppend>(shared_bytes_max);
  load_kernel<FloatAttention<4>>(shared_bytes_max);
  load_kernel<FloatAttention<8>>(shared_bytes_max);
  load_kernel<TensorAttention<1>>(shared_bytes_max);
  load_kernel<TensorAttention<2>>(shared_bytes_max);
  load_kernel<TensorAttention<4>>(shared_bytes_max);
  load_kernel<MergeChunks>(shared_bytes_max);
  load_kernel<SampleRows>(shared_bytes_max);
}

class GpuGraph final : public Graph {
 public:
  GpuGraph(int device, cudaGraphExec_t kernels) : kernels(kernels), device_(device) {}
  GpuGraph(const GpuGraph&) = delete;
  GpuGraph& operator=(const GpuGraph&) = delete;
  /// One that still runs is freed when it has run.
  ~GpuGraph() override {
    (void)cudaSetDevice(device_);
    (void)cudaGraphExecDestroy(kernels);
  }

  const cudaGraphExec_t kernels;

 private:
  int device_;
};

/// Done when the event is there.
class GpuCopy final : public Copy {
 public:
  explicit GpuCopy(int device) : device_(device) {
    must(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "event");
  }
  GpuCopy(const GpuCopy&) = delete;
  GpuCopy& operator=(const GpuCopy&) = delete;
  ~GpuCopy() override {
    (void)cudaSetDevice(device_);
    (void)cudaEventSynchronize(done_);
    (void)cudaEventDestroy(done_);
  }

  void begun_on(cudaStream_t stream) { must(cudaEventRecord(done_, stream), "record a copy"); }
  bool is_done() override {
    must(cudaSetDevice(device_), "select");
    const cudaError_t state = cudaEventQuery(done_);
    if (state == cudaErrorNotReady) return false;
    must(state, "copy");
    return true;
  }
  void wait() override {
    must(cudaSetDevice(device_), "select");
    must(cudaEventSynchronize(done_), "copy");
  }

 private:
  int device_;
  cudaEvent_t done_ = nullptr;
};

/// One stream of kernels of one GPU, and one of copies beside them each way. Calls come from one
/// thread at a time, but not always the same.
class GpuDevice final : public Device {
 public:
  GpuDevice(int index, DeviceTraits traits, bool yields, bool overlaps)
      : index_(index), traits_(std::move(traits)) {
    select();
    load_kernels(traits_.shared_bytes_max);
    int least = 0, greatest = 0;
    must(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities");
    must(cudaStreamCreateWithPriority(&queue_.stream, cudaStreamNonBlocking,
                                      yields ? least : greatest),
         "stream");
    queue_.overlaps = overlaps;
    for (cudaStream_t* const copies : {&copies_in_, &copies_out_}) {
      must(cudaStreamCreateWithPriority(copies, cudaStreamNonBlocking, least), "stream of copies");
    }
    must(cudaEventCreateWithFlags(&started_, cudaEventDisableTiming), "event");
  }
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;
  ~GpuDevice() override {
    (void)cudaSetDevice(index_);
    for (cudaStream_t const stream : {copies_in_, copies_out_, queue_.stream}) {
      (void)cudaStreamDestroy(stream);
    }
    (void)cudaEventDestroy(started_);
  }

  const DeviceTraits& traits() const override { return traits_; }

  Ops::Buffer allocate(size_t bytes) override {
    select();
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, bytes > 0 ? bytes : 1);
    Ops::Buffer buffer = owned(error, data, free_of_device);
    if (bytes > 0) must(cudaMemsetAsync(data, 0, bytes, queue_.stream), "clear");
    synchronize();
    return buffer;
  }
  Ops::Buffer allocate_host(size_t bytes) override {
    select();
    void* data = nullptr;
    const cudaError_t error = cudaMallocHost(&data, bytes > 0 ? bytes : 1);
    return owned(error, data, free_of_host);
  }
  void synchronize() override {
    select();
    must(cudaStreamSynchronize(queue_.stream), "synchronize");
  }

  void copy_in(std::byte* to, const std::byte* from, size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyHostToDevice);
    synchronize();
  }
  void start_copy_in(std::byte* to, const std::byte* from, size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyHostToDevice);
  }
  void copy_out(std::byte* to, const std::byte* from, size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
    synchronize();
  }
  void start_copy_out(std::byte* to, const std::byte* from, size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
  }
  void copy_within(std::byte* to, const std::byte* from, size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToDevice);
  }
  void copy_rows_in(std::byte* to, const std::byte* from, const StridedRows& rows) override {
    select();
    must(cudaMemcpy2DAsync(to, rows.pitch, from, rows.width, rows.width, rows.rows,
                           cudaMemcpyHostToDevice, queue_.stream),
         "copy rows in");
    synchronize();
  }
  void copy_rows_out(std::byte* to, const std::byte* from, const StridedRows& rows) override {
    select();
    must(cudaMemcpy2DAsync(to, rows.width, from, rows.pitch, rows.width, rows.rows,
                           cudaMemcpyDeviceToHost, queue_.stream),
         "copy rows out");
    synchronize();
  }

  std::unique_ptr<Copy> start_rows(CopyTo to, std::span<const RowsCopy> copies) override {
    const bool in = to == CopyTo::device;
    const cudaStream_t stream = in ? copies_in_ : copies_out_;
    auto copy = begin_copies(stream);
    for (const RowsCopy& c : copies) {
      must(cudaMemcpy2DAsync(c.to, in ? c.rows.pitch : c.rows.width, c.from,
                             in ? c.rows.width : c.rows.pitch, c.rows.width, c.rows.rows,
                             in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream),
           "rows beside kernels");
    }
    copy->begun_on(stream);
    return copy;
  }

  void begin_recording() override {
    select();
    must(cudaStreamBeginCapture(queue_.stream, cudaStreamCaptureModeThreadLocal), "record");
  }
  std::unique_ptr<Graph> end_recording() override {
    cudaGraph_t recorded = nullptr;
    must(cudaStreamEndCapture(queue_.stream, &recorded), "end of recording");
    cudaGraphExec_t kernels = nullptr;
    cudaError_t error = cudaGraphInstantiate(&kernels, recorded, 0);
    must(cudaGraphDestroy(recorded), "free what was recorded");
    std::unique_ptr<Graph> graph;
    if (error == cudaSuccess) {
      graph = std::make_unique<GpuGraph>(index_, kernels);
      error = cudaGraphUpload(kernels, queue_.stream);
    }
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return nullptr;
    }
    must(error, "graph");
    return graph;
  }
  void replay(const Graph& graph) override {
    select();
    must(cudaGraphLaunch(static_cast<const GpuGraph&>(graph).kernels, queue_.stream), "graph");
  }

  void run(const Launch& launch, const PrepareRows& kernel) override { start(launch, kernel); }
  void run(const Launch& launch, const AddSegments& kernel) override { start(launch, kernel); }
  void run(const Launch& launch, const Swiglu& kernel) override { start(launch, kernel); }
  void run(const Launch& launch, const Rope& kernel) override { start(launch, kernel); }
  void run(const Launch& launch, const Gather& kernel) override { start(launch, kernel); }
  void run(const Launch& launch, const KvAppend& kernel) override { start(launch, kernel); }
  void run(const Launch& launch, const MergeChunks& kernel) override { start(launch, kernel); }
  void run(const Launch& launch, const SampleRows& kernel) override { start(launch, kernel); }
  void run(const Launch& launch, const Embed& kernel) override {
    with_weight_type(kernel.weight_type,
                     [&]<WeightType type>() { start(launch, EmbedOf<type>(kernel)); });
  }
  void run(const Launch& launch, const Attention& kernel) override {
    with_attention(kernel, [&](const auto& call) { start(launch, call); });
  }
  void run(const Launch& launch, const FewProducts& kernel) override {
    select();
    with_weight_type(kernel.weight_type,
                     [&]<WeightType type>() { launch_products<type>(launch, kernel, queue_); });
  }
  void run(const Launch& launch, const ManyProducts& kernel) override {
    select();
    with_weight_type(kernel.weight_type,
                     [&]<WeightType type>() { launch_products<type>(launch, kernel, queue_); });
  }

 private:
  void select() const { must(cudaSetDevice(index_), "select"); }
  void copy(std::byte* to, const std::byte* from, size_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return;
    select();
    must(cudaMemcpyAsync(to, from, bytes, kind, queue_.stream), "copy");
  }
  /// Behind everything that was started before.
  std::unique_ptr<GpuCopy> begin_copies(cudaStream_t stream) {
    select();
    must(cudaEventRecord(started_, queue_.stream), "record what copies wait for");
    must(cudaStreamWaitEvent(stream, started_), "copies wait");
    return std::make_unique<GpuCopy>(index_);
  }
  template <class Kernel>
  void start(const Launch& launch, const Kernel& kernel) {
    select();
    launch_kernel(launch, kernel, queue_);
  }

  int index_;
  DeviceTraits traits_;
  Queue queue_;
  cudaStream_t copies_in_ = nullptr;
  cudaStream_t copies_out_ = nullptr;
  cudaEvent_t started_ = nullptr;  ///< everything up to the last copies
};

Error unusable(uint32_t index, const std::string& why) {
  (void)cudaGetLastError();  // another GPU may be good
  return fail(ErrorCode::unsupported, "device: cuda:" + std::to_string(index) + ": " + why,
              "device");
}

}  // namespace

Result<std::unique_ptr<Device>> open_device(uint32_t index, bool yields) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted == cudaErrorInsufficientDriver) {
    return unusable(index, "this machine has no NVIDIA driver, or one older than CUDA " +
                               std::to_string(CUDART_VERSION / 1000));
  }
  if (counted == cudaErrorNoDevice || (counted == cudaSuccess && count == 0)) {
    return unusable(index, "this machine has no NVIDIA GPU");
  }
  if (counted != cudaSuccess) return unusable(index, cudaGetErrorString(counted));
  if (index >= static_cast<uint32_t>(count)) {
    return unusable(index, "this machine's last GPU is cuda:" + std::to_string(count - 1));
  }
  cudaDeviceProp properties;
  const auto number = static_cast<int>(index);
  cudaError_t error = cudaSetDevice(number);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, number);
  if (error != cudaSuccess) return unusable(index, cudaGetErrorString(error));
  cudaFuncAttributes code;
  error = cudaFuncGetAttributes(&code, run_kernel<Swiglu>);
  if (error != cudaSuccess) {
    return unusable(index, std::string("no code of this build runs on a ") + properties.name +
                               " (" + cudaGetErrorString(error) + ")");
  }
  if (properties.sharedMemPerBlockOptin < products_shared_bytes_max()) {
    return unusable(index, std::string("a ") + properties.name + " has " +
                               std::to_string(properties.sharedMemPerBlockOptin / 1024) +
                               " KiB of shared memory for a block, and " +
                               std::to_string(products_shared_bytes_max() / 1024) + " are needed");
  }
  DeviceTraits traits = {
      .name = "cuda:" + std::to_string(index) + " " + properties.name,
      .numerics = "sm" + std::to_string(10 * properties.major + properties.minor),
      .multiprocessors = static_cast<uint32_t>(properties.multiProcessorCount),
      .shared_bytes_max = properties.sharedMemPerBlockOptin};
  // Kernels wait for the one before them only in code that was compiled for such a GPU.
  const bool overlaps = properties.major >= 9 && code.ptxVersion >= 90;
  return std::unique_ptr<Device>(
      std::make_unique<GpuDevice>(number, std::move(traits), yields, overlaps));
}

}  // namespace outrider::kernels::cuda
