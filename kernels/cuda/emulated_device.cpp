#include "kernels/cuda/emulated_device.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>
#include <set>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "kernels/cpu/buffer.hpp"
#include "kernels/cuda/emulate.hpp"

namespace outrider::kernels::cuda {
namespace {

constexpr size_t k_page = 4096;

/// Pages that only the device may touch.
struct Allocation {
  std::byte* data;
  size_t bytes;

  friend auto operator<=>(const Allocation&, const Allocation&) = default;
};
using Allocations = std::set<Allocation>;

/// Stands in a page of its own before the data.
struct Header {
  std::shared_ptr<Allocations> owner;
  size_t bytes;  ///< of the data, whole pages
};

void release(std::byte* data) {
  std::byte* const start = data - k_page;
  auto* const header = std::launder(reinterpret_cast<Header*>(start));
  const size_t bytes = header->bytes;
  header->owner->erase({data, bytes});
  header->~Header();
  ::munmap(start, bytes + 2 * k_page);
}

struct EmulatedGraph final : Graph {
  std::vector<std::function<void()>> kernels;
};

class EmulatedDevice final : public Device {
 public:
  explicit EmulatedDevice(const EmulatedTraits& traits)
      : traits_{.name = "emulated device",
                .numerics = "emulated",
                .multiprocessors = traits.multiprocessors,
                .shared_bytes_max = traits.shared_bytes_max},
        backwards_(traits.backwards),
        graphs_max_(traits.graphs_max),
        counters_(traits.counters != nullptr ? *traits.counters : own_counters_) {}

  const DeviceTraits& traits() const override { return traits_; }

