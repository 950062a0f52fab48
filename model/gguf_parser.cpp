#include "model/gguf_parser.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "base/limits.hpp"
#include "base/utf8.hpp"

namespace outrider::model {
namespace {

constexpr uint32_t k_magic = 0x46554747;  // "GGUF"
// The shortest entry: an empty-key length, a type and one byte. Bounds the counts by the file size.
constexpr uint64_t k_metadata_entry_bytes_min = 8 + 4 + 1;
constexpr uint64_t k_tensor_entry_bytes_min = 8 + 4 + 8 + 4 + 8;

/// Bytes of one value of a fixed-width type, 0 for the others.
uint64_t scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    case GgufType::string:
    case GgufType::array:
      return 0;
  }
  return 0;
}

bool is_known(uint32_t type) {
  return type <= static_cast<uint32_t>(GgufType::f64);
}

bool has_control_bytes(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

}  // namespace

Error GgufParser::bad(std::string what, ErrorCode code) const {
  std::string message = file_.name_ + ": at byte " + std::to_string(reader_.position());
  if (!current_.empty()) message += ", '" + std::string(current_) + "'";
  return fail(code, message + ": " + what, std::string(current_));
}

template <class T>
Result<T> GgufParser::read(std::string_view what) {
  const auto value = reader_.read<T>();
  if (!value) return bad("the file ends inside " + std::string(what));
  return *value;
}

Result<std::string_view> GgufParser::read_text(uint64_t bytes_max, std::string_view what) {
  const auto length = read<uint64_t>(what);
  if (!length) return length.error();
  if (*length > bytes_max) {
    return bad(std::string(what) + " of " + std::to_string(*length) + " bytes, the limit is " +
                   std::to_string(bytes_max),
               ErrorCode::too_large);
  }
  const auto bytes = reader_.take(*length);
  if (!bytes) return bad("the file ends inside " + std::string(what));
  return as_text(*bytes);
}

Result<std::string_view> GgufParser::read_name(uint64_t bytes_max, std::string_view what) {
  auto name = read_text(bytes_max, what);
  if (!name) return name;
  if (name->empty()) return bad(std::string(what) + " is empty");
  if (!utf8_valid(*name) || has_control_bytes(*name)) {
    return bad(std::string(what) + " is not printable UTF-8");
  }
  return name;
}

Result<void> GgufParser::run() {
  OUTRIDER_TRY(read_header());
  OUTRIDER_TRY(read_metadata());
  OUTRIDER_TRY(read_alignment());
  return read_tensors();
}

Result<void> GgufParser::read_header() {
  const auto magic = read<uint32_t>("the magic");
  if (!magic) return magic.error();
  if (*magic != k_magic) return bad("not a GGUF file (its first four bytes are not 'GGUF')");
  const auto version = read<uint32_t>("the version");
  if (!version) return version.error();
  if (*version != 2 && *version != 3) {
    const bool swapped = *version != 0 && (*version & 0xFFFF) == 0;
    return bad(swapped ? std::string("a big-endian GGUF file; only little-endian ones are read")
                       : "GGUF version " + std::to_string(*version) + "; versions 2 and 3 are read",
               ErrorCode::unsupported);
  }
  file_.version_ = *version;
  const auto tensors = read<uint64_t>("the tensor count");
  if (!tensors) return tensors.error();
  const auto entries = read<uint64_t>("the metadata count");
  if (!entries) return entries.error();
  if (*tensors > limits::gguf_tensors_max) {
    return bad(std::to_string(*tensors) + " tensors, the limit is " +
                   std::to_string(limits::gguf_tensors_max),
               ErrorCode::too_large);
  }
  if (*entries > limits::gguf_metadata_max) {
    return bad(std::to_string(*entries) + " metadata entries, the limit is " +
                   std::to_string(limits::gguf_metadata_max),
               ErrorCode::too_large);
  }
  const uint64_t needed =
      *tensors * k_tensor_entry_bytes_min + *entries * k_metadata_entry_bytes_min;
  if (needed > reader_.remaining()) {
    return bad(std::to_string(*tensors) + " tensors and " + std::to_string(*entries) +
               " metadata entries do not fit into the file");
  }
  tensor_count_ = *tensors;
  metadata_count_ = *entries;
  return {};
}

