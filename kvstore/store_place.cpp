#include "kvstore/store_place.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "kvstore/cold_open.hpp"

namespace outrider::kvstore {

namespace fs = std::filesystem;

std::optional<uint64_t> file_system_of(const std::string& directory) {
  std::error_code error;
  for (fs::path at = fs::absolute(directory, error); !error; at = at.parent_path()) {
    struct stat found {};
    if (::stat(at.c_str(), &found) == 0) {
      if (!S_ISDIR(found.st_mode)) return std::nullopt;
      return uint64_t{found.st_dev};
    }
    if (errno != ENOENT || at == at.parent_path()) return std::nullopt;
  }
  return std::nullopt;
}

bool is_away(const std::string& directory, const std::optional<uint64_t>& file_system) {
  std::error_code ignored;
  // A disk that is mounted again may have another number.
  if (!file_system || fs::exists(database_directory(directory) + "/CURRENT", ignored)) return false;
  return file_system_of(directory) != file_system;
}

}  // namespace outrider::kvstore
