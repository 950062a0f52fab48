// The measurements behind the cold tier's options (docs/decisions/0006): writes with and without
// WAL, through the page cache and past it, and reads of a FIFO family at few and at many files.
//   kv_store_options [--mb 1500] [--dir DIR]     (at most that much disk at a time; DIR is removed)

#include <fcntl.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "base/check.hpp"
#include "base/hash.hpp"
#include "base/philox.hpp"

namespace {

using namespace outrider;

struct Setup {
  const char* model;    ///< whose blocks of 16 tokens are so large
  size_t record_bytes;  ///< fp16 keys and values of all layers
  uint32_t files;       ///< wanted number of SST files
  bool wal;
  bool direct;
};

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

/// Bytes that this process caused to be written to a block device.
uint64_t written_bytes() {
  std::ifstream io("/proc/self/io");
  for (std::string word; io >> word;) {
    uint64_t value = 0;
    if (word == "write_bytes:" && io >> value) return value;
  }
  return 0;
}

void must(const rocksdb::Status& status) {
  OUTRIDER_CHECK(status.ok(), status.ToString());
}

/// Drops what the page cache holds of the files, so that reads are reads.
void forget_pages(const std::string& directory) {
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    const int fd = open(file.path().c_str(), O_RDONLY);
    if (fd < 0) continue;
    fdatasync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
  }
}

rocksdb::Options options_for(const Setup& setup, uint64_t total_bytes) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.num_levels = 1;
  options.compaction_style = rocksdb::kCompactionStyleFIFO;
  options.compaction_options_fifo.max_table_files_size = 2 * total_bytes;
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = size_t{4} << 30;  // flushed by hand, for an exact number of files
  options.max_write_buffer_number = 3;
  options.max_total_wal_size = uint64_t{64} << 20;
  options.max_open_files = -1;
  options.use_direct_reads = options.use_direct_io_for_flush_and_compaction = setup.direct;
  rocksdb::BlockBasedTableOptions table;
  table.no_block_cache = true;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10, false));
  table.checksum = rocksdb::kXXH3;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

