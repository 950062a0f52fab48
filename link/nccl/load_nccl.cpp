// NCCL as a library that is looked for when it is first asked for: a binary runs without one, and
// without a driver.

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include <cstring>
#include <string>
#include <utility>

#include "link/nccl_api.hpp"

namespace outrider::link {
namespace {

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));
static_assert(sizeof(NcclIdentity::device) == sizeof(cudaUUID_t));

struct Functions {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init_rank = nullptr;
  decltype(&ncclCommGetAsyncError) get_async_error = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
};

Error unsupported(std::string why) {
  return fail(ErrorCode::unsupported, std::move(why));
}

Result<Functions> load() {
  // Never closed: threads of NCCL's may be in it.
  void* library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return unsupported(std::string("no NCCL: ") + ::dlerror());
  Functions f;
  const char* missing = nullptr;
  const auto find = [&]<class F>(const char* name, F& function) {
    function = reinterpret_cast<F>(::dlsym(library, name));
    if (function == nullptr) missing = name;
  };
  find("ncclGetVersion", f.get_version);
  find("ncclGetErrorString", f.get_error_string);
  find("ncclGetUniqueId", f.get_unique_id);
  find("ncclCommInitRankConfig", f.init_rank);
  find("ncclCommGetAsyncError", f.get_async_error);
  find("ncclCommAbort", f.abort);
  find("ncclGroupStart", f.group_start);
  find("ncclGroupEnd", f.group_end);
  find("ncclSend", f.send);
  find("ncclRecv", f.receive);
  if (missing != nullptr) return unsupported(std::string("NCCL without ") + missing);
  return f;
}

/// The first error of several calls, as text.
class Outcome {
 public:
  explicit Outcome(const Functions& functions) : functions_(functions) {}
  bool is_good() const { return error_.empty(); }
  const std::string& error() const { return error_; }

  void cuda(cudaError_t code, const char* what) {
    if (code == cudaSuccess) return;
    (void)cudaGetLastError();
    if (is_good()) error_ = std::string(what) + ": " + cudaGetErrorString(code);
  }
  void nccl(ncclResult_t code, const char* what) {
    if (code == ncclSuccess || code == ncclInProgress || !is_good()) return;
    error_ = std::string(what) + ": " + functions_.get_error_string(code);
  }

 private:
  const Functions& functions_;
  std::string error_;
};

class GpuRank final : public NcclRank {
 public:
  GpuRank(const Functions& functions, int device, const NcclId& id, const NcclSeat& seat)
      : functions_(functions),
        device_(device),
        peer_(seat.ranks == 1 ? 0 : 1 - static_cast<int>(seat.rank)) {
    constexpr size_t k_bytes = k_nccl_slots * k_nccl_slot_bytes;
    select();
    outcome_.cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    for (cudaEvent_t& event : events_) {
      outcome_.cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
    }
    outcome_.cuda(cudaMallocHost(reinterpret_cast<void**>(&host_), k_bytes), "pinned memory");
    outcome_.cuda(cudaMalloc(reinterpret_cast<void**>(&memory_), k_bytes), "device memory");
    if (!outcome_.is_good()) return;
    ncclUniqueId unique;
    std::memcpy(&unique, id.data(), sizeof(unique));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    outcome_.nccl(functions_.init_rank(&communicator_, static_cast<int>(seat.ranks), unique,
                                       static_cast<int>(seat.rank), &config),
                  "join");
  }
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;
  ~GpuRank() override {
    (void)cudaSetDevice(device_);
    if (communicator_ != nullptr) (void)functions_.abort(communicator_);
    for (const cudaEvent_t event : events_) {
      if (event != nullptr) (void)cudaEventDestroy(event);
    }
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
    (void)cudaFree(memory_);
    (void)cudaFreeHost(host_);
  }

  NcclState state() override {
    if (!outcome_.is_good()) return NcclState::failed;
    ncclResult_t now = ncclSuccess;
    outcome_.nccl(functions_.get_async_error(communicator_, &now), "state");
    outcome_.nccl(now, "communicator");
    if (!outcome_.is_good()) return NcclState::failed;
    return now == ncclInProgress ? NcclState::busy : NcclState::ready;
  }
  std::string error() const override { return outcome_.error(); }

  std::span<std::byte, k_nccl_slot_bytes> slot(uint32_t index) override {
    return std::span<std::byte, k_nccl_slot_bytes>(host_ + offset(index), k_nccl_slot_bytes);
  }

