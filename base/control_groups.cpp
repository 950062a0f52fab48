#include "base/control_groups.hpp"

#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

namespace outrider {
namespace {

/// One line of /proc/self/cgroup: "number:controllers:path", without controllers for version 2.
struct GroupLine {
  std::string controllers;
  std::string path;
};
std::optional<GroupLine> parse_group(const std::string& line) {
  const size_t first = line.find(':');
  const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
  if (second == std::string::npos || line.substr(second + 1, 1) != "/") return std::nullopt;
  return GroupLine{line.substr(first + 1, second - first - 1), line.substr(second + 1)};
}

bool has(const std::string& controllers, const std::string& controller) {
  return (',' + controllers + ',').find(',' + controller + ',') != std::string::npos;
}

}  // namespace

std::vector<ControlGroup> control_groups(const std::string& proc_self_cgroup,
                                         const std::string& root, const std::string& controller) {
  // A container may not see where its group lies, but it sees it as the root.
  std::vector<GroupLine> lines = {{"", "/"}, {controller, "/"}};
  std::istringstream text{proc_self_cgroup};
  for (std::string line; std::getline(text, line);) {
    if (auto group = parse_group(line)) lines.push_back(std::move(*group));
  }
  std::vector<ControlGroup> groups;
  for (auto& [controllers, path] : lines) {
    const bool is_first_version = has(controllers, controller);
    if (!is_first_version && !controllers.empty()) continue;
    while (true) {
      if (is_first_version) {
        groups.push_back({root + '/' + controller + path, true});
        groups.push_back({root + '/' + controllers + path, true});
      } else {
        groups.push_back({root + path, false});
      }
      if (path.empty() || path == "/") break;
      path.resize(path.rfind('/'));
    }
  }
  return groups;
}

std::vector<ControlGroup> own_control_groups(const std::string& controller) {
  return control_groups(text_of_file("/proc/self/cgroup"), "/sys/fs/cgroup", controller);
}

std::string text_of_file(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace outrider
