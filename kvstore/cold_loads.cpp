#include "kvstore/cold_loads.hpp"

#include <algorithm>

#include "base/system.hpp"

namespace outrider::kvstore {
namespace {

/// Of a row without a record. One that is younger than a table that is there was lost.
bool has_aged_out(const Row& row, const Database& database) {
  if (row.place != Place::fifo) return false;
  const auto files = database.payload_files();
  return files && (files->files == 0 || row.sequence < files->oldest_sequence);
}

}  // namespace

/// Guarded by the mutex, but for what does not change after `plan`.
struct ColdLoads::Load {
  LoadRequest request;
  LoadHandlers handlers;
  LoadSummary summary;
  uint64_t bytes = 0;  ///< expected
  TimePoint begun{0};
  std::optional<TimePoint> give_up_at;
  bool probe = false;

  std::vector<std::optional<LoadedBlock>> slots;
  size_t next = 0;     ///< first block that no thread has taken
  size_t emitted = 0;  ///< blocks handed on
  size_t stop_at = 0;  ///< no block from here on will come
  uint32_t running = 0;
  bool emitting = false;
  std::optional<TimePoint> first_read;
  Duration first_took{0};
};

ColdLoads::ColdLoads(StoreCore& core, ColdWriter& writer) : core_(core), writer_(writer) {
  for (uint32_t i = 0; i < core.options.read_threads; ++i) {
    threads_.emplace_back([this] { run(); });
  }
}

ColdLoads::~ColdLoads() {
  close();
}

void ColdLoads::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    wake_.notify_all();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

uint32_t ColdLoads::waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<uint32_t>(queue_.size());
}

/// How much of the chain is to be read, and why no more; `gated` if nothing for that reason.
Miss ColdLoads::plan(Load& load) {
  const LoadRequest& request = load.request;
  uint64_t queued = 0;
  {
    const std::lock_guard lock(mutex_);
    queued = queued_bytes_;
  }
  std::vector<BlockId> ids;
  for (const ChainBlock& block : request.chain) ids.push_back(block.id);
  const std::lock_guard lock(core_.mutex);
  if (!core_.database) return Miss::unavailable;
  const int64_t now = core_.now_s();
  const size_t matched = core_.index.match(short_of(request.ns), ids, now);
  Miss why = Miss::none;
  if (matched < ids.size()) {
    const Row* row = core_.index.find(ids[matched]);
    why = row == nullptr
              ? Miss::absent
              : (row->ns == short_of(request.ns) ? Miss::expired : Miss::other_namespace);
  }
  for (size_t i = 0; i < matched; ++i) load.bytes += core_.index.find(ids[i])->bytes;
  load.summary.matched = static_cast<uint32_t>(matched);
  load.stop_at = matched;
  if (matched == 0 || !request.recompute || load.probe) return why;
  const Duration recompute = *request.recompute * static_cast<int64_t>(matched) /
                             static_cast<int64_t>(request.chain.size());
  const Duration predicted = predicted_load(core_.speed, {load.bytes, queued});
  return worth_loading(predicted, recompute, core_.options.gate_factor) ? why : Miss::gated;
}

void ColdLoads::get(LoadRequest request, LoadHandlers handlers) {
  auto load = std::make_shared<Load>();
  load->request = std::move(request);
  load->handlers = std::move(handlers);
  load->begun = core_.surroundings.clock.now();
  if (load->request.timeout) load->give_up_at = load->begun + *load->request.timeout;
  load->summary.stopped = plan(*load);
  if (load->summary.stopped == Miss::gated) {
    load->stop_at = 0;
    probe(load->request);
  }
  if (load->stop_at != 0) {
    load->slots.resize(load->stop_at);
    const std::lock_guard lock(mutex_);
    if (!closing_ && queue_.size() < limits::kv_loads_max) {
      queued_bytes_ += load->bytes;
      queue_.push_back(load);
      wake_.notify_all();
      return;
    }
    load->summary.stopped = closing_ ? Miss::unavailable : Miss::overloaded;
  }
  finish(*load);
}

