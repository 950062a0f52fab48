// Logs at which RocksDB would end the process, or never come to an end itself.

#include "kvstore/log_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "kvstore/faults.test.hpp"
#include "kvstore/inspect.hpp"

namespace outrider::kvstore {
namespace {

using namespace testing_support;  // NOLINT: this folder's own helpers
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Logs : public Faults {
 protected:
  std::string path_of(const std::string& log) const { return db_path() + '/' + log; }

  /// As a kill leaves it: each chain's rows in a log of their own, or two.
  void fill_logs() {
    auto store = open();
    for (uint32_t chain = 0; chain < k_chains; ++chain) {
      store->put(chain_blocks(chain, k_blocks), {.pin = chain + 1 == k_chains});
      store->drain();
    }
    keep();
    store.reset();
    restore();
  }

  /// With something in them, the oldest first.
  std::vector<std::string> logs() const {
    std::vector<std::string> out;
    for (const fs::path& path : files()) {
      if (path.extension() == ".log" && fs::file_size(path) > 0) out.push_back(path.filename());
    }
    return out;
  }

  static std::vector<size_t> records_of(const std::string& content) {
    std::vector<size_t> out;
    for (size_t at = 0; at + 7 <= content.size();) {
      if (const size_t left = 32768 - at % 32768; left < 7) {
        at += left;
        continue;
      }
      uint16_t size = 0;
      std::memcpy(&size, content.data() + at + 4, sizeof size);
      out.push_back(at);
      at += 7 + size;
    }
    return out;
  }

  /// Chains whose rows are not in this part of a log.
  static std::vector<uint64_t> chains_not_in(const std::string& part) {
    std::vector<uint64_t> out;
    for (uint64_t chain = 0; chain < k_chains; ++chain) {
      bool is_in = false;
      for (const BlockId& id : chain_ids(chain, k_blocks)) {
        is_in |= part.find(std::string(id.begin(), id.end())) != std::string::npos;
      }
      if (!is_in) out.push_back(chain);
    }
    return out;
  }

  void expect_all(const char* reason) {
    const auto look = inspect(store_path(), {.verify = true});
    ASSERT_FALSE(look);
    EXPECT_THAT(look.error().message, HasSubstr(reason));
    auto store = open();
    EXPECT_EQ(store->stats().outage, Outage::none) << store->stats().outage_text;
    EXPECT_EQ(store->stats().counters.salvaged, 1u);
    EXPECT_EQ(load_all(*store), k_chains * k_blocks);
    expect_serving(*store);
  }
};

TEST_F(Logs, AreAsTheyWereWritten) {
  fill_logs();
  ASSERT_GE(logs().size(), 3u);
  EXPECT_THAT(damaged_logs(db_path()), IsEmpty());
  fs::rename(path_of(logs()[logs().size() - 2]), path_of("999999.log"));
  fs::rename(path_of(logs()[logs().size() - 2]), path_of("1000000.log"));
  EXPECT_THAT(damaged_logs(db_path()), IsEmpty()) << "in the order of their numbers";
}

TEST_F(Logs, NoBitOfARecordsTypeCostsMoreThanTheRestOfItsLog) {
  fill_logs();
  for (const std::string& log : logs()) {
    const std::string content = read_file(golden() + "/db/" + log);
    for (const size_t at : records_of(content)) {
      for (int bit = 0; bit < 8; ++bit) {
        SCOPED_TRACE(log + " at " + std::to_string(at) + ", bit " + std::to_string(bit));
        restore();
        std::string damaged = content;
        damaged[at + 6] = static_cast<char>(damaged[at + 6] ^ (1 << bit));
        write_file(path_of(log), damaged);
        const auto found = damaged_logs(db_path());
        const bool foreign = damaged[at + 6] >= 5 && damaged[at + 6] <= 8;
        ASSERT_EQ(found.size(), foreign ? 1u : 0u);
        EXPECT_EQ(inspect(store_path(), {}).ok(), !foreign);
        if (foreign) {
          EXPECT_EQ(found[0].cut_at, at);
        }
        auto store = open();
        EXPECT_EQ(store->stats().outage, Outage::none) << store->stats().outage_text;
        EXPECT_EQ(store->stats().counters.salvaged, foreign ? 1u : 0u);
        for (const uint64_t chain : chains_not_in(content.substr(at))) {
          EXPECT_EQ(load(*store, chain_request(chain, k_blocks)).blocks.size(), k_blocks) << chain;
        }
      }
    }
  }
}

TEST_F(Logs, OneThatStandsTwiceIsReadOnce) {
  fill_logs();
  const std::string log = logs().back();
  const std::string content = read_file(path_of(log));
  for (const int how : {0, 1, 2}) {
    SCOPED_TRACE(how);
    restore();
    if (how == 0) write_file(path_of("000999.log"), content);
    if (how == 1) write_file(path_of(log), content + content);
    if (how == 2) write_file(path_of("000999.log"), content.substr(0, size_t{32} << 10));
    const auto repeated = damaged_logs(db_path());
    ASSERT_EQ(repeated.size(), 1u);
    EXPECT_EQ(repeated[0].cut_at, how == 1 ? content.size() : 0);
    expect_all("has what was written before");
  }
}

TEST_F(Logs, ThoseThatChangedPlacesAreReadAllTheSame) {
  fill_logs();
  const std::vector<std::string> all = logs();
  for (size_t one = 0; one + 1 < all.size(); ++one) {
    SCOPED_TRACE(one);
    restore();
    fs::rename(path_of(all[one]), path_of("away"));
    fs::rename(path_of(all.back()), path_of(all[one]));
    fs::rename(path_of("away"), path_of(all.back()));
    expect_all("has what was written before");
  }
}

TEST_F(Logs, AnOlderOneUnderALaterNumberIsReadAllTheSame) {
  fill_logs();
  for (const char* later : {"009999.log", "1000000.log"}) {
    restore();
    fs::rename(path_of(logs()[1]), path_of(later));
    expect_all("has what was written before");
  }
}

/// It proves nothing, so RocksDB leaves it out.
TEST_F(Logs, AWrongSequenceNumberIsNoWrite) {
  fill_logs();
  const std::string log = logs().back();
  std::string content = read_file(path_of(log));
  content.replace(7, 8, read_file(path_of(logs().front())), 7, 8);
  write_file(path_of(log), content);
  EXPECT_THAT(damaged_logs(db_path()), IsEmpty());
  EXPECT_EQ(open()->stats().counters.salvaged, 0u);
}

TEST_F(Logs, AHugeOneIsCut) {
  fill_logs();
  fs::resize_file(path_of(logs().back()), uint64_t{2} << 30);  // without a block on the disk
  expect_all("is larger than any that is written");
}

/// With the check sum that logs have.
std::string log_record(const std::string& write) {
  const std::string summed = '\1' + write;  // a whole write in one record
  uint32_t sum = ~0U;
  for (const char byte : summed) {
    sum ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? 0x82f63b78U : 0U);
  }
  sum = std::rotr(~sum, 15) + 0xa282ead8U;
  std::string head(6, '\0');
  std::memcpy(head.data(), &sum, sizeof sum);
  head[4] = static_cast<char>(write.size());
  return head + summed;
}

TEST_F(Logs, AWriteThatNoCounterReachesIsCutOff) {
  fill_logs();
  const std::string log = logs().back();
  for (const uint64_t sequence : {uint64_t{1} << 56, UINT64_MAX}) {
    restore();
    std::string write(8, '\0');
    std::memcpy(write.data(), &sequence, sizeof sequence);
    write += std::string("\1\0\0\0\1\1k\1v", 9);  // one: puts v at k
    std::ofstream(path_of(log), std::ios::binary | std::ios::app) << log_record(write);
    expect_all("has a write that no counter reaches");
  }
}

}  // namespace
}  // namespace outrider::kvstore
