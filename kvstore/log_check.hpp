#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace outrider::kvstore {

struct RepeatedWrite {
  std::string log;      ///< file name
  uint64_t offset = 0;  ///< of its record
};

/// The first write in each of a database's logs that stands before, there or in an older one: a log
/// was copied, or a part of it. RocksDB replays both, and where it was built with
/// assertions, as Debian does, the second ends the process. Records that cannot be read are not
/// looked at: RocksDB leaves them out.
///
/// Layout: blocks of 32 KiB; in them records of 4 bytes check sum, 2 bytes size, 1 byte type (and
/// 4 bytes log number, where logs are used again), then bytes. A write's first record begins with
/// its 8 bytes sequence number and 4 bytes count. As in RocksDB's db/log_format.h.
std::vector<RepeatedWrite> repeated_writes(const std::string& directory);

}  // namespace outrider::kvstore
