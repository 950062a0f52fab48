#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/portable.hpp"

/// A block of threads in plain C++: kernels written against it run on any machine, under
/// sanitizers. gpu/device_block.cuh is the same interface on the device. Threads run one after the
/// other, so what their order would hide is checked: two threads that touch the same shared memory
/// without a barrier between them abort (unless both only read), as does what a copy has not
/// brought in. The bits are those of the device but for `mma`, whose rounding inside is the
/// hardware's own.
namespace outrider::kernels::cuda {

/// Who touched two neighbouring bytes of shared memory last.
struct SharedTrace {
  uint32_t written = 0;  ///< epoch; 0: never
  uint32_t read = 0;
  uint32_t writer = 0;
  uint32_t reader = 0;     ///< k_many: several
  bool under_way = false;  ///< a copy has not arrived
  static constexpr uint32_t k_many = ~0u;
};

class EmulatedBlock {
  struct Copy {
    size_t to;
    const void* from;
  };

 public:
  /// A register of each thread.
  template <class T>
  class Local {
   public:
    explicit Local(uint32_t threads) : values_(threads) {}
    T& operator[](uint32_t thread) { return values_[thread]; }

   private:
    std::vector<T> values_;
  };

  /// Memory that the threads share.
  template <class T>
  class Shared {
   public:
    Shared(EmulatedBlock& block, size_t offset, size_t count)
        : block_(&block), offset_(offset), count_(count) {}
    T load(size_t i) const { return load_as_type<T>(i * sizeof(T)); }
    void store(size_t i, const T& value) const {
      OUTRIDER_CHECK(i < count_, i, count_);
      block_->note_write(offset_ + i * sizeof(T), sizeof(T));
      std::memcpy(&block_->memory_[offset_ + i * sizeof(T)], &value, sizeof(T));
    }
    /// What stands `bytes` behind the start.
    template <class V>
    V load_as_type(size_t bytes) const {
      OUTRIDER_CHECK(bytes + sizeof(V) <= count_ * sizeof(T), bytes, count_);
      OUTRIDER_CHECK((offset_ + bytes) % alignof(V) == 0, bytes);
      block_->note_read(offset_ + bytes, sizeof(V));
      V value;
      std::memcpy(&value, &block_->memory_[offset_ + bytes], sizeof(V));
      return value;
    }
    std::pair<size_t, size_t> range(size_t bytes, size_t count) const {
      return {offset_ + bytes, offset_ + bytes + count};
    }
    /// 16 bytes of device memory to `bytes` behind the start, there after `wait_for_copies`.
    void copy_async(size_t bytes, const void* from) const {
      OUTRIDER_CHECK(bytes + 16 <= count_ * sizeof(T) && (offset_ + bytes) % 16 == 0, bytes);
      OUTRIDER_CHECK(reinterpret_cast<uintptr_t>(from) % 16 == 0);
      block_->note_write(offset_ + bytes, 16);  // from now on, not only when it has arrived
      block_->set_under_way(offset_ + bytes, true);
      block_->copies_[block_->thread_].back().push_back({offset_ + bytes, from});
    }

   private:
    EmulatedBlock* block_;
    size_t offset_, count_;
  };

  EmulatedBlock(const Launch& launch, BlockIndex index, bool backwards)
      : launch_(launch),
        index_(index),
        backwards_(backwards),
        memory_(launch.shared_bytes, std::byte{0xFF}),
        traces_((launch.shared_bytes + 1) / 2),
        copies_(launch.threads) {
    for (auto& groups : copies_) groups.resize(1);
  }

  uint32_t x() const { return index_.x; }
  uint32_t y() const { return index_.y; }
  uint32_t z() const { return index_.z; }
  uint32_t count() const { return launch_.threads; }

  template <class T>
  Local<T> local() {
    return Local<T>(launch_.threads);
  }
  /// The next `count` of the launch's shared bytes, aligned to 16.
  template <class T>
  Shared<T> shared(size_t count) {
    const size_t offset = taken_;
    taken_ += (count * sizeof(T) + 15) / 16 * 16;
    OUTRIDER_CHECK(taken_ <= memory_.size(), taken_, memory_.size());
    return Shared<T>(*this, offset, count);
  }

