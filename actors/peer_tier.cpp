#include "actors/peer_tier.hpp"

#include <algorithm>
#include <utility>

#include "actors/block_wire.hpp"
#include "base/limits.hpp"

namespace outrider::actors {
namespace {

constexpr Duration k_patience = std::chrono::milliseconds(limits::peer_wait_ms);
constexpr Duration k_forever = std::chrono::hours(1);
/// Of a line until one was used, and how much the last use says.
constexpr double k_first_bytes_per_s = 100e6;
constexpr double k_speed_weight = 0.5;
/// To find each other.
constexpr double k_first_s = 0.01;

std::vector<int32_t> tokens_of(const model::TierLoad& load) {
  std::vector<int32_t> tokens = load.peer->before;
  for (const model::TierLoad::Wanted& block : load.blocks) {
    tokens.insert(tokens.end(), block.tokens.begin(), block.tokens.end());
  }
  return tokens;
}

bool is_cancelled(const model::TierLoad& load) {
  return load.cancelled && load.cancelled->load();
}

}  // namespace

PeerTier::PeerTier(std::shared_ptr<model::BlockTier> below, PeerLines lines,
                   std::shared_ptr<spdlog::logger> log)
    : below_(std::move(below)),
      lines_(std::move(lines)),
      log_(std::move(log)),
      bytes_per_s_(k_first_bytes_per_s),
      thread_([this] { run(); }) {}

PeerTier::~PeerTier() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void PeerTier::know(uint64_t worker, std::string gate, std::function<void(LineName)> tell) {
  if (!lines_.dial) return;
  const std::lock_guard lock(mutex_);
  auto found = peers_.find(worker);
  if (found == peers_.end()) {
    if (peers_.size() >= limits::peer_lines_max) peers_.erase(peers_.begin());
    found = peers_.emplace(worker, std::make_shared<Peer>()).first;
    found->second->gate = std::move(gate);
    found->second->tell = std::move(tell);
  }
  ++found->second->open;
  found->second->known = lines_.clock->now();
  wake_.notify_all();
}

void PeerTier::through(uint64_t worker) {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(worker);
  if (found == peers_.end() || found->second->open == 0) return;
  if (--found->second->open == 0) wake_.notify_all();
}

void PeerTier::serve(std::shared_ptr<model::TierOffers> offers) {
  if (below_) return below_->serve(std::move(offers));
  offers_ = std::move(offers);
}

void PeerTier::look() {
  if (below_) return below_->look();
  settle(*offers_, *this);
}

std::vector<bool> PeerTier::touch(std::span<const BlockId> chain, bool hint) {
  if (below_) return below_->touch(chain, hint);
  return std::vector<bool>(chain.size(), false);
}

void PeerTier::put(const Digest256& kv_namespace, uint32_t layers, model::TierBlock block,
                   const model::TierRetention& retention) {
  if (below_) below_->put(kv_namespace, layers, std::move(block), retention);
}

uint64_t PeerTier::room() const {
  return below_ ? below_->room() : 0;
}

void PeerTier::retain(std::vector<BlockId> ids, const model::TierRetention& retention) {
  if (below_) below_->retain(std::move(ids), retention);
}

void PeerTier::load_below(model::TierLoad load, model::TierHandlers handlers) {
  if (below_) return below_->load(std::move(load), std::move(handlers));
  handlers.done();
}

std::shared_ptr<PeerTier::Peer> PeerTier::peer_for(const model::TierLoad& load) {
  if (!load.peer || !lines_.dial) return nullptr;
  const auto found = peers_.find(load.peer->worker);
  if (found == peers_.end() || found->second->failed) return nullptr;
  const double bytes = static_cast<double>(load.blocks.size() * load.block_bytes);
  const double seconds = k_first_s + bytes / bytes_per_s_;
  if (load.recompute && seconds > to_seconds(*load.recompute)) return nullptr;
  return found->second;
}

void PeerTier::load(model::TierLoad load, model::TierHandlers handlers) {
  {
    const std::lock_guard lock(mutex_);
    if (auto peer = peer_for(load)) {
      jobs_.push_back({std::move(peer), std::move(load), std::move(handlers)});
      wake_.notify_all();
      return;
    }
  }
  load_below(std::move(load), std::move(handlers));
}

void PeerTier::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (!jobs_.empty()) {
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      fetch(std::move(job));
      lock.lock();
    } else if (const std::shared_ptr<Peer> lacking = lineless()) {
      lock.unlock();
      const bool has_line = connect(*lacking);
      lock.lock();
      lacking->failed = !has_line;
    } else {
      for (const auto& [worker, peer] : peers_) {
        if (!is_needed(*peer)) peer->link = nullptr;
      }
      wake_.wait_for(lock, k_patience);
    }
  }
  for (Job& job : jobs_) job.handlers.done();
}

