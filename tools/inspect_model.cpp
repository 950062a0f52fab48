#include "tools/inspect_model.hpp"

#include <cstring>
#include <iomanip>
#include <iostream>
#include <map>
#include <sstream>

#include "model/model_config.hpp"

namespace outrider::tools {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
T number(const model::GgufValue& value) {
  T out;
  std::memcpy(&out, value.bytes.data(), sizeof(T));
  return out;
}

std::string_view string_of(const model::GgufValue& value) {
  return {reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()};
}

std::string shortened(std::string_view text) {
  constexpr size_t k_shown = 60;
  std::string out;
  for (const char c : text.substr(0, k_shown)) {
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return '"' + out + (text.size() > k_shown ? "…" : "") + '"';
}

/// Null for an array.
Json value_json(const model::GgufValue& value) {
  using model::GgufType;
  if (value.is_array) return {};
  switch (value.type) {
    case GgufType::u8:
      return number<uint8_t>(value);
    case GgufType::i8:
      return number<int8_t>(value);
    case GgufType::u16:
      return number<uint16_t>(value);
    case GgufType::i16:
      return number<int16_t>(value);
    case GgufType::u32:
      return number<uint32_t>(value);
    case GgufType::i32:
      return number<int32_t>(value);
    case GgufType::u64:
      return number<uint64_t>(value);
    case GgufType::i64:
      return number<int64_t>(value);
    case GgufType::f32:
      return number<float>(value);
    case GgufType::f64:
      return number<double>(value);
    case GgufType::boolean:
      return number<uint8_t>(value) != 0;
    case GgufType::string:
      return std::string(string_of(value));
    case GgufType::array:
      break;
  }
  return {};
}

std::string value_text(const model::GgufValue& value) {
  if (value.is_array) {
    return std::to_string(value.count) + " x " + std::string(gguf_type_name(value.type));
  }
  if (value.type == model::GgufType::string) return shortened(string_of(value));
  const Json json = value_json(value);
  if (!json.is_number_float()) return json.dump();
  std::ostringstream out;
  out << json.get<double>();
  return out.str();
}

void print_tensors(const model::GgufFile& file, bool each) {
  std::map<std::string, std::pair<uint64_t, uint64_t>> by_type;  // count, bytes
  for (const model::GgufTensor& tensor : file.tensors()) {
    const auto* info = kernels::weight_type_info(tensor.type);
    auto& [count, bytes] = by_type[std::string(info->name)];
    ++count;
    bytes += tensor.data.size();
    if (each) {
      std::cout << "  " << std::left << std::setw(32) << tensor.name << std::setw(6) << info->name
                << shape_text(tensor) << '\n';
    }
  }
  for (const auto& [type, sums] : by_type) {
    std::cout << "  " << std::left << std::setw(6) << type << std::right << std::setw(6)
              << sums.first << " tensors " << std::setw(14) << sums.second << " bytes\n";
  }
}

int inspect_model(const std::string& name, bool tensors, bool json) {
  const auto path = resolve_model(name);
  if (!path) return report(path.error());
  const auto file = model::GgufFile::open(*path);
  if (!file) return report(file.error());
  const auto config = model::ModelConfig::from_gguf(*file);
  if (json) {
    std::cout << model_json(*file).dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
    return config ? k_exit_done : report(config.error());
  }
  std::cout << *path << ": GGUF v" << file->version() << ", " << file->file_bytes() << " bytes\n\n"
            << "metadata (" << file->metadata().size() << ")\n";
  for (const model::GgufEntry& entry : file->metadata()) {
    std::cout << "  " << std::left << std::setw(44) << entry.key << ' ' << value_text(entry.value)
              << '\n';
  }
  std::cout << "\ntensors (" << file->tensors().size() << ")\n";
  print_tensors(*file, tensors);
  if (!config) return report(config.error());
  std::cout << "\nOutrider can run it: " << config->architecture << ", " << config->layers
            << " layers, context " << config->context_length << " tokens\n";
  return k_exit_done;
}

}  // namespace

Json model_json(const model::GgufFile& file) {
  Json out = {{"file", file.name()},
              {"version", file.version()},
              {"bytes", file.file_bytes()},
              {"metadata", Json::object()},
              {"tensors", Json::array()}};
  for (const auto& [key, value] : file.metadata()) {
    out["metadata"][std::string(key)] =
        value.is_array ? Json{{"array_of", gguf_type_name(value.type)}, {"count", value.count}}
                       : value_json(value);
  }
  for (const model::GgufTensor& tensor : file.tensors()) {
    Json shape = Json::array();  // rows first
    for (uint32_t i = tensor.dimensions; i > 0; --i) shape.push_back(tensor.dims[i - 1]);
    out["tensors"].push_back({{"name", tensor.name},
                              {"type", kernels::weight_type_info(tensor.type)->name},
                              {"shape", std::move(shape)},
                              {"bytes", tensor.data.size()}});
  }
  if (const auto config = model::ModelConfig::from_gguf(file); config) {
    out["config"] = {{"architecture", config->architecture},
                     {"layers", config->layers},
                     {"vocab", config->vocab},
                     {"context_length", config->context_length}};
  } else {
    out["config_error"] = config.error().message;
  }
  return out;
}

void add_inspect_model(CLI::App& inspect, Action& action) {
  auto* model = inspect.add_subcommand("model", "Metadata and tensors of a GGUF");
  auto name = std::make_shared<std::string>();
  auto tensors = std::make_shared<bool>(false);
  auto json = std::make_shared<bool>(false);
  model->add_option("model", *name, "GGUF file, or a fetched name")->type_name("FILE")->required();
  model->add_flag("--tensors", *tensors, "list each tensor");
  model->add_flag("--json", *json, "as one JSON object, with each tensor");
  model->footer("Example: outrider inspect model smollm2-135m --tensors");
  model->callback([name, tensors, json, &action] {
    action = [name, tensors, json] { return inspect_model(*name, *tensors, *json); };
  });
}

}  // namespace outrider::tools