/// The gate closed on a measured speed: measures again now and then, at nobody's expense, so that
/// it can open again.
void ColdLoads::probe(const LoadRequest& request) {
  {
    const std::lock_guard lock(mutex_);
    const TimePoint now = core_.surroundings.clock.now();
    if (now < next_probe_ || closing_ || !queue_.empty()) return;
    next_probe_ = now + std::chrono::milliseconds(limits::kv_probe_interval_ms);
  }
  auto load = std::make_shared<Load>();
  load->request.ns = request.ns;
  constexpr size_t k_blocks = 4;
  load->request.chain.assign(
      request.chain.begin(),
      request.chain.begin() + static_cast<ptrdiff_t>(std::min(k_blocks, request.chain.size())));
  load->probe = true;
  load->begun = core_.surroundings.clock.now();
  if (plan(*load) == Miss::unavailable || load->stop_at == 0) return;
  load->slots.resize(load->stop_at);
  const std::lock_guard lock(mutex_);
  queued_bytes_ += load->bytes;
  queue_.push_back(load);
  wake_.notify_all();
}

/// The oldest load with a block to read whose reader keeps up.
std::shared_ptr<ColdLoads::Load> ColdLoads::claimable() const {
  for (const auto& load : queue_) {
    if (load->next < load->stop_at && load->next - load->emitted < limits::kv_load_window_records) {
      return load;
    }
  }
  return nullptr;
}

void ColdLoads::run() {
  name_this_thread("store reader");
  Lock lock(mutex_);
  for (;;) {
    std::shared_ptr<Load> load;
    wake_.wait(lock, [&] {
      load = claimable();
      return load != nullptr || (closing_ && queue_.empty());
    });
    if (load == nullptr) return;
    const size_t at = load->next++;
    ++load->running;
    lock.unlock();
    const TimePoint start = core_.surroundings.clock.now();
    Outcome outcome;
    if (load->request.cancelled && load->request.cancelled->load()) {
      outcome.why = Miss::cancelled;
    } else if (load->give_up_at && start >= *load->give_up_at) {
      outcome.why = Miss::timed_out;
    } else {
      outcome = read_one(load->request, at);
    }
    const TimePoint end = core_.surroundings.clock.now();
    lock.lock();
    --load->running;
    if (outcome.block && !load->first_read) {
      load->first_read = start;
      load->first_took = end - start;
    }
    if (outcome.block) {
      load->slots[at] = std::move(outcome.block);
    } else if (at < load->stop_at) {
      load->stop_at = at;
      load->summary.stopped = outcome.why;
    }
    hand_on(load, lock);
  }
}

/// Hands on what is next in the chain, and ends the load when nothing more will come. One thread
/// at a time does this for a load; the others leave their blocks to it.
void ColdLoads::hand_on(const std::shared_ptr<Load>& load, Lock& lock) {
  if (load->emitting) return;
  load->emitting = true;
  for (;;) {
    std::vector<LoadedBlock> ready;
    while (load->emitted < load->stop_at && load->slots[load->emitted]) {
      load->summary.bytes += load->slots[load->emitted]->bytes.bytes().size();
      ready.push_back(std::move(*load->slots[load->emitted]));
      load->slots[load->emitted++].reset();
    }
    if (ready.empty()) break;
    lock.unlock();
    if (load->handlers.blocks) load->handlers.blocks(std::move(ready));
    lock.lock();
    wake_.notify_all();  // the window moved
  }
  load->emitting = false;
  if (load->emitted < load->stop_at || load->running != 0) return;
  load->summary.loaded = static_cast<uint32_t>(load->emitted);
  const auto at = std::find(queue_.begin(), queue_.end(), load);
  if (at == queue_.end()) return;
  queue_.erase(at);
  queued_bytes_ -= load->bytes;
  lock.unlock();
  finish(*load);
  lock.lock();
  wake_.notify_all();
}

