// A long fill of the KV store with blocks of a real size: write and read speed, write
// amplification, and the directory's size at every sample against its cap.
//   kv_fill [--cap-mb 2048] [--write-mb 5000] [--record-kb 360] [--dir DIR]

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>

#include "base/clock.hpp"
#include "base/philox.hpp"
#include "kvstore/cold_open.hpp"
#include "kvstore/cold_store.hpp"

namespace {

using namespace outrider;
using namespace outrider::kvstore;

constexpr uint32_t k_chain_blocks = 32;

uint64_t process_written_bytes() {
  std::ifstream io("/proc/self/io");
  for (std::string word; io >> word;) {
    uint64_t value = 0;
    if (word == "write_bytes:" && io >> value) return value;
  }
  return 0;
}

BlockId id_of(uint64_t chain, uint32_t depth) {
  return Sha256().update(chain).update(uint64_t{depth}).finish();
}

std::vector<Block> blocks_of(uint64_t chain, size_t record_bytes) {
  std::vector<Block> blocks;
  for (uint32_t depth = 0; depth < k_chain_blocks; ++depth) {
    Block block;
    block.id = id_of(chain, depth);
    if (depth > 0) block.parent = id_of(chain, depth - 1);
    block.depth = depth;
    block.tokens.assign(16, static_cast<int32_t>(chain));
    Random random(chain * k_chain_blocks + depth);
    for (const char* name : {"k", "v"}) {
      std::vector<std::byte> bytes(record_bytes / 60 * 30);
      for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
        const uint32_t noise = random.next_u32();
        std::memcpy(bytes.data() + at, &noise, 4);
      }
      block.tensors.push_back({name, 30, std::move(bytes)});
    }
    blocks.push_back(std::move(block));
  }
  return blocks;
}

LoadSummary load(ColdStore& store, uint64_t chain) {
  LoadRequest request;
  for (uint32_t depth = 0; depth < k_chain_blocks; ++depth) {
    request.chain.push_back(
        {id_of(chain, depth), std::vector<int32_t>(16, static_cast<int32_t>(chain))});
  }
  std::promise<LoadSummary> done;
  store.get(std::move(request), {{}, [&](const LoadSummary& summary) { done.set_value(summary); }});
  return done.get_future().get();
}

void read_back(ColdStore& store, uint64_t chains) {
  std::vector<double> ms;
  uint64_t bytes = 0;
  double total_ms = 0;
  for (uint64_t i = 0; i < 40 && i < chains; ++i) {
    const LoadSummary summary = load(store, chains - 1 - i);
    if (summary.loaded != k_chain_blocks) continue;
    ms.push_back(to_ms(summary.took));
    total_ms += ms.back();
    bytes += summary.bytes;
  }
  std::sort(ms.begin(), ms.end());
  if (ms.empty()) return;
  std::printf("loads of %u blocks: p50 %.1f ms, p95 %.1f ms, %.0f MB/s\n", k_chain_blocks,
              ms[ms.size() / 2], ms[ms.size() * 95 / 100], double(bytes) / total_ms / 1e3);
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t cap_mb = 2048, write_mb = 5000, record_kb = 360;
  ColdStoreOptions options;
  options.directory =
      (std::filesystem::temp_directory_path() / ("kv_fill_" + std::to_string(getpid()))).string();
  CLI::App app("A long fill of the KV store");
  app.add_option("--cap-mb", cap_mb, "of the directory");
  app.add_option("--write-mb", write_mb, "to write in all");
  app.add_option("--record-kb", record_kb, "bytes of one block")->check(CLI::Range(1, 60'000));
  app.add_option("--dir", options.directory, "where; removed afterwards");
  CLI11_PARSE(app, argc, argv);
  options.cap_bytes = cap_mb << 20;
  options.write_bytes_per_second = 0;
  const SteadyClock clock;
  const uint64_t chains = (write_mb << 20) / (k_chain_blocks * (record_kb << 10));
  uint64_t highest = 0, samples = 0, skipped = 0;
  {
    ColdStore store(options, {clock});
    store.drain();
    const uint64_t written_before = process_written_bytes();
    const TimePoint start = clock.now();
    for (uint64_t chain = 0; chain < chains; ++chain) {
      store.put(blocks_of(chain, record_kb << 10), {});
      // The queue holds two buffers: waiting now and then keeps it from dropping any.
      if (chain % 2 == 1) store.drain();
      highest = std::max(highest, disk_bytes(options.directory));
      ++samples;
    }
    store.drain();
    const double seconds = to_seconds(clock.now() - start);
    const ColdStats stats = store.stats();
    skipped = stats.counters.skipped.total();
    const auto stored = static_cast<double>(stats.counters.stored_bytes);
    std::printf("stored %.0f MB of %llu KB records at %.0f MB/s, %llu skipped, %u files\n",
                stored / 1e6, static_cast<unsigned long long>(record_kb), stored / seconds / 1e6,
                static_cast<unsigned long long>(skipped), stats.files);
    std::printf("write amplification: payload family %.3f, whole process %.3f\n",
                static_cast<double>(stats.counters.payload_written_bytes) / stored,
                static_cast<double>(process_written_bytes() - written_before) / stored);
    std::printf("disk: highest of %llu samples %.1f MB, cap %.1f MB, now %.1f MB\n",
                static_cast<unsigned long long>(samples), double(highest) / 1e6,
                double(options.cap_bytes) / 1e6, double(disk_bytes(options.directory)) / 1e6);
    read_back(store, chains);
  }
  const TimePoint start = clock.now();
  {
    ColdStore store(options, {clock});
    store.drain();
    std::printf("opened again in %.0f ms with %llu rows\n", to_ms(clock.now() - start),
                static_cast<unsigned long long>(store.stats().rows));
    read_back(store, chains);
  }
  std::filesystem::remove_all(options.directory);
  return skipped == 0 ? 0 : 1;  // a fill that was not one has no figures
}
