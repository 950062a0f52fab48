#pragma once

#include <string>
#include <vector>

namespace outrider::kvstore {

/// What lies in a database's directory under a name that RocksDB takes for its own, and must not.
struct InTheWay {
  std::string name;
  std::string what;        ///< it is
  std::string right_name;  ///< of a file whose number another name stands for; else empty
};

/// In the order of names:
/// - what is no file: a directory, a link, a pipe. RocksDB says of directories what it says of a
///   disk that fails, and of LOCK that another process holds it; it waits for pipes and writes
///   through links;
/// - a file whose name has its number in another form (`36.log`, which it takes for `000036.log`),
///   a number that it never reaches, of which it dies, or an ending that it only reads.
/// - a CURRENT, IDENTITY or MANIFEST that is larger than any that is written: RocksDB reads all of
/// it. Other names are none of ours.
std::vector<InTheWay> in_the_way(const std::string& directory);

/// Whether tables are there, but not the file that names their list. RocksDB would make an empty
/// database and delete them. The first list by itself is a database that was killed while it was
/// made: nothing is lost.
bool lost_its_head(const std::string& directory);

}  // namespace outrider::kvstore
