#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"

namespace outrider::kvstore {

/// Tables of a database's directory whose block of properties is not what its check sum says, by
/// file name, sorted. RocksDB parses that block before it looks at the sum, and where it was built
/// with assertions, as Debian does, one wrong bit in it ends the process, at every opening, repair
/// or look. (Every other block is checked first.) What else may be wrong with a table is not
/// looked for, and what cannot be read here has no such block.
///
/// Layout of a table of format version 5, from its end: 8 bytes magic, 4 bytes version, 40 bytes
/// with two handles (of the block that names other blocks, and of the index), 1 byte kind of check
/// sum. A handle is an offset and a size, both varint. A block is followed by 1 byte compression
/// and 4 bytes check sum, little-endian. All as in RocksDB's table/format.h.
std::vector<std::string> tables_with_broken_properties(const std::string& directory);

}  // namespace outrider::kvstore
