#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/control_groups.hpp"
#include "base/system.hpp"

namespace outrider::testing_support {

/// A directory with control groups, gone with it.
class ControlGroups {
 public:
  ControlGroups()
      : root_(testing::TempDir() + "outrider-cgroup-" + std::to_string(random_bits())) {}
  ~ControlGroups() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  ControlGroups(const ControlGroups&) = delete;
  ControlGroups& operator=(const ControlGroups&) = delete;

  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + file).parent_path());
    std::ofstream(root_ + file) << text;
  }
  std::vector<ControlGroup> of(const std::string& proc_self_cgroup,
                               const std::string& controller) const {
    return control_groups(proc_self_cgroup, root_, controller);
  }

 private:
  std::string root_;
};

}  // namespace outrider::testing_support