Result<void> GgufParser::read_metadata() {
  file_.metadata_.reserve(metadata_count_);
  for (uint64_t i = 0; i < metadata_count_; ++i) {
    current_ = {};
    const auto key = read_name(limits::gguf_key_bytes_max, "a metadata key");
    if (!key) return key.error();
    current_ = *key;
    if (!file_.metadata_index_.emplace(*key, file_.metadata_.size()).second) {
      return bad("the key appears twice");
    }
    GgufEntry entry{*key, {}};
    OUTRIDER_TRY(read_value(entry.value));
    file_.metadata_.push_back(std::move(entry));
  }
  current_ = {};
  return {};
}

Result<void> GgufParser::read_value(GgufValue& value) {
  const auto type = read<uint32_t>("a value type");
  if (!type) return type.error();
  if (!is_known(*type)) return bad("unknown value type " + std::to_string(*type));
  value.type = static_cast<GgufType>(*type);
  if (value.type == GgufType::array) return read_array(value);
  if (value.type == GgufType::string) {
    const auto text = read_text(limits::gguf_string_bytes_max, "a string");
    if (!text) return text.error();
    value.bytes = std::as_bytes(std::span(text->data(), text->size()));
    return {};
  }
  const auto bytes = reader_.take(scalar_bytes(value.type));
  if (!bytes) return bad("the file ends inside a value");
  value.bytes = *bytes;
  if (value.type == GgufType::boolean && std::to_integer<uint8_t>((*bytes)[0]) > 1) {
    return bad("a boolean is neither 0 nor 1");
  }
  return {};
}

Result<void> GgufParser::read_array(GgufValue& value) {
  const auto type = read<uint32_t>("an array's element type");
  if (!type) return type.error();
  if (!is_known(*type)) return bad("unknown array element type " + std::to_string(*type));
  value.type = static_cast<GgufType>(*type);
  value.is_array = true;
  if (value.type == GgufType::array) return bad("arrays of arrays", ErrorCode::unsupported);
  OUTRIDER_ASSIGN(value.count, read<uint64_t>("an array's length"));
  if (value.count > limits::gguf_array_elements_max) {
    return bad("array of " + std::to_string(value.count) + " elements, the limit is " +
                   std::to_string(limits::gguf_array_elements_max),
               ErrorCode::too_large);
  }
  if (value.type != GgufType::string) {
    const auto bytes = reader_.take(value.count * scalar_bytes(value.type));
    if (!bytes) return bad("the file ends inside an array");
    value.bytes = *bytes;
    return {};
  }
  // Each string takes at least its length field, so the reservation stays below the file's size.
  if (value.count * sizeof(uint64_t) > reader_.remaining())
    return bad("the file ends inside an array");
  value.strings.reserve(value.count);
  for (uint64_t i = 0; i < value.count; ++i) {
    const auto text = read_text(limits::gguf_string_bytes_max, "a string of an array");
    if (!text) return text.error();
    value.strings.push_back(*text);
  }
  return {};
}

Result<void> GgufParser::read_alignment() {
  const auto alignment = file_.find_u64("general.alignment");
  if (!alignment) return alignment.error();
  if (!alignment->has_value()) return {};
  const uint64_t value = **alignment;
  if (!std::has_single_bit(value) || value < 8 || value > limits::gguf_alignment_bytes_max) {
    return bad("general.alignment is " + std::to_string(value) +
               "; it must be a power of two from 8 to " +
               std::to_string(limits::gguf_alignment_bytes_max));
  }
  file_.alignment_ = value;
  return {};
}

Result<void> GgufParser::read_tensors() {
  std::vector<uint64_t> offsets;
  offsets.reserve(tensor_count_);
  file_.tensors_.reserve(tensor_count_);
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    current_ = {};
    GgufTensor tensor;
    const auto offset = read_tensor(tensor);
    if (!offset) return offset.error();
    if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second) {
      return bad("the tensor appears twice");
    }
    offsets.push_back(*offset);
    file_.tensors_.push_back(tensor);
  }
  current_ = {};
  OUTRIDER_TRY(place_tensors(offsets));
  return check_overlap();
}

