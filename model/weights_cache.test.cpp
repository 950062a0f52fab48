#include "model/weights_cache.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "model/generator.hpp"
#include "model/packed_file.hpp"

namespace outrider::model {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A model of its own in a directory of its own, with a cache beside it.
class WeightsCacheTest : public testing::Test {
 protected:
  WeightsCacheTest() {
    fs::create_directories(home_);
    fs::copy_file("tests/support/models/tiny-llama.gguf", gguf_);
  }
  ~WeightsCacheTest() override { fs::remove_all(home_); }

  Result<std::shared_ptr<const LoadedModel>> load(const std::string& path, bool cached = true,
                                                  std::shared_ptr<kernels::Ops> ops = nullptr) {
    warnings_.clear();
    if (ops == nullptr) ops = kernels::make_cpu_ops(2, kernels::default_isa());
    LoadOptions options;
    if (cached) options.cache_directory = cache_;
    options.progress = [this](uint64_t, uint64_t) { return progress_left_-- > 0; };
    options.warn = [this](const std::string& text) { warnings_.push_back(text); };
    return load_model(path, std::move(ops), options);
  }
  std::shared_ptr<const LoadedModel> load_well(bool cached = true) {
    auto model = load(gguf_, cached);
    EXPECT_TRUE(model) << model.error().message;
    return *model;
  }

  std::vector<fs::path> cache_files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(cache_)) files.push_back(entry.path());
    return files;
  }
  PackedFile::Header header() const {
    PackedFile::Header out;
    const std::string bytes = read_file(cache_files().front());
    EXPECT_GE(bytes.size(), sizeof(out));
    std::memcpy(static_cast<void*>(&out), bytes.data(), sizeof(out));
    return out;
  }

  /// The same weights as without a cache, in all matrices.
  void expect_same(const LoadedModel& model) {
    const auto warnings = warnings_;
    const auto plain = load_well(false);
    warnings_ = warnings;
    EXPECT_EQ(model.weights.digest, plain->weights.digest);
    EXPECT_EQ(model.weights.file_bytes, plain->weights.file_bytes);
    const auto same = [](const kernels::Matrix& a, const kernels::Matrix& b) {
      return a.rows() == b.rows() && a.cols() == b.cols() &&
             std::ranges::equal(a.packed(), b.packed());
    };
    EXPECT_TRUE(same(*model.weights.token_embd, *plain->weights.token_embd));
    for (size_t i = 0; i < plain->weights.layers.size(); ++i) {
      const LayerWeights& a = model.weights.layers[i];
      const LayerWeights& b = plain->weights.layers[i];
      EXPECT_TRUE(same(*a.attn_q, *b.attn_q) && same(*a.attn_k, *b.attn_k) &&
                  same(*a.attn_v, *b.attn_v) && same(*a.attn_output, *b.attn_output) &&
                  same(*a.ffn_gate, *b.ffn_gate) && same(*a.ffn_up, *b.ffn_up) &&
                  same(*a.ffn_down, *b.ffn_down))
          << i;
      const std::span norm(a.attn_norm.data(), a.attn_norm.size());
      EXPECT_TRUE(std::ranges::equal(norm, std::span(b.attn_norm.data(), b.attn_norm.size())));
    }
  }

  /// Loading must not use the cache, must say why, and must go well.
  void expect_refused(const std::string& reason) {
    const auto model = load_well();
    EXPECT_FALSE(model->weights.from_cache) << reason;
    ASSERT_FALSE(warnings_.empty()) << reason;
    EXPECT_THAT(warnings_.front(), AllOf(HasSubstr("weights cache not used"), HasSubstr(reason)));
    expect_same(*model);
  }

  const std::string home_ = testing::TempDir() + "outrider_cache_" +
                            testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::string gguf_ = home_ + "/tiny.gguf";
  const std::string cache_ = home_ + "/cache/deep";
  std::vector<std::string> warnings_;
  int progress_left_ = INT_MAX;
};

std::vector<TokenOut> answer(std::shared_ptr<const LoadedModel> model) {
  EngineOptions options;
  options.kv_memory_bytes = uint64_t{4} << 20;
  auto generator = Generator::create(std::move(model), options);
  EXPECT_TRUE(generator) << generator.error().message;
  GenerationRequest request = (*generator)->request("cache");
  request.sampling.seed = 7;
  request.stop.max_tokens = 40;
  request.logprobs = 3;
  return (*generator)->generate(std::move(request))->front().tokens;
}

TEST_F(WeightsCacheTest, TheSecondStartUsesWhatTheFirstOneWrote) {
  const auto first = load_well();
  EXPECT_FALSE(first->weights.from_cache);
  const auto second = load_well();
  EXPECT_TRUE(second->weights.from_cache);
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_EQ(cache_files().size(), 1u);
  expect_same(*second);
  EXPECT_EQ(answer(second), answer(load_well(false)));
}

TEST_F(WeightsCacheTest, WeightsOutliveTheirFile) {
  load_well();
  const auto model = load_well();
  ASSERT_TRUE(model->weights.from_cache);
  fs::remove_all(cache_);
  expect_same(*model);
}

