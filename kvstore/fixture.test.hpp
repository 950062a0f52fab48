#pragma once

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "base/philox.hpp"
#include "kvstore/cold_store.hpp"

/// What the tests of this folder share, tests/kvstore included: blocks whose content follows from
/// their id's number, a directory that goes away, and a store with small buffers.
namespace outrider::kvstore::testing_support {

/// In memory where there is such a place: the tests flush often, and disks sync slowly.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    static std::atomic<int> count{0};
    std::error_code none;
    const std::filesystem::path shm = "/dev/shm";
    const auto base =
        ::access(shm.c_str(), W_OK) == 0 ? shm : std::filesystem::temp_directory_path();
    path_ = (base / ("outrider_kv_" + std::to_string(getpid()) + "_" + std::to_string(count++)))
                .string();
    std::filesystem::create_directories(path_, none);
  }
  ~TemporaryDirectory() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Moves when told; the store's threads read it.
class TestClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(ns_.load()); }
  void advance(Duration by) { ns_ += by.count(); }
  UnixTime wall() const {
    return UnixTime(std::chrono::seconds(1'700'000'000 + ns_.load() / 1'000'000'000));
  }
  int64_t wall_s() const { return wall().time_since_epoch().count(); }

 private:
  std::atomic<int64_t> ns_{1'000'000'000};
};

inline const Digest256 k_test_ns = sha256("test model");

inline BlockId block_id(uint64_t chain, uint32_t depth) {
  return Sha256().update("block").update(chain).update(uint64_t{depth}).finish();
}

/// Everything in it follows from its arguments.
inline Block make_block(uint64_t chain, uint32_t depth, size_t bytes = 4096) {
  Block block;
  block.ns = k_test_ns;
  block.id = block_id(chain, depth);
  block.parent = depth == 0 ? BlockId{} : block_id(chain, depth - 1);
  block.depth = depth;
  Random random(short_of(block.id));
  for (int i = 0; i < 16; ++i) block.tokens.push_back(int32_t(random.below(50'000)));
  for (const char* name : {"k", "v"}) {
    std::vector<std::byte> content(bytes / 8 * 4);
    for (size_t at = 0; at + 4 <= content.size(); at += 4) {
      const uint32_t noise = random.next_u32();
      std::memcpy(content.data() + at, &noise, 4);
    }
    block.tensors.push_back({name, 4, std::move(content)});
  }
  return block;
}

inline std::vector<BlockId> chain_ids(uint64_t chain, uint32_t blocks) {
  std::vector<BlockId> ids;
  for (uint32_t i = 0; i < blocks; ++i) ids.push_back(block_id(chain, i));
  return ids;
}

inline LoadRequest chain_request(uint64_t chain, uint32_t blocks, size_t bytes = 4096) {
  LoadRequest request;
  request.ns = k_test_ns;
  for (uint32_t i = 0; i < blocks; ++i) {
    const Block block = make_block(chain, i, bytes);
    request.chain.push_back({block.id, block.tokens});
  }
  return request;
}

inline std::vector<Block> chain_blocks(uint64_t chain, uint32_t blocks, size_t bytes = 4096) {
  std::vector<Block> out;
  for (uint32_t i = 0; i < blocks; ++i) out.push_back(make_block(chain, i, bytes));
  return out;
}

inline bool same_content(const RecordView& record, const Block& block) {
  if (record.id != block.id || record.ns != block.ns || record.parent != block.parent ||
      record.depth != block.depth || record.tokens != block.tokens ||
      record.tensors.size() != block.tensors.size()) {
    return false;
  }
  for (size_t i = 0; i < record.tensors.size(); ++i) {
    const Tensor& tensor = block.tensors[i];
    const TensorView& view = record.tensors[i];
    if (view.name != tensor.name || view.layers != tensor.layers ||
        !std::equal(view.bytes.begin(), view.bytes.end(), tensor.bytes.begin(),
                    tensor.bytes.end())) {
      return false;
    }
  }
  return true;
}

struct LoadOutcome {
  LoadSummary summary;
  std::vector<LoadedBlock> blocks;
};

/// Waits for a load.
inline LoadOutcome load(ColdStore& store, LoadRequest request) {
  LoadOutcome out;
  std::promise<void> done;
  store.get(std::move(request), {[&](std::vector<LoadedBlock> blocks) {
                                   for (LoadedBlock& block : blocks)
                                     out.blocks.push_back(std::move(block));
                                 },
                                 [&](const LoadSummary& summary) {
                                   out.summary = summary;
                                   done.set_value();
                                 }});
  done.get_future().wait();
  return out;
}

inline PinSummary pin(ColdStore& store, std::vector<BlockId> ids, int64_t expires_at = 0) {
  std::promise<PinSummary> done;
  store.pin(std::move(ids), expires_at, [&](PinSummary summary) { done.set_value(summary); });
  return done.get_future().get();
}

inline PinSummary unpin(ColdStore& store, std::vector<BlockId> ids) {
  std::promise<PinSummary> done;
  store.unpin(std::move(ids), [&](PinSummary summary) { done.set_value(summary); });
  const PinSummary summary = done.get_future().get();
  store.drain();
  return summary;
}

/// Flushes only when full or drained, for files of a known number.
inline ColdStoreOptions small_options(const std::string& directory) {
  ColdStoreOptions options;
  options.directory = directory;
  options.cap_bytes = uint64_t{8} << 20;
  options.buffer_bytes = uint64_t{256} << 10;
  options.queue_bytes = uint64_t{64} << 20;
  options.write_bytes_per_second = 0;
  options.flush_age_ms = 60'000;
  options.direct_io = false;
  return options;
}

inline Surroundings surroundings(const TestClock& clock) {
  return {clock, [&clock] { return clock.wall(); }, [] { return uint64_t{0x1234567890ABCDEF}; }};
}

}  // namespace outrider::kvstore::testing_support
