#include "model/gguf.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/bytes.hpp"
#include "base/limits.hpp"
#include "base/regular_file.hpp"
#include "model/gguf_parser.hpp"

namespace outrider::model {
namespace {

template <class T>
T load(std::span<const std::byte> bytes, uint64_t index = 0) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

/// An integer of any GGUF type as sign and magnitude, so that no width loses anything.
struct AnyInteger {
  bool negative = false;
  uint64_t magnitude = 0;
};

template <class T>
AnyInteger widen(T value) {
  if constexpr (std::is_signed_v<T>) {
    if (value < 0) return {true, uint64_t{0} - static_cast<uint64_t>(int64_t{value})};
  }
  return {false, static_cast<uint64_t>(value)};
}

std::optional<AnyInteger> integer_at(const GgufValue& value, uint64_t index) {
  switch (value.type) {
    case GgufType::u8:
      return widen(load<uint8_t>(value.bytes, index));
    case GgufType::i8:
      return widen(load<int8_t>(value.bytes, index));
    case GgufType::u16:
      return widen(load<uint16_t>(value.bytes, index));
    case GgufType::i16:
      return widen(load<int16_t>(value.bytes, index));
    case GgufType::u32:
      return widen(load<uint32_t>(value.bytes, index));
    case GgufType::i32:
      return widen(load<int32_t>(value.bytes, index));
    case GgufType::u64:
      return widen(load<uint64_t>(value.bytes, index));
    case GgufType::i64:
      return widen(load<int64_t>(value.bytes, index));
    default:
      return std::nullopt;
  }
}

std::string type_text(const GgufValue& value) {
  const std::string name(gguf_type_name(value.type));
  return value.is_array ? "an array of " + name : name;
}

Error io_error(const std::string& path, std::string_view action) {
  const int code = errno;
  return fail(code == ENOENT ? ErrorCode::not_found : ErrorCode::io,
              path + ": cannot " + std::string(action) + ": " + std::strerror(code), "model");
}

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// Turns an optional lookup into a required one.
template <class T>
Result<T> require(Result<std::optional<T>> found, const Error& absent) {
  if (!found) return found.error();
  if (!found->has_value()) return absent;
  return **found;
}

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  switch (type) {
    case GgufType::u8:
      return "u8";
    case GgufType::i8:
      return "i8";
    case GgufType::u16:
      return "u16";
    case GgufType::i16:
      return "i16";
    case GgufType::u32:
      return "u32";
    case GgufType::i32:
      return "i32";
    case GgufType::f32:
      return "f32";
    case GgufType::boolean:
      return "bool";
    case GgufType::string:
      return "string";
    case GgufType::array:
      return "array";
    case GgufType::u64:
      return "u64";
    case GgufType::i64:
      return "i64";
    case GgufType::f64:
      return "f64";
  }
  return "unknown";
}

std::string shape_text(const GgufTensor& tensor) {
  std::string text;
  for (uint32_t d = tensor.dimensions; d-- > 0;) {
    text += std::to_string(tensor.dims[d]);
    if (d > 0) text += " x ";
  }
  return text;
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  const auto file = RegularFile::open(path);
  if (!file) {
    return fail(file.error().code, path + ": cannot open: " + file.error().message, "model");
  }
  struct stat status {};
  if (::fstat(file->descriptor(), &status) != 0) return io_error(path, "read its size");
  if (status.st_size == 0) return fail(ErrorCode::corrupt, path + ": the file is empty", "model");
  const auto size = static_cast<size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file->descriptor(), 0);
  if (data == MAP_FAILED) return io_error(path, "map");

  const std::shared_ptr<const std::byte> mapping(
      static_cast<const std::byte*>(data),
      [data, size](const std::byte*) { ::munmap(data, size); });
  auto parsed = parse({mapping.get(), size}, path);
  if (!parsed) return parsed;
  parsed->mapping_ = mapping;
  parsed->identity_ = {.device = status.st_dev,
                       .inode = status.st_ino,
                       .bytes = size,
                       .modified_ns = nanoseconds(status.st_mtim),
                       .changed_ns = nanoseconds(status.st_ctim)};
  return parsed;
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, std::string name) {
  GgufFile file;
  file.name_ = std::move(name);
  file.bytes_ = bytes;
  OUTRIDER_TRY(GgufParser(file).run());
  return file;
}

