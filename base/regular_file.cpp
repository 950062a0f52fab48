#include "base/regular_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace outrider {
namespace {

constexpr size_t k_read_bytes = size_t{64} << 10;

Error failed(int code) {
  return fail(code == ENOENT ? ErrorCode::not_found : ErrorCode::io, std::strerror(code));
}

Result<void> check_type(const struct stat& status) {
  if (S_ISREG(status.st_mode)) return {};
  return fail(ErrorCode::invalid_argument,
              S_ISDIR(status.st_mode) ? "a directory, not a regular file" : "not a regular file");
}

Error too_large(size_t bytes_max) {
  return fail(ErrorCode::too_large, "over " + std::to_string(bytes_max) + " bytes");
}

}  // namespace

Result<RegularFile> RegularFile::open(const std::string& path, Access access) {
  struct stat status {};
  // To open a device may already do something.
  if (::stat(path.c_str(), &status) != 0) return failed(errno);
  OUTRIDER_TRY(check_type(status));
  // It may have become a pipe since: that must not wait for its other end.
  const int how = (access == Access::read ? O_RDONLY : O_RDWR) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  RegularFile file(::open(path.c_str(), how));
  if (file.descriptor_ < 0 || ::fstat(file.descriptor_, &status) != 0) return failed(errno);
  OUTRIDER_TRY(check_type(status));
  return file;
}

RegularFile::~RegularFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

RegularFile::RegularFile(RegularFile&& other) noexcept : descriptor_(other.release()) {}

RegularFile& RegularFile::operator=(RegularFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

int RegularFile::release() {
  return std::exchange(descriptor_, -1);
}

Result<std::string> read_regular_file(const std::string& path, size_t bytes_max) {
  auto file = RegularFile::open(path);
  if (!file) return file.error();
  struct stat status {};
  if (::fstat(file->descriptor(), &status) != 0) return failed(errno);
  if (static_cast<uint64_t>(status.st_size) > bytes_max) return too_large(bytes_max);
  std::string text;  // its size is no promise: it may grow, and those of /proc have none
  for (size_t size = 0;;) {
    text.resize(std::min(size + k_read_bytes, bytes_max + 1));
    const ssize_t count = ::read(file->descriptor(), text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed(errno);
    size += static_cast<size_t>(count);
    if (size > bytes_max) return too_large(bytes_max);
    if (count > 0) continue;
    text.resize(size);
    return text;
  }
}

}  // namespace outrider
