#include "gateway/viewer.hpp"

#include <algorithm>
#include <optional>

namespace outrider::gateway {
namespace {

/// The value of a series' label `tenant`. In values quotes are escaped, so none looks like a label.
std::optional<std::string> tenant_of_series(std::string_view line) {
  constexpr std::string_view k_label = "tenant=\"";
  size_t at = line.starts_with('#') ? line.npos : line.find(k_label);
  while (at != line.npos && (at == 0 || (line[at - 1] != '{' && line[at - 1] != ','))) {
    at = line.find(k_label, at + 1);
  }
  if (at == line.npos) return std::nullopt;
  std::string value;
  for (at += k_label.size(); at < line.size() && line[at] != '"'; ++at) {
    if (line[at] == '\\' && at + 1 < line.size()) {
      ++at;
      value += line[at] == 'n' ? '\n' : line[at];
    } else {
      value += line[at];
    }
  }
  return value;
}

}  // namespace

std::string visible_metrics(std::string text, const Viewer& viewer) {
  if (viewer.sees_all) return text;
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    const std::string_view line = std::string_view(text).substr(at, end - at);
    const auto tenant = tenant_of_series(line);
    if (!tenant || viewer.sees(*tenant)) out += line;
    at = end;
  }
  return out;
}

}  // namespace outrider::gateway
