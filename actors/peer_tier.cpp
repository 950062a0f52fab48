#include "actors/peer_tier.hpp"

#include <system_error>
#include <utility>

#include "base/limits.hpp"

namespace outrider::actors {
namespace {

/// What nobody has, or `below` may.
void load_from(const std::shared_ptr<model::BlockTier>& below, model::TierLoad load,
               model::TierHandlers handlers) {
  if (below) return below->load(std::move(load), std::move(handlers));
  handlers.done();
}

}  // namespace

PeerTier::PeerTier(std::shared_ptr<model::BlockTier> below, PeerLines lines,
                   std::shared_ptr<spdlog::logger> log)
    : below_(std::move(below)),
      lines_(std::move(lines)),
      log_(std::move(log)),
      taken_(std::make_shared<std::atomic<uint64_t>>(0)),
      speed_(std::make_shared<LineSpeed>()) {}

void PeerTier::know(uint64_t worker, std::string gate, std::function<void(LineName)> tell) {
  if (!lines_.dial) return;
  const std::lock_guard lock(mutex_);
  if (const auto found = peers_.find(worker); found != peers_.end()) {
    const PeerLine& known = *found->second;
    const bool is_useless = known.has_failed() && known.gate() == gate;
    if (!known.is_over() || is_useless) return found->second->need();
    peers_.erase(found);
  }
  if (peers_.size() >= limits::peer_lines_max) {
    std::erase_if(peers_, [](const auto& entry) { return entry.second->is_over(); });
  }
  if (peers_.size() >= limits::peer_lines_max) return;  // its requests are computed
  PeerLine::Setup setup{.lines = lines_,
                        .gate = std::move(gate),
                        .tell = std::move(tell),
                        .below =
                            [below = below_](model::TierLoad load, model::TierHandlers handlers) {
                              load_from(below, std::move(load), std::move(handlers));
                            },
                        .speed = speed_,
                        .taken = taken_,
                        .log = log_};
  try {
    peers_.emplace(worker, std::make_shared<PeerLine>(std::move(setup)));
  } catch (const std::system_error& error) {
    log_->warn("no thread for a line: {}", error.what());
  }
}

void PeerTier::through(uint64_t worker) {
  const std::lock_guard lock(mutex_);
  if (const auto found = peers_.find(worker); found != peers_.end()) found->second->through();
}

void PeerTier::serve(std::shared_ptr<model::TierOffers> offers) {
  if (below_) return below_->serve(std::move(offers));
  offers_ = std::move(offers);
}

void PeerTier::look() {
  if (below_) return below_->look();
  settle(*offers_, *this);
}

std::vector<model::TierWants> PeerTier::touch(
    std::span<const BlockId> chain, const std::shared_ptr<const model::TierRetention>& retention) {
  if (below_) return below_->touch(chain, retention);
  return std::vector<model::TierWants>(chain.size());
}

void PeerTier::put(const Digest256& kv_namespace, uint32_t layers, model::TierOffer offer) {
  if (below_) below_->put(kv_namespace, layers, std::move(offer));
}

model::WarmRoom PeerTier::warm_room(const BlockId& id, size_t bytes) {
  return below_ ? below_->warm_room(id, bytes) : model::WarmRoom{};
}

uint64_t PeerTier::room() const {
  return below_ ? below_->room() : 0;
}

void PeerTier::retain(std::vector<BlockId> ids, const model::TierRetention& retention) {
  if (below_) below_->retain(std::move(ids), retention);
}

void PeerTier::forget_warm(const std::optional<std::string>& tenant) {
  if (below_) below_->forget_warm(tenant);
}

void PeerTier::load(model::TierLoad load, model::TierHandlers handlers) {
  std::shared_ptr<PeerLine> peer;
  if (load.peer) {
    const std::lock_guard lock(mutex_);
    if (const auto found = peers_.find(load.peer->worker); found != peers_.end()) {
      peer = found->second;
    }
  }
  if (peer && peer->load(load, handlers)) return;
  load_from(below_, std::move(load), std::move(handlers));
}

}  // namespace outrider::actors
