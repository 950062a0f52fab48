// GGUF files: parsing, every kind of lookup, the model's configuration, and packing its weights.

#include <cstdint>
#include <cstdlib>
#include <span>

#include "model/gguf.hpp"
#include "model/model_config.hpp"
#include "model/weights.hpp"

namespace {

using namespace outrider;

// Sums keep the reads from being optimised away.
uint64_t sum = 0;

void read_metadata(const model::GgufFile& file) {
  for (const model::GgufEntry& entry : file.metadata()) {
    if (const auto value = file.find_u64(entry.key)) sum += value->value_or(0);
    if (const auto value = file.find_float(entry.key)) sum += value->has_value();
    if (const auto value = file.find_bool(entry.key)) sum += value->value_or(false);
    if (const auto value = file.get_string(entry.key)) {
      for (const char c : *value) sum += static_cast<uint8_t>(c);
    }
    if (const auto values = file.get_strings(entry.key)) {
      for (const std::string_view text : *values) sum += text.empty() ? 0 : uint8_t(text.back());
    }
    if (const auto values = file.get_i32_array(entry.key)) sum += values->size();
  }
}

void read_tensors(const model::GgufFile& file) {
  for (const model::GgufTensor& tensor : file.tensors()) {
    if (file.find_tensor(tensor.name) != &tensor) std::abort();
    for (const std::byte b : tensor.data) sum += std::to_integer<uint8_t>(b);
    if (const auto values = file.vector(tensor.name, tensor.dims[0])) sum += values->size();
    const auto matrix = file.matrix(tensor.name, tensor.dims[1], tensor.dims[0]);
    if (matrix.ok() != (tensor.dimensions == 2)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto ops = kernels::make_ref_ops();
  const auto file = model::GgufFile::parse(std::as_bytes(std::span(data, size)), "input");
  if (!file) {
    if (file.error().message.empty()) std::abort();
    return 0;
  }
  read_metadata(*file);
  read_tensors(*file);
  const auto config = model::ModelConfig::from_gguf(*file);
  if (!config) return 0;
  const auto weights = model::load_weights(*file, *config, *ops);
  if (weights && weights->layers.size() != config->layers) std::abort();
  return 0;
}
