#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace outrider::kvstore {

/// The number of the file system that a directory is on, or would be if it were made; none where it
/// could not be (a file has the name of a directory above it, say).
std::optional<uint64_t> file_system_of(const std::string& directory);

/// Whether a store that was open on this file system is not there any more, and one that began
/// anew would be elsewhere: its disk is not mounted. None: it was never open.
bool is_away(const std::string& directory, const std::optional<uint64_t>& file_system);

}  // namespace outrider::kvstore
