#include "tests/golden/golden_file.hpp"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace outrider::golden {
namespace {

using nlohmann::json;

constexpr int k_format = 1;

Window parse_window(const json& from) {
  Window window;
  from.at("name").get_to(window.name);
  from.at("ids").get_to(window.ids);
  from.at("nll").get_to(window.nll);
  from.at("top1").get_to(window.top1);
  from.at("gap").get_to(window.gap);
  for (const json& entry : from.at("probes")) {
    Probe& probe = window.probes.emplace_back();
    entry.at("position").get_to(probe.position);
    entry.at("ids").get_to(probe.ids);
    entry.at("logprobs").get_to(probe.logprobs);
  }
  return window;
}

GreedyPath parse_path(const json& from) {
  GreedyPath path;
  from.at("name").get_to(path.name);
  from.at("prompt").get_to(path.prompt);
  from.at("ids").get_to(path.ids);
  from.at("logprobs").get_to(path.logprobs);
  from.at("gap").get_to(path.gap);
  return path;
}

bool well_formed(const Window& window) {
  const size_t predictions = window.nll.size();
  if (predictions == 0 || window.ids.size() != predictions + 1 ||
      window.top1.size() != predictions || window.gap.size() != predictions) {
    return false;
  }
  for (const Probe& probe : window.probes) {
    if (probe.position >= predictions || probe.ids.empty() ||
        probe.ids.size() != probe.logprobs.size()) {
      return false;
    }
  }
  return true;
}

bool well_formed(const GreedyPath& path) {
  return !path.prompt.empty() && !path.ids.empty() && path.logprobs.size() == path.ids.size() &&
         path.gap.size() == path.ids.size();
}

}  // namespace

Result<GoldenFile> parse_golden(std::string_view text) {
  GoldenFile file;
  try {
    const json root = json::parse(text);
    if (root.at("format").get<int>() != k_format) {
      return fail(ErrorCode::unsupported, "golden file of another format", "format");
    }
    root.at("model").get_to(file.model);
    root.at("sha256").get_to(file.sha256);
    for (const json& entry : root.at("windows")) {
      file.windows.push_back(parse_window(entry));
    }
    for (const json& entry : root.at("greedy")) {
      file.greedy.push_back(parse_path(entry));
    }
  } catch (const json::exception& error) {
    return fail(ErrorCode::corrupt, error.what());
  }
  for (const Window& window : file.windows) {
    if (!well_formed(window)) {
      return fail(ErrorCode::corrupt, "arrays of different lengths", window.name);
    }
  }
  for (const GreedyPath& path : file.greedy) {
    if (!well_formed(path)) {
      return fail(ErrorCode::corrupt, "arrays of different lengths", path.name);
    }
  }
  if (file.windows.empty()) {
    return fail(ErrorCode::corrupt, "nothing to compare", "windows");
  }
  return file;
}

Result<GoldenFile> read_golden(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    return fail(ErrorCode::io, "cannot read " + path);
  }
  return parse_golden(std::string(std::istreambuf_iterator<char>(stream), {}));
}

}  // namespace outrider::golden
