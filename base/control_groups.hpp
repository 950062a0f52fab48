#pragma once

#include <string>
#include <vector>

namespace outrider {

/// A directory with the files of one controller's limits.
struct ControlGroup {
  std::string directory;
  bool is_first_version = false;
};

/// The groups that the text of /proc/self/cgroup names, and those above them, for a controller
/// ("cpu", "memory"); some of the directories may not be there. `root` is where they are mounted.
std::vector<ControlGroup> control_groups(const std::string& proc_self_cgroup,
                                         const std::string& root, const std::string& controller);
/// Of this process.
std::vector<ControlGroup> own_control_groups(const std::string& controller);

/// The text of a file; empty if it cannot be read.
std::string text_of_file(const std::string& path);

}  // namespace outrider
