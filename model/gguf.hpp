#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "kernels/ops.hpp"

namespace outrider::model {

/// Type of a metadata value; the numbers are GGUF's own.
enum class GgufType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
std::string_view gguf_type_name(GgufType type);

/// One metadata value, read in place.
struct GgufValue {
  GgufType type = GgufType::u8;  ///< of the elements, when `is_array`
  bool is_array = false;
  uint64_t count = 1;                     ///< elements of an array
  std::span<const std::byte> bytes;       ///< little-endian, unaligned; empty for string arrays
  std::vector<std::string_view> strings;  ///< elements of a string array
};

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

/// One tensor. `dims` is in file order: dims[0] runs fastest, unused ones are 1.
struct GgufTensor {
  std::string_view name;
  kernels::WeightType type = kernels::WeightType::f32;
  uint32_t dimensions = 0;
  std::array<uint64_t, 4> dims{1, 1, 1, 1};
  std::span<const std::byte> data;

  uint64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
};

/// A file as it was at one moment: equal ones have the same content, unless the clock was set back.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

/// A GGUF v2 or v3 file. After `open` or `parse` succeeded, every count, type, shape and offset has
/// been checked against base/limits.hpp and the file's size, keys and names are unique, and no two
/// tensors overlap. Owns the mapping; all views live as long as it. Immutable: any thread.
class GgufFile {
 public:
  /// Maps the file read-only. It must not shrink while it is open.
  static Result<GgufFile> open(const std::string& path);
  /// Reads from memory that outlives the result; `name` is what errors call it.
  static Result<GgufFile> parse(std::span<const std::byte> bytes, std::string name = "gguf");

  const std::string& name() const { return name_; }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  uint64_t file_bytes() const { return bytes_.size(); }
  /// Of a mapped file; null after `parse`.
  const FileIdentity* identity() const { return mapping_ ? &identity_ : nullptr; }
  /// In file order.
  std::span<const GgufEntry> metadata() const { return metadata_; }
  std::span<const GgufTensor> tensors() const { return tensors_; }

  /// Null if absent.
  const GgufValue* find_value(std::string_view key) const;
  const GgufTensor* find_tensor(std::string_view name) const;

  // Typed metadata. `find_*` gives nothing for an absent key and an error for a wrong type; `get_*`
  // makes absence an error too. Integers of any width are accepted where the value fits.
  Result<std::optional<uint64_t>> find_u64(std::string_view key) const;
  Result<std::optional<double>> find_float(std::string_view key) const;
  Result<std::optional<bool>> find_bool(std::string_view key) const;
  Result<std::optional<std::string_view>> find_string(std::string_view key) const;
  Result<uint64_t> get_u64(std::string_view key) const;
  Result<double> get_float(std::string_view key) const;
  Result<std::string_view> get_string(std::string_view key) const;
  Result<std::span<const std::string_view>> get_strings(std::string_view key) const;
  Result<std::vector<int32_t>> get_i32_array(std::string_view key) const;

  /// The tensor as a [rows, cols] matrix, or an error that holds both shapes.
  Result<kernels::WeightView> matrix(std::string_view name, uint64_t rows, uint64_t cols) const;
  /// A norm or bias of `size` finite values, stored as F32, F16 or BF16.
  Result<std::vector<float>> vector(std::string_view name, uint64_t size) const;

  /// Lets the memory go that mapped bytes of the file take; reading them again brings them back.
  void release(std::span<const std::byte> bytes) const;

 private:
  friend class GgufParser;
  GgufFile() = default;

  Error missing(std::string_view kind, std::string_view name) const;
  Error wrong_type(std::string_view key, std::string_view expected) const;

  std::string name_;
  std::shared_ptr<const std::byte> mapping_;  ///< null after `parse`
  FileIdentity identity_;
  std::span<const std::byte> bytes_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  std::vector<GgufEntry> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string_view, size_t> metadata_index_;
  std::map<std::string_view, size_t> tensor_index_;
};

/// "576 x 1536": rows first, as matrices are written.
std::string shape_text(const GgufTensor& tensor);

}  // namespace outrider::model