Digest256 key_of(uint64_t number) {
  return Sha256().update(number).finish();
}
rocksdb::Slice slice(const Digest256& key) {
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

struct Latencies {
  std::vector<double> ms;
  double at(double share) {
    std::sort(ms.begin(), ms.end());
    return ms[std::min(ms.size() - 1, static_cast<size_t>(share * double(ms.size())))];
  }
};

class Run {
 public:
  Run(const Setup& setup, uint64_t total_bytes, const std::string& directory)
      : setup_(setup), directory_(directory), records_(total_bytes / setup.record_bytes) {
    rocksdb::DB* db = nullptr;
    must(rocksdb::DB::Open(options_for(setup, total_bytes), directory, &db));
    db_.reset(db);
    value_.resize(setup.record_bytes);
    Random random(setup.record_bytes);
    for (size_t at = 0; at + 4 <= value_.size(); at += 4) {
      const uint32_t noise = random.next_u32();
      std::memcpy(value_.data() + at, &noise, 4);
    }
  }

  void write() {
    const uint64_t io_before = written_bytes();
    const double cpu_before = cpu_seconds();
    const double start = seconds();
    rocksdb::WriteOptions how;
    how.disableWAL = !setup_.wal;
    const uint64_t per_file = std::max<uint64_t>(1, records_ / setup_.files);
    for (uint64_t number = 0; number < records_; ++number) {
      std::memcpy(value_.data(), &number, sizeof(number));
      must(db_->Put(how, slice(key_of(number)), value_));
      if ((number + 1) % per_file == 0) must(db_->Flush({}));
    }
    must(db_->Flush({}));
    const double took = seconds() - start;
    const double payload = double(records_) * double(setup_.record_bytes);
    std::string files;
    db_->GetProperty("rocksdb.num-files-at-level0", &files);
    std::printf("%-10s %4zu KB  wal %-3s %-8s %5s files  write %5.0f MB/s  cpu %4.1f s  amp %.2f\n",
                setup_.model, setup_.record_bytes >> 10, setup_.wal ? "on" : "off",
                setup_.direct ? "direct" : "buffered", files.c_str(), payload / took / 1e6,
                cpu_seconds() - cpu_before, double(written_bytes() - io_before) / payload);
  }

  void read() {
    forget_pages(directory_);
    Latencies hit = gets(400, 1, records_), absent = gets(4000, 2, 0);
    std::printf("    get p50 %.2f p99 %.2f ms   absent key p50 %.1f p99 %.1f us\n", hit.at(0.5),
                hit.at(0.99), 1e3 * absent.at(0.5), 1e3 * absent.at(0.99));
    forget_pages(directory_);
    many();
    for (const uint32_t threads : {1u, 2u, 4u}) {
      forget_pages(directory_);
      threaded(threads);
    }
  }

 private:
  Setup setup_;
  std::string directory_;
  uint64_t records_;
  std::unique_ptr<rocksdb::DB> db_;
  std::string value_;

  /// `among` 0: keys that do not exist.
  Latencies gets(uint32_t count, uint64_t seed, uint64_t among) {
    Random random(seed);
    Latencies out;
    for (uint32_t i = 0; i < count; ++i) {
      const Digest256 key = key_of(among == 0 ? ~random.next_u64() : random.next_u64() % among);
      rocksdb::PinnableSlice value;
      const double start = seconds();
      const auto status = db_->Get(read_options(), db_->DefaultColumnFamily(), slice(key), &value);
      out.ms.push_back(1e3 * (seconds() - start));
      OUTRIDER_CHECK(among == 0 ? status.IsNotFound() : status.ok(), status.ToString());
    }
    return out;
  }

  /// Records of one prompt were written one after the other: batches of 16 neighbours.
  void many() {
    constexpr size_t k_batch = 16;
    Random random(3);
    Latencies out;
    const double start_all = seconds();
    for (int i = 0; i < 40; ++i) {
      const uint64_t first = random.next_u64() % (records_ - k_batch);
      std::vector<Digest256> keys;
      for (size_t k = 0; k < k_batch; ++k) keys.push_back(key_of(first + k));
      std::vector<rocksdb::Slice> slices;
      for (const Digest256& key : keys) slices.push_back(slice(key));
      std::vector<rocksdb::PinnableSlice> values(k_batch);
      std::vector<rocksdb::Status> statuses(k_batch);
      const double start = seconds();
      db_->MultiGet(read_options(), db_->DefaultColumnFamily(), k_batch, slices.data(),
                    values.data(), statuses.data());
      out.ms.push_back(1e3 * (seconds() - start));
      for (const auto& status : statuses) must(status);
    }
    std::printf("    MultiGet x16 p50 %.1f p99 %.1f ms, %.0f MB/s\n", out.at(0.5), out.at(0.99),
                40.0 * k_batch * double(setup_.record_bytes) / (seconds() - start_all) / 1e6);
  }

  void threaded(uint32_t threads) {
    constexpr uint32_t k_gets = 400;
    const double cpu_before = cpu_seconds();
    const double start = seconds();
    std::vector<std::jthread> readers;
    for (uint32_t t = 0; t < threads; ++t) {
      readers.emplace_back([this, t, threads] { gets(k_gets / threads, 10 + t, records_); });
    }
    readers.clear();
    const double took = seconds() - start;
    std::printf("    get on %u threads %.0f MB/s, cpu %.2f s of %.2f s\n", threads,
                k_gets * double(setup_.record_bytes) / took / 1e6, cpu_seconds() - cpu_before,
                took);
  }

  rocksdb::ReadOptions read_options() const {
    rocksdb::ReadOptions how;
    how.verify_checksums = true;
    how.fill_cache = false;
    return how;
  }
};

}  // namespace

int main(int argc, char** argv) {
  uint64_t megabytes = 1500;
  std::string directory =
      (std::filesystem::temp_directory_path() / ("kv_options_" + std::to_string(getpid())))
          .string();
  CLI::App app("What the cold tier's options cost");
  app.add_option("--mb", megabytes, "data of one run")->check(CLI::Range(100, 4000));
  app.add_option("--dir", directory, "where; removed afterwards");
  CLI11_PARSE(app, argc, argv);
  constexpr size_t k_smollm2 = size_t{360} << 10, k_qwen_05 = size_t{192} << 10,
                   k_qwen_15 = size_t{448} << 10;
  const Setup setups[] = {
      {"smollm2", k_smollm2, 64, false, true},   {"smollm2", k_smollm2, 256, false, true},
      {"smollm2", k_smollm2, 1000, false, true}, {"smollm2", k_smollm2, 64, true, true},
      {"smollm2", k_smollm2, 64, false, false},  {"smollm2", k_smollm2, 64, true, false},
      {"qwen-0.5b", k_qwen_05, 64, false, true}, {"qwen-0.5b", k_qwen_05, 1000, false, true},
      {"qwen-1.5b", k_qwen_15, 64, false, true}, {"qwen-1.5b", k_qwen_15, 1000, false, true},
  };
  for (const Setup& setup : setups) {
    std::filesystem::remove_all(directory);
    Run run(setup, megabytes * 1'000'000, directory);
    run.write();
    run.read();
    std::fflush(stdout);
  }
  std::filesystem::remove_all(directory);
  return 0;
}
