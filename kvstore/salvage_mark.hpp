#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/result.hpp"

namespace outrider::kvstore {

/// A directory, locked for one owner, wherever it is moved to: a store's for one opening (who makes
/// its database anew or moves it away has looked at it before, and nobody else may have changed it
/// since), a database's as long as it is open. Goes with its process.
class DirectoryLock {
 public:
  /// Errors: unavailable (another has it), io.
  static Result<DirectoryLock> take(const std::string& directory);

  ~DirectoryLock();
  DirectoryLock(DirectoryLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  DirectoryLock& operator=(DirectoryLock&&) = delete;

  /// Leads to this directory, whatever its name names meanwhile: another one that was moved there,
  /// or a disk that was mounted over it. Empty where the system has no such paths.
  std::string path() const;
  /// A text about such paths, with the directories' names of now.
  static std::string with_names(std::string text);

 private:
  explicit DirectoryLock(int file) : file_(file) {}
  int file_ = -1;
};

/// A file in a database's directory as long as it is being salvaged: RocksDB begins with an empty
/// list of tables, and whoever opened the directory then would delete them all. Who made it holds
/// it locked; one that nobody holds was left by a process that died. It says how many have tried.
class SalvageMark {
 public:
  /// Durable when it returns. Errors: unavailable (another one is at it), io.
  static Result<SalvageMark> make(const std::string& directory);
  static bool is_there(const std::string& directory);
  static bool is_held(const std::string& directory);
  static uint32_t tries(const std::string& directory);

  ~SalvageMark();  ///< lets go, and leaves it there
  SalvageMark(SalvageMark&& other) noexcept;
  SalvageMark& operator=(SalvageMark&&) = delete;
  Result<void> remove();
  void forgive();  ///< this try ended by itself and does not count
  /// Nor does the one that is made in this process: it stops, and may not wait for its end.
  static void forgive(const std::string& directory);

 private:
  SalvageMark(std::string path, int file) : path_(std::move(path)), file_(file) {}
  bool write_tries();
  std::string path_;
  int file_ = -1;
  uint32_t tries_ = 0;
};

/// A file in a database's directory as long as an opening of it lasts, with the number of openings
/// in a row whose process died meanwhile, this one included. By a kill, or because RocksDB ended
/// it.
class OpeningMark {
 public:
  explicit OpeningMark(const std::string& directory);
  ~OpeningMark() { remove(directory_); }
  OpeningMark(const OpeningMark&) = delete;
  OpeningMark& operator=(const OpeningMark&) = delete;

  static uint32_t deaths(const std::string& directory);
  static void remove(const std::string& directory);

 private:
  std::string directory_;
};

}  // namespace outrider::kvstore
