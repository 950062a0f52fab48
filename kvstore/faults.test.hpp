#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>

#include "kvstore/cold_open.hpp"
#include "kvstore/database.hpp"
#include "kvstore/fixture.test.hpp"

/// A filled store whose files a test may damage, and what must hold then.
namespace outrider::kvstore::testing_support {

namespace fs = std::filesystem;

inline constexpr uint32_t k_chains = 4;  // the last one is pinned
inline constexpr uint32_t k_blocks = 6;

inline std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

/// While it lives (45 s at most) nobody opens this file: who tries waits.
class HeldFile {
 public:
  explicit HeldFile(const fs::path& path) : file_(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    ::fcntl(file_, F_SETSIG, SIGURG);  // the other signal ends a process
    EXPECT_EQ(::fcntl(file_, F_SETLEASE, F_WRLCK), 0) << path;
  }
  ~HeldFile() { ::close(file_); }
  HeldFile(const HeldFile&) = delete;
  HeldFile& operator=(const HeldFile&) = delete;

 private:
  int file_;
};

class Faults : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
  TestClock clock_;

  std::string store_path() const { return directory_.path() + "/store"; }
  std::string db_path() const { return database_directory(store_path()); }

  std::unique_ptr<ColdStore> open() {
    auto store = std::make_unique<ColdStore>(small_options(store_path()), surroundings(clock_));
    store->drain();
    return store;
  }

  /// The database below a closed store.
  Database::Opened open_database() const {
    DatabaseOptions options;
    options.payload_cap_bytes = uint64_t{1} << 30;
    options.payload_buffer_bytes = options.pinned_buffer_bytes = 1 << 20;
    options.direct_io = false;
    return Database::open(db_path(), options);
  }

  void fill() {
    auto store = open();
    for (uint32_t chain = 0; chain < k_chains; ++chain) {
      store->put(chain_blocks(chain, k_blocks), {.pin = chain + 1 == k_chains});
      store->drain();
    }
  }

  std::string golden() const { return directory_.path() + "/golden"; }

  /// What `restore` puts back.
  void keep() {
    fs::remove_all(golden());
    fs::copy(store_path(), golden(), fs::copy_options::recursive);
  }

  void restore() {
    fs::remove_all(store_path());
    fs::copy(golden(), store_path(), fs::copy_options::recursive);
  }

  /// Rows, marks and pinned records in tables, and nothing in the log.
  void fill_tables() {
    fill();
    open();  // replays the log into tables
    keep();
  }

  /// Loads everything; checks each block and that each missing one has a counted reason. Returns
  /// the number of blocks that came.
  uint32_t load_all(ColdStore& store) {
    uint32_t came = 0;
    for (uint32_t chain = 0; chain < k_chains; ++chain) {
      const LoadOutcome out = load(store, chain_request(chain, k_blocks));
      for (uint32_t i = 0; i < out.blocks.size(); ++i) {
        EXPECT_TRUE(same_content(out.blocks[i].record, make_block(chain, i)));
      }
      EXPECT_EQ(out.blocks.size() == k_blocks, out.summary.stopped == Miss::none);
      came += static_cast<uint32_t>(out.blocks.size());
    }
    return came;
  }

  void expect_serving(ColdStore& store) {
    store.put(chain_blocks(77, 3), {});
    store.drain();
    EXPECT_EQ(load(store, chain_request(77, 3)).blocks.size(), 3u) << store.stats().outage_text;
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& file : fs::directory_iterator(db_path())) {
      if (file.is_regular_file()) out.push_back(file.path());
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  std::vector<fs::path> tables() const {
    std::vector<fs::path> out = files();
    std::erase_if(out, [](const fs::path& path) { return path.extension() != ".sst"; });
    return out;
  }

  /// The file that holds these bytes, and where.
  std::pair<fs::path, size_t> find(std::span<const std::byte> bytes) const {
    const std::string wanted(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    for (const fs::path& path : tables()) {
      if (const size_t at = read_file(path).find(wanted); at != std::string::npos) {
        return {path, at};
      }
    }
    return {};
  }

  /// Opens a copy of the filled directory after `damage`; what then holds is the same for all.
  void expect_harmless(const std::string& what, const std::function<void()>& damage) {
    SCOPED_TRACE(what);
    restore();
    damage();
    auto store = open();
    const uint32_t came = load_all(*store);
    const ColdStats stats = store->stats();
    const uint64_t missed = stats.counters.loads.total() - stats.counters.loads[Miss::none];
    if (stats.counters.quarantined != 0) {
      EXPECT_EQ(came, 0u);
    } else if (came != k_chains * k_blocks) {
      EXPECT_GT(missed, 0u);
    }
    EXPECT_EQ(stats.outage, Outage::none) << stats.outage_text;
    expect_serving(*store);
  }
};

}  // namespace outrider::kvstore::testing_support
