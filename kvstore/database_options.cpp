#include <rocksdb/filter_policy.h>
#include <rocksdb/rate_limiter.h>
#include <rocksdb/table.h>

#include "kvstore/database_state.hpp"

namespace outrider::kvstore {
namespace {

constexpr size_t k_small_buffer_bytes = size_t{4} << 20;  // marks and rows
constexpr uint64_t k_wal_bytes_max = uint64_t{16} << 20;

/// No block cache: rows are read once at start, a record is read once a request.
std::shared_ptr<rocksdb::TableFactory> table_factory() {
  rocksdb::BlockBasedTableOptions table;
  table.no_block_cache = true;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10, false));
  table.checksum = rocksdb::kXXH3;
  table.format_version = 5;
  return std::shared_ptr<rocksdb::TableFactory>(rocksdb::NewBlockBasedTableFactory(table));
}

rocksdb::ColumnFamilyOptions small_family() {
  rocksdb::ColumnFamilyOptions family;
  family.table_factory = table_factory();
  family.compression = rocksdb::kNoCompression;  // ids are noise
  family.write_buffer_size = k_small_buffer_bytes;
  family.max_write_buffer_number = 2;
  return family;
}

rocksdb::ColumnFamilyOptions payload_family(const DatabaseOptions& options) {
  rocksdb::ColumnFamilyOptions family = small_family();
  family.num_levels = 1;
  family.compaction_style = rocksdb::kCompactionStyleFIFO;
  family.compaction_options_fifo.max_table_files_size = options.payload_cap_bytes;
  family.compaction_options_fifo.allow_compaction = false;
  family.write_buffer_size = 2 * options.payload_buffer_bytes;  // the store flushes before
  family.max_write_buffer_number = 3;
  return family;
}

rocksdb::ColumnFamilyOptions pinned_family(const DatabaseOptions& options) {
  rocksdb::ColumnFamilyOptions family = small_family();
  family.write_buffer_size = options.pinned_buffer_bytes;
  family.target_file_size_base = 2 * options.pinned_buffer_bytes;
  return family;
}

/// Debian builds RocksDB with its assertions on, and one of them aborts the process at the second
/// line that its log file cannot take: after a full disk. So there is no log file; statuses say
/// what went wrong.
class NoLog final : public rocksdb::Logger {
 public:
  NoLog() : Logger(rocksdb::InfoLogLevel::FATAL_LEVEL) {}
  using Logger::Logv;
  void Logv(const char*, va_list) override {}
};

}  // namespace

std::vector<rocksdb::ColumnFamilyDescriptor> families_of(const DatabaseOptions& options) {
  std::vector<rocksdb::ColumnFamilyDescriptor> out = {
      {rocksdb::kDefaultColumnFamilyName, small_family()},
      {"idx", small_family()},
      {"kvf", payload_family(options)},
      {"kvp", pinned_family(options)}};
  for (auto& family : out) family.options.disable_auto_compactions = !options.compacts;
  return out;
}

rocksdb::DBOptions database_options(const DatabaseOptions& options) {
  rocksdb::DBOptions out;
  out.create_if_missing = true;
  out.create_missing_column_families = true;
  out.paranoid_checks = true;
  // A damaged part of the log costs rows, which are misses: every row and record proves itself.
  out.wal_recovery_mode = rocksdb::WALRecoveryMode::kSkipAnyCorruptedRecords;
  out.max_total_wal_size = k_wal_bytes_max;
  out.max_open_files = -1;
  out.max_background_jobs = 2;
  out.max_bgerror_resume_count = 0;  // the store decides when to try again
  out.use_direct_reads = options.direct_io;
  out.use_direct_io_for_flush_and_compaction = options.direct_io;
  out.info_log = std::make_shared<NoLog>();
  out.max_manifest_file_size = uint64_t{4} << 20;
  out.stats_dump_period_sec = 0;
  out.stats_persist_period_sec = 0;
  if (options.write_bytes_per_second != 0) {
    out.rate_limiter.reset(
        rocksdb::NewGenericRateLimiter(static_cast<int64_t>(options.write_bytes_per_second)));
  }
  return out;
}

}  // namespace outrider::kvstore
