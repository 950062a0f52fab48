#include "model/packed_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <type_traits>
#include <utility>

#include "base/regular_file.hpp"

namespace outrider::model {
namespace {

using Header = PackedFile::Header;
using Entry = PackedFile::Entry;

static_assert(std::is_trivially_copyable_v<Header> && sizeof(Header) == 160);
static_assert(std::has_unique_object_representations_v<Entry>);
/// A header is one write within one sector: after a crash it is the old one or the new one.
static_assert(sizeof(Header) <= 512);

constexpr std::string_view k_part = ".part-XXXXXX";
constexpr size_t k_write_bytes = size_t{16} << 20;

Error io_error(const std::string& path, std::string_view action) {
  const int code = errno;
  return fail(code == ENOENT ? ErrorCode::not_found : ErrorCode::io,
              path + ": cannot " + std::string(action) + ": " + std::strerror(code));
}

std::shared_ptr<const int> own(int descriptor) {
  return {new int(descriptor), [](const int* owned) {
            ::close(*owned);
            delete owned;
          }};
}

Sum128 sum_of(const Header& header) {
  return hash128(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, own_sum)));
}

/// Only a name that `write_packed_file` gives: nobody else's file may be removed.
bool is_part(std::string_view name) {
  constexpr std::string_view k_ending = ".weights.part-";
  constexpr size_t k_random = 6;
  return name.size() > k_ending.size() + k_random &&
         name.substr(0, name.size() - k_random).ends_with(k_ending);
}

uint64_t aligned(uint64_t offset) {
  return (offset + PackedFile::k_alignment - 1) / PackedFile::k_alignment * PackedFile::k_alignment;
}

/// Appends to a file under its temporary name, which it removes unless `publish` succeeded. The
/// lock tells others that somebody still writes.
class PartFile {
 public:
  PartFile(std::string path, const std::function<bool()>& go_on)
      : path_(std::move(path)), part_(path_ + std::string(k_part)), go_on_(go_on) {}
  ~PartFile() {
    if (fd_ < 0) return;
    if (!published_) ::unlink(part_.c_str());
    ::close(fd_);
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  Result<void> create() {
    fd_ = ::mkostemp(part_.data(), O_CLOEXEC);
    if (fd_ < 0) return io_error(part_, "create");
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) return io_error(part_, "lock");
    return {};
  }

  Result<void> append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      if (!go_on_()) return fail(ErrorCode::cancelled, "the writing was stopped");
      const ssize_t count = ::write(fd_, bytes.data(), std::min(bytes.size(), k_write_bytes));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return io_error(part_, "write");
      bytes = bytes.subspan(static_cast<size_t>(count));
      size_ += static_cast<uint64_t>(count);
    }
    return {};
  }

  Result<void> pad() {
    static constexpr std::byte k_zeros[PackedFile::k_alignment] = {};
    return append(std::span(k_zeros).first(aligned(size_) - size_));
  }

  Result<void> publish() {
    if (::fsync(fd_) != 0) return io_error(part_, "write");
    if (::rename(part_.c_str(), path_.c_str()) != 0) return io_error(path_, "replace");
    published_ = true;
    const std::string directory = std::filesystem::path(path_).parent_path().string();
    const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return io_error(directory, "open");
    const auto closes = own(fd);
    if (::fsync(fd) != 0) return io_error(directory, "write");
    return {};
  }

 private:
  std::string path_;
  std::string part_;
  const std::function<bool()>& go_on_;
  int fd_ = -1;
  uint64_t size_ = 0;
  bool published_ = false;
};

}  // namespace

Result<PackedFile> PackedFile::open(const std::string& path, const Digest256& key,
                                    size_t matrices) {
  auto opened = RegularFile::open(path, RegularFile::Access::read_write);
  if (!opened && opened.error().code == ErrorCode::io) opened = RegularFile::open(path);
  if (!opened) {
    const bool is_other = opened.error().code == ErrorCode::invalid_argument;
    return fail(is_other ? ErrorCode::corrupt : opened.error().code,
                path + ": cannot open: " + opened.error().message);
  }
  const int fd = opened->release();
  PackedFile file;
  file.path_ = path;
  file.descriptor_ = own(fd);
  struct stat status {};
  if (::fstat(fd, &status) != 0) return io_error(path, "read its size");
  const auto size = static_cast<size_t>(status.st_size);
  if (size < sizeof(Header)) return fail(ErrorCode::corrupt, path + ": shorter than its header");
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return io_error(path, "map");
  file.mapping_ = {static_cast<const std::byte*>(data),
                   [data, size](const std::byte*) { ::munmap(data, size); }};
  file.bytes_ = {file.mapping_.get(), size};
  OUTRIDER_TRY(file.read_header(key, matrices));
  return file;
}

