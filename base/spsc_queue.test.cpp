#include "base/spsc_queue.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <thread>

#include "base/philox.hpp"

namespace outrider {
namespace {

TEST(SpscQueue, BehavesLikeABoundedDeque) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    const size_t capacity = 1 + random.below(9);
    SpscQueue<uint64_t> queue(capacity);
    std::deque<uint64_t> twin;
    for (uint64_t i = 0; i < 5'000; ++i) {
      if (random.chance(0.5f)) {
        uint64_t* slot = queue.free_slot();
        ASSERT_EQ(slot != nullptr, twin.size() < capacity) << "seed " << seed << " at " << i;
        if (slot == nullptr) continue;
        *slot = i;
        queue.push();
        twin.push_back(i);
      } else {
        const size_t ahead = random.below(4);
        const uint64_t* there = queue.front(ahead);
        ASSERT_EQ(there != nullptr, ahead < twin.size()) << "seed " << seed << " at " << i;
        if (there == nullptr) continue;
        ASSERT_EQ(*there, twin[ahead]) << "seed " << seed << " at " << i;
        queue.pop(ahead + 1);
        twin.erase(twin.begin(), twin.begin() + static_cast<ptrdiff_t>(ahead + 1));
      }
      ASSERT_EQ(queue.size(), twin.size());
    }
  }
}

TEST(SpscQueue, GivesAnotherThreadEverythingOnceAndInOrder) {
  constexpr uint64_t k_count = 200'000;
  SpscQueue<std::vector<uint64_t>> queue(64, std::vector<uint64_t>(2));
  std::thread producer([&] {
    for (uint64_t i = 0; i < k_count;) {
      std::vector<uint64_t>* slot = queue.free_slot();
      if (slot == nullptr) {
        std::this_thread::yield();
        continue;
      }
      (*slot)[0] = i;
      (*slot)[1] = ~i++;
      queue.push();
    }
  });
  for (uint64_t expected = 0; expected < k_count;) {
    const std::vector<uint64_t>* element = queue.front();
    if (element == nullptr) {
      std::this_thread::yield();
      continue;
    }
    EXPECT_EQ((*element)[0], expected);
    EXPECT_EQ((*element)[1], ~expected++);
    queue.pop();
  }
  producer.join();
  EXPECT_EQ(queue.size(), 0u);
}

}  // namespace
}  // namespace outrider
