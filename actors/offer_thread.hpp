#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/check.hpp"
#include "base/system.hpp"
#include "model/block_tier.hpp"

namespace outrider::actors {

/// Looks at what one engine's steps offer to a tier, whose locks are waited for here and not in a
/// step. Ends with its owner, the tier: its last member.
class OfferThread {
 public:
  OfferThread() = default;
  ~OfferThread() {
    stop_ = true;
    look();
    if (thread_.joinable()) thread_.join();
  }
  OfferThread(const OfferThread&) = delete;
  OfferThread& operator=(const OfferThread&) = delete;

  void start(std::string name, std::shared_ptr<model::TierOffers> offers, model::BlockTier& tier) {
    OUTRIDER_CHECK(!thread_.joinable(), "a tier serves one engine");
    thread_ = std::thread([this, name = std::move(name), offers = std::move(offers), &tier] {
      name_this_thread(name.c_str());
      while (!stop_) {
        const uint32_t seen = looks_;
        settle(*offers, tier);
        if (!stop_) looks_.wait(seen);
      }
    });
  }
  void look() {
    looks_.fetch_add(1);
    looks_.notify_one();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<uint32_t> looks_ = 0;
  std::thread thread_;
};

}  // namespace outrider::actors