void GgufFile::release(std::span<const std::byte> bytes) const {
  if (mapping_ == nullptr) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data()) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(bytes.data() + bytes.size());
  // Only advice: what it cannot do costs memory until the file is closed.
  (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

const GgufValue* GgufFile::find_value(std::string_view key) const {
  const auto found = metadata_index_.find(key);
  return found == metadata_index_.end() ? nullptr : &metadata_[found->second].value;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

Error GgufFile::missing(std::string_view kind, std::string_view name) const {
  return fail(ErrorCode::not_found,
              name_ + ": " + std::string(kind) + " '" + std::string(name) + "' is missing",
              std::string(name));
}

Error GgufFile::wrong_type(std::string_view key, std::string_view expected) const {
  return fail(ErrorCode::corrupt,
              name_ + ": metadata '" + std::string(key) + "' is " + type_text(*find_value(key)) +
                  ", expected " + std::string(expected),
              std::string(key));
}

Result<std::optional<uint64_t>> GgufFile::find_u64(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (value == nullptr) return std::optional<uint64_t>();
  const auto number = value->is_array ? std::nullopt : integer_at(*value, 0);
  if (!number) return wrong_type(key, "an integer");
  if (number->negative) {
    return fail(ErrorCode::corrupt, name_ + ": metadata '" + std::string(key) + "' is negative",
                std::string(key));
  }
  return std::optional(number->magnitude);
}

Result<std::optional<double>> GgufFile::find_float(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (value == nullptr) return std::optional<double>();
  if (value->is_array) return wrong_type(key, "a float");
  if (value->type == GgufType::f32) return std::optional(double{load<float>(value->bytes)});
  if (value->type == GgufType::f64) return std::optional(load<double>(value->bytes));
  return wrong_type(key, "a float");
}

Result<std::optional<bool>> GgufFile::find_bool(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (value == nullptr) return std::optional<bool>();
  if (value->is_array || value->type != GgufType::boolean) return wrong_type(key, "a bool");
  return std::optional(load<uint8_t>(value->bytes) != 0);
}

Result<std::optional<std::string_view>> GgufFile::find_string(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (value == nullptr) return std::optional<std::string_view>();
  if (value->is_array || value->type != GgufType::string) return wrong_type(key, "a string");
  return std::optional(as_text(value->bytes));
}

Result<uint64_t> GgufFile::get_u64(std::string_view key) const {
  return require(find_u64(key), missing("metadata", key));
}

Result<double> GgufFile::get_float(std::string_view key) const {
  return require(find_float(key), missing("metadata", key));
}

Result<std::string_view> GgufFile::get_string(std::string_view key) const {
  return require(find_string(key), missing("metadata", key));
}

Result<std::span<const std::string_view>> GgufFile::get_strings(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (value == nullptr) return missing("metadata", key);
  if (!value->is_array || value->type != GgufType::string) {
    return wrong_type(key, "an array of strings");
  }
  return std::span<const std::string_view>(value->strings);
}

Result<std::vector<int32_t>> GgufFile::get_i32_array(std::string_view key) const {
  constexpr auto k_positive_max = static_cast<uint64_t>(std::numeric_limits<int32_t>::max());
  const GgufValue* value = find_value(key);
  if (value == nullptr) return missing("metadata", key);
  if (!value->is_array || (value->count > 0 && !integer_at(*value, 0))) {
    return wrong_type(key, "an array of integers");
  }
  std::vector<int32_t> out;
  out.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const AnyInteger number = *integer_at(*value, i);
    if (number.magnitude > k_positive_max + (number.negative ? 1 : 0)) {
      return fail(ErrorCode::corrupt,
                  name_ + ": metadata '" + std::string(key) + "' element " + std::to_string(i) +
                      " does not fit into 32 bits",
                  std::string(key));
    }
    const auto magnitude = static_cast<int64_t>(number.magnitude);
    out.push_back(static_cast<int32_t>(number.negative ? -magnitude : magnitude));
  }
  return out;
}

Result<kernels::WeightView> GgufFile::matrix(std::string_view name, uint64_t rows,
                                             uint64_t cols) const {
  const GgufTensor* tensor = find_tensor(name);
  if (tensor == nullptr) return missing("tensor", name);
  if (tensor->dimensions != 2 || tensor->dims[0] != cols || tensor->dims[1] != rows) {
    return fail(ErrorCode::corrupt,
                name_ + ": tensor '" + std::string(name) + "' is " + shape_text(*tensor) +
                    ", expected " + std::to_string(rows) + " x " + std::to_string(cols),
                std::string(name));
  }
  return kernels::WeightView{tensor->type, tensor->data.data(), static_cast<size_t>(rows),
                             static_cast<size_t>(cols)};
}

Result<std::vector<float>> GgufFile::vector(std::string_view name, uint64_t size) const {
  using kernels::WeightType;
  const GgufTensor* tensor = find_tensor(name);
  if (tensor == nullptr) return missing("tensor", name);
  const std::string label = name_ + ": tensor '" + std::string(name) + "'";
  if (tensor->dimensions != 1 || tensor->dims[0] != size) {
    return fail(ErrorCode::corrupt,
                label + " is " + shape_text(*tensor) + ", expected " + std::to_string(size),
                std::string(name));
  }
  const bool is_plain = tensor->type == WeightType::f32 || tensor->type == WeightType::f16 ||
                        tensor->type == WeightType::bf16;
  if (!is_plain) {
    return fail(ErrorCode::unsupported,
                label + " has type " + std::string(kernels::weight_type_info(tensor->type)->name) +
                    ", expected F32, F16 or BF16",
                std::string(name));
  }
  std::vector<float> out(size);
  kernels::dequantize(tensor->type, tensor->data.data(), size, out.data());
  for (size_t i = 0; i < out.size(); ++i) {
    if (!std::isfinite(out[i])) {
      return fail(ErrorCode::corrupt, label + " element " + std::to_string(i) + " is not finite",
                  std::string(name));
    }
  }
  return out;
}

}  // namespace outrider::model
