#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "kvstore/cold_store.hpp"
#include "kvstore/cold_writer.hpp"
#include "kvstore/store_core.hpp"

namespace outrider::kvstore {

/// The read side: a few threads that read and verify the records of waiting loads, the oldest
/// load first, several records of it at once, and hand them on in the order of the chain.
class ColdLoads {
 public:
  ColdLoads(StoreCore& core, ColdWriter& writer);
  ~ColdLoads();

  void get(LoadRequest request, LoadHandlers handlers);
  /// Finishes what waits; later loads are misses.
  void close();
  uint32_t waiting() const;

 private:
  struct Load;
  using Lock = std::unique_lock<std::mutex>;
  struct Outcome {
    std::optional<LoadedBlock> block;
    Miss why = Miss::none;
  };

  StoreCore& core_;
  ColdWriter& writer_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Load>> queue_;
  uint64_t queued_bytes_ = 0;
  bool closing_ = false;
  TimePoint next_probe_{0};
  std::vector<std::thread> threads_;

  void run();
  std::shared_ptr<Load> claimable() const;
  Outcome read_one(const LoadRequest& request, size_t at);
  Outcome read_row(const LoadRequest& request, const ChainBlock& wanted, const Row& row,
                   const Database& database);
  void hand_on(const std::shared_ptr<Load>& load, Lock& lock);
  void finish(const Load& load);
  void count_time(Duration took);
  Miss plan(Load& load);
  void probe(const LoadRequest& request);
};

}  // namespace outrider::kvstore