/// A peer whose line is not there yet.
std::shared_ptr<PeerTier::Peer> PeerTier::lineless() const {
  for (const auto& [worker, peer] : peers_) {
    if (!peer->link && !peer->failed && is_needed(*peer)) return peer;
  }
  return nullptr;
}

bool PeerTier::is_needed(const Peer& peer) const {
  const Duration since = lines_.clock->now() - peer.known;
  return peer.open > 0 && since < std::chrono::milliseconds(limits::hand_over_ms);
}

void PeerTier::fetch(Job job) {
  Peer& peer = *job.peer;
  const TimePoint start = lines_.clock->now();
  const uint32_t got = connect(peer) ? take(peer, job.load, job.handlers) : 0;
  const TimePoint end = lines_.clock->now();
  if (!peer.link) {
    const std::lock_guard lock(mutex_);
    peer.failed = peer.failed || !is_cancelled(job.load);
  }
  if (got == 0) return load_below(std::move(job.load), std::move(job.handlers));
  const double speed =
      static_cast<double>(got * job.load.block_bytes) / std::max(to_seconds(end - start), 1e-6);
  {
    const std::lock_guard lock(mutex_);
    bytes_per_s_ += k_speed_weight * (speed - bytes_per_s_);
  }
  log_->debug("took {} of {} blocks from the worker before: {:.0f} MB/s", got,
              job.load.blocks.size(), speed / 1e6);
  job.handlers.done();
}

bool PeerTier::connect(Peer& peer) {
  if (peer.failed) return false;
  if (peer.link) return true;
  const LineName name = lines_.new_name();
  peer.tell(name);
  auto link = lines_.dial(peer.gate, name);
  if (!link) {
    log_->warn("no line to a worker that leaves: {}", link.error().message);
    return false;
  }
  peer.link = std::move(*link);
  return true;
}

/// Blocks that came. The link is closed where more may be on its way than is wanted.
uint32_t PeerTier::take(Peer& peer, const model::TierLoad& load,
                        const model::TierHandlers& handlers) {
  model::CachedQuery query{.kv_namespace = load.kv_namespace,
                           .tenant = load.peer->tenant,
                           .cache_salt = load.peer->cache_salt,
                           .tokens = tokens_of(load),
                           .first = 0};
  const auto block_tokens = static_cast<uint32_t>(load.blocks.front().tokens.size());
  query.first = static_cast<uint32_t>(load.peer->before.size()) / block_tokens;
  const TimePoint begun = lines_.clock->now();
  uint32_t got = 0;
  bool is_over = !peer.link->send(0, {k_query_tag, link::Bytes(encode(query))}, begun + k_patience);
  while (!is_over) {
    const TimePoint now = lines_.clock->now();
    const TimePoint end = std::min(now + k_patience, begun + load.timeout.value_or(k_forever));
    is_over = is_cancelled(load) || now >= end;
    if (is_over) break;
    auto message = peer.link->receive(0, end);
    if (message && message->tag == k_end_tag) return got;
    const auto block = message ? decode_block(message->bytes.view()) : std::nullopt;
    is_over = !block || message->tag != query.first + got || got == load.blocks.size();
    if (is_over) break;
    auto owner = std::make_shared<link::Bytes>(message->bytes);
    handlers.blocks({{std::move(owner), block->k, block->v}});
    ++got;
    ++taken_;
  }
  peer.link = nullptr;
  return got;
}

}  // namespace outrider::actors
