#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace outrider::model {

/// How much each tenant was served: fair queueing over computed rows. The virtual time is what a
/// tenant with always enough to do would have been served; whoever comes, comes back, or had all
/// that it wanted starts there, so that nobody saves up credit and nobody pays for service that no
/// one else wanted. Deterministic. Owned by the engine.
class FairShare {
 public:
  struct Account {
    uint64_t served = 0;      ///< rows
    uint32_t number = 0;      ///< Decides between equals: first come.
    uint64_t seen = 0;        ///< The last step in which it wanted rows.
    bool new_here = true;     ///< It wanted none in the step before.
    bool backlogged = false;  ///< It wants more than a row for each running sequence.
  };

  /// Each step: `begin_step`, `want` for each sequence that wants rows, `settle`, then `of` and
  /// `charge`.
  void begin_step();
  void want(const std::string& tenant, bool backlogged);
  void settle();

  /// A tenant that wants nothing may be forgotten: then even with all, and after them.
  Account of(const std::string& tenant) const;
  void charge(const std::string& tenant, uint32_t rows);
  size_t accounts() const { return accounts_.size(); }

 private:
  std::map<std::string, Account> accounts_;
  uint64_t step_ = 0;
  uint64_t virtual_time_ = 0;  ///< rows; never goes back
  uint64_t charged_ = 0;       ///< rows of this step, and what the last division left
  uint64_t wanting_ = 0;       ///< tenants of this step
  uint32_t numbers_ = 0;
};

}  // namespace outrider::model