  /// Each thread's body(thread).
  template <class Body>
  void threads(const Body& body) {
    for (uint32_t i = 0; i < launch_.threads; ++i) {
      thread_ = backwards_ ? launch_.threads - 1 - i : i;
      body(thread_);
    }
  }
  /// Behind it what the kernels before this one wrote is there. Kernels that call it themselves
  /// (`waits_itself`) read and write nothing of theirs before; for others it was called.
  void wait_for_previous() { waited_ = true; }
  bool has_waited() const { return waited_; }
  /// What threads wrote to shared memory before it, all may read behind it.
  void barrier() { ++epoch_; }

  /// Ends a group of copies; inside threads().
  void end_copies() { copies_[thread_].emplace_back(); }
  /// All groups of this thread but the last `left` have arrived; inside threads().
  template <uint32_t left>
  void wait_for_copies() {
    auto& groups = copies_[thread_];
    while (groups.size() > left + 1) {
      for (const Copy& copy : groups.front()) {
        set_under_way(copy.to, false);
        note_write(copy.to, 16);
        std::memcpy(&memory_[copy.to], copy.from, 16);
      }
      groups.erase(groups.begin());
    }
  }

  /// Each lane gets the sum of its warp, by pairs 16, 8, 4, 2, 1 lanes apart.
  void warp_sum(Local<float>& values) {
    across_warps(values, [](float a, float b) { return a + b; });
  }
  void warp_max(Local<uint32_t>& values) {
    across_warps(values, [](uint32_t a, uint32_t b) { return a < b ? b : a; });
  }

  /// Of a group of lanes, likewise; of numbers none of which is NaN.
  template <uint32_t lanes>
  void group_max(Local<float>& values) {
    across_lanes<lanes>(values, [](float a, float b) { return a < b ? b : a; });
  }
  /// Each thread gets the value of the lane of its warp that lane_of(thread) names.
  template <class LaneOf>
  void take_from_lane(Local<uint32_t>& values, const LaneOf& lane_of) {
    Local<uint32_t> old = values;
    for (uint32_t i = 0; i < launch_.threads; ++i) values[i] = old[i / 32 * 32 + lane_of(i)];
  }
  /// Whether a value is not zero: on the device of the warp, here of the block. So what depends on
  /// it holds no barrier, and changes nothing where all are zero.
  bool any(Local<uint32_t>& values) {
    bool found = false;
    for (uint32_t i = 0; i < launch_.threads; ++i) found = found || values[i] != 0;
    return found;
  }

  /// Asks for device memory that is read soon; inside threads().
  void prefetch(const std::byte* from, size_t bytes) const {
    OUTRIDER_CHECK(reinterpret_cast<uintptr_t>(from) % 16 == 0 && bytes % 16 == 0, bytes);
  }
  /// Asks the compiler to have `count` words here; what makes machine code of it may move them.
  template <uint32_t count>
  void keep_here(uint32_t*) const {}

  /// Copies of whole stretches of device memory to `stages` places of shared memory in turn, made
  /// once for a block, by all of its threads. All methods outside threads(). When a turn is waited
  /// for, it and the ones behind it, `ahead` in all, have been closed.
  template <uint32_t stages, uint32_t ahead>
  class Copies {
   public:
    explicit Copies(EmulatedBlock& block) : block_(block) { (void)block.shared<Words4>(stages); }
    /// `bytes` (a multiple of 16) come to `at` bytes behind the start of `to`.
    template <class T>
    void start(uint32_t stage, const Shared<T>& to, size_t at, const void* from, uint32_t bytes) {
      OUTRIDER_CHECK(at % 16 == 0 && bytes % 16 == 0, at, bytes);
      block_.thread_ = 0;
      for (uint32_t i = 0; i < bytes; i += 16) {
        const size_t place = to.range(at + i, 16).first;
        block_.note_write(place, 16);
        block_.set_under_way(place, true);
        open_[stage].push_back({place, static_cast<const std::byte*>(from) + i});
      }
    }
    /// All of the stage's copies are started, if there are any.
    void close(uint32_t stage) {
      ++turns_[stage];
      ++closed_;
    }
    /// Those of the stage's turn, from 0 on, are there behind the next barrier.
    void wait(uint32_t stage, uint32_t turn) {
      OUTRIDER_CHECK(turns_[stage] == turn + 1, stage, turn);
      OUTRIDER_CHECK(closed_ == ++waited_ + ahead - 1, closed_, waited_);
      block_.thread_ = 0;
      for (const Copy& copy : open_[stage]) {
        block_.set_under_way(copy.to, false);
        block_.note_write(copy.to, 16);
        std::memcpy(&block_.memory_[copy.to], copy.from, 16);
      }
      open_[stage].clear();
    }

