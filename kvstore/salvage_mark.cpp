#include "kvstore/salvage_mark.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <tuple>

namespace outrider::kvstore {
namespace {

const std::string k_open_files = "/proc/self/fd/";
// What lies in a mark's place is not followed, nor waited for.
constexpr int k_read = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
constexpr int k_write = O_CREAT | O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;

std::string mark_path(const std::string& directory) {
  return directory + "/SALVAGING";
}

std::string opening_path(const std::string& directory) {
  return directory + "/OPENING";
}

/// What a mark says; 0 where there is none.
uint32_t number_in(const std::string& path) {
  uint32_t number = 0;
  std::array<char, 16> text{};
  const int file = ::open(path.c_str(), k_read);
  const ssize_t size = file < 0 ? 0 : ::read(file, text.data(), text.size());
  if (file >= 0) ::close(file);
  if (size > 0) std::from_chars(text.data(), text.data() + size, number);
  return number;
}

bool write_number(int file, uint32_t number) {
  const std::string text = std::to_string(number);
  return ::ftruncate(file, 0) == 0 &&
         ::pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

bool sync_directory(const std::string& directory) {
  const int file = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool done = file >= 0 && ::fsync(file) == 0;
  if (file >= 0) ::close(file);
  return done;
}

}  // namespace

Result<DirectoryLock> DirectoryLock::take(const std::string& directory) {
  DirectoryLock lock(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.file_ < 0) return fail(ErrorCode::io, directory + ": " + std::strerror(errno));
  if (::flock(lock.file_, LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK) {
    return fail(ErrorCode::unavailable, directory + " is being opened by another process");
  }
  return fail(ErrorCode::io, directory + " cannot be locked (" + std::strerror(errno) +
                                 "): a store needs a local file system");
}

DirectoryLock::~DirectoryLock() {
  if (file_ >= 0) ::close(file_);
}

std::string DirectoryLock::path() const {
  const std::string path = k_open_files + std::to_string(file_);
  return ::access((path + "/.").c_str(), F_OK) == 0 ? path : "";
}

std::string DirectoryLock::with_names(std::string text) {
  for (size_t at = 0; (at = text.find(k_open_files, at)) != std::string::npos;) {
    const size_t end = text.find_first_not_of("0123456789", at + k_open_files.size());
    const std::string path = text.substr(at, end - at);
    std::array<char, 4096> name{};
    const ssize_t size = ::readlink(path.c_str(), name.data(), name.size());
    if (size > 0) text.replace(at, path.size(), name.data(), static_cast<size_t>(size));
    at += size > 0 ? static_cast<size_t>(size) : path.size();
  }
  return text;
}

/// Locked before it has its name: nobody finds one that seems to be left.
Result<SalvageMark> SalvageMark::make(const std::string& directory) {
  const std::string path = mark_path(directory);
  const std::string draft = directory + "/.salvaging";
  SalvageMark mark(path, ::open(draft.c_str(), k_write, 0600));
  if (mark.file_ < 0) return fail(ErrorCode::io, draft + ": " + std::strerror(errno));
  if (::flock(mark.file_, LOCK_EX | LOCK_NB) != 0 || is_held(directory)) {
    return fail(ErrorCode::unavailable, directory + " is being salvaged by another process");
  }
  mark.tries_ = tries(directory) + 1;
  const bool made = mark.write_tries() && std::rename(draft.c_str(), path.c_str()) == 0 &&
                    sync_directory(directory);
  if (!made) return fail(ErrorCode::io, path + ": " + std::strerror(errno));
  return mark;
}

bool SalvageMark::is_there(const std::string& directory) {
  return ::access(mark_path(directory).c_str(), F_OK) == 0;
}

bool SalvageMark::is_held(const std::string& directory) {
  const int file = ::open(mark_path(directory).c_str(), k_read);
  if (file < 0) return false;
  const bool free = ::flock(file, LOCK_EX | LOCK_NB) == 0;
  ::close(file);
  return !free;
}

uint32_t SalvageMark::tries(const std::string& directory) {
  return number_in(mark_path(directory));
}

bool SalvageMark::write_tries() {
  return write_number(file_, tries_) && ::fsync(file_) == 0;
}

void SalvageMark::forgive() {
  --tries_;
  std::ignore = write_tries();  // else it counts
}

void SalvageMark::forgive(const std::string& directory) {
  const int file = ::open(mark_path(directory).c_str(), k_write & ~O_CREAT);
  if (file < 0) return;
  const uint32_t counted = tries(directory);
  if (counted > 0 && write_number(file, counted - 1)) ::fsync(file);
  ::close(file);
}

SalvageMark::~SalvageMark() {
  if (file_ >= 0) ::close(file_);
}

SalvageMark::SalvageMark(SalvageMark&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)), tries_(other.tries_) {}

Result<void> SalvageMark::remove() {
  if (::unlink(path_.c_str()) == 0) return {};
  return fail(ErrorCode::io, path_ + ": " + std::strerror(errno));
}

/// It outlives its process, not a power cut: no sync. Where it cannot be written nothing is
/// counted.
OpeningMark::OpeningMark(const std::string& directory) : directory_(directory) {
  const int file = ::open(opening_path(directory).c_str(), k_write, 0600);
  if (file < 0) return;
  std::ignore = write_number(file, deaths(directory) + 1);
  ::close(file);
}

uint32_t OpeningMark::deaths(const std::string& directory) {
  return number_in(opening_path(directory));
}

void OpeningMark::remove(const std::string& directory) {
  ::unlink(opening_path(directory).c_str());
}

}  // namespace outrider::kvstore