Result<uint64_t> GgufParser::read_tensor(GgufTensor& tensor) {
  const auto name = read_name(limits::gguf_tensor_name_bytes_max, "a tensor name");
  if (!name) return name.error();
  tensor.name = current_ = *name;
  OUTRIDER_TRY(read_shape(tensor));
  const auto type = read<uint32_t>("a tensor type");
  if (!type) return type.error();
  tensor.type = static_cast<kernels::WeightType>(*type);
  const auto* info = kernels::weight_type_info(tensor.type);
  if (info == nullptr) {
    return bad("tensor type " + std::to_string(*type) +
                   " is not one of F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K",
               ErrorCode::unsupported);
  }
  if (tensor.dims[0] % info->block_elements != 0) {
    return bad("rows of " + std::to_string(tensor.dims[0]) + " elements are no multiple of " +
               std::string(info->name) + "'s block of " + std::to_string(info->block_elements));
  }
  return read<uint64_t>("a tensor offset");
}

Result<void> GgufParser::read_shape(GgufTensor& tensor) {
  OUTRIDER_ASSIGN(tensor.dimensions, read<uint32_t>("a dimension count"));
  if (tensor.dimensions == 0 || tensor.dimensions > limits::gguf_dimensions_max) {
    return bad(std::to_string(tensor.dimensions) + " dimensions; 1 to " +
               std::to_string(limits::gguf_dimensions_max) + " are possible");
  }
  uint64_t elements = 1;
  for (uint32_t d = 0; d < tensor.dimensions; ++d) {
    const auto dim = read<uint64_t>("a dimension");
    if (!dim) return dim.error();
    if (*dim == 0) return bad("dimension " + std::to_string(d) + " is zero");
    if (*dim > limits::gguf_tensor_elements_max / elements) {
      return bad("more than " + std::to_string(limits::gguf_tensor_elements_max) + " elements",
                 ErrorCode::too_large);
    }
    elements *= *dim;
    tensor.dims[d] = *dim;
  }
  return {};
}

/// Tensor data begins at the next multiple of the alignment; offsets count from there.
Result<void> GgufParser::place_tensors(std::span<const uint64_t> offsets) {
  if (offsets.empty()) return {};
  const uint64_t mask = file_.alignment_ - 1;
  const uint64_t data_begin = (reader_.position() + mask) & ~mask;
  if (data_begin > file_.bytes_.size()) return bad("the file ends before its tensor data");
  const auto data = file_.bytes_.subspan(data_begin);
  for (size_t i = 0; i < offsets.size(); ++i) {
    GgufTensor& tensor = file_.tensors_[i];
    current_ = tensor.name;
    const auto& info = *kernels::weight_type_info(tensor.type);
    const uint64_t bytes = tensor.elements() / info.block_elements * info.block_bytes;
    if ((offsets[i] & mask) != 0) {
      return bad("data offset " + std::to_string(offsets[i]) + " is no multiple of the alignment " +
                 std::to_string(file_.alignment_));
    }
    if (offsets[i] > data.size() || bytes > data.size() - offsets[i]) {
      return bad("data of " + std::to_string(bytes) + " bytes at offset " +
                 std::to_string(offsets[i]) + " ends after the file, which holds " +
                 std::to_string(data.size()) + " bytes of tensor data");
    }
    tensor.data = data.subspan(offsets[i], bytes);
  }
  current_ = {};
  return {};
}

Result<void> GgufParser::check_overlap() const {
  std::vector<const GgufTensor*> order;
  order.reserve(file_.tensors_.size());
  for (const GgufTensor& tensor : file_.tensors_) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return a->data.data() < b->data.data();
  });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i]->data.data() < order[i - 1]->data.data() + order[i - 1]->data.size()) {
      return bad("the data of tensors '" + std::string(order[i - 1]->name) + "' and '" +
                 std::string(order[i]->name) + "' overlap");
    }
  }
  return {};
}

}  // namespace outrider::model
