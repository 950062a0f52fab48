#pragma once

#include <string>
#include <vector>

namespace outrider::kvstore {

struct TableDamage {
  std::string table;  ///< file name
  std::string what;   ///< it is
};

/// Tables of a database's directory that RocksDB must not see, by file name, sorted. Those
/// - whose block of properties is not what its check sum says: it parses that block before it looks
///   at the sum, and where it was built with assertions, as Debian does, one wrong bit in it ends
///   the process, at every opening, repair or look (every other block is checked first);
/// - that are another's copy, by what their properties say of their origin: after a salvage it does
///   not know which table belongs where, and two with the same writes end the process, too. The
///   one that has the number that it was written under is the original.
/// What else may be wrong with a table is not looked for, and what cannot be read here has no
/// properties.
///
/// Layout of a table of format version 5, from its end: 8 bytes magic, 4 bytes version, 40 bytes
/// with two handles (of the block that names other blocks, and of the index), 1 byte kind of check
/// sum. A handle is an offset and a size, both varint. A block is followed by 1 byte compression
/// and 4 bytes check sum, little-endian. All as in RocksDB's table/format.h.
std::vector<TableDamage> damaged_tables(const std::string& directory);

}  // namespace outrider::kvstore
