#include "model/fair_share.hpp"

#include <algorithm>

namespace outrider::model {

void FairShare::begin_step() {
  ++step_;
  if (wanting_ == 0) return;
  virtual_time_ += charged_ / wanting_;
  charged_ %= wanting_;
  wanting_ = 0;
}

void FairShare::want(const std::string& tenant, bool backlogged) {
  const auto [at, is_new] = accounts_.try_emplace(tenant);
  Account& account = at->second;
  if (is_new) account.number = numbers_++;
  if (account.seen != step_) {
    account.new_here = is_new || account.seen + 1 < step_;
    account.backlogged = false;
    account.seen = step_;
    ++wanting_;
  }
  account.backlogged |= backlogged;
}

void FairShare::settle() {
  uint64_t least = UINT64_MAX;
  uint64_t most = 0;
  for (const auto& [tenant, account] : accounts_) {
    most = std::max(most, account.served);
    const bool waits = account.seen == step_ && account.backlogged && !account.new_here;
    if (waits) least = std::min(least, account.served);
  }
  virtual_time_ = std::max(virtual_time_, least == UINT64_MAX ? most : least);
  for (auto& [tenant, account] : accounts_) {
    const bool lags_by_choice = account.new_here || !account.backlogged;
    if (account.seen == step_ && lags_by_choice) {
      account.served = std::max(account.served, virtual_time_);
    }
  }
  std::erase_if(accounts_, [&](const auto& entry) {
    return entry.second.seen != step_ && entry.second.served <= virtual_time_;
  });
}

FairShare::Account FairShare::of(const std::string& tenant) const {
  const auto at = accounts_.find(tenant);
  return at != accounts_.end() ? at->second
                               : Account{.served = virtual_time_, .number = UINT32_MAX};
}

void FairShare::charge(const std::string& tenant, uint32_t rows) {
  accounts_.at(tenant).served += rows;
  charged_ += rows;
}

}  // namespace outrider::model
