#include <cstring>
#include <iomanip>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "model/gguf.hpp"
#include "model/model_config.hpp"
#include "tools/command.hpp"
#include "tools/http_client.hpp"
#include "tools/inspect_kv.hpp"
#include "tools/inspect_plan.hpp"

namespace outrider::tools {
namespace {

template <class T>
std::string number_text(const model::GgufValue& value) {
  T number;
  std::memcpy(&number, value.bytes.data(), sizeof(T));
  std::ostringstream out;
  out << +number;
  return out.str();
}

std::string shortened(std::string_view text) {
  constexpr size_t k_shown = 60;
  std::string out;
  for (const char c : text.substr(0, k_shown)) {
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return '"' + out + (text.size() > k_shown ? "…" : "") + '"';
}

std::string value_text(const model::GgufValue& value) {
  using model::GgufType;
  if (value.is_array) {
    return std::to_string(value.count) + " x " + std::string(gguf_type_name(value.type));
  }
  switch (value.type) {
    case GgufType::u8:
      return number_text<uint8_t>(value);
    case GgufType::i8:
      return number_text<int8_t>(value);
    case GgufType::u16:
      return number_text<uint16_t>(value);
    case GgufType::i16:
      return number_text<int16_t>(value);
    case GgufType::u32:
      return number_text<uint32_t>(value);
    case GgufType::i32:
      return number_text<int32_t>(value);
    case GgufType::u64:
      return number_text<uint64_t>(value);
    case GgufType::i64:
      return number_text<int64_t>(value);
    case GgufType::f32:
      return number_text<float>(value);
    case GgufType::f64:
      return number_text<double>(value);
    case GgufType::boolean:
      return number_text<uint8_t>(value) == "0" ? "false" : "true";
    case GgufType::string:
      return shortened({reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()});
    case GgufType::array:
      break;
  }
  return "?";
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

int inspect_model(const std::string& name, bool tensors) {
  const auto path = resolve_model(name);
  if (!path) return report(path.error());
  const auto file = model::GgufFile::open(*path);
  if (!file) return report(file.error());
  std::cout << *path << ": GGUF v" << file->version() << ", " << file->file_bytes() << " bytes\n\n"
            << "metadata (" << file->metadata().size() << ")\n";
  for (const model::GgufEntry& entry : file->metadata()) {
    std::cout << "  " << std::left << std::setw(44) << entry.key << ' ' << value_text(entry.value)
              << '\n';
  }
  std::cout << "\ntensors (" << file->tensors().size() << ")\n";
  print_tensors(*file, tensors);
  const auto config = model::ModelConfig::from_gguf(*file);
  if (!config) return report(config.error());
  std::cout << "\nOutrider can run it: " << config->architecture << ", " << config->layers
            << " layers, context " << config->context_length << " tokens\n";
  return k_exit_done;
}

int inspect_cluster(const std::string& url, const std::string& api_key) {
  auto client = HttpClient::connect(url, api_key);
  if (!client) return report(client.error());
  const auto reply = (*client)->get("/cluster");
  if (!reply) return report(reply.error());
  const auto json = nlohmann::ordered_json::parse(reply->body, nullptr, false);
  std::cout << (json.is_discarded() ? reply->body : json.dump(2)) << '\n';
  return reply->status == 200 ? k_exit_done : k_exit_failed;
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto* inspect = app.add_subcommand(
      "inspect", "What is in a model file, a KV store, a KV plan or a running cluster");
  inspect->require_subcommand(1);
  auto* model = inspect->add_subcommand("model", "Metadata and tensors of a GGUF");
  auto name = std::make_shared<std::string>();
  auto tensors = std::make_shared<bool>(false);
  model->add_option("model", *name, "GGUF file, or a fetched name")->type_name("FILE")->required();
  model->add_flag("--tensors", *tensors, "list each tensor");
  model->footer("Example: outrider inspect model smollm2-135m --tensors");
  model->callback([name, tensors, &action] {
    action = [name, tensors] { return inspect_model(*name, *tensors); };
  });

  add_inspect_kv(*inspect, action);
  add_inspect_plan(*inspect, action);

  auto* cluster = inspect->add_subcommand("cluster", "Members, roles and load of a running server");
  auto url = std::make_shared<std::string>("http://127.0.0.1:8080");
  auto key = std::make_shared<std::string>();
  cluster->add_option("--url", *url, "HTTP address of a gateway [" + *url + "]")->type_name("URL");
  cluster->add_option("--api-key", *key, "API key, when the server wants one")->type_name("KEY");
  cluster->footer("What runs and waits is as of the last heartbeat.");
  cluster->callback(
      [url, key, &action] { action = [url, key] { return inspect_cluster(*url, *key); }; });
}

}  // namespace outrider::tools
