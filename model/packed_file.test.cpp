#include "model/packed_file.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace outrider::model {
namespace {

namespace fs = std::filesystem;

/// What a directory of packed weights holds besides them is not ours, however short its path is.
TEST(StalePackedFiles, FilesOfOtherNamesStay) {
  char home[] = "/tmp/oXXXXXX";
  ASSERT_NE(::mkdtemp(home), nullptr);
  std::vector<fs::path> files = {fs::path(home) / ".weights.part-abcdef",
                                 fs::path(home) / "a.weights.part-abcdefg",
                                 fs::path(home) / "a.weights.part-abcde"};
  for (std::string name = "x"; name.size() < 24; name += 'x') {
    files.push_back(fs::path(home) / name);
  }
  const fs::path stale = fs::path(home) / "a.weights.part-abcdef";
  for (const fs::path& path : files) std::ofstream(path) << "mine";
  std::ofstream(stale) << "a dead writer's";
  remove_stale_packed_files(home);
  for (const fs::path& path : files) EXPECT_TRUE(fs::exists(path)) << path;
  EXPECT_FALSE(fs::exists(stale));
  fs::remove_all(home);
}

}  // namespace
}  // namespace outrider::model
