#include "kernels/cuda/step_graphs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <string>

#include "kernels/cuda/host_ops.test.hpp"
#include "kernels/cuda/staging.hpp"

namespace outrider::kernels::cuda {
namespace {

std::unique_ptr<Device> device_or_skip(const std::string& name) {
  if (name == "emulated") return make_emulated_device();
  auto device = open_device(0);
  return device.ok() ? std::move(device).value() : nullptr;
}

class GraphsOn : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    device_ = device_or_skip(GetParam());
    if (device_ == nullptr) OUTRIDER_SKIP_WITHOUT_GPU("no GPU");
  }
  template <class T>
  Ops::Buffer put(const std::vector<T>& values) {
    auto buffer = device_->allocate(values.size() * sizeof(T));
    set(buffer, values);
    return buffer;
  }
  template <class T>
  void set(const Ops::Buffer& buffer, const std::vector<T>& values) {
    device_->copy_in(buffer.get(), reinterpret_cast<const std::byte*>(values.data()),
                     values.size() * sizeof(T));
  }
  std::vector<float> get(const Ops::Buffer& buffer, size_t count) {
    std::vector<float> out(count);
    device_->copy_out(reinterpret_cast<std::byte*>(out.data()), buffer.get(),
                      count * sizeof(float));
    return out;
  }

  std::unique_ptr<Device> device_;
};

TEST_P(GraphsOn, ArgumentsStayAndMemoryIsReadWhenAGraphRuns) {
  const auto x = put<float>({1, 2, 3, 4}), other = put<float>({5, 6, 7, 8});
  const auto rows = put<uint32_t>({0, 1});
  const auto out = put<float>({0, 0});
  Gather kernel = {.x = reinterpret_cast<const float*>(x.get()),
                   .rows = reinterpret_cast<const uint32_t*>(rows.get()),
                   .width = 1,
                   .out = reinterpret_cast<float*>(out.get())};
  device_->begin_recording();
  device_->run({.x = 2, .threads = Gather::k_threads}, kernel);
  kernel.x = reinterpret_cast<const float*>(other.get());
  const auto graph = device_->end_recording();
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(get(out, 2), (std::vector<float>{0, 0})) << "nothing runs while it is recorded";
  device_->replay(*graph);
  EXPECT_EQ(get(out, 2), (std::vector<float>{1, 2}));
  set<uint32_t>(rows, {3, 2});
  set<float>(x, {1, 2, 30, 40});
  device_->replay(*graph);
  EXPECT_EQ(get(out, 2), (std::vector<float>{40, 30}));
}

