#pragma once

#include <cstddef>
#include <string>

#include "base/result.hpp"

namespace outrider {

/// An open regular file. What a person names, or what lies in a directory that others may write to,
/// can be a pipe or a device: to open one may wait for ever for its other end, and to read one need
/// never end. These are refused before they are opened; links to regular files are followed.
///
/// Errors have the reason alone, for callers that say what they were about to do: `not_found`,
/// `invalid_argument` for what is no regular file, `io`.
class RegularFile {
 public:
  enum class Access { read, read_write };

  static Result<RegularFile> open(const std::string& path, Access access = Access::read);
  ~RegularFile();
  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&& other) noexcept;

  int descriptor() const { return descriptor_; }
  /// The caller closes it.
  int release();

 private:
  explicit RegularFile(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

/// All of a file; `too_large` if it is longer than `bytes_max`, and then little is read.
Result<std::string> read_regular_file(const std::string& path, size_t bytes_max);

}  // namespace outrider
