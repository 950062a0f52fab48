#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace outrider::kvstore {

/// A larger log is cut; ours all together have 16 MiB.
inline constexpr uint64_t k_log_bytes_max = uint64_t{1} << 30;

struct LogDamage {
  std::string log;   ///< file name
  std::string what;  ///< it has
  /// Where a salvage cuts it. None: it may be read, by itself.
  std::optional<uint64_t> cut_at;
};

/// A database's logs that RocksDB must not replay as they are, in the order of their numbers; of
/// each the first reason:
/// - a record of a kind that logs have that are used again, which ours are not: its reader never
///   gets past one;
/// - a write that stands before, there or in an older one, or one that is older than what stands
///   before it: a log was copied, a part of it, or two changed places. Where RocksDB was built with
///   assertions, as Debian does, that ends the process. A salvage makes a table of each log, and
///   so takes logs in any order.
/// - a write with a number beyond those that its 56 bits count: the same.
/// - more than `k_log_bytes_max`, of zeros for example.
/// What its check sum does not prove is left out by RocksDB, to the end of its block, and here.
///
/// Layout: blocks of 32 KiB; in them records of 4 bytes check sum, 2 bytes size, 1 byte type, then
/// bytes. A write's first record begins with its 8 bytes sequence number and 4 bytes count. As in
/// RocksDB's db/log_format.h.
std::vector<LogDamage> damaged_logs(const std::string& directory);

/// What is wrong with the list of tables that CURRENT names (a MANIFEST, which is written like a
/// log): it ends within a record, or has one that its check sum does not prove. RocksDB takes the
/// former for the state before, and deletes the tables that only what is missing names. Empty:
/// nothing is, or there is no such list.
std::string damage_of_list(const std::string& directory);

}  // namespace outrider::kvstore