/// Graphs point to the old memory, which is gone in any case.
TEST(DeviceScratch, CountsGrowthThatFindsNoMemory) {
  const auto device = make_emulated_device();
  uint64_t growths = 0;
  DeviceScratch scratch(*device, growths);
  scratch.take<std::byte>(1 << 20);
  EXPECT_EQ(growths, 1u);
  EXPECT_THROW(scratch.take<std::byte>(size_t{1} << 60), std::bad_alloc);
  EXPECT_EQ(growths, 2u);
  EXPECT_NE(scratch.take<std::byte>(1 << 10), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Cuda, GraphsOn, ::testing::Values("emulated", "gpu"),
                         [](const auto& name) { return name.param; });

TEST(CudaGraphsDeathTest, NothingElseMayBeAskedForWhileKernelsAreRecorded) {
  const auto device = make_emulated_device();
  const auto memory = device->allocate(64);
  std::byte bytes[64] = {};
  device->begin_recording();
  EXPECT_DEATH(device->copy_in(memory.get(), bytes, 64), "");
  EXPECT_DEATH(device->allocate(64), "");
  EXPECT_DEATH(device->synchronize(), "");
  device->end_recording();
  device->copy_in(memory.get(), bytes, 64);
}

/// Steps of one sequence each row, whose kernels are one.
class StepGraphsTest : public ::testing::Test {
 protected:
  explicit StepGraphsTest(uint32_t graphs_max = UINT32_MAX)
      : device_(make_emulated_device(
            {.multiprocessors = 132, .graphs_max = graphs_max, .counters = &counters_})),
        staging_(*device_, 1 << 16),
        graphs_(*device_, staging_, growths_) {
    sizes_ = {.rows = 24, .segments = 24, .positions = 4096, .heads = 4, .vocabulary = 1000};
    sizes_.geometry = {.layers = 1, .kv_heads = 2, .head_dim = 16};
    out_ = device_->allocate(4);
    graphs_.reserve(sizes_);
  }

  /// Rows of sequences at `position` and behind; whether they ran at once.
  bool step(uint32_t rows, uint32_t position) {
    ids_.resize(rows);
    std::iota(ids_.begin(), ids_.end(), 5);
    positions_.assign(rows, static_cast<int32_t>(position));
    table_.assign(position / 16 + 1, 7);
    segments_.clear();
    for (uint32_t i = 0; i < rows; ++i) segments_.push_back({table_.data(), i, 1, position});
    const Step call = {ids_, positions_, segments_, nullptr, &sizes_};
    if (!graphs_.begin(call)) return true;
    do {
      device_->run({.x = 1, .threads = Swiglu::k_threads}, Swiglu{});
    } while (!graphs_.end());
    return false;
  }
  /// The first runs by calls, the second one is recorded.
  void expect_new_kind(uint32_t rows, uint32_t position) {
    const uint64_t graphs = counters_.graphs;
    EXPECT_FALSE(step(rows, position)) << rows << ' ' << position;
    EXPECT_EQ(counters_.graphs, graphs);
    EXPECT_FALSE(step(rows, position)) << rows << ' ' << position;
    EXPECT_EQ(counters_.graphs, graphs + 1);
    EXPECT_TRUE(step(rows, position)) << rows << ' ' << position;
  }

  EmulatedCounters counters_;
  std::unique_ptr<Device> device_;
  Staging staging_;
  uint64_t growths_ = 0;
  StepGraphs graphs_;
  StepSizes sizes_;
  Ops::Buffer out_{nullptr, [](std::byte*) {}};
  std::vector<int32_t> ids_, positions_, table_;
  std::vector<Segment> segments_;
};

TEST_F(StepGraphsTest, RowsAndChunksShareAGraphUpToPowersOfTwo) {
  expect_new_kind(3, 100);
  EXPECT_TRUE(step(4, 127));
  EXPECT_TRUE(step(3, 5));
  EXPECT_TRUE(step(4, 128)) << "two chunks are not worth two blocks";
  expect_new_kind(4, 300);  // three, for which four have blocks
  EXPECT_TRUE(step(3, 511));
  expect_new_kind(5, 300);
  EXPECT_TRUE(step(8, 510));
  expect_new_kind(17, 5);
  EXPECT_TRUE(step(24, 9)) << "no more rows than there is room for";
  EXPECT_EQ(graphs_.inputs(), nullptr);
}

TEST_F(StepGraphsTest, ManyRowsAreNotRecorded) {
  sizes_.rows = 128;
  graphs_.reserve(sizes_);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(step(65, 5));
  EXPECT_EQ(counters_.graphs, 0u);
  expect_new_kind(64, 5);
}

TEST_F(StepGraphsTest, WhatKernelsReadIsPaddedWithNothing) {
  ids_ = {4, 9, 2};
  positions_ = {15, 16, 3};
  table_ = {3, 8};
  const int32_t other[] = {6};
  const Segment segments[] = {{table_.data(), 0, 2, 15}, {other, 2, 1, 3}};
  ASSERT_TRUE(graphs_.begin({ids_, positions_, segments, nullptr, &sizes_}));
  const StepInputs inputs = *graphs_.inputs();
  ASSERT_TRUE(graphs_.end());
  const auto read = [&]<class T>(const T* at, size_t count) {
    std::vector<T> out(count);
    device_->copy_out(reinterpret_cast<std::byte*>(out.data()),
                      reinterpret_cast<const std::byte*>(at), count * sizeof(T));
    return out;
  };
  EXPECT_EQ(inputs.rows, 4u);
  EXPECT_EQ(read(inputs.ids, 4), (std::vector<int32_t>{4, 9, 2, 0}));
  EXPECT_EQ(read(inputs.positions, 4), (std::vector<int32_t>{15, 16, 3, 0}));
  EXPECT_EQ(read(inputs.tables, 3), (std::vector<int32_t>{3, 8, 6}));
  const auto append = read(inputs.append, inputs.append_items);
  ASSERT_EQ(append.size(), 4u);
  EXPECT_EQ(append[1].first_position, 16u);
  EXPECT_EQ(append[2].table_at, 2u);
  EXPECT_EQ(append[3].rows, 0u);
  ASSERT_EQ(inputs.attention_items, 2u);
  EXPECT_EQ(read(inputs.attention, 2)[0].queries, 4u);
}

TEST_F(StepGraphsTest, GraphsOfMemoryThatMovedAreForgotten) {
  expect_new_kind(2, 9);
  DeviceScratch scratch(*device_, growths_);
  scratch.take<float>(100);
  expect_new_kind(2, 9);
  graphs_.reserve(sizes_);
  expect_new_kind(2, 9);
}

TEST_F(StepGraphsTest, KindsAreForgottenWhereThereAreMany) {
  std::vector<std::byte> pools(k_graphs_max + 1);
  ids_ = {1};
  positions_ = {0};
  table_ = {0};
  segments_ = {{table_.data(), 0, 1, 0}};
  const auto runs_at_once = [&](size_t pool) {
    if (!graphs_.begin({ids_, positions_, segments_, &pools[pool], &sizes_})) return true;
    EXPECT_TRUE(graphs_.end());
    return false;
  };
  for (size_t pool = 0; pool <= k_graphs_max; ++pool) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(runs_at_once(pool), i == 2);
    EXPECT_TRUE(runs_at_once(0)) << "it is always the one used last";
  }
  EXPECT_FALSE(runs_at_once(1));
  EXPECT_TRUE(runs_at_once(3));
}

class FewGraphsTest : public StepGraphsTest {
 protected:
  FewGraphsTest() : StepGraphsTest(1) {}
};

TEST_F(FewGraphsTest, WithoutMemoryForAnotherGraphStepsRunByCalls) {
  expect_new_kind(1, 9);
  const uint64_t kernels = counters_.kernels;
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(step(2, 9));
  EXPECT_EQ(counters_.kernels, kernels + 5) << "one was recorded, then run by a call";
  EXPECT_TRUE(step(1, 20));
}

TEST_F(StepGraphsTest, IdsAndPositionsAreCheckedWithoutCalls) {
  expect_new_kind(1, 9);
  ids_ = {1000};
  positions_ = {9};
  EXPECT_DEATH(graphs_.begin({ids_, positions_, segments_, nullptr, &sizes_}), "");
  ids_ = {0};
  positions_ = {4096};
  EXPECT_DEATH(graphs_.begin({ids_, positions_, segments_, nullptr, &sizes_}), "");
}

}  // namespace
}  // namespace outrider::kernels::cuda