void ColdLoads::finish(const Load& load) {
  LoadSummary summary = load.summary;
  const TimePoint now = core_.surroundings.clock.now();
  summary.took = now - load.begun;
  if (summary.stopped == Miss::absent && summary.loaded != 0) summary.stopped = Miss::partial;
  {
    const std::lock_guard lock(core_.mutex);
    if (load.first_read) {
      core_.speed = after_load(core_.speed, summary.bytes, now - *load.first_read, load.first_took);
    }
    if (!load.probe) {
      ++core_.counters.loads[summary.stopped];
      core_.counters.loaded_blocks += summary.loaded;
      core_.counters.loaded_bytes += summary.bytes;
      if (summary.loaded != 0) count_time(summary.took);
    }
  }
  if (load.handlers.done) load.handlers.done(summary);
}

/// The caller holds the core's mutex.
void ColdLoads::count_time(Duration took) {
  core_.counters.load_ns += static_cast<uint64_t>(took.count());
  const double seconds = std::chrono::duration<double>(took).count();
  const auto& ends = k_store_load_seconds;
  const auto at = std::lower_bound(ends.begin(), ends.end(), seconds) - ends.begin();
  ++core_.counters.load_times[static_cast<size_t>(at)];
}

ColdLoads::Outcome ColdLoads::read_one(const LoadRequest& request, size_t at) {
  const ChainBlock& wanted = request.chain[at];
  for (;;) {
    std::shared_ptr<Database> database;
    Row row;
    {
      const std::lock_guard lock(core_.mutex);
      const Row* now = core_.index.find(wanted.id);
      if (now == nullptr) return {std::nullopt, Miss::absent};
      row = *now;
      database = core_.database;
    }
    if (!database) return {std::nullopt, Miss::unavailable};
    Outcome outcome = read_row(request, wanted, row, *database);
    if (outcome.block || outcome.why != Miss::none) return outcome;
    // The record moved while it was read: look where it is now.
  }
}

/// Neither a block nor a reason: the row changed meanwhile.
ColdLoads::Outcome ColdLoads::read_row(const LoadRequest& request, const ChainBlock& wanted,
                                       const Row& row, const Database& database) {
  Outcome out;
  const auto forget = [&] { writer_.forget(wanted.id, row.place); };
  auto bytes = database.read(wanted.id, row.place);
  if (!bytes && bytes.error().code == ErrorCode::io) {
    if (core_.erase_if_unreadable(wanted.id, row, forget)) core_.tell();
    return {std::nullopt, Miss::io_error};
  }
  Removal removal = Removal::corrupt;
  if (!bytes) {
    const bool aged = bytes.error().code == ErrorCode::not_found && has_aged_out(row, database);
    out.why = aged ? Miss::aged_out : Miss::corrupt;
    if (aged) removal = Removal::aged_out;
  } else if (auto record = decode(bytes->bytes()); !record || record->id != wanted.id) {
    out.why = Miss::corrupt;  // a record of another id: a file in another one's place
  } else if (record->ns != request.ns) {
    out.why = Miss::other_namespace;
  } else if (record->tokens != wanted.tokens) {
    out.why = Miss::wrong_tokens;
  } else {
    bool ages_soon = false;
    {
      const std::lock_guard lock(core_.mutex);
      core_.index.forgive_failed_reads(wanted.id);
      ages_soon = row.place == Place::fifo && row.sequence < core_.files.quarter_sequence;
    }
    if (ages_soon) writer_.rewrite(wanted.id, *bytes);
    out.block = LoadedBlock{*std::move(bytes), *std::move(record)};
    return out;
  }
  if (!core_.erase_if_same(wanted.id, row, removal, forget)) {
    const std::lock_guard lock(core_.mutex);
    return {std::nullopt, core_.index.find(wanted.id) == nullptr ? out.why : Miss::none};
  }
  core_.tell();
  return out;
}

}  // namespace outrider::kvstore