  Ops::Buffer allocate(size_t bytes) override {
    check_idle();
    ++counters_.allocations;
    const size_t whole = std::max<size_t>(1, (bytes + k_page - 1) / k_page) * k_page;
    void* const start = ::mmap(nullptr, whole + 2 * k_page, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    new (start) Header{allocations_, whole};
    std::byte* const data = static_cast<std::byte*>(start) + k_page;
    protect({data, whole + k_page}, PROT_NONE);
    allocations_->insert({data, whole});
    return Ops::Buffer(data, release);
  }
  Ops::Buffer allocate_host(size_t bytes) override {
    check_idle();
    ++counters_.allocations;
    return make_buffer(bytes);
  }
  void synchronize() override {
    check_idle();
    for (const Arrival& a : arrivals_) std::memcpy(a.to, a.bytes.data(), a.bytes.size());
    arrivals_.clear();
  }

  void copy_in(std::byte* to, const std::byte* from, size_t bytes) override {
    copy(to, from, bytes);
  }
  void start_copy_in(std::byte* to, const std::byte* from, size_t bytes) override {
    copy_in(to, from, bytes);
  }
  void copy_out(std::byte* to, const std::byte* from, size_t bytes) override {
    copy(to, from, bytes);
  }
  /// Until it is there, whoever looks finds what is no result.
  void start_copy_out(std::byte* to, const std::byte* from, size_t bytes) override {
    Arrival& arrival = arrivals_.emplace_back(Arrival{to, std::vector<std::byte>(bytes)});
    copy_out(arrival.bytes.data(), from, bytes);
    std::memset(to, 0xFF, bytes);
  }
  void copy_within(std::byte* to, const std::byte* from, size_t bytes) override {
    copy(to, from, bytes);
  }
  void copy_rows_in(std::byte* to, const std::byte* from, const StridedRows& rows) override {
    check_idle();
    on_device([&] {
      for (size_t i = 0; i < rows.rows; ++i) {
        std::memcpy(to + i * rows.pitch, from + i * rows.width, rows.width);
      }
    });
  }
  void copy_rows_out(std::byte* to, const std::byte* from, const StridedRows& rows) override {
    check_idle();
    on_device([&] {
      for (size_t i = 0; i < rows.rows; ++i) {
        std::memcpy(to + i * rows.width, from + i * rows.pitch, rows.width);
      }
    });
  }

  std::unique_ptr<Copy> start_rows(CopyTo to, std::span<const RowsCopy> copies) override {
    check_idle();
    const bool in = to == CopyTo::device;
    on_device([&] {
      for (const RowsCopy& copy : copies) {
        const size_t step = in ? copy.rows.pitch : copy.rows.width;
        for (size_t i = 0; i < copy.rows.rows; ++i) {
          std::memset(copy.to + i * step, 0xFF, copy.rows.width);
        }
      }
    });
    std::vector<RowsCopy> all(copies.begin(), copies.end());
    return std::make_unique<LateCopy>([this, in, all = std::move(all)] {
      for (const RowsCopy& copy : all) {
        if (in) {
          copy_rows_in(copy.to, copy.from, copy.rows);
        } else {
          copy_rows_out(copy.to, copy.from, copy.rows);
        }
      }
    });
  }

  void begin_recording() override {
    check_idle();
    recorded_ = std::make_unique<EmulatedGraph>();
  }
  std::unique_ptr<Graph> end_recording() override {
    OUTRIDER_CHECK(recorded_ != nullptr);
    if (counters_.graphs == graphs_max_) recorded_.reset();
    if (recorded_ != nullptr) ++counters_.graphs;
    return std::move(recorded_);
  }
  void replay(const Graph& graph) override {
    check_idle();
    ++counters_.replays;
    for (const auto& kernel : static_cast<const EmulatedGraph&>(graph).kernels) on_device(kernel);
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
    check(launch);
    perform(
        [launch, kernel, backwards = backwards_] { emulate_products(launch, kernel, backwards); });
  }
  void run(const Launch& launch, const ManyProducts& kernel) override {
    check(launch);
    perform(
        [launch, kernel, backwards = backwards_] { emulate_products(launch, kernel, backwards); });
  }

 private:
  struct Arrival {
    std::byte* to;
    std::vector<std::byte> bytes;
  };
  /// Of what is read as it is in the end. Until then, whoever looks finds what is no result.
  class LateCopy final : public Copy {
   public:
    explicit LateCopy(std::function<void()> work) : work_(std::move(work)) {}
    ~LateCopy() override { wait(); }
    bool is_done() override {
      if (++asked_ >= k_asked_before_done) wait();
      return work_ == nullptr;
    }
    void wait() override {
      if (work_) std::exchange(work_, nullptr)();
    }

   private:
    static constexpr int k_asked_before_done = 3;
    std::function<void()> work_;
    int asked_ = 0;
  };
  /// What a GPU refuses while kernels are recorded, and what cannot be part of a graph here.
  void check_idle() const { OUTRIDER_CHECK(recorded_ == nullptr); }
  void copy(std::byte* to, const std::byte* from, size_t bytes) {
    check_idle();
    if (bytes > 0) on_device([&] { std::memcpy(to, from, bytes); });
  }
  static void protect(const Allocation& allocation, int access) {
    OUTRIDER_CHECK(::mprotect(allocation.data, allocation.bytes, access) == 0);
  }
  /// What the device does.
  template <class Work>
  void on_device(const Work& work) {
    for (const Allocation& a : *allocations_) protect(a, PROT_READ | PROT_WRITE);
    work();
    for (const Allocation& a : *allocations_) protect(a, PROT_NONE);
  }
  /// What a GPU refuses.
  void check(const Launch& launch) const {
    OUTRIDER_CHECK(launch.x > 0 && launch.y > 0 && launch.z > 0, launch.x, launch.y, launch.z);
    OUTRIDER_CHECK(launch.y <= 65'535 && launch.z <= 65'535, launch.y, launch.z);
    OUTRIDER_CHECK(launch.threads % 32 == 0 && launch.threads <= 1024, launch.threads);
    OUTRIDER_CHECK(launch.shared_bytes <= traits_.shared_bytes_max, launch.shared_bytes);
  }
  template <class Kernel>
  void start(const Launch& launch, const Kernel& kernel) {
    check(launch);
    OUTRIDER_CHECK(launch.threads == Kernel::k_threads, launch.threads);
    perform([launch, kernel, backwards = backwards_] { emulate(launch, kernel, backwards); });
  }
  /// `work` has its arguments by value: they stay as they are.
  template <class Work>
  void perform(const Work& work) {
    ++counters_.kernels;
    if (recorded_ != nullptr) {
      recorded_->kernels.emplace_back(work);
    } else {
      on_device(work);
    }
  }

  DeviceTraits traits_;
  bool backwards_;
  uint32_t graphs_max_;
  EmulatedCounters own_counters_;
  EmulatedCounters& counters_;
  std::unique_ptr<EmulatedGraph> recorded_;  ///< Null: nothing is being recorded.
  std::vector<Arrival> arrivals_;            ///< of copies that are under way
  std::shared_ptr<Allocations> allocations_ = std::make_shared<Allocations>();
};

}  // namespace

std::unique_ptr<Device> make_emulated_device(const EmulatedTraits& traits) {
  return std::make_unique<EmulatedDevice>(traits);
}

}  // namespace outrider::kernels::cuda