   private:
    EmulatedBlock& block_;
    std::array<std::vector<Copy>, stages> open_;
    std::array<uint32_t, stages> turns_ = {};
    uint32_t closed_ = 0, waited_ = 0;
  };

  /// Starts c [16, 8 NT] += a [16, 16] b [16, 8 NT] of each warp; or, with `first`, c = a b. a and
  /// c as for `mma`, c's tiles of 8 columns one after the other. b lies in shared memory, `at` (a
  /// multiple of 1024) bytes behind the start: column i is bytes 32 step … 32 step + 31 of a row of
  /// 128 bytes, row i, whose pieces of 16 bytes stand where `swizzled_piece` says. Until
  /// `finish_rows_mma` a and b may not be changed, nor c be looked at; the next may add to it. New
  /// registers of a begin with step 0.
  template <uint32_t NT, class Rows, class A, class C>
  void start_rows_mma(const Rows& rows, uint32_t at, uint32_t step, bool first, const A& a_of,
                      const C& c_of) {
    OUTRIDER_CHECK(at % 1024 == 0, at);
    for (uint32_t warp = 0; warp < launch_.threads; warp += 32) {
      thread_ = warp;
      for (uint32_t nt = 0; nt < NT; ++nt) {
        uint32_t b[32][2];
        for (uint32_t lane = 0; lane < 32; ++lane) {
          const uint32_t row = 8 * nt + lane / 4;
          for (uint32_t i = 0; i < 2; ++i) {
            b[lane][i] = rows.template load_as_type<uint32_t>(
                at + row * 128 + swizzled_piece(row, 2 * step + i) * 16 + lane % 4 * 4);
          }
          float* const c = c_of(warp + lane) + 4 * nt;
          const auto [sums, is_new] = under_way_.try_emplace(c);
          if (first) {
            sums->second = {};
          } else if (is_new) {
            std::copy_n(c, 4, sums->second.begin());
          }
          std::fill_n(c, 4, std::nanf(""));
        }
        mma_of_warp(
            warp, a_of, [&](uint32_t t) { return b[t % 32]; },
            [&](uint32_t t) { return under_way_[c_of(t) + 4 * nt].data(); });
      }
    }
    const auto [begin, end] = rows.range(at, size_t{NT} * 1024);
    read_by_mma_.push_back({begin, end, groups_});
  }
  /// What was started since the last time goes on by itself, as a group.
  void commit_rows_mma() { ++groups_; }
  /// All groups but the last `left` are done: their a and b may be changed, and c looked at where
  /// none is left.
  template <uint32_t NT, uint32_t left, class C>
  void finish_rows_mma(const C&) {
    std::erase_if(read_by_mma_, [&](const ReadByMma& r) { return r.group + left < groups_; });
    if (left > 0) return;
    OUTRIDER_CHECK(read_by_mma_.empty(), "not committed");
    for (const auto& [c, sums] : under_way_) std::copy_n(sums.data(), 4, c);
    under_way_.clear();
  }

  /// c [16, 8] += a [16, 16] b [16, 8] of each warp where `active` (the same for a warp): a and b
  /// halves, c floats, spread over the lanes as PTX's mma.m16n8k16 has them.
  template <class Active, class A, class B, class C>
  void mma(const Active& active, const A& a, const B& b, const C& c) {
    for (uint32_t first = 0; first < launch_.threads; first += 32) {
      if (active(first)) mma_of_warp(first, a, b, c);
    }
  }