Result<void> PackedFile::read_header(const Digest256& key, size_t matrices) {
  const auto corrupt = [&](std::string_view what) {
    return fail(ErrorCode::corrupt, path_ + ": " + std::string(what));
  };
  std::memcpy(&header_, bytes_.data(), sizeof(Header));
  const Header expected;
  if (std::memcmp(header_.magic, expected.magic, sizeof(expected.magic)) != 0) {
    return corrupt("not a file of packed weights, or of another version");
  }
  if (sum_of(header_) != header_.own_sum) return corrupt("its header is damaged");
  if (header_.key != key || header_.matrices != matrices) {
    return fail(ErrorCode::invalid_argument, path_ + ": of another network or packed otherwise");
  }
  if (header_.file_bytes != bytes_.size()) {
    return corrupt("has " + std::to_string(bytes_.size()) + " bytes, its header says " +
                   std::to_string(header_.file_bytes));
  }
  const auto rest = bytes_.subspan(sizeof(Header));
  if (matrices > rest.size() / sizeof(Entry)) return corrupt("shorter than its list of matrices");
  const auto table = rest.first(matrices * sizeof(Entry));
  if (hash128(table) != header_.entries_sum) return corrupt("its list of matrices is damaged");
  entries_.resize(matrices);
  if (!table.empty()) std::memcpy(entries_.data(), table.data(), table.size());
  for (const Entry& entry : entries_) {
    if (entry.offset % k_alignment != 0 || entry.offset < sizeof(Header) + table.size() ||
        entry.offset > bytes_.size() || entry.bytes > bytes_.size() - entry.offset) {
      return corrupt("a matrix lies outside of it");
    }
  }
  return {};
}

std::span<const std::byte> PackedFile::matrix(size_t index) const {
  return bytes_.subspan(entries_[index].offset, entries_[index].bytes);
}

std::shared_ptr<const std::byte> PackedFile::share(size_t index) const {
  return {mapping_, matrix(index).data()};
}

bool PackedFile::is_intact(size_t index) const {
  return hash128(matrix(index)) == entries_[index].sum;
}

Result<void> PackedFile::set_source(const FileIdentity& source) {
  header_.source = source;
  header_.own_sum = sum_of(header_);
  const ssize_t count = ::pwrite(*descriptor_, &header_, sizeof(header_), 0);
  if (count != static_cast<ssize_t>(sizeof(header_))) return io_error(path_, "write");
  return {};
}

Result<void> write_packed_file(const std::string& path, const PackedContents& contents,
                               const std::function<bool()>& go_on) {
  std::vector<Entry> entries;
  uint64_t end = sizeof(Header) + contents.matrices.size() * sizeof(Entry);
  for (size_t i = 0; i < contents.matrices.size(); ++i) {
    const uint64_t offset = aligned(end);
    entries.push_back({offset, contents.matrices[i].size(), contents.sums[i]});
    end = offset + contents.matrices[i].size();
  }
  Header header;
  header.file_bytes = end;
  header.matrices = entries.size();
  header.key = contents.key;
  header.tensors = contents.tensors;
  header.source = contents.source;
  header.entries_sum = hash128(std::as_bytes(std::span(entries)));
  header.own_sum = sum_of(header);

  PartFile file(path, go_on);
  OUTRIDER_TRY(file.create());
  OUTRIDER_TRY(file.append(std::as_bytes(std::span(&header, 1))));
  OUTRIDER_TRY(file.append(std::as_bytes(std::span(entries))));
  for (const auto& matrix : contents.matrices) {
    OUTRIDER_TRY(file.pad());
    OUTRIDER_TRY(file.append(matrix));
  }
  return file.publish();
}

void remove_stale_packed_files(const std::string& directory) {
  std::error_code ignored;
  std::filesystem::directory_iterator at(directory, ignored);
  for (; !ignored && at != std::filesystem::directory_iterator(); at.increment(ignored)) {
    std::error_code gone;
    const std::string path = at->path().string();
    if (!is_part(at->path().filename().string()) || !at->is_regular_file(gone)) continue;
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) continue;
    const auto closes = own(fd);
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
  }
}

}  // namespace outrider::model