TEST_F(WeightsCacheTest, ACopyOfTheModelIsRecognisedByItsDigestAndThenByItself) {
  load_well();
  const FileIdentity before = header().source;
  fs::copy_file(gguf_, home_ + "/other");
  fs::remove(gguf_);
  fs::rename(home_ + "/other", gguf_);
  const auto model = load_well();
  EXPECT_TRUE(model->weights.from_cache);
  EXPECT_THAT(warnings_, IsEmpty());
  expect_same(*model);
  EXPECT_NE(header().source, before);
  EXPECT_EQ(header().source, *GgufFile::open(gguf_)->identity());
}

TEST_F(WeightsCacheTest, AnotherModelOfTheSameShapesIsPackedAndReplacesIt) {
  load_well();
  std::string bytes = read_file(gguf_);
  bytes.back() ^= 1;
  write_file(gguf_, bytes);
  expect_refused("of another model");
  EXPECT_TRUE(load_well()->weights.from_cache);
  EXPECT_EQ(cache_files().size(), 1u);
}

TEST_F(WeightsCacheTest, AnotherBackEndsPackingIsNotTaken) {
  load_well();
  const auto model = load(gguf_, true, kernels::make_ref_ops());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_FALSE((*model)->weights.from_cache);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("packed otherwise")));
  const auto again = load(gguf_, true, kernels::make_ref_ops());
  EXPECT_TRUE((*again)->weights.from_cache);
  EXPECT_EQ((*again)->weights.digest, (*model)->weights.digest);
  expect_refused("packed otherwise");
}

TEST_F(WeightsCacheTest, ADamagedFileIsReplaced) {
  load_well();
  const std::string good = read_file(cache_files().front());
  for (const size_t at : {size_t{0}, size_t{20}, sizeof(PackedFile::Header) + 3, good.size() - 1}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 16);
    write_file(cache_files().front(), bad);
    expect_refused(cache_files().front());
    EXPECT_EQ(read_file(cache_files().front()).substr(200), good.substr(200)) << at;
  }
  for (const size_t size : {size_t{0}, size_t{7}, sizeof(PackedFile::Header), good.size() - 1}) {
    write_file(cache_files().front(), good.substr(0, size));
    expect_refused(cache_files().front());
  }
  EXPECT_TRUE(load_well()->weights.from_cache);
}

TEST_F(WeightsCacheTest, EachBitOfTheHeaderAndOfTheMatricesCounts) {
  load_well();
  const fs::path path = cache_files().front();
  const PackedFile::Header is = header();
  const std::string good = read_file(path);
  const size_t head = sizeof(is) + is.matrices * sizeof(PackedFile::Entry);
  std::fstream bytes(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](size_t at, char value) {
    bytes.seekp(static_cast<std::streamoff>(at)).put(value).flush();
  };
  for (size_t at = 0; at < good.size(); at += at < head ? 1 : 2039) {
    put(at, static_cast<char>(good[at] ^ (1 << at % 8)));
    const auto file = PackedFile::open(path, is.key, is.matrices);
    EXPECT_EQ(file.ok(), at >= head) << at;
    if (!file) {
      put(at, good[at]);
      continue;
    }
    size_t damaged = 0;
    bool inside = false;
    for (size_t i = 0; i < is.matrices; ++i) {
      if (!file->is_intact(i)) ++damaged;
      const auto offset = static_cast<size_t>(file->matrix(i).data() - file->matrix(0).data()) +
                          PackedFile::k_alignment;
      inside |= at >= offset && at < offset + file->matrix(i).size();
    }
    EXPECT_EQ(damaged, inside ? 1u : 0u) << at;
    put(at, good[at]);
  }
}