  void start(std::span<const NcclTransfer> group) override {
    select();
    for (const NcclTransfer& t : group) {
      if (t.is_send) copy(memory_, host_, t, cudaMemcpyHostToDevice);
    }
    if (!outcome_.is_good()) return;
    outcome_.nccl(functions_.group_start(), "group");
    for (const NcclTransfer& t : group) {
      std::byte* data = memory_ + offset(t.slot);
      outcome_.nccl(
          t.is_send ? functions_.send(data, t.bytes, ncclUint8, peer_, communicator_, stream_)
                    : functions_.receive(data, t.bytes, ncclUint8, peer_, communicator_, stream_),
          t.is_send ? "send" : "receive");
    }
    outcome_.nccl(functions_.group_end(), "group");
  }
  void follow(const NcclTransfer& t) override {
    select();
    if (!t.is_send) copy(host_, memory_, t, cudaMemcpyDeviceToHost);
    outcome_.cuda(cudaEventRecord(events_[t.slot], stream_), "mark");
  }
  bool is_through(uint32_t slot) override {
    select();
    const cudaError_t code = cudaEventQuery(events_[slot]);
    if (code == cudaErrorNotReady) return false;
    outcome_.cuda(code, "transfer");
    return outcome_.is_good();
  }

 private:
  static size_t offset(uint32_t slot) { return slot * k_nccl_slot_bytes; }
  /// CUDA's calls are for the thread's current device.
  void select() { outcome_.cuda(cudaSetDevice(device_), "select"); }
  void copy(std::byte* to, const std::byte* from, const NcclTransfer& t, cudaMemcpyKind kind) {
    outcome_.cuda(
        cudaMemcpyAsync(to + offset(t.slot), from + offset(t.slot), t.bytes, kind, stream_),
        "copy");
  }

  const Functions functions_;
  const int device_;
  const int peer_;
  Outcome outcome_{functions_};
  cudaStream_t stream_ = nullptr;
  std::array<cudaEvent_t, k_nccl_slots> events_{};
  std::byte* host_ = nullptr;    ///< Slots, pinned,
  std::byte* memory_ = nullptr;  ///< and the device's behind them.
  ncclComm_t communicator_ = nullptr;
};

class GpuNccl final : public Nccl {
 public:
  GpuNccl(const Functions& functions, int device, const NcclIdentity& identity)
      : functions_(functions), device_(device), identity_(identity) {}

  const NcclIdentity& identity() const override { return identity_; }

 private:
  Result<NcclId> draw_id() override {
    ncclUniqueId unique;
    Outcome outcome(functions_);
    outcome.cuda(cudaSetDevice(device_), "select");
    outcome.nccl(functions_.get_unique_id(&unique), "name");
    if (!outcome.is_good()) return fail(ErrorCode::unavailable, "NCCL: " + outcome.error());
    NcclId id;
    std::memcpy(id.data(), &unique, sizeof(unique));
    return id;
  }
  std::unique_ptr<NcclRank> begin(const NcclId& id, const NcclSeat& seat) override {
    return std::make_unique<GpuRank>(functions_, device_, id, seat);
  }

  const Functions functions_;
  const int device_;
  const NcclIdentity identity_;
};

}  // namespace

Result<std::shared_ptr<Nccl>> open_nccl(uint32_t device) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    (void)cudaGetLastError();
    return unsupported(std::string("no GPU: ") + cudaGetErrorString(error));
  }
  if (device >= static_cast<uint32_t>(count)) {
    return unsupported("there is no cuda:" + std::to_string(device));
  }
  const auto number = static_cast<int>(device);
  Functions functions;
  OUTRIDER_ASSIGN(functions, load());
  Outcome outcome(functions);
  cudaDeviceProp properties;
  outcome.cuda(cudaGetDeviceProperties(&properties, number), "device");
  int version = 0;
  outcome.nccl(functions.get_version(&version), "version");
  if (!outcome.is_good()) return unsupported(outcome.error());
  NcclIdentity identity{.version = static_cast<uint32_t>(version)};
  std::memcpy(identity.device.data(), &properties.uuid, sizeof(properties.uuid));
  return std::shared_ptr<Nccl>(std::make_shared<GpuNccl>(functions, number, identity));
}

}  // namespace outrider::link
