#include "base/regular_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace outrider {
namespace {

namespace fs = std::filesystem;

class RegularFiles : public testing::Test {
 protected:
  RegularFiles() {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  ~RegularFiles() override { fs::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  std::string written(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }

  const std::string directory_ = testing::TempDir() + "outrider_regular_files";
};

TEST_F(RegularFiles, AreReadWholeAlsoThroughLinks) {
  EXPECT_EQ(*read_regular_file(written("empty", ""), 10), "");
  const std::string text = std::string(200'000, 'x') + '\0' + "end";
  const std::string file = written("file", text);
  EXPECT_EQ(*read_regular_file(file, text.size()), text);
  fs::create_symlink(file, path("link"));
  EXPECT_EQ(*read_regular_file(path("link"), text.size()), text);
  const auto of_the_kernel = read_regular_file("/proc/self/stat", 4096);
  ASSERT_TRUE(of_the_kernel.ok()) << "which has a size of 0";
  EXPECT_FALSE(of_the_kernel->empty());
}

TEST_F(RegularFiles, AreNoLongerThanTheyMayBe) {
  const std::string file = written("file", "12345");
  EXPECT_EQ(*read_regular_file(file, 5), "12345");
  EXPECT_EQ(read_regular_file(file, 4).error().code, ErrorCode::too_large);
  EXPECT_EQ(read_regular_file(file, 4).error().message, "over 4 bytes");
  EXPECT_EQ(read_regular_file("/proc/self/status", 4).error().code, ErrorCode::too_large);
  fs::resize_file(file, uint64_t{1} << 40);
  EXPECT_EQ(read_regular_file(file, 1 << 20).error().code, ErrorCode::too_large);
}

TEST_F(RegularFiles, AreNeitherPipesNorDevicesNorDirectories) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", path("zeros"));
  for (const std::string& other : {path("pipe"), path("zeros"), std::string("/dev/null")}) {
    for (const auto access : {RegularFile::Access::read, RegularFile::Access::read_write}) {
      const auto opened = RegularFile::open(other, access);
      ASSERT_FALSE(opened.ok()) << other;
      EXPECT_EQ(opened.error().code, ErrorCode::invalid_argument);
      EXPECT_EQ(opened.error().message, "not a regular file");
    }
  }
  EXPECT_EQ(read_regular_file(directory_, 10).error().message, "a directory, not a regular file");
  EXPECT_EQ(read_regular_file(directory_, 10).error().code, ErrorCode::invalid_argument);
}

TEST_F(RegularFiles, ThatAreNotThereSaySo) {
  fs::create_symlink(path("gone"), path("dangling"));
  for (const char* name : {"gone", "dangling"}) {
    EXPECT_EQ(RegularFile::open(path(name)).error().code, ErrorCode::not_found);
    EXPECT_EQ(RegularFile::open(path(name)).error().message, "No such file or directory");
  }
  EXPECT_EQ(RegularFile::open(written("file", "") + "/below").error().code, ErrorCode::io);
}

TEST_F(RegularFiles, AreWrittenWhereThatIsAsked) {
  auto file = RegularFile::open(written("file", "old"), RegularFile::Access::read_write);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(::pwrite(file->descriptor(), "new", 3, 0), 3);
  EXPECT_EQ(*read_regular_file(path("file"), 10), "new");
  const int descriptor = file->release();
  EXPECT_LT(file->descriptor(), 0);
  EXPECT_EQ(::close(descriptor), 0) << "still open";
}

}  // namespace
}  // namespace outrider
