#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "base/result.hpp"
#include "model/gguf.hpp"

namespace outrider::model {

using Sum128 = std::array<uint64_t, 2>;

/// A model's matrices as a back end packed them, in a file that later starts map and use in place.
/// Hostile like any file: after `open` no view leads outside of it; `is_intact` compares a matrix
/// with its sum. It must not shrink while it is in use. Immutable but for `set_source`.
///
/// Little-endian: a header with a sum over itself, an entry for each matrix, and each matrix at a
/// multiple of 4096.
class PackedFile {
 public:
  struct Entry {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    Sum128 sum{};
  };
  struct Header {
    char magic[8] = {'O', 'U', 'T', 'R', 'W', 'T', 'S', '1'};
    uint64_t file_bytes = 0;
    uint64_t matrices = 0;
    Digest256 key{};      ///< what the matrices are and how they are packed
    Digest256 tensors{};  ///< of the GGUF's tensors
    FileIdentity source;  ///< the GGUF
    Sum128 entries_sum{};
    Sum128 own_sum{};  ///< of all bytes before it
  };
  static constexpr uint64_t k_alignment = 4096;

  /// Maps the file and checks its header: `not_found` if there is none, `corrupt` or
  /// `invalid_argument` (another key) if it is not one of `matrices` matrices of this key.
  static Result<PackedFile> open(const std::string& path, const Digest256& key, size_t matrices);

  const Header& header() const { return header_; }
  std::span<const std::byte> matrix(size_t index) const;
  /// The same, with a share of the mapping.
  std::shared_ptr<const std::byte> share(size_t index) const;
  /// Reads all of it. Any thread.
  bool is_intact(size_t index) const;

  /// Writes into the file which GGUF has its tensors.
  Result<void> set_source(const FileIdentity& source);

 private:
  PackedFile() = default;
  Result<void> read_header(const Digest256& key, size_t matrices);

  std::string path_;
  std::shared_ptr<const int> descriptor_;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const std::byte> mapping_;
  Header header_;
  std::vector<Entry> entries_;
};

struct PackedContents {
  Digest256 key{};
  Digest256 tensors{};
  FileIdentity source;
  std::vector<std::span<const std::byte>> matrices;
  std::vector<Sum128> sums;  ///< of the matrices
};

/// Writes a file that `open` takes, whose name ends in ".weights": under a temporary name in the
/// same directory, on disk before it gets its own. `go_on` is asked now and then; false ends it as
/// `cancelled`. Nothing is left behind when it fails.
Result<void> write_packed_file(const std::string& path, const PackedContents& contents,
                               const std::function<bool()>& go_on);

/// Removes what processes that died in `write_packed_file` left in the directory.
void remove_stale_packed_files(const std::string& directory);

}  // namespace outrider::model
