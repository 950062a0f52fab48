#include "kvstore/cold_store.hpp"

#include <algorithm>

#include "base/limits.hpp"
#include "kvstore/cold_loads.hpp"
#include "kvstore/cold_writer.hpp"
#include "kvstore/store_core.hpp"

namespace outrider::kvstore {

struct ColdStore::Parts {
  Parts(ColdStoreOptions options, Surroundings surroundings, StoreEvents events)
      : core(std::move(options), std::move(surroundings), std::move(events)),
        writer(core),
        loads(core, writer) {}

  StoreCore core;
  ColdWriter writer;
  ColdLoads loads;
  std::once_flag closed;
};

ColdStore::ColdStore(ColdStoreOptions options, Surroundings surroundings, StoreEvents events)
    : parts_(std::make_unique<Parts>(std::move(options), std::move(surroundings),
                                     std::move(events))) {}

ColdStore::~ColdStore() {
  close();
}

void ColdStore::describe(const Digest256& ns, std::string text) {
  parts_->writer.describe(ns, std::move(text));
}

std::vector<bool> ColdStore::touch(std::span<const BlockId> chain, bool hint) {
  StoreCore& core = parts_->core;
  const int64_t now = core.now_s();
  const std::lock_guard lock(core.mutex);
  std::vector<bool> wanted = core.admission.touch(chain, hint);
  core.index.use(chain, now);
  core.counters.touched_blocks += chain.size();
  for (size_t i = 0; i < chain.size(); ++i) {
    const bool stored = core.index.find(chain[i]) != nullptr;
    if (stored && core.used.size() < limits::kv_uses_waiting_max) core.used.insert(chain[i]);
    if (stored || core.in_flight.contains(chain[i])) wanted[i] = false;
    core.counters.admitted_blocks += wanted[i] ? 1 : 0;
  }
  return wanted;
}

void ColdStore::put(std::vector<Block> blocks, PutOptions options) {
  parts_->writer.put(std::move(blocks), options);
}

uint64_t ColdStore::put_room() const {
  const uint64_t most = parts_->core.options.queue_bytes;
  const uint64_t queued = parts_->writer.queued_bytes();
  return queued == 0 ? UINT64_MAX : most - std::min(most, queued);
}

size_t ColdStore::match(const Digest256& ns, std::span<const BlockId> chain) const {
  const StoreCore& core = parts_->core;
  const int64_t now = core.now_s();
  const std::lock_guard lock(core.mutex);
  return core.database ? core.index.match(short_of(ns), chain, now) : 0;
}

void ColdStore::get(LoadRequest request, LoadHandlers handlers) {
  parts_->loads.get(std::move(request), std::move(handlers));
}

void ColdStore::pin(std::vector<BlockId> ids, int64_t expires_at,
                    std::function<void(PinSummary)> done) {
  parts_->writer.pin(std::move(ids), expires_at, std::move(done));
}

void ColdStore::unpin(std::vector<BlockId> ids, std::function<void(PinSummary)> done) {
  parts_->writer.unpin(std::move(ids), std::move(done));
}

void ColdStore::keep_until(std::vector<BlockId> ids, int64_t expires_at) {
  parts_->writer.keep_until(std::move(ids), expires_at);
}

void ColdStore::drop(std::vector<BlockId> ids) {
  parts_->writer.drop(std::move(ids));
}

void ColdStore::drop_all(const std::optional<std::string>& tenant,
                         std::function<void(Result<uint64_t>)> done) {
  const auto number = tenant ? std::optional(tenant_number(*tenant)) : std::nullopt;
  parts_->writer.drop_all(number, std::move(done));
}

ColdStats ColdStore::stats() const {
  ColdStats out;
  out.queued_bytes = parts_->writer.queued_bytes();
  out.loads_waiting = parts_->loads.waiting();
  {
    const StoreCore& core = parts_->core;
    const std::lock_guard lock(core.mutex);
    out.counters = core.counters;
    out.outage = core.outage;
    out.outage_text = core.outage_text;
    out.store_uuid = core.store_uuid;
    out.rows = core.index.rows();
    out.bytes = core.index.bytes();
    out.pinned_bytes = core.index.pinned_bytes();
    out.file_bytes = core.files.bytes;
    out.files = core.files.files;
    out.deleted_files = core.deleted_files;
    out.speed = core.speed;
    out.tenants = core.index.tenants();
    for (TenantUse& tenant : out.tenants) {
      const auto at = core.tenant_names.find(tenant.tenant);
      if (at != core.tenant_names.end()) tenant.stored_name = at->second;
    }
  }
  std::map<uint64_t, const std::string*> names;
  for (const auto& [name, bytes] : parts_->core.options.quota_bytes) {
    names.emplace(tenant_number(name), &name);
  }
  for (TenantUse& tenant : out.tenants) {
    if (const auto at = names.find(tenant.tenant); at != names.end()) tenant.name = *at->second;
  }
  return out;
}

bool ColdStore::wait_open(Duration most) {
  return parts_->writer.wait_open(most);
}

void ColdStore::drain() {
  parts_->writer.drain();
}

void ColdStore::lift_write_limit() {
  parts_->writer.lift_write_limit();
}
void ColdStore::close() {
  std::call_once(parts_->closed, [this] {
    parts_->loads.close();
    parts_->writer.close();
  });
}

}  // namespace outrider::kvstore