/// What a header says is checked even when its sums are right.
TEST_F(WeightsCacheTest, AHeaderThatLeadsOutsideIsRefused) {
  load_well();
  const fs::path path = cache_files().front();
  const std::string good = read_file(path);
  const PackedFile::Header is = header();
  const auto refused = [&](auto change, uint64_t matrices, const char* reason) {
    PackedFile::Header bad = is;
    std::vector<PackedFile::Entry> entries(is.matrices);
    const size_t table = entries.size() * sizeof(entries[0]);
    std::memcpy(entries.data(), good.data() + sizeof(bad), table);
    change(bad, entries);
    bad.entries_sum = hash128(std::as_bytes(std::span(entries)));
    bad.own_sum =
        hash128(std::as_bytes(std::span(&bad, 1)).first(offsetof(PackedFile::Header, own_sum)));
    std::string bytes = good;
    std::memcpy(bytes.data(), &bad, sizeof(bad));
    std::memcpy(bytes.data() + sizeof(bad), entries.data(), table);
    write_file(path, bytes);
    const auto file = PackedFile::open(path, is.key, matrices);
    ASSERT_FALSE(file) << reason;
    EXPECT_THAT(file.error().message, HasSubstr(reason));
  };
  using Header = PackedFile::Header;
  using Entries = std::vector<PackedFile::Entry>;
  const uint64_t n = is.matrices;
  refused([](Header& h, Entries&) { h.matrices += 1; }, n, "another network");
  refused([](Header& h, Entries&) { h.matrices = UINT64_MAX; }, UINT64_MAX, "list of matrices");
  refused([](Header& h, Entries&) { h.matrices = 1u << 30; }, 1u << 30, "list of matrices");
  refused([](Header& h, Entries&) { h.file_bytes -= 1; }, n, "its header says");
  refused([](Header& h, Entries&) { h.key[3] ^= 1; }, n, "another network");
  refused([](Header&, Entries& e) { e[1].offset += 64; }, n, "outside");
  refused([](Header&, Entries& e) { e[1].offset = 0; }, n, "outside");
  refused([](Header&, Entries& e) { e[2].offset = uint64_t{1} << 62; }, n, "outside");
  refused([](Header&, Entries& e) { e[2].bytes = UINT64_MAX; }, n, "outside");
  refused([](Header&, Entries& e) { e[2].bytes = UINT64_MAX - e[2].offset + 1; }, n, "outside");
  refused([](Header&, Entries& e) { e.back().bytes += 1; }, n, "outside");
}

TEST_F(WeightsCacheTest, AMatrixOfAnotherSizeIsRefused) {
  load_well();
  const fs::path path = cache_files().front();
  std::string bytes = read_file(path);
  PackedFile::Header head = header();
  std::vector<PackedFile::Entry> entries(head.matrices);
  const size_t table = entries.size() * sizeof(entries[0]);
  std::memcpy(entries.data(), bytes.data() + sizeof(head), table);
  entries[1].bytes -= 64;
  entries[1].sum =
      hash128(std::as_bytes(std::span(bytes)).subspan(entries[1].offset, entries[1].bytes));
  head.entries_sum = hash128(std::as_bytes(std::span(entries)));
  head.own_sum =
      hash128(std::as_bytes(std::span(&head, 1)).first(offsetof(PackedFile::Header, own_sum)));
  std::memcpy(bytes.data(), &head, sizeof(head));
  std::memcpy(bytes.data() + sizeof(head), entries.data(), table);
  write_file(path, bytes);
  expect_refused("unexpected size");
}

TEST_F(WeightsCacheTest, WhatIsNoFileIsNotTaken) {
  load_well();
  const fs::path path = cache_files().front();
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_refused("not a regular file");
  EXPECT_TRUE(load_well()->weights.from_cache) << "the pipe was replaced";
  fs::remove(path);
  fs::create_directories(path / "x");
  expect_refused("not a regular file");
  EXPECT_THAT(warnings_.back(), HasSubstr("weights cache not written"));
  EXPECT_EQ(cache_files().size(), 1u);
}

TEST_F(WeightsCacheTest, ADirectoryThatCannotBeWrittenIsAWarning) {
  write_file(home_ + "/cache", "a file");
  const auto model = load_well();
  EXPECT_THAT(warnings_.back(), HasSubstr("weights cache not written"));
  expect_same(*model);
}

/// The kernel refuses writes past a limit, as a full disk does.
TEST_F(WeightsCacheTest, AFullDiskIsAWarningAndLeavesNothing) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 50'000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto model = load_well();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("weights cache not written")));
  EXPECT_THAT(cache_files(), IsEmpty());
  expect_same(*model);
}

TEST_F(WeightsCacheTest, PartsOfDeadWritersGoAndOthersStay) {
  fs::create_directories(cache_);
  const fs::path dead = cache_ + "/some-0123456789abcdef.weights.part-aB3xYz";
  const fs::path alive = cache_ + "/some-0123456789abcdef.weights.part-LIVING";
  const fs::path foreign = cache_ + "/my.part-aB3xYz";
  const fs::path longer = cache_ + "/some.weights.part-aB3xYz.txt";
  for (const fs::path& path : {dead, alive, foreign, longer}) write_file(path, "x");
  const int writer = ::open(alive.c_str(), O_RDONLY);
  ASSERT_EQ(::flock(writer, LOCK_EX), 0);
  load_well();
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(alive) && fs::exists(foreign) && fs::exists(longer));
  ::close(writer);
  load_well();
  EXPECT_FALSE(fs::exists(alive));
}

TEST_F(WeightsCacheTest, LoadingStopsAtAnyMomentAndLeavesNothing) {
  int calls = 0;
  for (;; ++calls) {
    progress_left_ = calls;
    const auto model = load(gguf_);
    if (model) break;
    ASSERT_EQ(model.error().code, ErrorCode::cancelled);
    if (fs::exists(cache_)) {
      EXPECT_THAT(cache_files(), IsEmpty());
    }
  }
  EXPECT_GT(calls, 30) << "packing and writing";
  progress_left_ = 0;
  EXPECT_EQ(load(gguf_).error().code, ErrorCode::cancelled) << "reading the cache";
}

}  // namespace
}  // namespace outrider::model