 private:
  template <class T, class Operation>
  void across_warps(Local<T>& values, const Operation& operation) {
    across_lanes<32>(values, operation);
  }
  template <uint32_t lanes, class T, class Operation>
  void across_lanes(Local<T>& values, const Operation& operation) {
    for (uint32_t apart = lanes / 2; apart > 0; apart /= 2) {
      for (uint32_t first = 0; first < launch_.threads; first += 32) {
        std::array<T, 32> old;
        for (uint32_t l = 0; l < 32; ++l) old[l] = values[first + l];
        for (uint32_t l = 0; l < 32; ++l) values[first + l] = operation(old[l], old[l ^ apart]);
      }
    }
  }

  template <class A, class B, class C>
  void mma_of_warp(uint32_t first, const A& a_of, const B& b_of, const C& c_of) {
    float a[16][16], b[16][8];
    const auto half_of = [](uint32_t pair, uint32_t i) {
      return half_to_float(static_cast<uint16_t>(pair >> (16 * i)));
    };
    for (uint32_t lane = 0; lane < 32; ++lane) {
      const uint32_t row = lane / 4, k = lane % 4 * 2;
      const uint32_t* const pairs = a_of(first + lane);
      const uint32_t* const columns = b_of(first + lane);
      for (uint32_t i = 0; i < 2; ++i) {
        a[row][k + i] = half_of(pairs[0], i);
        a[row + 8][k + i] = half_of(pairs[1], i);
        a[row][k + 8 + i] = half_of(pairs[2], i);
        a[row + 8][k + 8 + i] = half_of(pairs[3], i);
        b[k + i][row] = half_of(columns[0], i);
        b[k + 8 + i][row] = half_of(columns[1], i);
      }
    }
    for (uint32_t lane = 0; lane < 32; ++lane) {
      float* const c = c_of(first + lane);
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        double sum = c[i];
        for (uint32_t k = 0; k < 16; ++k) sum += double{a[row][k]} * b[k][column];
        c[i] = static_cast<float>(sum);
      }
    }
  }

  /// Bytes of shared memory, and the group that reads them.
  struct ReadByMma {
    size_t begin, end;
    uint32_t group;
  };

  void set_under_way(size_t at, bool under_way) {
    for (size_t i = at / 2; i < (at + 16) / 2; ++i) traces_[i].under_way = under_way;
  }
  void note_write(size_t at, size_t bytes) {
    for (const ReadByMma& r : read_by_mma_) {
      OUTRIDER_CHECK(at + bytes <= r.begin || at >= r.end, "tensor cores read it", at, thread_);
    }
    for (size_t i = at / 2; i <= (at + bytes - 1) / 2; ++i) {
      SharedTrace& trace = traces_[i];
      OUTRIDER_CHECK(!trace.under_way, "a copy is under way", at, thread_);
      OUTRIDER_CHECK(trace.written != epoch_ || trace.writer == thread_, "race", at, thread_);
      OUTRIDER_CHECK(trace.read != epoch_ || trace.reader == thread_, "race", at, thread_);
      trace.written = epoch_;
      trace.writer = thread_;
    }
  }
  void note_read(size_t at, size_t bytes) {
    for (size_t i = at / 2; i <= (at + bytes - 1) / 2; ++i) {
      SharedTrace& trace = traces_[i];
      OUTRIDER_CHECK(!trace.under_way, "a copy is under way", at, thread_);
      OUTRIDER_CHECK(trace.written != 0, "never written", at, thread_);
      OUTRIDER_CHECK(trace.written != epoch_ || trace.writer == thread_, "race", at, thread_);
      const bool shared = trace.read == epoch_ && trace.reader != thread_;
      trace.reader = shared ? SharedTrace::k_many : thread_;
      trace.read = epoch_;
    }
  }

  const Launch& launch_;
  BlockIndex index_;
  bool backwards_;
  std::vector<std::byte> memory_;
  std::vector<SharedTrace> traces_;
  std::vector<std::vector<std::vector<Copy>>> copies_;  ///< [thread][group]
  std::map<float*, std::array<float, 4>> under_way_;    ///< sums of start_rows_mma
  std::vector<ReadByMma> read_by_mma_;
  uint32_t groups_ = 0;  ///< of start_rows_mma that were committed
  bool waited_ = false;
  size_t taken_ = 0;
  uint32_t thread_ = 0;
  uint32_t epoch_ = 1;
};

}  // namespace outrider::kernels::cuda
