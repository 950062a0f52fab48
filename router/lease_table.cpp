#include "router/lease_table.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <tuple>

#include "base/hash.hpp"
#include "base/limits.hpp"

namespace outrider::router {
namespace {

uint64_t tie(const schema::LeaseDraft& ask, uint64_t worker) {
  const std::array<uint64_t, 3> words = {ask.target, ask.request.session, worker};
  return hash64(std::as_bytes(std::span(words)));
}

}  // namespace

const WorkerView* choose_draft(const schema::LeaseDraft& ask, const WorkerTable& workers,
                               const std::map<uint64_t, uint32_t>& leased) {
  const WorkerView* best = nullptr;
  std::tuple<double, uint64_t> least;
  for (const auto& [id, worker] : workers.workers()) {
    const schema::Announce& draft = worker.announce;
    if (draft.role != schema::Role::draft || draft.tokenizer != ask.tokenizer) continue;
    const auto held = leased.find(id);
    const uint32_t own = held == leased.end() ? 0 : held->second;
    if (uint64_t{own} + ask.runs > draft.sequences) continue;
    const double taken = double{1} * std::max(own, worker.load.draft_runs) + ask.runs;
    const std::tuple cost(taken / draft.sequences, tie(ask, id));
    if (best != nullptr && cost >= least) continue;
    best = &worker;
    least = cost;
  }
  return best;
}

bool LeaseTable::place(Lease& lease, const WorkerTable& workers) {
  const WorkerView* draft = choose_draft(lease.ask, workers, leased_);
  if (draft == nullptr) return false;
  ++lease.generation;
  lease.worker = draft->announce.worker;
  leased_[lease.worker] += lease.ask.runs;
  return true;
}

LeaseTable::Grant LeaseTable::grant_of(const Lease& lease, const WorkerTable& workers) {
  const auto worker = workers.workers().find(lease.worker);
  const bool is_there = worker != workers.workers().end();
  return {lease.ask.reply_to,
          {lease.ask.request, lease.generation, lease.worker,
           is_there ? worker->second.announce.draft : schema::DraftHandle()}};
}

std::vector<LeaseTable::Grant> LeaseTable::ask(const schema::LeaseDraft& ask,
                                               const WorkerTable& workers) {
  if (!ask.reply_to || ask.runs == 0) return {};
  const Key key(ask.target, ask.request);
  auto at = leases_.find(key);
  if (at == leases_.end()) {
    if (leases_.size() >= limits::draft_leases_max) return {};
    at = leases_.emplace(key, Lease{ask, ask.generation, 0}).first;
  }
  Lease& lease = at->second;
  lease.ask.reply_to = ask.reply_to;
  // Another router has leased it meanwhile. What is granted must be newer to be taken.
  if (ask.generation > lease.generation) {
    lease.generation = ask.generation + (lease.worker == 0 ? 0 : 1);
  }
  if (lease.worker == 0 && !place(lease, workers)) return {};
  return {grant_of(lease, workers)};
}

void LeaseTable::release(const Lease& lease) {
  const auto held = leased_.find(lease.worker);
  if (held == leased_.end()) return;
  held->second -= lease.ask.runs;
  if (held->second == 0) leased_.erase(held);
}

std::vector<LeaseTable::Grant> LeaseTable::end(const schema::EndLease& ended,
                                               const WorkerTable& workers) {
  const auto found = leases_.find({ended.target, ended.request});
  if (found == leases_.end()) return {};
  release(found->second);
  leases_.erase(found);
  return grant_waiting(workers);
}

std::vector<LeaseTable::Grant> LeaseTable::grant_waiting(const WorkerTable& workers) {
  std::vector<Grant> grants;
  for (auto& [key, lease] : leases_) {
    if (lease.worker == 0 && place(lease, workers)) grants.push_back(grant_of(lease, workers));
  }
  return grants;
}

std::vector<LeaseTable::Grant> LeaseTable::drop(uint64_t worker, const WorkerTable& workers) {
  std::vector<Grant> grants;
  std::erase_if(leases_, [&](const auto& entry) {
    if (entry.first.first != worker) return false;
    release(entry.second);
    return true;
  });
  leased_.erase(worker);
  for (auto& [key, lease] : leases_) {
    if (lease.worker != worker) continue;
    lease.worker = 0;
    if (!place(lease, workers)) ++lease.generation;
    grants.push_back(grant_of(lease, workers));
  }
  // What a target held is free now.
  for (Grant& grant : grant_waiting(workers)) grants.push_back(std::move(grant));
  return grants;
}

uint32_t LeaseTable::leased(uint64_t worker) const {
  const auto held = leased_.find(worker);
  return held == leased_.end() ? 0 : held->second;
}

}  // namespace outrider::router
