#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "model/gguf.hpp"

namespace outrider::model {

/// Reads one GGUF image into a GgufFile. Used once, by GgufFile only.
class GgufParser {
 public:
  explicit GgufParser(GgufFile& file) : file_(file), reader_(file.bytes_) {}

  Result<void> run();

 private:
  Result<void> read_header();
  Result<void> read_metadata();
  Result<void> read_value(GgufValue& value);
  Result<void> read_array(GgufValue& value);
  Result<void> read_alignment();
  Result<void> read_tensors();
  Result<uint64_t> read_tensor(GgufTensor& tensor);
  Result<void> read_shape(GgufTensor& tensor);
  Result<void> place_tensors(std::span<const uint64_t> offsets);
  Result<void> check_overlap() const;

  Result<std::string_view> read_text(uint64_t bytes_max, std::string_view what);
  Result<std::string_view> read_name(uint64_t bytes_max, std::string_view what);
  template <class T>
  Result<T> read(std::string_view what);
  Error bad(std::string what, ErrorCode code = ErrorCode::corrupt) const;

  GgufFile& file_;
  ByteReader reader_;
  uint64_t tensor_count_ = 0;
  uint64_t metadata_count_ = 0;
  std::string_view current_;  ///< key or tensor name being read, for errors
};

}  // namespace outrider::model
