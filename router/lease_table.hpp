#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "router/worker_table.hpp"
#include "schema/messages.hpp"

namespace outrider::router {

/// The draft that should take so many runs for this request: of those with its tokenizer and room
/// the one with the smallest share of its places taken; equal ones by a hash of request and draft.
/// `leased` counts this router's runs by worker, of which it gives no draft too many; what a draft
/// says that it holds has those of other routers, too. Null: none. Pure.
const WorkerView* choose_draft(const schema::LeaseDraft& ask, const WorkerTable& workers,
                               const std::map<uint64_t, uint32_t>& leased);

/// Who drafts for which request. Soft state: what is lost costs speed only. Owned by the router
/// actor.
class LeaseTable {
 public:
  /// To be sent.
  struct Grant {
    schema::TargetHandle to;
    schema::DraftLease lease;
  };

  /// Without a draft nothing is granted until there is one. Asked again it is the same lease, under
  /// a generation that the target takes, if another router's are ahead.
  std::vector<Grant> ask(const schema::LeaseDraft& ask, const WorkerTable& workers);
  /// Frees its places, which may go to those who wait.
  std::vector<Grant> end(const schema::EndLease& ended, const WorkerTable& workers);
  /// A draft has come.
  std::vector<Grant> grant_waiting(const WorkerTable& workers);
  /// A worker, which is no longer in the table, is gone: a draft's requests go to another one, if
  /// there is one, under the next generation; a target's are forgotten, and its places may go to
  /// those who wait.
  std::vector<Grant> drop(uint64_t worker, const WorkerTable& workers);

  /// Runs that a draft was leased for.
  uint32_t leased(uint64_t worker) const;
  size_t size() const { return leases_.size(); }

 private:
  struct Lease {
    schema::LeaseDraft ask;
    uint32_t generation = 0;
    uint64_t worker = 0;  ///< 0: waits.
  };
  using Key = std::pair<uint64_t, RequestKey>;  ///< target, request

  /// Whether a draft was found.
  bool place(Lease& lease, const WorkerTable& workers);
  static Grant grant_of(const Lease& lease, const WorkerTable& workers);
  void release(const Lease& lease);

  std::map<Key, Lease> leases_;
  std::map<uint64_t, uint32_t> leased_;  ///< Runs by draft; none of 0.
};

}  // namespace outrider::router
