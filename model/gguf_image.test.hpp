#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "model/gguf.hpp"

namespace outrider::model {

/// Writes GGUF images for tests, right ones and wrong ones: nothing is checked or counted here.
class GgufImage {
 public:
  GgufImage& header(uint32_t version, uint64_t tensors, uint64_t entries) {
    return chars("GGUF").number(version).number(tensors).number(entries);
  }
  GgufImage& chars(std::string_view text) {
    for (const char c : text) bytes_.push_back(static_cast<std::byte>(c));
    return *this;
  }
  template <class T>
  requires std::is_arithmetic_v<T> GgufImage& number(T value) {
    std::byte raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    bytes_.insert(bytes_.end(), raw, raw + sizeof(T));
    return *this;
  }
  GgufImage& text(std::string_view value) { return number(uint64_t{value.size()}).chars(value); }
  GgufImage& key(std::string_view name, GgufType type) {
    return text(name).number(static_cast<uint32_t>(type));
  }
  template <class T>
  GgufImage& entry(std::string_view name, GgufType type, T value) {
    return key(name, type).number(value);
  }
  GgufImage& entry(std::string_view name, std::string_view value) {
    return key(name, GgufType::string).text(value);
  }
  GgufImage& array(std::string_view name, GgufType element, uint64_t count) {
    return key(name, GgufType::array).number(static_cast<uint32_t>(element)).number(count);
  }
  /// `dims` in file order: the length of a row first.
  GgufImage& tensor(std::string_view name, std::initializer_list<uint64_t> dims, uint32_t type,
                    uint64_t offset) {
    text(name).number(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) number(dim);
    return number(type).number(offset);
  }
  GgufImage& pad(size_t alignment) {
    while (bytes_.size() % alignment != 0) bytes_.push_back(std::byte{0});
    return *this;
  }
  GgufImage& zeros(size_t count) {
    bytes_.insert(bytes_.end(), count, std::byte{0});
    return *this;
  }

  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace outrider::model
