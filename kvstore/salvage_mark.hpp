#pragma once

#include <string>

#include "base/result.hpp"

namespace outrider::kvstore {

/// A file in a database's directory as long as it is being salvaged: RocksDB begins with an empty
/// list of tables, and whoever opened the directory then would delete them all. Who made it holds
/// it locked; one that nobody holds was left by a process that died.
class SalvageMark {
 public:
  /// Durable when it returns. Errors: unavailable (another one is at it), io.
  static Result<SalvageMark> make(const std::string& directory);
  static bool is_there(const std::string& directory);
  static bool is_held(const std::string& directory);

  ~SalvageMark();  ///< lets go, and leaves it there
  SalvageMark(SalvageMark&& other) noexcept;
  SalvageMark& operator=(SalvageMark&&) = delete;
  Result<void> remove();

 private:
  SalvageMark(std::string path, int file) : path_(std::move(path)), file_(file) {}
  std::string path_;
  int file_ = -1;
};

}  // namespace outrider::kvstore
